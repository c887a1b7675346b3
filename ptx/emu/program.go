// Package emu runs PTX on the CPU. It runs the same PTX source that a driver receives, for a grid
// of blocks, and reports events to observers.
//
// [Load] verifies a module and decodes each function once into an array of instructions. Each
// instruction has a Go function that executes it for the 32 lanes of a warp. [Program.Run] runs the
// blocks of a launch on all cores. Within a block, one warp at a time runs for a random number of
// instructions, so a kernel that lacks a barrier computes wrong results here too. The seed of a
// launch determines all random choices.
//
// # Divergence
//
// The lanes of a warp that are at the same instruction form a group. After a branch that splits a
// group, the group that comes first in the reconvergence order of its function runs, and groups
// that reach the same instruction merge. The order is topological, and each loop precedes the code
// after it, so lanes that are ahead wait where paths join (Diamos et al., "SIMD re-convergence at
// thread frontiers", 2011; the order is Bourdoncle's weak topological order). A group that polls
// memory yields to the others, as independent thread scheduling requires. Instructions with a
// member mask wait for the lanes in the mask.
//
// # Clusters and asynchronous operations
//
// The blocks of a cluster run together, warp by warp in random order. An address in shared::cluster
// contains the rank of the block that owns the memory. The shared memory of a block is gone once
// the block has exited.
//
// Bulk copies and wgmma.mma_async run at random times, at the latest when a thread waits for them.
// A copy runs in several parts: it reads the source before it writes the destination, and a
// multicast copy writes to each block at a separate time. mbarrier.try_wait suspends the thread
// until the phase is complete. A kernel that waits for an event that never happens is therefore a
// deadlock, and the error lists the arrivals and bytes that each mbarrier still expects.
//
// A wgmma operation starts when all four warps of the warpgroup have executed it. Accessing its
// registers before the wait, or omitting wgmma.fence, ends the launch with ErrMisuse. The
// tcgen05.mma and tcgen05.cp of a thread run in order, and the loads and stores of tensor memory at
// any time before tcgen05.wait. Prefetches,
// cache hints, griddepcontrol and setmaxnreg have no effect.
//
// # Floating point
//
// Arithmetic follows IEEE 754 with the rounding mode of the instruction. The .approx instructions
// compute in float64 and round the result correctly. It is within the error that the manual allows
// but can differ from that of a GPU. A NaN result has the bits of the manual's canonical NaN:
// 0x7fffffff in f32 and 0x7fff in the 16-bit formats. [Launch].Accumulate selects the rounding of
// matrix instructions.
package emu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tilework/ptx"
)

// Program is a decoded module. It is immutable and safe for concurrent use.
type Program struct {
	module    *ptx.Module
	functions map[string]*function
	variables []*variable // of the module and its functions, except in .local and .param
	byVar     map[*ptx.Var]*variable
	byName    map[string]*variable // module scope only
	// addressed holds the functions whose addresses the module uses, by signature.
	addressed map[string][]*function
	indirect  int // operands of indirect calls, see maxIndirect
	sites     []*Site
	files     map[int]string // paths of the .file directives by index
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
	rank []int32 // rank of each instruction's basic block in the reconvergence order
	// next lists, for the basic block of each rank, the ranks of its successors.
	next [][]int32
	// Layout of the frame's register file: first the registers, which are poisoned for each call,
	// up to clear; then the constants, and values that are set for each call.
	clear     uint32
	frameSize uint32
	constants []constant
	fills     []fill
	registers []*ptx.Symbol // by Index; slots holds their offsets
	slots     []uint32
	// layout holds the offsets of parameters and .local variables. Parameters of an entry are in
	// the parameter buffer, all others in the frame's local memory.
	layout      map[*ptx.Var]uint64
	buffered    map[*ptx.Var]bool   // the parameters of an entry
	inRegisters map[*ptx.Var]uint32 // slots of parameters and results in registers; always if not used
	paramSize   int                 // of an entry
	localSize   uint64
	first       int  // index of its first instruction in the program
	matrices    bool // uses wgmma instructions
	address     uint64
	// Callees and variables of the function.
	calls []*function
	uses  map[*variable]bool
	// err is the reason why the function cannot run, or nil.
	err error

	frames sync.Pool // frames (*frame) of calls that have returned in earlier launches
}

// constant is an immediate that is broadcast to the lanes of a slot.
type constant struct {
	offset uint32
	size   uint8 // bytes per lane; 0 for a predicate
	bits   uint64
}

// Load verifies m, binds its instructions and decodes its functions. It refuses kernels that are
// invalid or use unsupported instructions, themselves or in a function that they can call. The
// other kernels can run.
//
// Load returns an error if all kernels are refused, or if the module is invalid outside of its
// functions. It wraps those of [ptx.Verify], or ptx.ErrUnsupported with the position of an
// instruction that the emulator does not support.
func Load(m *ptx.Module) (*Program, error) {
	invalid, err := verify(m)
	if err != nil {
		return nil, err
	}
	p := &Program{
		module: m, functions: map[string]*function{},
		byVar: map[*ptx.Var]*variable{}, byName: map[string]*variable{}, files: m.Files(),
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
	p.findAddressed()
	for n, f := range p.ordered() {
		f.layOut()
		f.address = functionWindow + functionStep*uint64(n)
	}
	for _, f := range p.ordered() {
		switch errs := invalid[f.Func]; {
		case errs != nil:
			f.err = errs
		case f.Body != nil:
			f.err = p.decode(f)
		}
	}
	return p, p.refuse()
}

// verify verifies m. It returns the errors in each function, or an error if there are others.
func verify(m *ptx.Module) (invalid map[*ptx.Func]ptx.Errors, err error) {
	var all, outside ptx.Errors
	errors.As(ptx.Verify(m), &all)
	invalid = map[*ptx.Func]ptx.Errors{}
	for _, e := range all {
		if e.Func == nil {
			outside = append(outside, e)
		} else {
			invalid[e.Func] = append(invalid[e.Func], e)
		}
	}
	if outside != nil {
		return nil, all
	}
	return invalid, nil
}

// refuse refuses the kernels that can call a function that cannot run. It returns an error if there
// are kernels but none can run.
func (p *Program) refuse() error {
	callers := map[*function][]*function{}
	nearest := map[*function]*function{} // the function that cannot run, by its callers
	var todo []*function
	for _, f := range p.ordered() {
		for _, g := range f.calls {
			callers[g] = append(callers[g], f)
		}
		if f.err != nil {
			nearest[f] = f
			todo = append(todo, f)
		}
	}
	for n := 0; n < len(todo); n++ {
		for _, f := range callers[todo[n]] {
			if nearest[f] != nil {
				continue
			}
			bad := nearest[todo[n]]
			if nearest[f] = bad; f.Entry {
				f.err = fmt.Errorf("function %s, which the kernel can call: %w", bad.Name, bad.err)
			}
			todo = append(todo, f)
		}
	}
	refused := p.Refused()
	if len(refused) == 0 || len(p.Entries()) > 0 {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		errs = append(errs, refused[name])
	}
	return errors.Join(errs...)
}

// ordered returns the functions in the order of the source.
func (p *Program) ordered() []*function {
	var fs []*function
	for _, f := range p.module.Funcs() {
		if g := p.functions[f.Name]; g.Func == f {
			fs = append(fs, g)
		}
	}
	return fs
}

// addVariable adds a variable of the module. A definition replaces an earlier extern declaration.
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

// source returns the source position of l, such as matmul.cu:12:3.
func (p *Program) source(l *ptx.Loc) ptx.Pos {
	path, ok := p.files[l.File]
	if !ok {
		path = fmt.Sprintf("file %d", l.File)
	}
	return ptx.Pos{File: path, Line: l.Line, Col: l.Col}
}

// Entries returns the sorted names of the kernels that can run.
func (p *Program) Entries() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		if f := p.functions[name]; f.Entry && f.err == nil {
			names = append(names, name)
		}
	}
	return names
}

// Refused returns the kernels that cannot run, each with the reason. The reason has the position of
// the instruction.
func (p *Program) Refused() map[string]error {
	refused := map[string]error{}
	for name, f := range p.functions {
		if f.Entry && f.err != nil {
			refused[name] = f.err
		}
	}
	return refused
}

// kernel returns a kernel that can run. The error wraps ErrLaunch, and the reason if the kernel is
// refused.
func (p *Program) kernel(entry string) (*function, error) {
	f := p.functions[entry]
	switch {
	case f == nil || !f.Entry:
		return nil, fmt.Errorf("%w: %s: no such kernel: want one of %q", ErrLaunch, entry, p.Entries())
	case f.err != nil:
		return nil, fmt.Errorf("%w: %s: the kernel cannot run: %w", ErrLaunch, entry, f.err)
	}
	return f, nil
}

// Sites returns the program's instructions by index.
func (p *Program) Sites() []*Site { return p.sites }

func unsupported(at ptx.Pos, format string, args ...any) error {
	return &ptx.Error{Pos: at, Kind: ptx.ErrUnsupported, Msg: "emulator: " + fmt.Sprintf(format, args...) +
		" is not supported"}
}
