package stream

import (
	"fmt"
	"math"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
)

// rates are what a schedule's time is foretold from. They belong to the kind of device,
// and are not measured, so that equal products are computed in equal steps.
type rates struct {
	in, out float64 // bytes a second, from the host and to it
	memory  float64 // bytes a second, of the device's own
	compute float64 // operations a second
	blocks  int     // that run at once
	// startup is what streams, their events and a goroutine cost a product, step what it
	// takes to have a launch begin, and copy what a copy takes besides its bytes.
	startup, step, copy time.Duration
}

// A row that is apart from the one before it in the host's memory costs so much besides its
// bytes, less the longer it is, and nothing from so many bytes on: on an H200's host 8192
// rows of 1 to 4 KiB took some 0.2 ms longer to come in than as many bytes in one piece, and
// of 8 KiB no longer.
const (
	rowApart = 30 * time.Nanosecond
	longRow  = 8 << 10
)

// rates foretells the device's rates for the product.
func (pl *Plan) rates() rates {
	in, p := pl.on.Device.Info(), pl.host
	// As many blocks as find room for their sums in the half of an SM's registers.
	const half = 128 << 10
	each := max(1, half/(pl.Config.Tile.M*pl.Config.Tile.N*p.Accum().Size()))
	r := rates{blocks: each * max(in.SMs, 1), startup: 50 * time.Microsecond, step: 15 * time.Microsecond, copy: 40 * time.Microsecond}
	// PCIe 5, 4 or 3, ×16, less what staging costs: of the fastest, what the host's
	// processors copy, of which each way has 30 where both are busy.
	switch {
	case in.Target.SM >= 90:
		r.in, r.out = 38e9, 33e9
	case in.Target.SM >= 80:
		r.in, r.out = 22e9, 22e9
	default:
		r.in, r.out = 11e9, 11e9
	}
	// What a good kernel reaches of the peak, on the ordinary units.
	const efficiency = 0.8
	kind, clock := model.FP32, 1.5e9
	if p.Accum() == dtype.F64 {
		kind = model.FP64
	}
	r.compute, r.memory = efficiency*2*128*clock*float64(max(in.SMs, 1)), 1e12
	if m, err := model.Lookup(in.Name); err == nil && !m.Generic() {
		r.memory = 0.8 * m.MemBandwidth
		if peak, err := m.PeakRate(kind); err == nil {
			r.compute = efficiency * peak
		}
	}
	return r
}

// drain is what a launch loses to its beginning and its end, in times of a wave: some
// 50 µs of 0.8 ms on an H200.
const drain = 1. / 16

// estimate is a schedule's time, and what it would be if all but one of its parts were
// free.
type estimate struct{ total, in, compute, out time.Duration }

// foretell plays a schedule through: copies in follow each other, steps follow each other
// once their parts are there, copies out follow each other once their steps are done.
func (pl *Plan) foretell(s *schedule, r rates) estimate {
	seconds := func(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
	var in, compute, out time.Duration // when what was asked for so far is through
	var e estimate
	if len(s.steps) > 1 {
		in = r.startup
	}
	shape := pl.Config.Tile
	layouts := pl.host.Layouts
	bytes := func(x gemm.Operand, p part) float64 {
		return float64(p.rows.n()) * float64(p.cols.n()) * float64(layouts[x].Type.Size())
	}
	copied := func(x gemm.Operand, p part, rate float64) time.Duration {
		return r.copy + seconds(bytes(x, p)/rate) + apart(layouts[x], p)
	}
	for i := range s.steps {
		st := &s.steps[i]
		for x := range matrices {
			if part := st.load[x]; !part.empty() {
				d := copied(x, part, r.in)
				in, e.in = in+d, e.in+d
			}
		}
		// Whole waves of blocks, which begin and end together and hide nothing of each
		// other's ends, unless those of the next step take their places.
		tiles := float64(kernel.CeilDiv(st.rows.n(), shape.M)) * float64(kernel.CeilDiv(st.cols.n(), shape.N))
		waves := tiles / float64(r.blocks)
		if i+1 == len(s.steps) || s.steps[i+1].beside == st.beside {
			waves = math.Ceil(waves) + drain
		}
		if pl.host.Epilogue.Gated {
			waves *= 2
		}
		tile := 2 * float64(shape.M) * float64(shape.N) * float64(st.depth.n()) * float64(r.blocks) / r.compute
		made := st.parts()[gemm.C]
		d := seconds(waves*tile + bytes(gemm.C, made)/r.memory)
		if st.depth.from > 0 {
			d += seconds(bytes(gemm.C, made) / r.memory)
		}
		compute, e.compute = max(compute, in)+r.step+d, e.compute+d
		if st.store {
			d := copied(gemm.C, made, r.out)
			out, e.out = max(out, compute)+d, e.out+d
		}
	}
	e.total = out + r.step
	return e
}

// fastest is the fastest schedule by the estimate, of those that have A, B and C on the
// device in the end.
func (pl *Plan) fastest(r rates) (*schedule, estimate) {
	p := pl.host
	best := pl.wholly()
	least := pl.foretell(best, r)
	if pl.UsesScratch() {
		return best, least // the memory for the sums of parts or factors, or what is packed, is the one stream's
	}
	// What overlapping can hide at the best.
	if most := max(least.in, least.compute, least.out); least.total-most < r.startup || !p.ReadsAB() || p.M == 0 || p.N == 0 {
		return best, least
	}
	// First the order, with panels as they are for most products, then the panels.
	consider := func(o order, n int) {
		s := pl.overlapped(o, pl.panels(o, n))
		if e := pl.foretell(s, r); e.total < least.total {
			best, least = s, e
		}
	}
	for _, o := range pl.orders(r) {
		consider(o, 8)
	}
	o := best.order
	for n := 2; n <= 32; n *= 2 {
		consider(o, n)
		consider(o, -n)
	}
	return best, least
}

// orders are those that are considered: all of C at once, or first a head of it in slices
// of K.
func (pl *Plan) orders(r rates) (all []order) {
	p := pl.host
	once := []span{{0, p.K}}
	rows, cols := pl.units()
	for _, o := range []order{{once, p.M, true}, {once, p.N, false}} {
		all = append(all, o)
		if !sliceable(p) {
			continue
		}
		side, unit := o.head, rows
		if !o.byRows {
			unit = cols
		}
		const parts = 16 // of the side, of which a head has some
		for n := parts / 4; n <= parts; n++ {
			head := min(kernel.RoundUp(kernel.CeilDiv(side*n, parts), unit), side)
			for first := 256; first <= 2048; first *= 2 {
				if s := pl.slicing(r, head, o.byRows, first); len(s) > 1 {
					all = append(all, order{s, head, o.byRows})
				}
			}
		}
	}
	return all
}

// slicing cuts K for a head of C: each slice is as deep as what comes in while the one
// before it is computed, from a first one on that is short.
func (pl *Plan) slicing(r rates, head int, byRows bool, first int) (slices []span) {
	p, m, n := pl.host, float64(head), float64(pl.host.N)
	if !byRows {
		m, n = float64(p.M), float64(head)
	}
	comes := r.in / (float64(p.In().Size()) * (m + n)) // terms a second
	computes := r.compute / (2 * m * n)                // terms a second
	growth := min(max(comes/computes, 1), 4)
	const grain = 128 // terms; whole tiles along K, and whole vectors
	at := 0
	for depth := float64(first); ; depth *= growth {
		n := int(depth) / grain * grain
		if at+2*n > p.K {
			return append(slices, span{at, p.K})
		}
		slices = append(slices, span{at, at + n})
		at += n
	}
}

// panels cut C for an order, along the side of its head: into so many equal ones of the
// whole side, which leave early; or for a negative number the rest of C into halves of what
// is left, down to what would be one of so many, so that what goes out is hidden by a panel
// that is computed, with few launches.
func (pl *Plan) panels(o order, n int) (panels []span) {
	rows, cols := pl.units()
	side, unit := pl.host.M, rows
	if !o.byRows {
		side, unit = pl.host.N, cols
	}
	rest := span{0, side}
	each := kernel.RoundUp(kernel.CeilDiv(side, max(n, -n)), unit)
	if o.head < side {
		panels, rest = cutSpan(span{0, o.head}, each), span{o.head, side}
	}
	if n > 0 {
		return append(panels, cutSpan(rest, each)...)
	}
	for rest.n() > each {
		half := kernel.RoundUp(kernel.CeilDiv(rest.n(), 2), unit)
		panels = append(panels, span{rest.from, rest.from + half})
		rest.from += half
	}
	return append(panels, rest)
}

func isPowerOfTwo(x float64) bool {
	fraction, _ := math.Frexp(math.Abs(x))
	return fraction == 0.5
}

// apart is what the copy of a part takes longer than that of one piece.
func apart(l gemm.Layout, p part) time.Duration {
	rows, across := p.rows.n(), p.cols.n()
	if l.Trans {
		rows, across = across, rows
	}
	if short := longRow - across*l.Type.Size(); across < l.LD && short > 0 {
		return rowApart * time.Duration(rows) * time.Duration(short) / longRow
	}
	return 0
}

// scheduled is a schedule and what was foretold of it.
type scheduled struct {
	*schedule
	expected estimate
}

// scheduleKey is what a schedule depends on, besides the device.
type scheduleKey struct {
	problem    gemm.Problem
	config     kernel.Config
	keepLayout bool
}

// schedule is how the plan runs, which is decided when it is first asked for, once for
// all plans of the backend.
func (pl *Plan) Schedule() *schedule {
	if pl.Steps != nil {
		return pl.Steps
	}
	b, key := pl.on, scheduleKey{*pl.host, pl.Config, pl.keepLayout}
	b.mu.Lock()
	s, known := b.schedules[key]
	b.mu.Unlock()
	if !known {
		s = pl.decide()
		b.mu.Lock()
		defer b.mu.Unlock()
		const most = 100
		if len(b.schedules) >= most {
			clear(b.schedules)
		}
		b.schedules[key] = s
	}
	pl.Steps, pl.expected = s.schedule, s.expected
	return pl.Steps
}

func (pl *Plan) decide() scheduled {
	s, e := pl.fastest(pl.rates())
	if most := int(pl.on.Device.Info().Memory / 10 * 9); s.Memory() > most {
		if less := pl.Smaller(s, most); less != nil {
			s, e = less, pl.foretell(less, pl.rates())
		}
	}
	return scheduled{s, e}
}

// Detail is the kernel's configuration and, where the product on matrices of the host has
// several steps, how these overlap, in words.
func (pl *Plan) Detail() string {
	s, e, in := pl.Schedule(), pl.expected, pl.on.Device.Info()
	if len(s.steps) == 1 {
		return pl.Config.String()
	}
	text := fmt.Sprintf("%v; %s: %v expected, of %v in, %v computing and %v out", pl.Config, s.words, ms(e.total), ms(e.in), ms(e.compute), ms(e.out))
	if st := in.Staging; st.Threads > 0 {
		text += fmt.Sprintf("; copies by %d threads through a pinned ring of %d MiB, each way", st.Threads, st.BufferBytes>>20)
	}
	return text
}

func ms(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
