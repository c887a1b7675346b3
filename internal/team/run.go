package team

import (
	"context"
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/program"
	"tilework/internal/relay"
	"tilework/internal/split"
)

// An execution computes this rank's share of a product.
//
// One goroutine exchanges parts of operands in rounds, the same ones on all ranks, and another one
// enqueues the panels of C. Round 0 gathers the operands that all panels need, and round i+1 those
// of panel i. The last rounds bring panels of C to the ranks that store them. A panel waits for its
// round, and a round for the panel that used the same memory before.
type execution struct {
	*Team
	*division
	rank  int
	share *split.Share

	own     [gemm.Operands]block              // this rank's parts, and vectors
	held    [gemm.Operands]block              // operands that are gathered before the first panel
	slots   [split.Slots][gemm.Operands]block // of panels
	scratch block
	blocks  []block // to free at the end

	gathered []milestone // the end of the round of each panel
	computed []milestone // the end of each panel
	before   []int       // the panel that used the slot of each panel before, or -1
	slot     []int       // of each panel
}

// milestone is a point in a queue. ready is closed when its event is set.
type milestone struct {
	ready chan struct{}
	event device.Event
}

// run computes this rank's share of a product.
func (t *Team) run(ctx context.Context, p *Product, v *division) error {
	x := &execution{Team: t, division: v, rank: t.group.Rank()}
	x.share = &v.Shares[x.rank]
	err := x.reserve(ctx, p)
	if err == nil {
		err = x.execute(ctx)
	}
	if err == nil {
		return x.release()
	}
	// The work in flight uses the memory. Without the other ranks it ends only if it is aborted.
	t.transport.abort()
	err = t.failed(err) // the other ranks do not wait for this device
	_ = t.drain()       // its error is a consequence of err
	return &finalError{device.Join(err, x.release())}
}

// reserve allocates the memory for gathered operands and for the tasks, and copies vectors there.
func (x *execution) reserve(ctx context.Context, p *Product) (err error) {
	alloc := func(to *block, n int) {
		if err != nil || n == 0 {
			return
		}
		if *to, err = x.store.alloc(n, fmt.Sprintf("panels of operands for %v", &x.Problem)); err == nil {
			x.blocks = append(x.blocks, *to)
		}
	}
	size := func(o int, r program.Rect) int {
		if r.Empty() {
			return 0
		}
		return split.LayoutOf(x.elem(gemm.Operand(o)), r).Bytes()
	}
	for o, r := range x.share.Held {
		alloc(&x.held[o], size(o, r))
	}
	var most [gemm.Operands]int
	scratch, gathering := 0, 0
	last := [split.Slots]int{-1, -1}
	for i := range x.share.Panels {
		panel := &x.share.Panels[i]
		for o, r := range panel.Held {
			most[o] = max(most[o], size(o, r))
		}
		scratch = max(scratch, x.tasks[i].scratch())
		slot, before := gathering%split.Slots, -1
		if len(panel.Gather) > 0 {
			before, last[slot] = last[slot], i
			gathering++
		}
		x.slot, x.before = append(x.slot, slot), append(x.before, before)
	}
	for i := range min(gathering, split.Slots) {
		for o, n := range most {
			alloc(&x.slots[i][o], n)
		}
	}
	alloc(&x.scratch, scratch)
	for i := range x.own {
		o := gemm.Operand(i)
		switch given := &p.Operands[i]; {
		case !p.Uses(o):
		case given.On.Memory != nil:
			x.own[i] = given.On.Memory.block
		default:
			n := x.elem(o).Bytes(x.Layout(o).Cols)
			if alloc(&x.own[i], n); err == nil && n > 0 {
				err = x.store.write(ctx, kernels, part{x.own[i], 1, n, n}, given.Host, n)
			}
		}
	}
	return err
}

// release frees the memory and the events.
func (x *execution) release() error {
	if x.lost != nil {
		return x.lost
	}
	var errs []error
	for _, b := range x.blocks {
		errs = append(errs, x.store.free(b))
	}
	for _, all := range [][]milestone{x.gathered, x.computed} {
		for _, m := range all {
			if m.event != nil {
				errs = append(errs, m.event.Free())
			}
		}
	}
	return device.Join(errs...)
}

// execute computes the share and waits until it is complete.
func (x *execution) execute(parent context.Context) error {
	rounds := 0 // of panels
	for i := range x.Shares {
		rounds = max(rounds, len(x.Shares[i].Panels))
	}
	x.gathered, x.computed = milestones(len(x.share.Panels)), milestones(len(x.share.Panels))
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if err := x.order(kernels, copies); err != nil {
		return err
	}
	exchange := relay.Group{Stop: func() { cancel(nil) }}
	exchange.Go(func() {
		if err := x.exchangeAll(ctx, rounds); err != nil {
			cancel(err)
		}
	})
	for i := range x.share.Panels {
		if err := x.compute(ctx, i); err != nil {
			cancel(err)
			break
		}
	}
	exchange.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := x.order(copies, kernels); err != nil {
		return err
	}
	if err := x.store.sync(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// order makes all later work of one queue wait for all earlier work of another one.
func (x *execution) order(first, then queue) error {
	e, err := x.store.record(first)
	if err != nil || e == nil {
		return err
	}
	return device.Join(x.store.wait(then, e), e.Free())
}

func milestones(n int) []milestone {
	all := make([]milestone, n)
	for i := range all {
		all[i].ready = make(chan struct{})
	}
	return all
}

// reach sets the event of a milestone to the end of a queue.
func (x *execution) reach(m *milestone, q queue) (err error) {
	m.event, err = x.store.record(q)
	if err == nil {
		close(m.ready)
	}
	return err
}

// await makes a queue wait for a milestone.
func (x *execution) await(ctx context.Context, m *milestone, q queue) error {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.event == nil {
		return nil
	}
	return x.store.wait(q, m.event)
}

// compute enqueues panel i.
func (x *execution) compute(ctx context.Context, i int) error {
	if err := x.await(ctx, &x.gathered[i], kernels); err != nil {
		return err
	}
	var operands [gemm.Operands]block
	for o, at := range x.places[i] {
		switch at.In {
		case split.InPart:
			operands[o] = x.own[o].from(at.Offset)
		case split.InHeld:
			operands[o] = x.held[o].from(at.Offset)
		case split.InSlot:
			operands[o] = x.slots[x.slot[i]][o].from(at.Offset)
		}
	}
	if err := x.tasks[i].run(ctx, &operands, x.scratch); err != nil {
		return err
	}
	return x.reach(&x.computed[i], kernels)
}

// exchangeAll exchanges parts of operands, and then panels of C.
func (x *execution) exchangeAll(ctx context.Context, rounds int) error {
	for round := range 1 + rounds {
		i := round - 1
		computes := i >= 0 && i < len(x.share.Panels)
		if computes && x.before[i] >= 0 {
			if err := x.await(ctx, &x.computed[x.before[i]], copies); err != nil {
				return err
			}
		}
		of := func(s *split.Share) []split.Copy { return gathers(s, round) }
		if err := x.round(ctx, of, x.mine, x.target(round)); err != nil {
			return err
		}
		if computes {
			if err := x.reach(&x.gathered[i], copies); err != nil {
				return err
			}
		}
	}
	for i := range rounds {
		if i < len(x.share.Panels) && len(x.share.Panels[i].Scatter) > 0 {
			if err := x.await(ctx, &x.computed[i], copies); err != nil {
				return err
			}
		}
		of := func(s *split.Share) []split.Copy { return scatters(s, i) }
		if err := x.round(ctx, of, x.result, x.mine); err != nil {
			return err
		}
	}
	return nil
}

// gathers returns the copies of a round to the rank of a share.
func gathers(s *split.Share, round int) []split.Copy {
	switch {
	case round == 0:
		return s.Gather
	case round <= len(s.Panels):
		return s.Panels[round-1].Gather
	}
	return nil
}

// scatters returns the copies of panel i from the rank of a share.
func scatters(s *split.Share, i int) []split.Copy {
	if i < len(s.Panels) {
		return s.Panels[i].Scatter
	}
	return nil
}

// round executes copies of all ranks, as far as they concern this one. of returns those in a share,
// from and to the parts of this rank's memory where a copy begins and ends.
func (x *execution) round(ctx context.Context, of func(*split.Share) []split.Copy,
	from, to func(split.Copy) part) error {
	var sends, receives []transfer
	for rank := range x.Shares {
		for _, c := range of(&x.Shares[rank]) {
			switch {
			case c.From == x.rank && c.To == x.rank:
				if err := x.store.copy(to(c), from(c)); err != nil {
					return err
				}
			case c.From == x.rank:
				sends = append(sends, transfer{c.To, from(c)})
			case c.To == x.rank:
				receives = append(receives, transfer{c.From, to(c)})
			}
		}
	}
	return x.transport.exchange(ctx, sends, receives)
}

// result returns the part of this rank's memory where it has computed a panel of C.
func (x *execution) result(c split.Copy) part {
	if held := x.share.Held[gemm.C]; !held.Empty() {
		return x.at(x.held[gemm.C], held, c.Operand, c.Part)
	}
	return x.mine(c)
}

// mine returns the part of a copy in this rank's part of a matrix.
func (x *execution) mine(c split.Copy) part {
	return x.at(x.own[c.Operand], x.Places[c.Operand].Matrix.Part(x.rank), c.Operand, c.Part)
}

// target returns the function that returns the part of gathered memory where a copy of a round
// ends.
func (x *execution) target(round int) func(split.Copy) part {
	return func(c split.Copy) part {
		if round == 0 {
			return x.at(x.held[c.Operand], x.share.Held[c.Operand], c.Operand, c.At)
		}
		return x.at(x.slots[x.slot[round-1]][c.Operand], x.share.Panels[round-1].Held[c.Operand], c.Operand, c.At)
	}
}

// at returns a part of operand o in a block that holds the rectangle has.
func (x *execution) at(b block, has program.Rect, o gemm.Operand, r program.Rect) part {
	t := x.elem(o)
	ld := split.LayoutOf(t, has).LD
	return part{b.from(split.Offset(t, has, ld, r)), r.Rows.Len(), t.Bytes(r.Cols.Len()), t.Bytes(ld)}
}
