package stream

import (
	"fmt"
	"math"
	"slices"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/model"
	"tilework/internal/phrase"
	"tilework/internal/program"
)

// rates holds the rates from which the time of a schedule is predicted. They depend on the kind of
// device and are not measured, so that equal products are computed in equal steps.
type rates struct {
	in, out float64 // bytes per second from and to the host
	peer    float64 // bytes per second from other devices, or 0 if they exchange nothing
	memory  float64 // bytes per second of the device's memory
	compute float64 // operations per second
	blocks  int     // blocks that run at the same time
	each    int     // of these, blocks on an SM
	// startup is the fixed cost of streams, events and a goroutine per product, step the latency of a
	// launch, and copy the fixed cost of a copy.
	startup, step, copy time.Duration
}

const (
	// rowLatency is the extra time per non-contiguous host row of a copy. It falls linearly to zero
	// at longRow bytes. On an H200's host, copying 8192 rows of 1 to 4 KiB took about 0.2 ms longer
	// than copying as many contiguous bytes, and rows of 8 KiB took no longer.
	rowLatency = 30 * time.Nanosecond
	longRow    = 8 << 10

	// hostRate is the sum of the rates of the copies to several devices, or from them, in bytes per
	// second. Fitted to the times of products on two H200s of a host with 32 cores, which copies
	// pageable memory; see docs/results/gpus-h200.tsv.
	hostRate = 52e9

	// Sustained is the fraction of the boost clock at which wgmma works for long. Large bfloat16
	// products run at the power limit of an H100, at 700 of the 954 TFLOP/s that choose predicts.
	Sustained = 0.75
)

// rates returns the rates of the device for the product.
func (pl *Plan) rates() rates {
	in, p := pl.on.Device.Info(), pl.host
	// An SM runs as many blocks as have their accumulators in half of its registers.
	const half = 128 << 10
	each := max(1, half/p.Accum().Bytes(pl.Config.Tile.M*pl.Config.Tile.N))
	r := rates{blocks: each * max(in.SMs, 1), each: each, startup: 50 * time.Microsecond, step: 15 * time.Microsecond,
		copy: 40 * time.Microsecond}
	// PCIe 5, 4 or 3, ×16, less the cost of staging. With PCIe 5 the copies by the host's cores are
	// the limit: 30 GB/s each way if both ways are busy.
	switch {
	case in.Target.SM >= 90:
		r.in, r.out = 38e9, 33e9
	case in.Target.SM >= 80:
		r.in, r.out = 22e9, 22e9
	default:
		r.in, r.out = 11e9, 11e9
	}
	if n := float64(pl.devices); n > 1 {
		r.in, r.out = min(r.in, hostRate/n), min(r.out, hostRate/n)
	}
	const efficiency = 0.8 // fraction of the peak that a good kernel reaches without tensor cores
	kind, clock := model.FP32, 1.5e9
	if p.Accum() == dtype.F64 {
		kind = model.FP64
	}
	r.compute, r.memory = efficiency*2*128*clock*float64(max(in.SMs, 1)), 1e12
	if m, err := model.Lookup(in.Name); err == nil && !m.Generic() {
		r.memory = 0.8 * m.MemBandwidth
		if pl.devices > 1 {
			r.peer = m.PeerBandwidth
		}
		if peak, err := m.PeakRate(kind); err == nil {
			r.compute = efficiency * peak
		}
		if pl.Kernel.Tensor && pl.Cycles > 0 {
			r.compute = p.Flops() * m.ClockHz / pl.Cycles
		}
		if pl.Kernel.TMA {
			r.compute *= Sustained
		}
	}
	return r
}

// long is the predicted time from which a product is worth planning in blocks, which takes some
// milliseconds.
const long = 200 * time.Millisecond

// drain is the loss at the start and the end of a launch, in waves: about 50 µs of 0.8 ms on an
// H200.
const drain = 1. / 16

// predict predicts the time of a schedule by simulation of its program.
func (pl *Plan) predict(s *schedule, r rates) program.Prediction {
	seconds := func(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
	e := s.program.Simulate(func(op *program.Op) (delay, busy time.Duration) {
		bytes := float64(op.Bytes)
		switch op.Kind {
		case program.Join:
			return r.startup, 0
		case program.Load, program.Store:
			if op.Operand >= matrices { // negligible
				return 0, 0
			}
			rate := r.in
			if op.Kind == program.Store {
				rate = r.out
			}
			return 0, r.copy + seconds(bytes/rate) + rowsLatency(pl.host.Layouts[op.Operand], op.Part)
		case program.Pack: // reads the raw operand once and writes it packed
			to := s.steps[op.Step].buffers[op.Operand]
			return 0, seconds((pl.bytes(op.Operand, op.Part) + float64(s.sizes[op.Operand][to])) / r.memory)
		case program.Copy:
			return 0, r.copy + seconds(bytes/r.peer)
		}
		return r.step, seconds(pl.computing(s, op.Step, r))
	})
	e.Total += r.step
	return e
}

// computing returns the time in seconds of the kernel of step number i. The blocks of a wave start
// and end together, so a partial wave takes as long as a whole one, unless blocks of the next step
// fill it.
func (pl *Plan) computing(s *schedule, i int, r rates) float64 {
	st, shape := &s.steps[i], pl.Config.Tile
	tiles := float64(ints.CeilDiv(st.rows.Len(), shape.M)) * float64(ints.CeilDiv(st.cols.Len(), shape.N))
	waves := r.waves(tiles)
	if i+1 == len(s.steps) || s.steps[i+1].concurrent == st.concurrent {
		waves = math.Ceil(waves) + drain
	}
	if pl.host.Epilogue.Gated {
		waves *= 2
	}
	c := pl.bytes(gemm.C, st.parts()[gemm.C]) / r.memory
	if st.depth.From > 0 { // reads the sums so far
		c *= 2
	}
	return waves*pl.wave(st.depth.Len(), r) + c
}

// waves returns the number of waves of blocks in which a kernel computes its tiles while another
// one runs. A block is not faster than alone on its SM.
func (r *rates) waves(tiles float64) float64 {
	return max(tiles/float64(r.blocks), 1/float64(r.each*concurrentKernels))
}

// wave returns the time in seconds in which all SMs compute their tiles with depth terms.
func (pl *Plan) wave(depth int, r rates) float64 {
	shape := pl.Config.Tile
	return 2 * float64(shape.M) * float64(shape.N) * float64(depth) * float64(r.blocks) / r.compute
}

// concurrentKernels is the number of streams that run kernels.
const concurrentKernels = 2

// fastest returns the schedule with the lowest predicted time, of those that keep A, B and C on the
// device.
func (pl *Plan) fastest(r rates) (*schedule, program.Prediction) {
	p := pl.host
	best := pl.wholly()
	least := pl.predict(best, r)
	// The blocks of a long product are fetched in a better order than whole matrices. Only they pack
	// operands when they arrive.
	if p.ReadsAB() && p.M > 0 && p.N > 0 && least.Total > long {
		if s, e := pl.fit(pl.once(), math.MaxInt/4, r); s != nil && e.Total < least.Total {
			best, least = s, e
		}
	}
	if pl.ScratchBytes() > 0 {
		return best, least // in other schedules, scratch memory belongs to a single stream
	}
	// Overlap hides at most all but the longest of the three.
	if most := slices.Max(alone(least)); least.Total-most < r.startup || !p.ReadsAB() || p.M == 0 ||
		p.N == 0 {
		return best, least
	}
	// Choose the order first, with the usual panels, then the panels.
	consider := func(o order, n int) {
		s := pl.overlapped(o, pl.panels(o, n))
		if e := pl.predict(s, r); e.Total < least.Total {
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

// orders returns the candidate orders: all of C with the whole K, or first a head of C in slices of
// K.
func (pl *Plan) orders(r rates) (all []order) {
	p := pl.host
	once := []program.Span{program.First(p.K)}
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
		const parts = 16 // the head is n parts of the side
		for n := parts / 4; n <= parts; n++ {
			head := min(ints.RoundUp(ints.CeilDiv(side*n, parts), unit), side)
			for first := 256; first <= 2048; first *= 2 {
				if s := pl.slicing(r, head, o.byRows, first); len(s) > 1 {
					all = append(all, order{s, head, o.byRows})
				}
			}
		}
	}
	return all
}

// slicing cuts K into slices for a head of C. The first slice is short. Each later one is as deep
// as the operands that are copied while the previous one is computed.
func (pl *Plan) slicing(r rates, head int, byRows bool, first int) (slices []program.Span) {
	p, m, n := pl.host, float64(head), float64(pl.host.N)
	if !byRows {
		m, n = float64(p.M), float64(head)
	}
	copied := 8 * r.in / (float64(p.In().Bits()) * (m + n)) // terms per second
	computed := r.compute / (2 * m * n)                     // terms per second
	growth := min(max(copied/computed, 1), 4)
	const grain = 128 // terms: whole tiles along K and whole vectors
	at := 0
	for depth := float64(first); ; depth *= growth {
		n := int(depth) / grain * grain
		if at+2*n > p.K {
			return append(slices, program.Range(at, p.K))
		}
		slices = append(slices, program.Range(at, at+n))
		at += n
	}
}

// panels cuts C into panels along the side of the order's head. A positive n gives n equal panels,
// whose copies out start early. A negative n halves the rest of C again and again, down to 1/|n| of
// the side: each copy out then overlaps with the next panel, with few launches.
func (pl *Plan) panels(o order, n int) (panels []program.Span) {
	rows, cols := pl.units()
	side, unit := pl.host.M, rows
	if !o.byRows {
		side, unit = pl.host.N, cols
	}
	rest := program.First(side)
	each := ints.RoundUp(ints.CeilDiv(side, max(n, -n)), unit)
	if o.head < side {
		panels, rest = program.First(o.head).Cut(each), program.Range(o.head, side)
	}
	if n > 0 {
		return append(panels, rest.Cut(each)...)
	}
	for rest.Len() > each {
		half := ints.RoundUp(ints.CeilDiv(rest.Len(), 2), unit)
		panels = append(panels, program.Range(rest.From, rest.From+half))
		rest.From += half
	}
	return append(panels, rest)
}

func isPowerOfTwo(x float64) bool {
	fraction, _ := math.Frexp(math.Abs(x))
	return fraction == 0.5
}

// rowsLatency returns the extra time for the non-contiguous rows of a part; see [rowLatency].
func rowsLatency(l gemm.Layout, p program.Rect) time.Duration {
	rows, across := p.Rows.Len(), p.Cols.Len()
	if l.Trans {
		rows, across = across, rows
	}
	if short := longRow - l.Type.Bytes(across); across < l.LD && short > 0 {
		return rowLatency * time.Duration(rows) * time.Duration(short) / longRow
	}
	return 0
}

// scheduled is a schedule with its predicted time.
type scheduled struct {
	*schedule
	expected program.Prediction
}

// scheduleKey identifies a schedule of a device.
type scheduleKey struct {
	problem    gemm.Problem
	config     kernel.Config
	keepLayout bool
	limit      int
	rows, cols program.Span
	devices    int
	sums       string
}

// Schedule returns the schedule of the plan. It is chosen at the first call, once for all equal
// plans of the backend.
func (pl *Plan) Schedule() *schedule {
	if pl.Steps != nil {
		return pl.Steps
	}
	key := scheduleKey{*pl.host, pl.Config, pl.keepLayout, pl.Limit, pl.rows, pl.cols, pl.devices, ""}
	if pl.sums != nil {
		key.sums = fmt.Sprint(*pl.sums)
	}
	s, _ := pl.on.schedules.Get(key, func() (scheduled, error) { return pl.decide(), nil })
	pl.Steps, pl.expected = s.schedule, s.expected
	return pl.Steps
}

// decide chooses the order of the sums without regard to memory, unless it is given, and then the
// fastest schedule with this order that fits. If none does, the schedule is the smallest one, which
// Run refuses.
func (pl *Plan) decide() scheduled {
	r := pl.rates()
	memory := int(min(pl.on.Device.Info().Memory/10*9, math.MaxInt))
	if pl.Limit > 0 {
		memory = min(memory, pl.Limit)
	}
	o := pl.sums
	if o == nil {
		s, e := pl.fastest(r)
		if s.Memory() <= memory {
			return scheduled{s, e}
		}
		o = &s.order
	}
	s, e := pl.fit(*o, memory, r)
	if s == nil {
		s = pl.smallest(*o)
		e = pl.predict(s, r)
	}
	return scheduled{s, e}
}

// Detail describes the kernel's configuration and, if the product has several steps, their overlap.
func (pl *Plan) Detail() string {
	s, e, in := pl.Schedule(), pl.expected, pl.on.Device.Info()
	if len(s.steps) == 1 {
		return pl.Config.String()
	}
	bytesIn := bytesText(s.program.Bytes(program.Load, program.Copy))
	if n := s.program.Bytes(program.Copy); n > 0 {
		bytesIn += fmt.Sprintf(", %s of it from other GPUs,", bytesText(n))
	}
	alone := alone(e)
	text := fmt.Sprintf("%v; %s, in %s of memory; %s in and %s out; %v predicted; alone: copies in %v, kernels %v, "+
		"copies out %v", pl.Config, s.words, bytesText(s.Memory()), bytesIn, bytesText(s.program.Bytes(program.Store)),
		ms(e.Total), ms(alone[0]), ms(alone[1]), ms(alone[2]))
	if st := in.Staging; st.Threads > 0 {
		text += fmt.Sprintf("; copies by %s through %d MiB of pinned memory each way", phrase.Count(st.Threads, "thread"),
			st.BufferBytes>>20)
	}
	return text
}

// alone returns the times of the copies in, the kernels and the copies out of a predicted schedule.
func alone(e program.Prediction) []time.Duration {
	return []time.Duration{e.Busy[program.Load] + e.Busy[program.Pack], e.Busy[program.Launch], e.Busy[program.Store]}
}

// bytesText formats a number of bytes: "1.5 GiB".
func bytesText(bytes int) string {
	n := float64(bytes)
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", n/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", n/(1<<10))
}

func ms(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
