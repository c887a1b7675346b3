// Package emu runs PTX text on the processor: the text that a driver would get, for
// a grid of blocks, with events for whoever wants to watch.
//
// [Load] checks a module and decodes each function once into an array of
// instructions, each with the Go function that executes it for the 32 lanes of a
// warp. [Program.Run] runs the blocks of a launch on all cores; within a block, one
// warp at a time runs for a random number of instructions, so that a program that
// lacks a barrier gives wrong results here too. The seed of a launch decides
// everything that is random.
//
// # Divergence
//
// The lanes of a warp form groups of the same place in the program. After a branch
// that splits a group, the group that stands first in the reconvergence order of its
// function runs, and groups that meet at a place become one again. The order is
// topological, and each loop stands in it as a whole before what follows the loop, so
// that lanes which are ahead wait where paths join (Diamos et al., "SIMD
// re-convergence at thread frontiers", 2011; the order is Bourdoncle's weak
// topological order). A group that polls memory makes room for the others, as
// independent thread scheduling asks, and instructions with a member mask wait for
// the lanes that the mask names.
//
// # Clusters and what is asynchronous
//
// The blocks of a cluster run together, warp by warp in random order, and an address in
// shared::cluster says whose memory it points into; what a block leaves behind when it
// exits is gone. Bulk copies and wgmma.mma_async are done at random times, at the latest
// by the wait for them, and in parts: a source is read before a target is written, and
// of a multicast each block has its own time. mbarrier.try_wait sleeps until the phase
// is complete, so that a program that waits for what never comes is a deadlock, with
// words on what each mbarrier still wants. An operation of a warpgroup happens when its four
// warps have come to it; its registers must be left alone until a wait, and what
// touches them, or lacks a wgmma.fence, ends the launch with ErrMisuse. Prefetches, cache
// hints, griddepcontrol and setmaxnreg say something to the hardware only.
//
// # Floating point
//
// Arithmetic is IEEE 754's in the rounding that the instruction names. The .approx
// instructions give the correctly rounded result (of one calculated in float64),
// which lies within the error that the manual allows and is not always what a GPU
// gives. A NaN result has the bits of the manual's canonical NaN: 0x7fffffff
// in f32 and 0x7fff in the 16-bit formats. How matrix instructions round is said
// with [Launch].Accumulate.
package emu

import (
	"fmt"
	"maps"
	"slices"

	"tilework/ptx"
)

// Program is a module that was decoded to run. It does not change and may be run
// from several goroutines.
type Program struct {
	module    *ptx.Module
	functions map[string]*function
	variables []*variable // of the module and, but for .local and .param, of its functions
	byVar     map[*ptx.Var]*variable
	byName    map[string]*variable // those of the module
	sites     []*Site
}

// variable is a variable in .global, .const or .shared.
type variable struct {
	*ptx.Var
	index int // in Program.variables
}

// function is a decoded .entry or .func.
type function struct {
	*ptx.Func
	code []inst
	rank []int32 // of each instruction in the reconvergence order
	// next lists, for the basic block of each rank, the ranks of those that may follow it.
	next [][]int32
	// The frame's register file: first what is cleared for each call, then
	// constants, which stay, and values that are filled in for each call.
	clear     uint32
	frameSize uint32
	constants []constant
	fills     []fill
	registers []*ptx.Symbol // by Index; their places are in slots
	slots     []uint32
	// layout gives the places of parameters: for an entry in the parameter buffer,
	// for a .func in the frame's local memory, as those of .local variables.
	layout    map[*ptx.Var]uint64
	paramSize int // of an entry
	localSize uint64
	first     int  // index of the first instruction in the program
	matrices  bool // it has wgmma instructions
	// What the function needs of others.
	calls []*function
	uses  map[*variable]bool
}

// constant is an immediate, broadcast to the lanes of a slot.
type constant struct {
	offset uint32
	size   uint8 // bytes a lane; 0 for a predicate
	bits   uint64
}

// Load verifies m, which it binds, and decodes its functions.
//
// Its error wraps those of [ptx.Verify], or ptx.ErrUnsupported with the place of what
// the emulator does not execute.
func Load(m *ptx.Module) (*Program, error) {
	if err := ptx.Verify(m); err != nil {
		return nil, err
	}
	p := &Program{
		module: m, functions: map[string]*function{},
		byVar: map[*ptx.Var]*variable{}, byName: map[string]*variable{},
	}
	for _, d := range m.Decls {
		switch d := d.(type) {
		case *ptx.Var:
			p.addVariable(d)
		case *ptx.Func:
			if f := p.functions[d.Name]; f == nil || f.Body == nil {
				p.functions[d.Name] = &function{Func: d}
			}
		}
	}
	for _, f := range p.functions {
		f.layOut()
	}
	for _, f := range p.ordered() {
		if f.Body == nil {
			continue
		}
		if err := p.decode(f); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// ordered is the functions in the order of the text.
func (p *Program) ordered() []*function {
	var fs []*function
	for _, f := range p.module.Funcs() {
		if g := p.functions[f.Name]; g.Func == f {
			fs = append(fs, g)
		}
	}
	return fs
}

// addVariable adds a variable of the module. A definition replaces what was only
// announced before.
func (p *Program) addVariable(v *ptx.Var) {
	old := p.byName[v.Name]
	switch {
	case old == nil:
		p.byName[v.Name] = p.newVariable(v)
	case old.Linkage == "extern":
		old.Var = v
	}
	p.byVar[v] = p.byName[v.Name]
}

func (p *Program) newVariable(v *ptx.Var) *variable {
	n := &variable{Var: v, index: len(p.variables)}
	p.variables = append(p.variables, n)
	p.byVar[v] = n
	return n
}

// Entries lists the names of the kernels, sorted.
func (p *Program) Entries() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		if p.functions[name].Entry {
			names = append(names, name)
		}
	}
	return names
}

// Sites lists the program's instructions by their index.
func (p *Program) Sites() []*Site { return p.sites }

func unsupported(at ptx.Pos, format string, args ...any) error {
	return &ptx.Error{Pos: at, Kind: ptx.ErrUnsupported, Msg: "emulator: " + fmt.Sprintf(format, args...) + " is not supported"}
}
