package team

import (
	"context"
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/program"
	"tilework/internal/split"
)

// An execution computes this rank's share of a product.
type execution struct {
	*Team
	*division
	rank int

	own    [gemm.Operands]block // this rank's parts, and vectors
	space  block                // for operands and results that it does not store
	blocks []block              // to free at the end
}

// run computes this rank's share of a product.
func (t *Team) run(ctx context.Context, p *Job, v *division) error {
	x := &execution{Team: t, division: v, rank: t.group.Rank()}
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
func (x *execution) reserve(ctx context.Context, p *Job) (err error) {
	alloc := func(to *block, n int) {
		if err != nil || n == 0 {
			return
		}
		if *to, err = x.store.alloc(n, fmt.Sprintf("panels of operands for %v", &x.Problem)); err == nil {
			x.blocks = append(x.blocks, *to)
		}
	}
	scratch := 0
	for _, task := range x.tasks {
		scratch = max(scratch, task.scratch())
	}
	alloc(&x.space, x.work.Space(x.rank)+scratch)
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

// release frees the memory.
func (x *execution) release() error {
	if x.lost != nil {
		return x.lost
	}
	var errs []error
	for _, b := range x.blocks {
		errs = append(errs, x.store.free(b))
	}
	return device.Join(errs...)
}

// execute computes the share and waits until it is complete.
func (x *execution) execute(ctx context.Context) error {
	queues := []program.Queue{{Stream: x.store.stream(kernels)}, {Stream: x.store.stream(copies)}}
	r := x.work.Runner(queues, x.do)
	r.Leaves = true // work that waits for a failed rank ends only if the transport is aborted
	_, err := r.Run(ctx)
	if err == nil {
		err = x.store.sync(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// do enqueues an op of the rank's program.
func (x *execution) do(ctx context.Context, op *program.Op) error {
	a := &x.work.Actions[op.Step]
	switch op.Kind {
	case program.Launch:
		return x.compute(ctx, a)
	case program.Copy:
		return x.store.copy(x.target(a, &a.Copy), x.source(a, &a.Copy))
	}
	var sends, receives []transfer
	for i := range a.Moves {
		if c := &a.Moves[i]; c.From == x.rank {
			sends = append(sends, transfer{c.To, x.source(a, c)})
		} else {
			receives = append(receives, transfer{c.From, x.target(a, c)})
		}
	}
	return x.transport.exchange(ctx, sends, receives)
}

// compute enqueues a panel.
func (x *execution) compute(ctx context.Context, a *split.Action) error {
	var operands [gemm.Operands]block
	for o, at := range x.places[a.Panel] {
		if at.In != split.InNone {
			own, offset := x.work.Operand(a, gemm.Operand(o), at)
			operands[o] = x.block(gemm.Operand(o), own, offset)
		}
	}
	return x.tasks[a.Panel].run(ctx, &operands, x.space.from(x.work.Space(x.rank)))
}

// block returns the block at an offset of this rank's part of an operand, or of its space.
func (x *execution) block(o gemm.Operand, own bool, offset int) block {
	if own {
		return x.own[o].from(offset)
	}
	return x.space.from(offset)
}

// source returns the part of this rank's memory where a copy begins.
func (x *execution) source(a *split.Action, c *split.Copy) part {
	return x.part(c, x.work.Source(a, c))
}

// target returns the part of this rank's memory where a copy ends.
func (x *execution) target(a *split.Action, c *split.Copy) part {
	return x.part(c, x.work.Target(a, c))
}

func (x *execution) part(c *split.Copy, a split.Area) part {
	t := x.elem(c.Operand)
	return part{x.block(c.Operand, a.Own, a.Offset), c.Part.Rows.Len(), t.Bytes(c.Part.Cols.Len()), t.Bytes(a.LD)}
}
