package stream

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/program"
	"tilework/internal/program/programtest"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// memory is a block of device memory of a part of a product.
type memory struct {
	part    int
	operand gemm.Operand
	raw     bool
	buffer  int
}

// access is an access to an area of a tile in memory.
type access struct {
	memory
	tile, area program.Rect
	writes     bool
}

// accesses lists the accesses of an op of the program of some schedules.
func accesses(p *program.Program, plans []*Plan, schedules []*schedule, op *program.Op) (all []access) {
	part := op.Lane / int(lanes)
	s := schedules[part]
	st := &s.steps[op.Step]
	in := func(o gemm.Operand, area program.Rect, writes bool) access {
		if o >= matrices {
			return access{memory{part, o, false, 0}, area, area, writes}
		}
		return access{memory{part, o, false, st.buffers[o]}, st.tiles[o], area, writes}
	}
	switch op.Kind {
	case program.Load, program.Pack:
		at := in(op.Operand, op.Part, true)
		raw := access{memory{part: part, operand: op.Operand, raw: true}, program.Rect{}, program.Rect{}, true}
		switch {
		case op.Operand >= matrices || s.raw[op.Operand] == 0:
			return []access{at}
		case op.Kind == program.Load:
			return []access{raw}
		}
		return []access{at, raw}
	case program.Copy:
		from := p.Ops[op.Source]
		from.Part = op.Part
		read := accesses(p, plans, schedules, &from)[0]
		read.writes = false
		return []access{in(op.Operand, op.Part, true), read}
	case program.Store:
		return []access{in(gemm.C, op.Part, false)}
	case program.Launch:
		h := plans[part].host
		for o, area := range st.parts() {
			if o := gemm.Operand(o); o == gemm.C || h.Uses(o) && (o != gemm.Residual || st.store) {
				all = append(all, in(o, area, o == gemm.C))
			}
		}
		for o := range plans[part].vectors {
			all = append(all, in(o, program.Rect{}, false))
		}
		if s.scratch > 0 {
			all = append(all, access{memory: memory{part: part, buffer: -1}, writes: true})
		}
	}
	return all
}

// conflict reports whether two accesses must be ordered.
func (a access) conflict(b access) bool {
	if a.memory != b.memory || !a.writes && !b.writes {
		return false
	}
	return a.tile != b.tile || a.operand >= matrices || a.tile.Empty() || !a.area.And(b.area).Empty()
}

// checkOrder checks the order of a program, which begins after the earlier work of each device. A
// device frees its memory at the end, after the copies from it to other devices.
func checkOrder(t *testing.T, p *program.Program, plans []*Plan, schedules []*schedule) {
	t.Helper()
	programtest.CheckOrder(t, p, func(i, j int) bool {
		a, b := &p.Ops[i], &p.Ops[j]
		partA, partB := a.Lane/int(lanes), b.Lane/int(lanes)
		switch {
		case a.Kind == program.Join:
			return partA == partB
		case b.Kind == program.Join:
			return a.Kind == program.Copy && p.Ops[a.Source].Lane/int(lanes) == partB
		}
		for _, x := range accesses(p, plans, schedules, a) {
			for _, y := range accesses(p, plans, schedules, b) {
				if x.conflict(y) {
					return true
				}
			}
		}
		return false
	})
}

// TestProgramOrder checks the waits of random schedules: each access to memory waits for the
// earlier ones that it must not overlap, and for no other.
func TestProgramOrder(t *testing.T) {
	rng := testrand.New(t)
	for range testkit.Cases(100, 1000) {
		m, n, k := 1+rng.IntN(120), 1+rng.IntN(120), 1+rng.IntN(60)
		pl := planned(t, dtype.F32, dtype.F32, m, n, k, 1, complex(float64(rng.IntN(2)), 0))
		more := *pl.host
		switch rng.IntN(3) {
		case 0:
			more.Epilogue.Residual, more.Layouts[gemm.Residual] = true, gemm.Dense(dtype.F32, m, n)
		case 1:
			more.Epilogue.Bias = gemm.BiasCol
		}
		pl.host = &more
		s := randomSchedule(rng, pl)
		checkOrder(t, s.program, []*Plan{pl}, []*schedule{s})
		if t.Failed() {
			return
		}
	}
}

// TestProgramDocumented checks the program of docs/architecture.md.
func TestProgramDocumented(t *testing.T) {
	pl := planned(t, dtype.F32, dtype.F32, 8192, 8192, 8192, 1, 0)
	o := pl.once()
	s := pl.overlapped(o, program.First(8192).Cut(2731))
	testkit.CheckPage(t, "../../../docs/architecture.md", "program: one GPU", testkit.Fenced(s.program.String()))
}

// TestExchangeOrder checks the waits of products that several devices divide and share.
func TestExchangeOrder(t *testing.T) {
	rng := testrand.New(t)
	exchanges := 0
	for range testkit.Cases(20, 200) {
		p := testkit.Product(t, dtype.F32, dtype.F32, 32+rng.IntN(60), 32+rng.IntN(60), 1+rng.IntN(30))
		x := newTeam(t, rng, p, 2+rng.IntN(2), func(o emu.Options) device.Device { return emulated(t, o) })
		var all parts
		for _, pl := range x.plans {
			all = append(all, &part{plan: pl, schedule: pl.Schedule()})
		}
		work, exchanged := all.program()
		var schedules []*schedule
		for _, x := range all {
			schedules = append(schedules, x.schedule)
		}
		if exchanged {
			exchanges++
		}
		checkOrder(t, work, x.plans, schedules)
		if err := x.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			return
		}
	}
	if exchanges < 5 {
		t.Errorf("%d products exchanged pieces, want at least 5", exchanges)
	}
}

// TestPackedOrder checks the waits of a schedule whose operands are packed when they arrive.
func TestPackedOrder(t *testing.T) {
	rng := testrand.New(t)
	packs := 0
	for range testkit.Cases(20, 200) {
		pl := packing(t, 1+rng.IntN(300), 1+rng.IntN(300), 1+rng.IntN(200))
		some := func() int { return kernel.MaxVectorBytes * (1 + rng.IntN(8)) }
		s := pl.blocked(pl.once(), blocking{some(), some(), [...]int{1 + rng.IntN(3), 1 + rng.IntN(3), 1 + rng.IntN(3)}})
		for i := range s.program.Ops {
			if s.program.Ops[i].Kind == program.Pack {
				packs++
			}
		}
		checkOrder(t, s.program, []*Plan{pl}, []*schedule{s})
		if t.Failed() {
			return
		}
	}
	if packs == 0 {
		t.Error("no operand was packed")
	}
}

// packing returns a plan of a product whose kernel needs packed operands.
func packing(t *testing.T, m, n, k int) *Plan {
	t.Helper()
	null := devicetest.NewNull()
	null.Device.Target, null.Device.MaxShared = sm90.WGMMA.Target(), 227<<10
	p := testkit.Product(t, dtype.I8, dtype.I32, m, n, k)
	pl, err := New(null).Plan(p, exec.Options{Kernel: "wgmma", Tile: "64x64x128/2x16/8"})
	if err != nil {
		t.Fatal(err)
	}
	return pl
}
