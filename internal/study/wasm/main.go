//go:build js && wasm

// Command wasm is the study for a Web Worker. It defines the global function tilework(method,
// params, progress): params is JSON, and the result is {result: JSON} or {error: text}. It calls
// progress with the number of finished blocks and of all blocks.
package main

import (
	"context"
	"runtime/debug"
	"syscall/js"
	"time"

	"tilework/internal/study"
)

func main() {
	debug.SetGCPercent(200) // half of the collections, which take time from the first run
	js.Global().Set("tilework", js.FuncOf(func(_ js.Value, args []js.Value) any {
		last := time.Now()
		progress := func(done, all int) {
			const interval = 50 * time.Millisecond // between messages to the page
			if now := time.Now(); now.Sub(last) > interval {
				last = now
				args[2].Invoke(done, all)
			}
		}
		result, err := study.Call(context.Background(), args[0].String(), []byte(args[1].String()), progress)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		return map[string]any{"result": string(result)}
	}))
	js.Global().Get("postMessage").Invoke("ready")
	select {}
}
