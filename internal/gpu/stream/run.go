package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/program"
	"tilework/internal/relay"
)

// Run computes the product of matrices in host memory with the plan's schedule. It is not safe for
// concurrent use. b must have passed [gemm.Buffers.Check]. If the device has too little memory, Run
// uses a schedule that needs less, with the same results.
//
// The errors are those of the device and the context's. After an error C is undefined.
func (pl *Plan) Run(ctx context.Context, b gemm.Buffers) error {
	_, err := RunTogether(ctx, []*Plan{pl}, b)
	return err
}

// RunTogether runs the plans of the parts of a product at the same time. The devices share the
// copies of the operand that all parts need: each copies a piece of every part of the operand from
// the host, and the other pieces from the other devices. The first error ends the work on all
// devices and is returned with the number of its plan. RunTogether returns when no device uses the
// buffers.
func RunTogether(ctx context.Context, plans []*Plan, b gemm.Buffers) (failed int, err error) {
	if err := ctx.Err(); err != nil || plans[0].host.M == 0 || plans[0].host.N == 0 {
		return 0, err
	}
	all := make(parts, len(plans))
	for i, pl := range plans {
		all[i] = &part{plan: pl, device: pl.on.Device, host: b}
	}
	defer func() {
		for i, x := range all {
			if e := x.close(); e != nil {
				failed, err = i, device.Join(err, e)
			}
		}
	}()
	if failed, err = all.prepare(ctx); err != nil {
		return failed, err
	}
	work, exchanges := all.program()
	var queues []program.Queue
	for i, x := range all {
		if err := x.open(exchanges); err != nil {
			return i, err
		}
		queues = append(queues, x.queues()...)
	}
	op, err := work.Runner(queues, func(ctx context.Context, op *program.Op) error {
		return all.do(ctx, op, queues[op.Lane].Stream, work)
	}).Run(ctx)
	if op != nil {
		failed = op.Lane / int(lanes)
	}
	return failed, err
}

// part is the execution of a plan, which may be one of several.
type part struct {
	plan     *Plan
	device   device.Device
	host     gemm.Buffers
	schedule *schedule
	buffers  [matrices][]device.Ptr
	raw      [matrices]device.Ptr // where operands arrive that are packed then
	scratch  device.Ptr
	vectors  kernel.Memory // of the operands that are copied whole
	streams  *streams      // besides the device's own; nil for a schedule of one step
}

// parts are the executions of the plans of a product.
type parts []*part

// prepare reserves memory and compiles kernels, on all devices at the same time. It returns the
// first error with the number of its plan.
func (all parts) prepare(ctx context.Context) (failed int, err error) {
	if len(all) == 1 {
		return 0, all[0].prepare(ctx)
	}
	return relay.Each(ctx, len(all), func(ctx context.Context, i int) error { return all[i].prepare(ctx) })
}

func (x *part) prepare(ctx context.Context) (err error) {
	if x.schedule, err = x.reserve(x.plan.Schedule()); err != nil {
		return err
	}
	for i := range x.schedule.steps {
		if err := x.plan.step(&x.schedule.steps[i], false).Compile(ctx); err != nil {
			return err
		}
	}
	return nil
}

// program returns the program of the parts, and reports whether they exchange pieces. They do if
// all load the same parts of the shared operands, in the same order.
func (all parts) program() (p *program.Program, exchanges bool) {
	if len(all) == 1 && all[0].plan.devices < 2 {
		return all[0].schedule.program, false
	}
	var plans []*Plan
	var schedules []*schedule
	first := all[0].sharedLoads()
	x := noExchange
	if len(first) > 0 && len(all) > 1 {
		x = exchanged
	}
	for _, one := range all {
		plans, schedules = append(plans, one.plan), append(schedules, one.schedule)
		if !slices.Equal(first, one.sharedLoads()) {
			x = noExchange
		}
	}
	return write(plans, schedules, x), x == exchanged
}

// Program lists the ops of the plans of the parts of a product if they have the memory that they
// ask for, one per line. It is empty for a single step on one device.
func Program(plans []*Plan) string {
	var all parts
	for _, pl := range plans {
		all = append(all, &part{plan: pl, schedule: pl.Schedule()})
	}
	if len(all) == 1 && len(all[0].schedule.steps) == 1 {
		return ""
	}
	p, _ := all.program()
	return p.String()
}

// load is a part of a shared operand that is loaded.
type load struct {
	operand gemm.Operand
	part    program.Rect
}

// sharedLoads lists the loads of the shared operands, or nothing if they are not exchanged.
func (x *part) sharedLoads() (all []load) {
	if x.plan.rates().peer == 0 || !x.plan.exchangeable(x.schedule) {
		return nil
	}
	for i := range x.schedule.steps {
		for o, p := range x.schedule.steps[i].load {
			if o := gemm.Operand(o); x.plan.shared(o) && !p.Empty() {
				all = append(all, load{o, p})
			}
		}
	}
	return all
}

// step returns the plan of a step. If packs is set, it is the plan for operands that are packed
// where the kernel needs them packed.
func (pl *Plan) step(s *step, packs bool) *exec.Plan {
	p := pl.Part(pl.problem(s), s.rows.From, s.cols.From)
	if packs {
		p, _ = p.Packed()
	}
	return p
}

// reserve allocates the memory of a schedule. If the device has too little, reserve tries smaller
// schedules, and returns the one that fits. No step allocates memory later.
func (x *part) reserve(s *schedule) (*schedule, error) {
	if limit := x.plan.Limit; limit > 0 && s.Memory() > limit {
		return nil, fmt.Errorf("%w: %v needs %d bytes in the smallest blocks, and the limit is %d", device.ErrOutOfMemory,
			x.plan.host, s.Memory(), limit)
	}
	s, err := program.Reserve(s, x.allocate, func(*schedule) error { return x.free() }, x.smaller)
	if errors.Is(err, device.ErrOutOfMemory) {
		err = fmt.Errorf("%v in the smallest blocks, which need %d bytes: %w", x.plan.host, s.Memory(), err)
	}
	return s, err
}

// smaller returns a schedule that needs less memory, and false if there is none.
func (x *part) smaller(s *schedule) (*schedule, bool) {
	less := x.plan.Smaller(s, s.Memory()/4*3)
	if less == nil {
		less = x.plan.smallest(s.order)
	}
	return less, less.Memory() < s.Memory()
}

func (x *part) allocate(s *schedule) (err error) {
	alloc := func(to *device.Ptr, n int) {
		if err == nil && n > 0 { // an operand that is not read has no bytes
			*to, err = x.device.Alloc(n)
		}
	}
	for i, sizes := range s.sizes {
		x.buffers[i] = make([]device.Ptr, len(sizes))
		for j, n := range sizes {
			alloc(&x.buffers[i][j], n)
		}
		alloc(&x.raw[i], s.raw[i])
	}
	alloc(&x.scratch, s.scratch)
	for o, l := range x.plan.vectors {
		alloc(&x.vectors[o], l.Bytes())
	}
	return err
}

func (x *part) free() error {
	var errs []error
	free := func(at *device.Ptr) {
		errs = append(errs, x.device.Free(*at))
		*at = 0
	}
	for i := range x.buffers {
		for j := range x.buffers[i] {
			free(&x.buffers[i][j])
		}
		free(&x.raw[i])
	}
	free(&x.scratch)
	for o := range x.vectors {
		free(&x.vectors[o])
	}
	return device.Join(errs...)
}

// open gets the streams of a schedule with several steps.
func (x *part) open(exchanges bool) (err error) {
	if len(x.schedule.steps) > 1 {
		x.streams, err = x.plan.on.streams(exchanges)
	}
	return err
}

// queues returns the queues of the lanes.
func (x *part) queues() []program.Queue {
	all := make([]program.Queue, lanes)
	all[kernels].Stream = x.device
	if s := x.streams; s != nil {
		all[concurrent].Stream, all[copiesIn].Stream, all[copiesOut].Stream = s.concurrent, s.in, s.out
		all[peerCopies].Stream = s.peers
	}
	for i := range all {
		all[i].Timeline = x.plan.Timeline
	}
	return all
}

// close releases the streams and the memory, which no stream uses any more.
func (x *part) close() error {
	if x.streams != nil {
		x.plan.on.release(x.streams)
	}
	return x.free()
}

// do enqueues an op in a stream.
func (all parts) do(ctx context.Context, op *program.Op, on device.Stream, work *program.Program) error {
	x := all.of(op)
	s := &x.schedule.steps[op.Step]
	switch op.Kind {
	case program.Load:
		if op.Operand >= matrices {
			return on.CopyIn(ctx, x.vectors[op.Operand], x.host[op.Operand], device.Whole(op.Bytes))
		}
		host, at, rows := x.piece(s, op.Operand, op.Part)
		if raw := x.raw[op.Operand]; raw != 0 {
			at = raw
		}
		return on.CopyIn(ctx, at, host, rows)
	case program.Pack:
		o := op.Operand
		return x.plan.step(s, false).Pack(ctx, on, o, x.raw[o], x.buffers[o][s.buffers[o]])
	case program.Copy:
		source := &work.Ops[op.Source]
		from := all.of(source)
		_, sent, there := from.piece(&from.schedule.steps[source.Step], op.Operand, op.Part)
		_, at, rows := x.piece(s, op.Operand, op.Part)
		return on.CopyPeer(at, from.device, sent, device.PeerRows{Count: rows.Count, Width: rows.Width,
			FromPitch: there.DevicePitch, ToPitch: rows.DevicePitch})
	case program.Launch:
		return x.compute(ctx, s, on)
	}
	host, at, rows := x.piece(s, gemm.C, op.Part)
	return on.CopyOut(ctx, host, at, rows)
}

// of returns the part whose op it is.
func (all parts) of(op *program.Op) *part { return all[op.Lane/int(lanes)] }

// compute enqueues the launches of a step.
func (x *part) compute(ctx context.Context, s *step, on device.Stream) error {
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
			first = s.rows.From
		case gemm.BiasCol:
			first = s.cols.From
		}
		if p.Uses(o) {
			m[o] += device.Ptr(l.Type.Bytes(first))
		}
	}
	if p.BlockScaled() {
		sideA, sideB := p.ScaleSides()
		a, b := p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB]
		m[gemm.ScaleA] += device.Ptr(a.Type.Bytes(a.Index(s.rows.From/sideA, 0)))
		m[gemm.ScaleB] += device.Ptr(b.Type.Bytes(b.Index(0, s.cols.From/sideB)))
	}
	launches := x.plan.step(s, x.schedule.packs).In(on, x.scratch)
	if x.plan.Finished != nil {
		launches.Counted = s.counted(x.plan.Finished)
	}
	return launches.Enqueue(ctx, m)
}

// piece locates part p of a step's tile of operand o: its memory on the host, its address on the
// device, and its rows. The gaps between rows on the host may belong to others and are not touched.
func (x *part) piece(s *step, o gemm.Operand, p program.Rect) (host []byte, at device.Ptr, rows device.Rows) {
	l, tile := x.plan.host.Layouts[o], s.tiles[o]
	at = x.buffers[o][s.buffers[o]]
	if p.Empty() || at == 0 {
		return nil, at, device.Rows{}
	}
	whole := x.plan.layout(l, tile)
	at += device.Ptr(l.Type.Bytes(whole.Index(p.Rows.From-tile.Rows.From, p.Cols.From-tile.Cols.From)))
	on := x.plan.layout(l, p)
	on.LD = whole.LD
	off := on
	off.LD = l.LD
	return x.host[o][l.Type.Bytes(l.Index(p.Rows.From, p.Cols.From)):], at, exec.Rows(off, on)
}
