package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tilework/internal/device"
	"tilework/internal/device/timeline"
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
	return exec.Sentinel(pl.run(ctx, b, nil))
}

// run is Run as a member of an exchange, or by itself if m is nil.
func (pl *Plan) run(ctx context.Context, b gemm.Buffers, m *member) (err error) {
	defer m.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	if pl.host.M == 0 || pl.host.N == 0 {
		return nil
	}
	x := &oneShot{plan: pl, device: pl.on.Device, host: b, member: m}
	defer func() {
		m.fail(err)
		err = device.Join(err, x.close(ctx, err != nil))
	}()
	s, err := x.reserve(pl.Schedule())
	if err != nil {
		return err
	}
	for i := range s.steps {
		if err := pl.part(&s.steps[i], false).Compile(ctx); err != nil {
			return err
		}
	}
	x.schedule = s
	if err := m.join(ctx, pl, s); err != nil {
		return err
	}
	if len(s.steps) == 1 {
		// A single stream runs all operations in order.
		x.in, x.arriving, x.out = x.device, x.device, x.device
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
	return x.overlap(ctx)
}

// part returns the plan of a step. If packs is set, it is the plan for operands that are packed
// where the kernel needs them packed.
func (pl *Plan) part(s *step, packs bool) *exec.Plan {
	p := pl.Part(pl.problem(s), s.rows.from, s.cols.from)
	if packs {
		p, _ = p.Packed()
	}
	return p
}

// oneShot is the execution of a schedule. Three roles work on its steps in order: one copies
// operands in, one enqueues the kernels, and one copies results out. The last is a goroutine of its
// own. The first is one where it runs ahead, as far as there are buffers; elsewhere it alternates
// with the second, which saves waking a goroutine for each step.
type oneShot struct {
	plan     *Plan
	schedule *schedule
	device   device.Device
	host     gemm.Buffers
	buffers  [matrices][]buffer
	raw      [matrices]device.Ptr // where operands arrive that are packed then
	scratch  device.Ptr
	vectors  kernel.Memory // of the operands that are copied whole
	copied   bool          // reports whether those copies are enqueued
	in, out  device.Stream // streams of the copies
	arriving device.Stream // in, or the stream of the copies from other devices, which waits for in
	streams  *streams      // in and out, if they are separate streams
	member   *member       // nil for a product on one device

	mu     sync.Mutex
	events []device.Event // to free at the end

	progress []progress // of each step
	freed    [2]int     // for each stream of kernels, number of the last step that in waits for
}

// progress tells the other goroutines how far a step is. Each channel is closed once.
type progress struct {
	launched chan struct{} // its kernel is enqueued, and done is set
	stored   chan struct{} // its part of C is on the host; only of a step that stores
	done     device.Event  // at the end of the kernel
}

// arrival is a step whose operands are on their way to the device.
type arrival struct {
	number  int
	arrived device.Event // completes when they have arrived; nil if the step needs no copies
	after   int          // number of the step whose store frees the buffer of C, or 0
}

// buffer is device memory that holds one part of a matrix after another.
type buffer struct {
	at device.Ptr
	// used holds, for each stream of kernels, the number of the last step that uses the buffer. Steps
	// are counted from 1. Only the copies in use it.
	used [2]int
	sum  sum // partial sums of C; only the kernels use it
}

// sum is the end of the last step that left partial sums, and the stream that it ran in.
type sum struct {
	done    device.Event
	stream  int
	awaited bool // by the other stream
}

// kernels is the state of the role that enqueues kernels: the last of the copies in, their
// number, and for each stream the number of those that it waits for.
type kernels struct {
	arrived device.Event
	count   int
	awaited [2]int
}

// reserve allocates the memory of a schedule. If the device has too little, reserve tries smaller
// schedules, and returns the one that fits. No step allocates memory later.
func (x *oneShot) reserve(s *schedule) (*schedule, error) {
	if limit := x.plan.Limit; limit > 0 && s.Memory() > limit {
		return nil, fmt.Errorf("%w: %v needs %d bytes in the smallest blocks, and the limit is %d", device.ErrOutOfMemory,
			x.plan.host, s.Memory(), limit)
	}
	for {
		err := x.allocate(s)
		if err == nil || !errors.Is(err, device.ErrOutOfMemory) {
			return s, err
		}
		if err := x.free(); err != nil {
			return nil, err
		}
		less := x.plan.Smaller(s, s.Memory()/4*3)
		if less == nil {
			less = x.plan.smallest(s.order)
		}
		if less.Memory() >= s.Memory() {
			return nil, fmt.Errorf("%v in the smallest blocks, which need %d bytes: %w", x.plan.host, s.Memory(), err)
		}
		s = less
	}
}

func (x *oneShot) allocate(s *schedule) (err error) {
	alloc := func(to *device.Ptr, n int) {
		if err == nil && n > 0 { // an operand that is not read has no bytes
			*to, err = x.device.Alloc(n)
		}
	}
	for i, sizes := range s.sizes {
		x.buffers[i] = make([]buffer, len(sizes))
		for j, n := range sizes {
			alloc(&x.buffers[i][j].at, n)
		}
		alloc(&x.raw[i], s.raw[i])
	}
	alloc(&x.scratch, s.scratch)
	for o, l := range x.plan.vectors() {
		alloc(&x.vectors[o], l.Bytes())
	}
	return err
}

func (x *oneShot) free() error {
	var errs []error
	free := func(at *device.Ptr) {
		errs = append(errs, x.device.Free(*at))
		*at = 0
	}
	for i := range x.buffers {
		for j := range x.buffers[i] {
			free(&x.buffers[i][j].at)
		}
		free(&x.raw[i])
	}
	free(&x.scratch)
	for o := range x.vectors {
		free(&x.vectors[o])
	}
	return device.Join(errs...)
}

// open gets streams for the copies. They wait until the device has done all earlier work, which may
// still use the reserved memory.
func (x *oneShot) open() (err error) {
	exchanges := x.member != nil && x.member.active
	if x.streams, err = x.plan.on.streams(exchanges); err != nil {
		return err
	}
	x.in, x.arriving, x.out = x.streams.in, x.streams.in, x.streams.out
	reserved, err := x.record(x.device)
	if err == nil {
		err = x.in.Wait(reserved)
	}
	if err == nil && exchanges {
		x.arriving = x.streams.peers
		err = x.arriving.Wait(reserved)
	}
	return err
}

// close releases the streams, the memory and the events. After a failure streams may still use the
// memory, so it is freed after their work.
func (x *oneShot) close(ctx context.Context, failed bool) error {
	var errs []error
	if x.streams != nil && failed {
		for _, s := range x.streams.all() {
			if e, err := x.record(s); err == nil {
				errs = append(errs, x.device.Wait(e))
			}
			_ = s.Sync(ctx) // its error has failed this product and must not fail the next one
		}
		_ = x.device.Sync(ctx)
	}
	errs = append(errs, x.awaitReaders(ctx))
	if x.streams != nil {
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
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, e)
	return e, nil
}

// overlap runs the steps. The first error ends all goroutines.
func (x *oneShot) overlap(parent context.Context) error {
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
	n := len(x.schedule.steps)
	x.progress = make([]progress, n)
	for i := range x.progress {
		x.progress[i].launched, x.progress[i].stored = make(chan struct{}), make(chan struct{})
	}
	made := make(chan int, n)
	var others sync.WaitGroup
	others.Go(func() {
		for i := range made {
			check(x.store(ctx, i))
		}
	})
	var k kernels
	launch := func(a arrival) { check(x.launch(ctx, a, &k, made)) }
	fetch := func(deliver func(arrival)) {
		for i := 0; i < n && ctx.Err() == nil; i++ {
			a, err := x.fetch(ctx, i)
			if check(err); err == nil {
				deliver(a)
			}
		}
	}
	if x.schedule.ahead {
		arriving := make(chan arrival, n)
		others.Go(func() {
			defer close(arriving)
			fetch(func(a arrival) { arriving <- a })
		})
		for a := range arriving {
			if ctx.Err() == nil {
				launch(a)
			}
		}
	} else {
		fetch(launch)
	}
	close(made)
	others.Wait()
	if failed == nil {
		failed = parent.Err()
	}
	return failed
}

// await waits until another goroutine closes a channel of a step's progress.
func await(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch enqueues the copies of the operands of step number i, once their buffers are free.
func (x *oneShot) fetch(ctx context.Context, i int) (a arrival, err error) {
	s := &x.schedule.steps[i]
	a.number = i
	needed := !x.copied
	for o := range matrices {
		b := &x.buffers[o][s.buffers[o]]
		loads := !s.load[o].empty()
		needed = needed || loads
		switch {
		case !s.begins[o]:
		case o != gemm.C:
			for stream, n := range b.used {
				if err := x.release(ctx, stream, n); err != nil {
					return a, err
				}
			}
		case loads && max(b.used[0], b.used[1]) > 0:
			if err := await(ctx, x.progress[max(b.used[0], b.used[1])-1].stored); err != nil {
				return a, err
			}
		default:
			a.after = max(b.used[0], b.used[1])
		}
		b.used[s.stream()] = i + 1
	}
	if needed {
		if err := x.copyIn(ctx, s); err != nil {
			return a, err
		}
		a.arrived, err = x.arrived()
	}
	return a, err
}

// arrived records the end of the copies in so far.
func (x *oneShot) arrived() (device.Event, error) {
	e, err := x.record(x.in)
	if err != nil || x.arriving == x.in {
		return e, err
	}
	if err := x.arriving.Wait(e); err != nil {
		return nil, err
	}
	return x.record(x.arriving)
}

// release makes the copies in wait for step n of a stream of kernels, unless they already do.
func (x *oneShot) release(ctx context.Context, stream, n int) error {
	if n <= x.freed[stream] { // the steps of a stream end in order
		return nil
	}
	x.freed[stream] = n
	step := &x.progress[n-1]
	if err := await(ctx, step.launched); err != nil {
		return err
	}
	return x.in.Wait(step.done)
}

// launch enqueues the kernel of a step.
func (x *oneShot) launch(ctx context.Context, a arrival, k *kernels, made chan<- int) error {
	s := &x.schedule.steps[a.number]
	if a.after > 0 {
		if err := await(ctx, x.progress[a.after-1].stored); err != nil {
			return err
		}
	}
	on, stream := device.Stream(x.device), s.stream()
	if s.concurrent {
		on = x.streams.concurrent
	}
	if a.arrived != nil {
		k.arrived, k.count = a.arrived, k.count+1
	}
	if k.awaited[stream] < k.count {
		if err := on.Wait(k.arrived); err != nil {
			return err
		}
		k.awaited[stream] = k.count
	}
	c := &x.buffers[gemm.C][s.buffers[gemm.C]]
	if sum := &c.sum; s.depth.from > 0 && sum.stream != stream && !sum.awaited {
		if err := on.Wait(sum.done); err != nil {
			return err
		}
		sum.awaited = true
	}
	if err := x.compute(ctx, s, on); err != nil {
		return err
	}
	done, err := x.record(on)
	if err != nil {
		return err
	}
	x.progress[a.number].done = done
	close(x.progress[a.number].launched)
	if s.store {
		made <- a.number
	} else {
		c.sum = sum{done: done, stream: stream}
	}
	return nil
}

// store copies the part of C of step number i out when the step is done.
func (x *oneShot) store(ctx context.Context, i int) error {
	step := &x.progress[i]
	if err := x.out.Wait(step.done); err != nil {
		return err
	}
	if err := x.copyOut(ctx, &x.schedule.steps[i]); err != nil {
		return err
	}
	close(step.stored)
	return nil
}

// copyIn enqueues the copies of the operands that a step reads.
func (x *oneShot) copyIn(ctx context.Context, s *step) error {
	for i, p := range s.load {
		if p.empty() {
			continue
		}
		o := gemm.Operand(i)
		if x.member.exchanges(x.plan, o) {
			if err := x.copyShared(ctx, s, o, p); err != nil {
				return err
			}
			continue
		}
		host, at, rows := x.piece(s, o, p)
		raw := x.raw[o]
		if raw != 0 {
			at = raw
		}
		if err := x.copyFromHost(ctx, at, host, rows); err != nil {
			return err
		}
		if raw != 0 {
			to := x.buffers[o][s.buffers[o]].at
			if err := x.plan.Timeline.Do(x.in, timeline.Compute, 0, func() error {
				return x.plan.part(s, false).Pack(ctx, x.in, o, raw, to)
			}); err != nil {
				return err
			}
		}
	}
	if x.copied {
		return nil
	}
	x.copied = true
	for o, l := range x.plan.vectors() {
		if err := x.copyFromHost(ctx, x.vectors[o], x.host[o], device.Whole(l.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// copyFromHost enqueues a copy from host memory.
func (x *oneShot) copyFromHost(ctx context.Context, to device.Ptr, host []byte, rows device.Rows) error {
	return x.plan.Timeline.Do(x.in, timeline.FromHost, rows.Bytes(), func() error {
		return x.in.CopyIn(ctx, to, host, rows)
	})
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
	return x.plan.Timeline.Do(on, timeline.Compute, 0, func() error {
		part := x.plan.part(s, x.schedule.packs).In(on, x.scratch)
		if x.plan.Finished != nil {
			part.Counted = s.counted(x.plan.Finished)
		}
		return part.Enqueue(ctx, m)
	})
}

// copyOut copies the result of a step out and waits for the copy.
func (x *oneShot) copyOut(ctx context.Context, s *step) error {
	host, at, rows := x.piece(s, gemm.C, s.parts()[gemm.C])
	return x.plan.Timeline.Do(x.out, timeline.ToHost, rows.Bytes(), func() error {
		return x.out.CopyOut(ctx, host, at, rows)
	})
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
