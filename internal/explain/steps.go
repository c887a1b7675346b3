package explain

import (
	"math/bits"

	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// TraceStep is a memory access of a warp, or a barrier that the whole block has reached.
type TraceStep struct {
	// Op is "load" from global memory, "store" to and "read" from shared memory, "write" to C, or
	// "barrier".
	Op    string      `json:"op"`
	Line  int         `json:"line"` // of the instruction in the PTX
	Warp  int         `json:"warp"`
	Lanes []TraceLane `json:"lanes,omitempty"`
	// Wavefronts is the number of passes over the banks of shared memory, and Ideal the number
	// without bank conflicts.
	Wavefronts int `json:"wavefronts,omitempty"`
	Ideal      int `json:"ideal,omitempty"`
	// Sectors is the number of 32-byte sectors of global memory that the access touches.
	Sectors int `json:"sectors,omitempty"`
}

// TraceLane is the access of one thread to one element. An access to a vector has a TraceLane for
// each element.
type TraceLane struct {
	Thread int    `json:"thread"` // linear index in the block
	Matrix string `json:"matrix"` // "A", "B" or "C"; empty for the zeros beyond the edges
	Row    int    `json:"row"`
	Col    int    `json:"col"`
	// Shared, Slot and Bank locate the element in shared memory: the array, the index in it, with
	// the rows of the array one after the other, and the bank.
	Shared string `json:"shared,omitempty"`
	Slot   int    `json:"slot"`
	Bank   int    `json:"bank"`
}

const (
	wordBytes = 4
	banks     = 32
)

// barrierStep records a completed barrier.
func (x *blockWatcher) barrierStep(b *emu.Barrier) {
	if x.watcher.steps {
		x.steps = append(x.steps, TraceStep{Op: "barrier", Line: b.Site.Pos.Line, Warp: b.Warp})
	}
}

// accessStep records an access that the other methods have followed.
func (x *blockWatcher) accessStep(a *emu.Access) {
	op := map[ptx.Space]map[emu.AccessKind]string{
		ptx.Global: {emu.Read: "load", emu.Write: "write"},
		ptx.Shared: {emu.Read: "read", emu.Write: "store"},
	}[a.Space][a.Kind]
	if !x.watcher.steps || op == "" {
		return
	}
	s := TraceStep{Op: op, Line: a.Site.Pos.Line, Warp: a.Warp}
	sectors := map[uint64]bool{}
	for mask := a.Mask; mask != 0; mask &= mask - 1 {
		lane := bits.TrailingZeros32(mask)
		name, offset := x.machine.locate(a.Space, a.Addr[lane])
		for at := 0; at < a.Size; at += wordBytes {
			l := TraceLane{Thread: 32*a.Warp + lane}
			if a.Space == ptx.Shared {
				addr := int(a.Addr[lane]) + at
				c := x.shared[addr]
				l.Matrix, l.Row, l.Col = c.matrix, c.row, c.col
				l.Shared, l.Slot, l.Bank = name, (offset+at)/wordBytes, addr/wordBytes%banks
			} else {
				l.Matrix = name
				l.Row, l.Col = element(x.machine.operand(name), offset+at)
				sectors[(a.Addr[lane]+uint64(at))/sectorBytes] = true
			}
			s.Lanes = append(s.Lanes, l)
		}
	}
	if s.Sectors = len(sectors); a.Space == ptx.Shared {
		s.Wavefronts, s.Ideal = check.ModernBanks.Wavefronts(a.Addr, a.Mask, a.Size)
	}
	x.steps = append(x.steps, s)
}
