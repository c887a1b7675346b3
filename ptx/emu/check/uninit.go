package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// Kinds of uninit findings.
const (
	unsetRegister uint8 = iota
	unsetShared
	unsetGlobal
	unsetLocal
	unsetTensor
	inactiveLane
	unfinishedLoad
)

// uninit reports undefined values that can change the result of the kernel. A finding is at the
// instruction that produced the value, and names the one that uses it. For global memory, the
// emulated memory must track writes ([emu.MemoryOptions]).
type uninit struct{ *worker }

func (u *uninit) undefined(e *emu.Undefined) {
	c := &e.Cause
	kind := unsetRegister
	switch {
	case c.Kind == emu.InactiveLane:
		kind = inactiveLane
	case c.Kind == emu.UnfinishedLoad:
		kind = unfinishedLoad
	case c.Kind == emu.UnsetMemory:
		kind = map[ptx.Space]uint8{ptx.Shared: unsetShared, ptx.Global: unsetGlobal, ptx.Local: unsetLocal,
			ptx.Tensor: unsetTensor}[c.Space]
	}
	u.found.add(u.block, key{checker: Uninit, kind: kind, site: c.Site, name: c.Register}, func(f *Finding) {
		f.Thread = u.thread(c.Warp*32 + bits.TrailingZeros32(c.Mask))
		reader := fmt.Sprintf("thread %v of block %v reads", f.Thread, f.Block)
		var what, want string
		switch kind {
		case unsetRegister:
			what = fmt.Sprintf("thread %v reads register %s, which it has not written", f.Thread, c.Register)
			want = "want the variable set on all paths before its use"
		case unsetShared:
			what = fmt.Sprintf("%s %s, which no thread of the block has written", reader, place(ptx.Shared, c.Addr, nil))
			want = "want each element of a tile stored before it is read"
		case unsetGlobal:
			what = fmt.Sprintf("%s %s, which neither the host nor a kernel has written", reader,
				place(ptx.Global, c.Addr, c.Alloc))
			want = "want it copied to the device first, or another index"
		case unsetLocal:
			what = fmt.Sprintf("%s offset %#x of its local memory, which it has not written", reader, c.Addr)
			want = "want each element of a local array set before it is read"
		case unsetTensor:
			what = fmt.Sprintf("%s %s, which no instruction has written", reader, place(ptx.Tensor, c.Addr, nil))
			want = "want tcgen05.st or a tcgen05.mma that does not add to D first"
		case unfinishedLoad:
			f.Severity = Advice // in Triton's kernels, LLVM moves the wait after the use
			what = fmt.Sprintf("thread %v loads register %s from tensor memory", f.Thread, c.Register)
			want = "the manual requires a tcgen05.wait::ld between them, although the code of NVIDIA's assembler waits " +
				"for the register"
		case inactiveLane:
			what = fmt.Sprintf("%s the value of lane %d, which does not take part in the instruction", reader, c.Lane)
			want = "want a source lane that is in the member mask and has not exited, or another value in its place"
		}
		f.Message = what + effect(e) + ": " + want
	})
}

// effect describes the use of an undefined value, or returns an empty string if its cause is the
// use.
func effect(e *emu.Undefined) string {
	if e.Site == e.Cause.Site {
		return ""
	}
	verb := map[emu.Use]string{emu.UseBranch: "branches on", emu.UseAddress: "computes an address from",
		emu.UseStore: "stores", emu.UseOperand: "uses"}[e.Use]
	return fmt.Sprintf(", and %s %s the value", line(e.Site), verb)
}
