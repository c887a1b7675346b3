package resident

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/multi"
	"tilework/internal/split"
)

// An execution enqueues a divided product.
//
// Each member has two streams. Its copy stream gathers parts of operands from the others, panel
// after panel, while its default stream multiplies, and copies parts of the member itself. Events
// order the streams:
//
//   - copies wait until the source has done all earlier work;
//   - a panel waits for its copies, and copies for the panel that used the buffer before;
//   - at the end, the default stream of a source waits for the copies from it, so that later work
//     may overwrite or free the operand.
type execution struct {
	*division
	product  *Product
	problem  *gemm.Problem
	operands [gemm.Operands]Matrix
	workers  []*worker
}

// worker is the part of an execution at one member.
type worker struct {
	*execution
	*member
	number   int
	timeline *timeline.Timeline
	share    *split.Share
	held     [gemm.Operands]device.Ptr              // operands that are gathered before the first panel
	slots    [split.Slots][gemm.Operands]device.Ptr // of panels
	scratch  device.Ptr
	started  device.Event              // at the end of all earlier work of the default stream
	done     []device.Event            // at the end of each panel for which others wait
	waited   map[int]bool              // members for whose earlier work the copy stream waits
	last     [split.Slots]device.Event // at the end of the last panel in each slot
	events   []device.Event            // to free at the end
}

// run enqueues the product on all members, in smaller panels if a member has too little memory.
// After an error C is undefined, but too little memory for the smallest panels leaves it unchanged.
func (x *division) run(ctx context.Context, p *Product, problem gemm.Problem,
	operands [gemm.Operands]Matrix) error {
	x.device.ordering.Lock()
	defer x.device.ordering.Unlock()
	if err := x.compile(ctx); err != nil {
		return err
	}
	for {
		r := &execution{division: x, product: p, problem: &problem, operands: operands}
		err := r.reserve()
		if err == nil {
			return r.execute(ctx)
		}
		err = device.Join(err, r.free())
		if !errors.Is(err, device.ErrOutOfMemory) {
			return err
		}
		if x = x.smaller(); x == nil {
			return err
		}
	}
}

// reserve allocates the memory for gathered operands and for the launches.
func (r *execution) reserve() error {
	for i, m := range r.device.members {
		w := &worker{execution: r, member: m, number: i, timeline: r.product.timeline(i), share: &r.Shares[i],
			done: make([]device.Event, len(r.Shares[i].Panels)), waited: map[int]bool{}}
		r.workers = append(r.workers, w)
		if err := w.reserve(); err != nil {
			return fmt.Errorf("panels of operands for %v: %w", r.problem, r.device.failed(m, err))
		}
	}
	return nil
}

func (w *worker) reserve() (err error) {
	alloc := func(to *device.Ptr, n int) {
		if err == nil && n > 0 {
			*to, err = w.backend.Device.Alloc(n)
		}
	}
	for o, part := range w.share.Held {
		alloc(&w.held[o], w.bytes(gemm.Operand(o), part))
	}
	var most [gemm.Operands]int
	scratch := 0
	for i := range w.share.Panels {
		p := &w.share.Panels[i]
		for o, part := range p.Held {
			most[o] = max(most[o], w.bytes(gemm.Operand(o), part))
		}
		if !w.product.Verify {
			scratch = max(scratch, w.launches[w.number][i].scratch)
		}
	}
	for i := range min(w.share.Streamed(), split.Slots) {
		for o, n := range most {
			alloc(&w.slots[i][o], n)
		}
	}
	alloc(&w.scratch, scratch)
	return err
}

// bytes returns the size of a part of operand o in memory of its own.
func (w *worker) bytes(o gemm.Operand, part split.Rect) int {
	if part.Empty() {
		return 0
	}
	return split.LayoutOf(w.elem(o), part).Bytes()
}

// free frees the memory and the events of all members.
func (r *execution) free() error {
	var errs []error
	for _, w := range r.workers {
		all := append(w.held[:], w.scratch)
		for _, slot := range w.slots {
			all = append(all, slot[:]...)
		}
		for _, at := range all {
			if at != 0 {
				errs = append(errs, r.device.failed(w.member, w.backend.Device.Free(at)))
			}
		}
		for _, e := range w.events {
			errs = append(errs, r.device.failed(w.member, e.Free()))
		}
	}
	return device.Join(errs...)
}

// execute enqueues the product, and frees the reserved memory after it. After a failure it first
// waits for the work that is enqueued, which may still use the memory of other members.
func (r *execution) execute(ctx context.Context) error {
	err := r.enqueue(ctx)
	if err != nil {
		for _, w := range r.workers {
			// Errors of this product must not fail the next one.
			_ = w.copies.Sync(context.Background())
			_ = w.backend.Device.Sync(context.Background())
		}
	}
	return device.Join(err, r.free())
}

func (r *execution) enqueue(ctx context.Context) error {
	if !r.moves {
		return r.each(ctx, (*worker).multiply)
	}
	for _, w := range r.workers {
		var err error
		if w.started, err = w.record(w.backend.Device); err != nil {
			return r.device.failed(w.member, err)
		}
	}
	if err := r.each(ctx, (*worker).multiply); err != nil {
		return err
	}
	if err := r.each(ctx, (*worker).collect); err != nil {
		return err
	}
	for _, w := range r.workers {
		if err := w.finish(); err != nil {
			return err
		}
	}
	return nil
}

// fewCalls is the largest number of launches and copies that one goroutine enqueues for all
// members. It takes a few microseconds for each, and tens of microseconds to start others.
const fewCalls = 24

// each calls f for all members, at the same time if they have many launches and copies.
func (r *execution) each(ctx context.Context, f func(*worker, context.Context) error) error {
	busy := r.workers
	if !r.moves {
		busy = slices.DeleteFunc(slices.Clone(busy), func(w *worker) bool { return len(w.share.Panels) == 0 })
	}
	if len(busy) == 1 || r.calls <= fewCalls {
		for _, w := range busy {
			if err := f(w, ctx); err != nil {
				return r.device.failed(w.member, err)
			}
		}
		return nil
	}
	return multi.Each(ctx, len(busy), func(i int) backend.Device { return busy[i].name },
		func(ctx context.Context, i int) error { return exec.Sentinel(f(busy[i], ctx)) })
}

// record records an event, which is freed with the execution.
func (w *worker) record(s device.Stream) (device.Event, error) {
	e, err := s.Record()
	if err == nil {
		w.events = append(w.events, e)
	}
	return e, err
}

// multiply enqueues the copies and launches of the member's panels.
func (w *worker) multiply(ctx context.Context) error {
	if err := w.gather(w.share.Gather, func(o gemm.Operand) (device.Ptr, split.Rect) {
		return w.held[o], w.share.Held[o]
	}); err != nil {
		return err
	}
	gathered := 0
	for i := range w.share.Panels {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, slot := &w.share.Panels[i], gathered%split.Slots
		if len(p.Gather) > 0 {
			gathered++
			if e := w.last[slot]; e != nil {
				if err := w.copies.Wait(e); err != nil {
					return err
				}
			}
			if err := w.gather(p.Gather, func(o gemm.Operand) (device.Ptr, split.Rect) {
				return w.slots[slot][o], p.Held[o]
			}); err != nil {
				return err
			}
		}
		if err := w.launch(ctx, &w.launches[w.number][i], slot); err != nil {
			return err
		}
		reused := len(p.Gather) > 0 && gathered-1+split.Slots < w.share.Streamed()
		if !reused && len(p.Scatter) == 0 {
			continue
		}
		var err error
		if w.done[i], err = w.record(w.backend.Device); err != nil {
			return err
		}
		if reused {
			w.last[slot] = w.done[i]
		}
	}
	return nil
}

// gather enqueues copies into memory of this member, for which its next launch waits. to returns
// the address of the memory for an operand and the part that it holds.
func (w *worker) gather(copies []split.Copy, to func(gemm.Operand) (device.Ptr, split.Rect)) error {
	remote := false
	for _, c := range copies {
		remote = remote || c.From != w.number
		at, part := to(c.Operand)
		l := split.LayoutOf(w.elem(c.Operand), part)
		b := w.operands[c.Operand].Memory.block
		at += device.Ptr(split.Offset(l.Type, part, l.LD, c.Part))
		if err := w.copy(c, at, l.LD, b.address(c.From, c.Part), b.ld[c.From]); err != nil {
			return err
		}
	}
	if !remote {
		return nil
	}
	arrived, err := w.record(w.copies)
	if err != nil {
		return err
	}
	return w.backend.Device.Wait(arrived)
}

// copy enqueues a copy to this member, after the earlier work of both members. A copy within the
// member is in its default stream, between two kernels. In the copy stream it delayed the copies
// after it: bfloat16 16384³ on four H200s took 4.9 ms, and 3.6 ms with the copies here.
func (w *worker) copy(c split.Copy, to device.Ptr, toLD int, from device.Ptr, fromLD int) error {
	stream := device.Stream(w.backend.Device)
	if c.From != w.number {
		stream = w.copies
		for _, member := range []int{w.number, c.From} {
			if !w.waited[member] {
				if err := w.copies.Wait(w.workers[member].started); err != nil {
					return err
				}
				w.waited[member] = true
			}
		}
	}
	bytes := w.elem(c.Operand).Bytes
	rows := device.PeerRows{Count: c.Part.Rows.Len(), Width: bytes(c.Part.Cols.Len()), FromPitch: bytes(fromLD),
		ToPitch: bytes(toLD)}
	return w.timeline.Do(stream, timeline.FromGPU, rows.Bytes(), func() error {
		return stream.CopyPeer(to, w.workers[c.From].backend.Device, from, rows)
	})
}

func (w *worker) elem(o gemm.Operand) dtype.Type { return w.problem.Layout(o).Type }

// launch enqueues a panel, whose gathered operands are in a slot.
func (w *worker) launch(ctx context.Context, l *launch, slot int) error {
	var m kernel.Memory
	for o, at := range l.places {
		from := device.Ptr(at.Offset)
		switch at.In {
		case split.InPart:
			m[o] = w.operands[o].Memory.at[w.number] + from
		case split.InHeld:
			m[o] = w.held[o] + from
		case split.InSlot:
			m[o] = w.slots[slot][o] + from
		}
	}
	pl := l.plan.Scaled(w.problem.Alpha, w.problem.Beta)
	if w.product.Verify {
		return w.product.enqueue(ctx, pl, m)
	}
	// An emulated GPU runs the launch later, and must not drop it when ctx ends after this call.
	return w.timeline.Do(w.backend.Device, timeline.Compute, 0, func() error {
		return w.product.enqueue(context.WithoutCancel(ctx), pl.InScratch(w.scratch), m)
	})
}

// collect enqueues the copies of results that other members have computed, or that this member has
// computed outside its part of C.
func (w *worker) collect(context.Context) error {
	b := w.operands[gemm.C].Memory.block
	for _, from := range w.workers {
		for i := range from.share.Panels {
			p := &from.share.Panels[i]
			for _, c := range p.Scatter {
				if c.To != w.number {
					continue
				}
				if err := w.copies.Wait(from.done[i]); err != nil {
					return err
				}
				at, held, ld := from.held[gemm.C], from.share.Held[gemm.C], 0
				if held.Empty() {
					at, held, ld = b.at[c.From], b.whole.Part(c.From), b.ld[c.From]
				} else {
					ld = split.LayoutOf(b.layout.Type, held).LD
				}
				at += device.Ptr(split.Offset(b.layout.Type, held, ld, c.Part))
				if err := w.copy(c, b.address(w.number, c.Part), b.ld[w.number], at, ld); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// finish makes the default streams of the member and of the sources of its copies wait for them.
func (w *worker) finish() error {
	if len(w.waited) == 0 {
		return nil
	}
	copied, err := w.record(w.copies)
	if err != nil {
		return w.device.failed(w.member, err)
	}
	for i, other := range w.workers {
		if w.waited[i] {
			if err := other.backend.Device.Wait(copied); err != nil {
				return w.device.failed(other.member, err)
			}
		}
	}
	return nil
}
