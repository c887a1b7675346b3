package check

import (
	"fmt"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// fake replaces the emulator. Tests report events to its checkers one by one.
type fake struct {
	t      testing.TB
	checks *Checks
	memory *emu.Allocation
	grid   emu.Dim3
	dim    emu.Dim3
	sites  map[string]*emu.Site
	list   []*emu.Site // by emu.Site.Index
}

func newFake(t testing.TB, o Options, grid, dim int) *fake {
	return &fake{
		t: t, checks: New(o),
		grid: emu.Dim3{X: grid, Y: 1, Z: 1}, dim: emu.Dim3{X: dim, Y: 1, Z: 1}, sites: map[string]*emu.Site{},
	}
}

// site returns the instruction with the given name. Instructions are numbered in the order of
// their first use.
func (f *fake) site(name string) *emu.Site {
	s := f.sites[name]
	if s == nil {
		n := len(f.sites)
		s = &emu.Site{Index: n, Pos: ptx.Pos{File: "test.ptx", Line: n + 1}, Opcode: name}
		f.sites[name] = s
		f.list = append(f.list, s)
	}
	return s
}

// alloc creates the allocation for accesses to global memory and returns its address.
func (f *fake) alloc(n int) uint64 {
	f.memory = &emu.Allocation{Base: 0x7f00000000, Size: n}
	return f.memory.Base
}

// report returns the report and a summary of each finding: the checker and the names of the
// instructions, such as "race st ld".
func (f *fake) report(err error) (*Report, []string) {
	r := f.checks.report(f.list, nil, err)
	var short []string
	for _, g := range r.Findings {
		s := fmt.Sprint(g.Checker, " ", g.Site.Opcode)
		if g.Other != nil {
			s += " " + g.Other.Opcode
		}
		short = append(short, s)
	}
	return r, short
}

// block is a running block.
type block struct {
	*fake
	info  *emu.BlockInfo
	hooks *emu.Hooks
	bars  [16]int // generations
}

func (f *fake) block(n int) *block {
	info := &emu.BlockInfo{
		Grid: f.grid, BlockDim: f.dim, Index: emu.Dim3{X: n}, Linear: n,
		Warps: (f.dim.X + 31) / 32, SharedSize: 8192, Cluster: n, Ranks: 1,
	}
	return &block{fake: f, info: info, hooks: f.checks.Block(info)}
}

// op is a kind of access. The zero values mean a weak access to 4 bytes of shared memory.
type op struct {
	site  string
	kind  emu.AccessKind
	sem   emu.Sem
	scope emu.Scope
	space ptx.Space
	size  int
	copy  uint64
}

// do reports an access of the given threads, in which each accesses the address at(thread).
func (b *block) do(o op, threads []int, at func(thread int) uint64) {
	if o.space == ptx.NoSpace {
		o.space = ptx.Shared
	}
	if o.size == 0 {
		o.size = 4
	}
	masks := map[int]uint32{}
	for _, t := range threads {
		masks[t/32] |= 1 << (t % 32)
	}
	for w := range b.info.Warps {
		mask := masks[w]
		if mask == 0 {
			continue
		}
		var addr [32]uint64
		lanesOf(mask, func(lane int) { addr[lane] = at(w*32 + lane) })
		a := &emu.Access{
			Origin: emu.Origin{Site: b.site(o.site), Warp: w, Mask: mask}, Kind: o.kind, Sem: o.sem, Scope: o.scope,
			Space: o.space, Size: o.size, Addr: &addr, Copy: o.copy,
		}
		if o.space == ptx.Global {
			a.Alloc = b.memory
		}
		b.hooks.Access(a)
	}
}

// sync reports that threads synchronize at barrier id. n is the thread count of the instruction,
// or 0 if it has none.
func (b *block) sync(site string, id int, threads []int, n int) {
	s := b.site(site)
	if n > 0 {
		s.Instr = countedBarrier(b.t)
	} else {
		n = b.dim.X
	}
	masks := make([]uint32, b.info.Warps)
	for _, t := range threads {
		masks[t/32] |= 1 << (t % 32)
	}
	var o emu.Origin
	arrived := 0
	for w, mask := range masks {
		if mask != 0 {
			o = emu.Origin{Site: s, Warp: w, Mask: mask}
			arrived += len(lanes(mask))
			b.hooks.Barrier(&emu.Barrier{Origin: o, Kind: emu.BarrierSync, ID: id, Expected: n, Arrived: arrived,
				Generation: b.bars[id]})
		}
	}
	b.hooks.Barrier(&emu.Barrier{Origin: o, Kind: emu.BarrierComplete, ID: id, Expected: n, Arrived: arrived,
		Generation: b.bars[id]})
	b.bars[id]++
}

func lanes(mask uint32) (all []int) {
	lanesOf(mask, func(lane int) { all = append(all, lane) })
	return all
}

func (b *block) all() []int { return span(0, b.dim.X) }

func span(from, to int) (all []int) {
	for t := from; t < to; t++ {
		all = append(all, t)
	}
	return all
}

func (b *block) fence(threads []int, scope emu.Scope) {
	for _, t := range threads {
		b.hooks.Fence(&emu.Fence{Origin: emu.Origin{Site: b.site("fence"), Warp: t / 32, Mask: 1 << (t % 32)},
			Sem: emu.AcqRel, Scope: scope})
	}
}

func (b *block) warpSync(warp int, mask uint32) {
	b.hooks.WarpSync(&emu.WarpSync{Origin: emu.Origin{Site: b.site("warpsync"), Warp: warp, Mask: mask}, Orders: true})
}

// countedBarrier returns a barrier instruction with a thread count.
func countedBarrier(t testing.TB) *ptx.Instr {
	t.Helper()
	i := &ptx.Instr{Op: "bar", Mods: []string{"sync"}, Args: []ptx.Operand{&ptx.Imm{}, &ptx.Imm{Bits: 64}}}
	if err := ptx.Bind(i); err != nil {
		t.Fatal(err)
	}
	return i
}
