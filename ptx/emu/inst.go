package emu

import "tilework/ptx"

// execFunc executes an instruction for the active lanes of a warp.
type execFunc func(w *warp, in *inst)

// inst is a decoded instruction. What its fields hold beyond the operands is up to
// its exec function.
type inst struct {
	exec execFunc
	// The places of the operands in the register file: result, then sources.
	d, a, b, c, e uint32
	// The guard's predicate, xored with guardNot; always is the place of a
	// predicate that holds for all lanes, so that no instruction is special.
	guard, guardNot uint32
	pc              int32
	target          int32 // of a branch
	// blend is the size of d's elements, to be taken from scratch memory if not all
	// lanes are active; 0 for an instruction that writes by itself.
	blend uint8
	// leader says that other lanes may wait here: a place that branches lead to.
	leader bool
	index  int32   // in the program
	imm    uint64  // an immediate that is no operand's value in a register
	access *access // of an instruction with an address
	x      any     // what only few instructions need
	site   *Site
	reads  []register // for the tracking of what was written
	writes []register
}

// register is a register that an instruction names.
type register struct {
	index int // in its function
	sym   *ptx.Symbol
}
