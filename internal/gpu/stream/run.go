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
func (pl *Plan) part(s *step, on device.Stream) *exec.Plan { return pl.Part(pl.problem(s), on) }

// oneShot is a schedule under way.
type oneShot struct {
	plan    *Plan
	device  device.Device
	host    gemm.Buffers
	buffers [kernel.Matrices][]buffer
	bias    device.Ptr
	scales  [gemm.Extras]device.Ptr
	biased  bool          // they have come in
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
	if n := x.plan.biasBytes(); n > 0 {
		if x.bias, err = x.device.Alloc(n); err != nil {
			return err
		}
	}
	for e, l := range x.plan.scales() {
		if x.scales[e], err = x.device.Alloc(l.Bytes()); err != nil {
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
	errs = append(errs, x.device.Free(x.bias))
	x.bias = 0
	for e := range x.scales {
		errs = append(errs, x.device.Free(x.scales[e]))
		x.scales[e] = 0
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
	a, b := &x.buffers[kernel.InA][s.buffers[kernel.InA]], &x.buffers[kernel.InB][s.buffers[kernel.InB]]
	free := 0
	if s.begins[kernel.InA] {
		free = a.used
	}
	if s.begins[kernel.InB] {
		free = max(free, b.used)
	}
	if free > x.freed { // steps end in their order
		if err := x.in.Wait(x.done[free-1]); err != nil {
			return err
		}
		x.freed = free
	}
	c := &x.buffers[kernel.InC][s.buffers[kernel.InC]]
	if s.begins[kernel.InC] {
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
	defer x.buffers[kernel.InC][l.step.buffers[kernel.InC]].leaving.Done()
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
		host, at, rows := x.piece(s, i, p)
		if err := x.in.CopyIn(ctx, at, host, rows); err != nil {
			return err
		}
	}
	if x.biased {
		return nil
	}
	x.biased = true
	for e, l := range x.plan.scales() {
		if err := x.in.CopyIn(ctx, x.scales[e], x.host.Extras[e], device.Whole(l.Bytes())); err != nil {
			return err
		}
	}
	if x.bias == 0 {
		return nil
	}
	return x.in.CopyIn(ctx, x.bias, x.host.Bias, device.Whole(x.plan.biasBytes()))
}

// compute asks for the step itself.
func (x *oneShot) compute(ctx context.Context, s *step, on device.Stream) error {
	var m kernel.Memory
	parts := s.parts()
	for i, p := range []*device.Ptr{&m.A, &m.B, &m.C} {
		_, *p, _ = x.piece(s, i, parts[i])
	}
	if m.Bias = x.bias; x.bias != 0 {
		along := s.rows
		if x.plan.host.Epilogue.Bias == gemm.BiasCol {
			along = s.cols
		}
		m.Bias += device.Ptr(along.from * x.plan.host.C.Type.Size())
	}
	m.Extras, m.Row0, m.Col0 = x.scales, s.rows.from, s.cols.from
	if size := x.plan.host.ScaleType().Size(); x.plan.host.Epilogue.RowScale {
		m.Extras[gemm.RowScale] += device.Ptr(s.rows.from * size)
	}
	if size := x.plan.host.ScaleType().Size(); x.plan.host.Epilogue.ColScale {
		m.Extras[gemm.ColScale] += device.Ptr(s.cols.from * size)
	}
	if p := x.plan.host; p.BlockScaled() {
		sideA, sideB := p.ScaleSides()
		m.Extras[gemm.ScaleA] += device.Ptr(p.ScaleA.Index(s.rows.from/sideA, 0) * p.ScaleA.Type.Size())
		m.Extras[gemm.ScaleB] += device.Ptr(p.ScaleB.Index(0, s.cols.from/sideB) * p.ScaleB.Type.Size())
	}
	if x.plan.host.Epilogue.Residual {
		_, m.Extras[gemm.Residual], _ = x.piece(s, kernel.InD, parts[kernel.InD])
	}
	if x.plan.host.Epilogue.Gated {
		_, m.Extras[gemm.Up], _ = x.piece(s, kernel.InUp, parts[kernel.InUp])
	}
	return x.plan.part(s, on).Enqueue(ctx, m)
}

// fetch has what a step made go out, and waits for it.
func (x *oneShot) fetch(ctx context.Context, s *step) error {
	host, at, rows := x.piece(s, kernel.InC, s.parts()[kernel.InC])
	return x.out.CopyOut(ctx, host, at, rows)
}

// piece is a part of one of the step's tiles: where it is on the host and on the device, and
// its rows, without what lies between those on the host, which may be somebody else's.
func (x *oneShot) piece(s *step, i int, p part) (host []byte, at device.Ptr, rows device.Rows) {
	l, tile := x.plan.layouts()[i], s.tiles[i]
	at = x.buffers[i][s.buffers[i]].at
	if p.empty() || at == 0 {
		return nil, at, device.Rows{}
	}
	size, whole := l.Type.Size(), x.plan.layout(l, tile)
	at += device.Ptr(whole.Index(p.rows.from-tile.rows.from, p.cols.from-tile.cols.from) * size)
	on := x.plan.layout(l, p)
	on.LD = whole.LD
	off := on
	off.LD = l.LD
	host = [...][]byte{x.host.A, x.host.B, x.host.C, x.host.Extras[gemm.Residual], x.host.Extras[gemm.Up]}[i]
	return host[l.Index(p.rows.from, p.cols.from)*size:], at, exec.Rows(off, on)
}
