package resident

import (
	"context"
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/program"
	"tilework/internal/split"
)

// execution is a run of a divided product. It is kept with the division, for the next product.
type execution struct {
	*division
	*program.Runner
	product *Job
	blocks  [gemm.Operands]*block // of the operands
	bases   []device.Ptr          // of the members' workspaces
}

// execution returns the execution of the division.
func (x *division) execution() *execution {
	if x.kept == nil {
		r := &execution{division: x, bases: make([]device.Ptr, len(x.device.members))}
		var queues []program.Queue
		for _, m := range x.device.members {
			queues = append(queues, program.Queue{Stream: m.backend.Device}, program.Queue{Stream: m.copies})
		}
		r.Runner = x.work.Runner(queues, r.do)
		x.kept = r
	}
	return x.kept
}

// run enqueues the product on all members, in smaller panels if a member has too little memory.
// After an error C is undefined, but too little memory for the smallest panels leaves it unchanged.
func (x *division) run(ctx context.Context, p *Job, blocks *[gemm.Operands]*block) error {
	x.device.ordering.Lock()
	defer x.device.ordering.Unlock()
	if err := x.compile(ctx); err != nil {
		return err
	}
	x, err := program.Reserve(x, func(x *division) error {
		r := x.execution()
		r.product, r.blocks = p, *blocks
		return r.reserve()
	}, func(x *division) error { return x.execution().free() }, (*division).smaller)
	if err != nil {
		return err
	}
	return x.execution().execute(ctx)
}

// reserve allocates the memory for gathered operands and for the launches.
func (r *execution) reserve() (err error) {
	for i, m := range r.device.members {
		if r.bases[i], err = m.reserve(r.work.Space(i) + r.scratch[i]); err != nil {
			return fmt.Errorf("panels of operands for %v: %w", &r.Problem, r.device.failed(m, err))
		}
	}
	return nil
}

// keptBytes is the largest memory that a member keeps for the operands and launches of the next
// product.
const keptBytes = 16 << 20

// reserve returns memory of n bytes, which the caller passes to release.
func (m *member) reserve(n int) (device.Ptr, error) {
	if n <= m.keptSize {
		return m.kept, nil
	}
	if err := m.freeKept(); err != nil {
		return 0, err
	}
	at, err := m.backend.Device.Alloc(n)
	if err == nil && n <= keptBytes {
		m.kept, m.keptSize = at, n
	}
	return at, err
}

// release frees memory unless the member keeps it.
func (m *member) release(at device.Ptr) error {
	if at == m.kept {
		return nil
	}
	return m.backend.Device.Free(at)
}

func (m *member) freeKept() error {
	at := m.kept
	m.kept, m.keptSize = 0, 0
	return m.backend.Device.Free(at)
}

// free frees the memory of all members.
func (r *execution) free() (err error) {
	for i, m := range r.device.members {
		err = device.Join(err, r.device.failed(m, m.release(r.bases[i])))
		r.bases[i] = 0
	}
	r.product, r.blocks = nil, [gemm.Operands]*block{}
	return err
}

// execute enqueues the product, and frees the reserved memory after it.
func (r *execution) execute(ctx context.Context) error {
	for lane := range r.Queues {
		r.Queues[lane].Timeline = r.product.timeline(lane / split.Lanes)
	}
	op, err := r.Run(ctx)
	if op != nil {
		err = r.device.failed(r.device.members[op.Lane/split.Lanes], err)
	}
	return device.Join(err, r.free())
}

func (r *execution) do(ctx context.Context, op *program.Op) error {
	if op.Kind == program.Launch {
		return r.launch(ctx, op)
	}
	return r.copy(op, r.Queues[op.Lane].Stream)
}

// address returns the address of an area of a member's part of an operand, or of its workspace.
func (r *execution) address(member int, o gemm.Operand, own bool, offset int) device.Ptr {
	if own {
		return r.blocks[o].at[member] + device.Ptr(offset)
	}
	return r.bases[member] + device.Ptr(offset)
}

// copy enqueues a copy between members or within one.
func (r *execution) copy(op *program.Op, on device.Stream) error {
	x := &r.work.Actions[op.Step]
	c := &x.Copy
	from, to, t := r.work.Source(x, c), r.work.Target(x, c), r.Layout(c.Operand).Type
	return on.CopyPeer(r.address(c.To, c.Operand, to.Own, to.Offset), r.device.members[c.From].backend.Device,
		r.address(c.From, c.Operand, from.Own, from.Offset), device.PeerRows{Count: c.Part.Rows.Len(),
			Width: t.Bytes(c.Part.Cols.Len()), FromPitch: t.Bytes(from.LD), ToPitch: t.Bytes(to.LD)})
}

// launch enqueues the launches of a panel.
func (r *execution) launch(ctx context.Context, op *program.Op) error {
	x := &r.work.Actions[op.Step]
	l := &r.launches[x.Member][x.Panel]
	var m kernel.Memory
	for o, at := range l.places {
		if at.In != split.InNone {
			own, offset := r.work.Operand(x, gemm.Operand(o), at)
			m[o] = r.address(x.Member, gemm.Operand(o), own, offset)
		}
	}
	if !r.product.Verify { // an emulated GPU runs the launch later, and must not drop it when ctx ends after this call
		ctx = context.Background()
	}
	scratch := r.bases[x.Member] + device.Ptr(r.work.Space(x.Member))
	return r.product.enqueue(ctx, l.plan, r.device.members[x.Member].backend.Device, scratch, &m)
}
