package check

import (
	"fmt"

	"tilework/ptx/emu"
)

// fault gathers accesses that memory refuses, and lets the launch go on.
func (w *worker) fault(f *emu.Fault) bool {
	k := key{checker: Bounds, kind: uint8(f.Kind), site: f.Site}
	w.found.add(w.block, k, func(g *Finding) {
		g.Thread = f.Thread
		does := [...]string{emu.Read: "reads", emu.Write: "writes", emu.Atomic: "reads and writes", emu.AsyncRead: "copies from", emu.AsyncWrite: "copies to"}[f.Access]
		g.Message = fmt.Sprintf("thread %v of block %v %s %s at %v address %#x", f.Thread, f.Block, does, amount(f.Size), f.Space, f.FirstAddr)
		detail := ""
		if f.Detail != "" {
			detail = ", " + f.Detail
		}
		switch f.Kind {
		case emu.OutOfBounds:
			g.Message += detail + ": is a bound check missing (as in `if (row < M && col < N)`), or an index wrong?"
		case emu.Misaligned:
			g.Message += fmt.Sprintf(", which is no multiple of %d: vectors of 8 and 16 bytes need rows that begin at multiples of as many", f.Size)
		default:
			g.Message += detail + ": this memory cannot be written"
		}
	})
	return true
}
