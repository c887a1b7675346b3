package stream

import (
	"context"
	"slices"
	"sync"

	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/relay"
)

// RunTogether runs the plans of the parts of a product at the same time. The devices share the
// copies of the operand that all parts need: each copies a piece of every part of the operand from
// the host, and the other pieces from the other devices. The first error ends the work on all
// devices and is returned with the number of its plan, unless ctx has ended. RunTogether returns
// when no device uses the buffers.
func RunTogether(parent context.Context, plans []*Plan, b gemm.Buffers) (failed int, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	e := &exchange{cancel: cancel, missing: len(plans), joined: make(chan struct{})}
	for i := range plans {
		e.members = append(e.members, &member{exchange: e, index: i})
	}
	e.idle.Add(len(plans))
	e.run(ctx, plans, b)
	if err := parent.Err(); err != nil {
		return 0, err
	}
	return e.failedBy, exec.Sentinel(e.failure)
}

// run runs the plans as members. Their errors are in e.failure.
func (e *exchange) run(ctx context.Context, plans []*Plan, b gemm.Buffers) {
	all := relay.Group{Stop: e.cancel}
	for i, pl := range plans {
		all.Go(func() { e.members[i].fail(pl.run(ctx, b, e.members[i])) })
	}
	defer func() { // also after a panic
		for _, m := range e.members {
			if m.last != nil {
				m.fail(m.last.Free())
			}
		}
	}()
	all.Wait()
}

// exchange is a run of the plans of the parts of a product.
type exchange struct {
	members []*member

	joining sync.Mutex
	missing int           // members that have not joined yet
	joined  chan struct{} // closed when all have
	idle    sync.WaitGroup

	cancel   func() // ends the work of all members
	failing  sync.Once
	failure  error // the first
	failedBy int   // the number of its member
}

// member is one of the plans of an exchange.
type member struct {
	exchange *exchange
	index    int
	device   device.Device
	loads    []load       // of the shared operands, in the order of the schedule
	next     int          // the number of the load that is copied next
	active   bool         // reports whether the members exchange pieces
	last     device.Event // after the copies from other devices; nil if there are none
	left     sync.Once
}

// load is the copy of a part of an operand that the device of each member needs.
type load struct {
	operand gemm.Operand
	part    part
	piece   *piece
}

// piece is the part of a load that a member copies from the host.
type piece struct {
	sent  chan struct{} // closed when the copy is enqueued, and the other fields are set
	done  device.Event  // at the end of the copy
	at    device.Ptr
	pitch int // bytes between its rows
}

// join announces the loads of a schedule and waits until all members have done so. Pieces are
// exchanged only if all schedules have the same loads: otherwise two members could wait for each
// other.
func (m *member) join(ctx context.Context, pl *Plan, s *schedule) error {
	if m == nil {
		return nil
	}
	e := m.exchange
	m.device, m.loads = pl.on.Device, pl.sharedLoads(s)
	e.joining.Lock()
	if e.missing--; e.missing == 0 {
		close(e.joined)
	}
	e.joining.Unlock()
	if err := await(ctx, e.joined); err != nil {
		return err
	}
	m.active = len(m.loads) > 0 && !slices.ContainsFunc(e.members, func(other *member) bool {
		return !slices.EqualFunc(m.loads, other.loads, func(a, b load) bool {
			return a.operand == b.operand && a.part == b.part
		})
	})
	return nil
}

// fail ends the work of all members, if err is not nil.
func (m *member) fail(err error) {
	if m == nil || err == nil {
		return
	}
	m.exchange.failing.Do(func() { m.exchange.failure, m.exchange.failedBy = err, m.index })
	m.exchange.cancel()
}

// leave waits until no member enqueues copies from the memory of another. Each member calls it
// before it frees its memory.
func (m *member) leave() {
	if m == nil {
		return
	}
	m.left.Do(m.exchange.idle.Done)
	m.exchange.idle.Wait()
}

// awaitReaders makes the device wait for the copies from its memory to others, before the memory is
// freed.
func (x *oneShot) awaitReaders(ctx context.Context) error {
	m := x.member
	if m == nil {
		return nil
	}
	var errs []error
	if x.arriving != x.in {
		var err error
		if m.last, err = x.arriving.Record(); err != nil {
			errs = append(errs, err, x.arriving.Sync(context.WithoutCancel(ctx)))
		}
	}
	m.leave()
	for _, other := range m.exchange.members {
		if other != m && other.last != nil {
			errs = append(errs, x.device.Wait(other.last))
		}
	}
	return device.Join(errs...)
}

// exchanges reports whether pieces of operand o are exchanged.
func (m *member) exchanges(pl *Plan, o gemm.Operand) bool {
	return m != nil && m.active && pl.shared(o)
}

// shared reports whether all parts of the product need the same parts of operand o.
func (pl *Plan) shared(o gemm.Operand) bool {
	if pl.dividesRows() {
		return o == gemm.B || o == gemm.Up
	}
	return o == gemm.A
}

// exchangeable reports whether pieces of the shared operands can be exchanged: they are not packed
// when they arrive, and no buffer is used again while another device may still read it.
func (pl *Plan) exchangeable(s *schedule) bool {
	if len(s.steps) == 1 {
		return false
	}
	for x := range matrices {
		if !pl.shared(x) {
			continue
		}
		begun := 0
		for i := range s.steps {
			if s.steps[i].begins[x] {
				begun++
			}
		}
		if s.raw[x] > 0 || begun > len(s.sizes[x]) {
			return false
		}
	}
	return true
}

// sharedLoads lists the loads of the shared operands, or nothing if they are not exchanged.
func (pl *Plan) sharedLoads(s *schedule) (all []load) {
	if pl.rates().peer == 0 || !pl.exchangeable(s) {
		return nil
	}
	for i := range s.steps {
		for x, p := range s.steps[i].load {
			if o := gemm.Operand(x); pl.shared(o) && !p.empty() {
				all = append(all, load{o, p, &piece{sent: make(chan struct{})}})
			}
		}
	}
	return all
}

// sharedBytes returns the bytes of the loads of the shared operands.
func (pl *Plan) sharedBytes(s *schedule) (n float64) {
	for _, l := range pl.sharedLoads(s) {
		n += pl.bytes(l.operand, l.part)
	}
	return n
}

// piecesOf cuts a part of an operand into n pieces of whole stored rows. Some may be empty.
func (pl *Plan) piecesOf(o gemm.Operand, p part, n int) (all []part) {
	rows := &p.rows
	if pl.host.Layouts[o].Trans {
		rows = &p.cols
	}
	whole := *rows
	each := kernel.CeilDiv(whole.n(), n)
	for i := range n {
		*rows = span{min(whole.from+i*each, whole.to), min(whole.from+(i+1)*each, whole.to)}
		all = append(all, p)
	}
	return all
}

// copyShared enqueues the copies of a part of a shared operand: this member's piece from the host,
// and then those of the others from their devices.
func (x *oneShot) copyShared(ctx context.Context, s *step, o gemm.Operand, p part) error {
	m := x.member
	n := len(m.exchange.members)
	pieces := x.plan.piecesOf(o, p, n)
	number := m.next
	m.next++
	for i := range n {
		from := m.exchange.members[(m.index+i)%n]
		mine := pieces[from.index]
		if mine.empty() {
			continue
		}
		host, at, rows := x.piece(s, o, mine)
		sent := from.loads[number].piece
		if i == 0 {
			err := x.copyFromHost(ctx, at, host, rows)
			if err == nil {
				sent.done, err = x.record(x.in)
			}
			if err != nil {
				return err
			}
			sent.at, sent.pitch = at, rows.DevicePitch
			close(sent.sent)
			continue
		}
		if err := await(ctx, sent.sent); err != nil {
			return err
		}
		if err := x.arriving.Wait(sent.done); err != nil {
			return err
		}
		if err := x.plan.Timeline.Do(x.arriving, timeline.FromGPU, rows.Bytes(), func() error {
			return x.arriving.CopyPeer(at, from.device, sent.at, device.PeerRows{
				Count: rows.Count, Width: rows.Width, FromPitch: sent.pitch, ToPitch: rows.DevicePitch})
		}); err != nil {
			return err
		}
	}
	return nil
}
