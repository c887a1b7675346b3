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

// Run computes the product of matrices in host memory with the plan's schedule. It is not safe for
// concurrent use. b must have passed [gemm.Buffers.Check]. If the device has too little memory, Run
// uses a schedule that needs less, with the same results.
//
// The errors are those of the device, with ErrOutOfMemory and ErrNoDevice as those of package gemm
// too, and the context's. After an error C is undefined.
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
		// A single stream runs all operations in order.
		x.in, x.out = x.device, x.device
		if err := x.copyIn(ctx, &s.steps[0]); err != nil {
			return err
		}
		if err := x.compute(ctx, &s.steps[0], x.device); err != nil {
			return err
		}
		return x.copyOut(ctx, &s.steps[0])
	}
	if err := x.open(); err != nil {
		return err
	}
	return x.overlap(ctx, s)
}

// part returns the plan of a step for a stream.
func (pl *Plan) part(s *step, on device.Stream) *exec.Plan {
	return pl.Part(pl.problem(s), s.rows.from, s.cols.from, on)
}

// oneShot is the execution of a schedule.
type oneShot struct {
	plan    *Plan
	device  device.Device
	host    gemm.Buffers
	buffers [matrices][]buffer
	vectors kernel.Memory // of the operands that are copied whole
	copied  bool          // reports whether those copies are enqueued
	in, out device.Stream // streams of the copies; the device's default stream runs the kernels
	streams *streams      // in and out, if they are separate streams
	events  []device.Event
	done    []device.Event // events at the end of each enqueued step
	freed   int            // number of the last step that in waits for
	sliced  device.Event   // end of the last slice, to which concurrent panels add
}

// pendingStore is a step whose part of C is copied out when it is done.
type pendingStore struct {
	step *step
	done device.Event
}

// buffer is device memory that holds one part of a matrix after another.
type buffer struct {
	at device.Ptr
	// used is the number of the last enqueued step that uses the buffer, counted from 1.
	used int
	// stores counts the parts of C in the buffer that are still to be copied out.
	stores sync.WaitGroup
}

// reserve allocates the memory of a schedule. If the device has too little, reserve tries smaller
// schedules, and returns the one that fits.
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
			return nil, fmt.Errorf("%v in the smallest parts, which need %d bytes: %w", x.plan.host, s.Memory(), err)
		}
		s = less
	}
}

func (x *oneShot) allocate(s *schedule) (err error) {
	for i, sizes := range s.sizes {
		x.buffers[i] = make([]buffer, len(sizes))
		for j, n := range sizes {
			if n == 0 {
				continue // an operand that is not read
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

// open gets streams for the copies. They wait until the device has done all earlier work, which may
// still use the reserved memory.
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

// close releases the streams, the memory and the events. After a failure streams may still use the
// memory, so it is freed after their work.
func (x *oneShot) close(ctx context.Context, failed bool) error {
	var errs []error
	if x.streams != nil {
		if failed {
			for _, s := range x.streams.all() {
				if e, err := x.record(s); err == nil {
					errs = append(errs, x.device.Wait(e))
				}
				_ = s.Sync(ctx) // its error has failed this product and must not fail the next one
			}
			_ = x.device.Sync(ctx)
		}
		x.plan.on.release(x.streams)
	}
	errs = append(errs, x.free())
	for _, e := range x.events {
		errs = append(errs, e.Free())
	}
	return device.Join(errs...)
}

// record records an event in a stream. It is freed with the product.
func (x *oneShot) record(s device.Stream) (device.Event, error) {
	e, err := s.Record()
	if err != nil {
		return nil, err
	}
	x.events = append(x.events, e)
	return e, nil
}

// overlap enqueues the steps in order, while another goroutine copies their results out. The first
// error ends both.
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
	made := make(chan pendingStore, len(s.steps))
	var taker sync.WaitGroup
	taker.Go(func() {
		for l := range made {
			check(x.store(ctx, l))
		}
	})
	for i := range s.steps {
		if ctx.Err() != nil {
			break
		}
		check(x.enqueue(ctx, &s.steps[i], made))
	}
	close(made)
	taker.Wait()
	if failed == nil {
		failed = parent.Err()
	}
	return failed
}

// enqueue enqueues a step. Its operands are copied in once their buffers are free, and it starts
// after the copies.
func (x *oneShot) enqueue(ctx context.Context, s *step, made chan<- pendingStore) error {
	a, b := &x.buffers[gemm.A][s.buffers[gemm.A]], &x.buffers[gemm.B][s.buffers[gemm.B]]
	free := 0
	if s.begins[gemm.A] {
		free = a.used
	}
	if s.begins[gemm.B] {
		free = max(free, b.used)
	}
	if free > x.freed { // steps end in order
		if err := x.in.Wait(x.done[free-1]); err != nil {
			return err
		}
		x.freed = free
	}
	c := &x.buffers[gemm.C][s.buffers[gemm.C]]
	if s.begins[gemm.C] {
		c.stores.Wait()
	}
	if err := x.copyIn(ctx, s); err != nil {
		return err
	}
	on := device.Stream(x.device)
	if s.concurrent {
		on = x.streams.concurrent
	}
	arrived, err := x.record(x.in)
	if err != nil {
		return err
	}
	if err := on.Wait(arrived); err != nil {
		return err
	}
	if s.concurrent && x.sliced != nil {
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
		c.stores.Add(1)
		made <- pendingStore{s, done}
	}
	return nil
}

// store copies a step's part of C out when the step is done.
func (x *oneShot) store(ctx context.Context, l pendingStore) error {
	defer x.buffers[gemm.C][l.step.buffers[gemm.C]].stores.Done()
	if err := x.out.Wait(l.done); err != nil {
		return err
	}
	return x.copyOut(ctx, l.step)
}

// copyIn enqueues the copies of the operands that a step reads.
func (x *oneShot) copyIn(ctx context.Context, s *step) error {
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

// compute enqueues the launches of a step.
func (x *oneShot) compute(ctx context.Context, s *step, on device.Stream) error {
	p, m, parts := x.plan.host, x.vectors, s.parts()
	for o := range matrices {
		if p.Uses(o) {
			_, m[o], _ = x.piece(s, o, parts[o])
		}
	}
	for o := range gemm.Operands {
		l, first := p.Layout(o), 0
		switch p.Epilogue.VectorDim(o) {
		case gemm.BiasRow:
			first = s.rows.from
		case gemm.BiasCol:
			first = s.cols.from
		}
		if p.Uses(o) {
			m[o] += device.Ptr(l.Type.Bytes(first))
		}
	}
	if p.BlockScaled() {
		sideA, sideB := p.ScaleSides()
		a, b := p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB]
		m[gemm.ScaleA] += device.Ptr(a.Type.Bytes(a.Index(s.rows.from/sideA, 0)))
		m[gemm.ScaleB] += device.Ptr(b.Type.Bytes(b.Index(0, s.cols.from/sideB)))
	}
	return x.plan.part(s, on).Enqueue(ctx, m)
}

// copyOut copies the result of a step out and waits for the copy.
func (x *oneShot) copyOut(ctx context.Context, s *step) error {
	host, at, rows := x.piece(s, gemm.C, s.parts()[gemm.C])
	return x.out.CopyOut(ctx, host, at, rows)
}

// piece locates part p of a step's tile of operand o: its memory on the host, its address on the
// device, and its rows. The gaps between rows on the host may belong to others and are not touched.
func (x *oneShot) piece(s *step, o gemm.Operand, p part) (host []byte, at device.Ptr, rows device.Rows) {
	l, tile := x.plan.host.Layouts[o], s.tiles[o]
	at = x.buffers[o][s.buffers[o]].at
	if p.empty() || at == 0 {
		return nil, at, device.Rows{}
	}
	whole := x.plan.layout(l, tile)
	at += device.Ptr(l.Type.Bytes(whole.Index(p.rows.from-tile.rows.from, p.cols.from-tile.cols.from)))
	on := x.plan.layout(l, p)
	on.LD = whole.LD
	off := on
	off.LD = l.LD
	return x.host[o][l.Type.Bytes(l.Index(p.rows.from, p.cols.from)):], at, exec.Rows(off, on)
}
