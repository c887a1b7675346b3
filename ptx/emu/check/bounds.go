package check

import (
	"fmt"
	"strings"

	"tilework/ptx/emu"
)

// fault reports an invalid access. It returns true, so that the launch continues.
func (w *worker) fault(f *emu.Fault) bool {
	k := key{checker: Bounds, kind: uint8(f.Kind), site: f.Site}
	w.found.add(w.block, k, func(g *Finding) {
		g.Thread = f.Thread
		does := [...]string{emu.Read: "reads", emu.Write: "writes", emu.Atomic: "reads and writes",
			emu.AsyncRead: "copies from", emu.AsyncWrite: "copies to"}[f.Access]
		g.Message = fmt.Sprintf("thread %v of block %v %s %s at %v address %#x", f.Thread, f.Block, does,
			amount(f.Size), f.Space, f.FirstAddr)
		detail := ""
		if f.Detail != "" {
			detail = ", " + f.Detail
		}
		switch f.Kind {
		case emu.OutOfBounds:
			g.Message += detail + ": want "
			if f.Dynamic {
				g.Message += "more dynamic shared memory for the launch (--smem, or the third number in <<<…>>>), "
			}
			g.Message += "a bounds check such as `if (row < M && col < N)`, or another index"
		case emu.Misaligned:
			g.Message += fmt.Sprintf(": want a multiple of %d", f.Size)
			if strings.Contains(f.Site.Opcode, ".v") {
				g.Message += ", so each row must start at one"
			} else {
				g.Message += " (check whether the offset counts bytes or elements)"
			}
		case emu.NullPointer:
			g.Message += detail + ": want the pointer set (check the argument, and the result of malloc)"
		case emu.ExitedBlock:
			g.Message += detail + ": want a barrier of the cluster before its blocks exit"
			w.checks.allow(g, ExitedBlock)
		default:
			g.Message += detail + ": want an address in writable memory"
		}
	})
	return true
}
