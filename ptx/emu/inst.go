package emu

import "tilework/ptx"

// execFunc executes an instruction for the active lanes of a warp.
type execFunc func(w *warp, in *inst)

// inst is a decoded instruction. An execFunc can use fields for other values than the operands.
type inst struct {
	exec execFunc
	// Slots of the operands: the result, then the sources.
	d, a, b, c, e uint32
	// Slot of the guard predicate and a mask to XOR it with. Unguarded instructions use the slot
	// always, so they need no special case.
	guard, guardNot uint32
	pc              int32
	target          int32 // of a branch
	// blend is the element size of d in bytes if inactive lanes must keep their values: the result
	// is then merged from scratch memory. It is 0 for an instruction that writes its results
	// itself.
	blend uint8
	// leader is set at branch targets and after branches, where other groups of lanes can wait.
	leader bool
	index  int32   // in the program
	access *access // nil for an instruction without an address
	x      any     // operands specific to the instruction
	site   *Site
	reads  []register // for tracking uninitialized registers
	writes []register
	flow   flow
	bits   bitsFunc
}

// register is a register operand.
type register struct {
	index int // in its function
	sym   *ptx.Symbol
}
