package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// Run computes the product on matrices of the host, step by step as the plan's schedule
// says; not for two goroutines at once. b must have passed [gemm.Buffers.Check]. A device
// with too little memory gets a schedule that needs less, with the same results.
//
// The errors are those of the device, ErrOutOfMemory and ErrNoDevice as package
// gemm's too, and the context's. After an error C holds anything.
func (pl *Plan) Run(ctx context.Context, b gemm.Buffers) error {
	return exec.Sentinel(pl.run(ctx, b))
}

func (pl *Plan) run(ctx context.Context, b gemm.Buffers) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if pl.host.M == 0 || pl.host.N == 0 {
		return nil
	}
	x := &oneShot{plan: pl, device: pl.on.Device, host: b}
	defer func() { err = device.Join(err, x.close(ctx, err != nil)) }()
	s, err := x.reserve(pl.Schedule())
	if err != nil {
		return err
	}
	for i := range s.steps {
		if err := pl.part(&s.steps[i], nil).Compile(ctx); err != nil {
			return err
		}
	}
	if len(s.steps) == 1 {
		// One order of work, and nobody to wait for.
		x.in, x.out = x.device, x.device
		if err := x.bring(ctx, &s.steps[0]); err != nil {
			return err
		}
		if err := x.compute(ctx, &s.steps[0], x.device); err != nil {
			return err
		}
		return x.fetch(ctx, &s.steps[0])
	}
	if err := x.open(); err != nil {
		return err
	}
	return x.overlap(ctx, s)
}

// part returns the plan of a step, which is launched in a stream.
func (pl *Plan) part(s *step, on device.Stream) *exec.Plan {
	return pl.Part(pl.problem(s), s.rows.from, s.cols.from, on)
}

// oneShot is a schedule under way.
type oneShot struct {
	plan    *Plan
	device  device.Device
	host    gemm.Buffers
	buffers [matrices][]buffer
	vectors kernel.Memory // of the operands that are copied whole
	copied  bool          // reports whether those copies are enqueued
	in, out device.Stream // of copies; the device's own computes
	streams *streams      // in and out, where they are streams of their own
	events  []device.Event
	done    []device.Event // when the device has done the steps asked for so far
	freed   int            // the number of the last step that in waits for
	sliced  device.Event   // when the last slice is done that panels beside it add to
}

// leaving is a step whose part of C goes out when it is done.
type leaving struct {
	step *step
	done device.Event
}

// buffer is memory on the device that parts of a matrix have in turn.
type buffer struct {
	at device.Ptr
	// used is the number of the last step that was asked for and uses it, from 1.
	used int
	// leaving are the parts of C in it that are still to go out.
	leaving sync.WaitGroup
}

// reserve takes the memory that a schedule needs, of the first schedule for which the
// device has enough.
func (x *oneShot) reserve(s *schedule) (*schedule, error) {
	for {
		err := x.allocate(s)
		if err == nil || !errors.Is(err, device.ErrOutOfMemory) {
			return s, err
		}
		if err := x.free(); err != nil {
			return nil, err
		}
		less := x.plan.Smaller(s, s.Memory()/2)
		if less == nil {
			return nil, fmt.Errorf("%v in the smallest parts, %d bytes at a time: %w", x.plan.host, s.Memory(), err)
		}
		s = less
	}
}

func (x *oneShot) allocate(s *schedule) (err error) {
	for i, sizes := range s.sizes {
		x.buffers[i] = make([]buffer, len(sizes))
		for j, n := range sizes {
			if n == 0 {
				continue // of A or B, which are not read
			}
			if x.buffers[i][j].at, err = x.device.Alloc(n); err != nil {
				return err
			}
		}
	}
	for o, l := range x.plan.vectors() {
		if x.vectors[o], err = x.device.Alloc(l.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func (x *oneShot) free() error {
	var errs []error
	for i := range x.buffers {
		for j := range x.buffers[i] {
			errs = append(errs, x.device.Free(x.buffers[i][j].at))
		}
		x.buffers[i] = nil
	}
	for o := range x.vectors {
		errs = append(errs, x.device.Free(x.vectors[o]))
		x.vectors[o] = 0
	}
	return device.Join(errs...)
}

// open gets streams for the copies. They may use the memory that was reserved once what
// the device was asked for before is done, as somebody else may have had it until then.
func (x *oneShot) open() (err error) {
	if x.streams, err = x.plan.on.streams(); err != nil {
		return err
	}
	x.in, x.out = x.streams.in, x.streams.out
	reserved, err := x.record(x.device)
	if err != nil {
		return err
	}
	return x.in.Wait(reserved)
}

// close gives everything back. After a failure streams may still be at work on memory of
// the device: that is given back behind them.
func (x *oneShot) close(ctx context.Context, failed bool) error {
	var errs []error
	if x.streams != nil {
		if failed {
			for _, s := range x.streams.all() {
				if e, err := x.record(s); err == nil {
					errs = append(errs, x.device.Wait(e))
				}
				_ = s.Sync(ctx) // what it reports has failed this product, and is not for the next
			}
			_ = x.device.Sync(ctx)
		}
		x.plan.on.giveBack(x.streams)
	}
	errs = append(errs, x.free())
	for _, e := range x.events {
		errs = append(errs, e.Free())
	}
	return device.Join(errs...)
}

// record marks a place in a stream until the product is done.
func (x *oneShot) record(s device.Stream) (device.Event, error) {
	e, err := s.Record()
	if err != nil {
		return nil, err
	}
	x.events = append(x.events, e)
	return e, nil
}

// overlap asks for the steps one after the other, as fast as what they need can be sent,
// while another goroutine takes what they make. The first error ends both.
func (x *oneShot) overlap(parent context.Context, s *schedule) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	var once sync.Once
	var failed error
	check := func(err error) {
		if err != nil {
			once.Do(func() { failed = err })
			cancel()
		}
	}
	made := make(chan leaving, len(s.steps))
	var taker sync.WaitGroup
	taker.Go(func() {
		for l := range made {
			check(x.take(ctx, l))
		}
	})
	for i := range s.steps {
		if ctx.Err() != nil {
			break
		}
		check(x.ask(ctx, &s.steps[i], made))
	}
	close(made)
	taker.Wait()
	if failed == nil {
		failed = parent.Err()
	}
	return failed
}

// ask asks for a step: once its buffers are free what it reads sets out, and it begins
// when that is there.
func (x *oneShot) ask(ctx context.Context, s *step, made chan<- leaving) error {
	a, b := &x.buffers[gemm.A][s.buffers[gemm.A]], &x.buffers[gemm.B][s.buffers[gemm.B]]
	free := 0
	if s.begins[gemm.A] {
		free = a.used
	}
	if s.begins[gemm.B] {
		free = max(free, b.used)
	}
	if free > x.freed { // steps end in their order
		if err := x.in.Wait(x.done[free-1]); err != nil {
			return err
		}
		x.freed = free
	}
	c := &x.buffers[gemm.C][s.buffers[gemm.C]]
	if s.begins[gemm.C] {
		c.leaving.Wait()
	}
	if err := x.bring(ctx, s); err != nil {
		return err
	}
	on := device.Stream(x.device)
	if s.beside {
		on = x.streams.beside
	}
	arrived, err := x.record(x.in)
	if err != nil {
		return err
	}
	if err := on.Wait(arrived); err != nil {
		return err
	}
	if s.beside && x.sliced != nil {
		if err := on.Wait(x.sliced); err != nil {
			return err
		}
		x.sliced = nil
	}
	if err := x.compute(ctx, s, on); err != nil {
		return err
	}
	done, err := x.record(on)
	if err != nil {
		return err
	}
	x.done = append(x.done, done)
	if !s.store {
		x.sliced = done
	}
	a.used, b.used = len(x.done), len(x.done)
	if s.store {
		c.leaving.Add(1)
		made <- leaving{s, done}
	}
	return nil
}

// take has a step's part of C go out when it is done.
func (x *oneShot) take(ctx context.Context, l leaving) error {
	defer x.buffers[gemm.C][l.step.buffers[gemm.C]].leaving.Done()
	if err := x.out.Wait(l.done); err != nil {
		return err
	}
	return x.fetch(ctx, l.step)
}

// bring has what a step reads come in.
func (x *oneShot) bring(ctx context.Context, s *step) error {
	for i, p := range s.load {
		if p.empty() {
			continue
		}
		host, at, rows := x.piece(s, gemm.Operand(i), p)
		if err := x.in.CopyIn(ctx, at, host, rows); err != nil {
			return err
		}
	}
	if x.copied {
		return nil
	}
	x.copied = true
	for o, l := range x.plan.vectors() {
		if err := x.in.CopyIn(ctx, x.vectors[o], x.host[o], device.Whole(l.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// compute asks for the step itself.
func (x *oneShot) compute(ctx context.Context, s *step, on device.Stream) error {
	p, m, parts := x.plan.host, x.vectors, s.parts()
	for o := range matrices {
		if p.Uses(o) {
			_, m[o], _ = x.piece(s, o, parts[o])
		}
	}
	biased := s.rows
	if p.Epilogue.Bias == gemm.BiasCol {
		biased = s.cols
	}
	for o, first := range map[gemm.Operand]int{gemm.Bias: biased.from, gemm.RowScale: s.rows.from, gemm.ColScale: s.cols.from} {
		if l := p.Layout(o); p.Uses(o) {
			m[o] += device.Ptr(first * l.Type.Size())
		}
	}
	if p.BlockScaled() {
		sideA, sideB := p.ScaleSides()
		a, b := p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB]
		m[gemm.ScaleA] += device.Ptr(a.Index(s.rows.from/sideA, 0) * a.Type.Size())
		m[gemm.ScaleB] += device.Ptr(b.Index(0, s.cols.from/sideB) * b.Type.Size())
	}
	return x.plan.part(s, on).Enqueue(ctx, m)
}

// fetch has what a step made go out, and waits for it.
func (x *oneShot) fetch(ctx context.Context, s *step) error {
	host, at, rows := x.piece(s, gemm.C, s.parts()[gemm.C])
	return x.out.CopyOut(ctx, host, at, rows)
}

// piece is a part of one of the step's tiles: where it is on the host and on the device, and
// its rows, without what lies between those on the host, which may be somebody else's.
func (x *oneShot) piece(s *step, o gemm.Operand, p part) (host []byte, at device.Ptr, rows device.Rows) {
	l, tile := x.plan.host.Layouts[o], s.tiles[o]
	at = x.buffers[o][s.buffers[o]].at
	if p.empty() || at == 0 {
		return nil, at, device.Rows{}
	}
	size, whole := l.Type.Size(), x.plan.layout(l, tile)
	at += device.Ptr(whole.Index(p.rows.from-tile.rows.from, p.cols.from-tile.cols.from) * size)
	on := x.plan.layout(l, p)
	on.LD = whole.LD
	off := on
	off.LD = l.LD
	return x.host[o][l.Index(p.rows.from, p.cols.from)*size:], at, exec.Rows(off, on)
}
