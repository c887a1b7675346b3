package testkit

import (
	"os"
	"runtime/debug"
)

// CollectRarely halves the number of garbage collections unless the environment variable GOGC is
// set. It is for packages whose tests build and emulate many kernels: they keep little memory, and
// with the default up to a third of their CPU time is the collector's.
func CollectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}
