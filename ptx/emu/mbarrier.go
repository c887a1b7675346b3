package emu

import (
	"encoding/binary"
	"fmt"

	"tilework/ptx"
)

// mbarrier is the content of the 64 bits of an mbarrier in shared memory (manual:
// "parallel-synchronization-and-communication-instructions-mbarrier"). PTX leaves the layout
// undefined, and programs treat the state that arrive returns as opaque.
type mbarrier struct {
	pending  int // arrivals that the current phase still expects
	expected int // arrivals that each later phase expects
	tx       int // bytes that the phase still expects; negative if they arrived before expect_tx
	phase    int // parity of the current phase, 0 or 1
}

// Fields of an mbarrier's word. The tag distinguishes an mbarrier from other data.
const (
	mbarrierBytes    = 8
	mbarrierBits     = 20 // bits of a count, and of the magnitude of tx
	mbarrierMax      = 1<<mbarrierBits - 1
	mbarrierPhaseAt  = 3*mbarrierBits + 1
	mbarrierTagAt    = mbarrierPhaseAt + 1
	mbarrierTag      = 1
	mbarrierTxOffset = 1 << mbarrierBits
)

func (m *mbarrier) pack() uint64 {
	return uint64(m.pending) | uint64(m.expected)<<mbarrierBits | uint64(m.tx+mbarrierTxOffset)<<(2*mbarrierBits) |
		uint64(m.phase)<<mbarrierPhaseAt | mbarrierTag<<mbarrierTagAt
}

// unpackMbarrier decodes a word. ok is false if it does not contain an mbarrier.
func unpackMbarrier(word uint64) (m mbarrier, ok bool) {
	return mbarrier{
		pending:  int(word & mbarrierMax),
		expected: int(word >> mbarrierBits & mbarrierMax),
		tx:       int(word>>(2*mbarrierBits)&(2*mbarrierTxOffset-1)) - mbarrierTxOffset,
		phase:    int(word >> mbarrierPhaseAt & 1),
	}, word>>mbarrierTagAt == mbarrierTag
}

// arrive subtracts n arrivals from the pending count.
func (m *mbarrier) arrive(n int) error {
	if n > m.pending {
		return fmt.Errorf("%d arrivals at an mbarrier whose phase expects %d", n, m.pending)
	}
	m.pending -= n
	return nil
}

// expect adds n bytes to the transaction count. A negative n completes -n bytes.
func (m *mbarrier) expect(n int) error {
	if m.tx += n; m.tx < -mbarrierMax || m.tx > mbarrierMax {
		return fmt.Errorf("the mbarrier's transaction count is %d bytes: want at most %d", m.tx, mbarrierMax)
	}
	return nil
}

// completePhase starts the next phase if the current one is complete, and reports whether it did.
func (m *mbarrier) completePhase() bool {
	if m.pending > 0 || m.tx != 0 {
		return false
	}
	m.pending = m.expected
	m.phase ^= 1
	return true
}

func (m *mbarrier) String() string {
	return fmt.Sprintf("whose phase of parity %d expects %d more arrivals and %d more bytes", m.phase, m.pending, m.tx)
}

func decodeMbarrier(d *decoder) execFunc {
	i := d.i
	switch {
	case i.Has("pending_count"):
		d.operands()
		return op1(func(state uint64) uint32 { m, _ := unpackMbarrier(state); return uint32(m.pending) })
	case i.Has("test_wait"), i.Has("try_wait"):
		return d.mbarrierWait()
	case i.Has("arrive"), i.Has("arrive_drop"):
		return d.mbarrierArrive()
	}
	kind, sign := Write, 0
	switch {
	case i.Has("expect_tx"):
		kind, sign = Atomic, 1
	case i.Has("complete_tx"):
		kind, sign = Atomic, -1
	}
	ac := d.mbarrierAccess(0, kind)
	d.in.access = ac
	if len(i.Args) > 1 {
		d.in.a = d.source(1)
	}
	switch {
	case i.Has("init"):
		return func(w *warp, in *inst) { w.initMbarriers(in, ac) }
	case i.Has("inval"):
		return func(w *warp, in *inst) {
			w.mbarriers(in, ac, func(lane int, word []byte, m *mbarrier, at mbarrierAt) error {
				binary.LittleEndian.PutUint64(word, 0)
				delete(at.block.mbarriers, at.off)
				return nil
			})
		}
	}
	return func(w *warp, in *inst) {
		w.mbarriers(in, ac, func(lane int, word []byte, m *mbarrier, at mbarrierAt) error {
			if err := m.expect(sign * int(reg[uint32](w, in.a)[lane])); err != nil {
				return err
			}
			at.settle(word, m)
			return nil
		})
	}
}

// mbarrierAccess decodes argument k, the address of an mbarrier. Arrivals and waits are atomic
// among all threads of the cluster. The scope of the instruction selects the threads for which it
// orders other memory, and the Mbarrier events carry that order. The writes of mbarrier.init and
// mbarrier.inval are weak.
func (d *decoder) mbarrierAccess(k int, kind AccessKind) *access {
	ac := d.accessOf(k, kind, mbarrierBytes)
	if kind != Write {
		ac.sem, ac.scope = Relaxed, Cluster
	}
	return ac
}

// mbarrierAt is the location of an mbarrier and the origin of an operation on it.
type mbarrierAt struct {
	origin Origin
	warp   *warp // nil for a copy
	block  *block
	off    uint64 // offset in the block's shared memory
}

// settle writes an mbarrier back. If its phase is complete, it starts the next one and wakes the
// waiting groups.
func (at mbarrierAt) settle(word []byte, m *mbarrier) {
	turned := m.completePhase()
	binary.LittleEndian.PutUint64(word, m.pack())
	if turned {
		at.emit(MbarrierComplete, 0)
		at.block.cluster.wakeAll(atMbarrier)
	}
}

// unpack decodes the mbarrier's word.
func (at mbarrierAt) unpack(word []byte) (m mbarrier, err error) {
	m, ok := unpackMbarrier(binary.LittleEndian.Uint64(word))
	if !ok {
		err = fmt.Errorf("no mbarrier at %#x of block %v's shared memory (mbarrier.init)", at.off, at.block.index)
	}
	return m, err
}

// complete changes the mbarrier for the asynchronous operations with the given numbers, which an
// instruction of w has started and which are complete now.
func (at mbarrierAt) complete(w *warp, in *inst, change func(m *mbarrier) error, ids ...uint64) {
	word := at.block.shared.bytes()[at.off:][:mbarrierBytes]
	m, err := at.unpack(word)
	if err == nil {
		err = change(&m)
	}
	if err != nil {
		w.block.cluster.fail(w.siteError(ErrMisuse, in, "%v", err))
		return
	}
	for _, id := range ids {
		at.emit(MbarrierCopy, id)
	}
	at.settle(word, &m)
}

// emit reports an event to the observers of the executing warp's block, or of the mbarrier's block
// for a copy.
func (at mbarrierAt) emit(kind MbarrierKind, copy uint64) {
	by := at.block
	if at.warp != nil {
		by = at.warp.block
	}
	if len(by.mbarrier) == 0 {
		return
	}
	e := Mbarrier{Origin: at.origin, Kind: kind, Rank: at.block.rank, Addr: at.off, Copy: copy}
	for _, f := range by.mbarrier {
		f(&e)
	}
}

// wakeAll makes all groups of the cluster in the given state ready.
func (c *cluster) wakeAll(state groupState) {
	for _, b := range c.blocks {
		for _, w := range b.warps {
			w.wake(state)
		}
	}
}

// mbarrierWords calls do for the mbarrier word of each active lane in turn.
func (w *warp) mbarrierWords(in *inst, ac *access, do func(lane int, word []byte, at mbarrierAt)) {
	w.eachRegion(in, ac, 0, func(t *target, mask uint32) {
		if t.block == nil {
			w.misuse(in, "the mbarrier is in %v memory: want shared memory", t.space)
			return
		}
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			o := w.origin(in)
			o.Mask = 1 << lane
			do(lane, t.bytes(w.off[lane], mbarrierBytes), mbarrierAt{o, w, t.block, w.off[lane]})
		}
	})
}

// mbarriers calls do for the mbarrier of each active lane. It is a misuse if there is none at the
// address.
func (w *warp) mbarriers(in *inst, ac *access, do func(lane int, word []byte, m *mbarrier, at mbarrierAt) error) {
	w.mbarrierWords(in, ac, func(lane int, word []byte, at mbarrierAt) {
		m, err := at.unpack(word)
		if err == nil {
			err = do(lane, word, &m, at)
		}
		if err != nil {
			w.misuse(in, "%v", err)
		}
	})
}

func (w *warp) initMbarriers(in *inst, ac *access) {
	w.mbarrierWords(in, ac, func(lane int, word []byte, at mbarrierAt) {
		n := int(reg[uint32](w, in.a)[lane])
		// Data that were stored at the same address before can look like an mbarrier.
		_, there := unpackMbarrier(binary.LittleEndian.Uint64(word))
		switch {
		case n < 1 || n > mbarrierMax:
			w.misuse(in, "mbarrier count is %d: want 1 to %d", n, mbarrierMax)
			return
		case there && at.block.mbarriers[at.off]:
			w.misuse(in, "%#x already contains an mbarrier (mbarrier.inval)", at.off)
			return
		}
		m := mbarrier{pending: n, expected: n}
		binary.LittleEndian.PutUint64(word, m.pack())
		at.block.mbarriers[at.off] = true
		at.emit(MbarrierInit, 0)
	})
}

// mbarrierArrive decodes arrive and arrive_drop, with or without expect_tx.
func (d *decoder) mbarrierArrive() execFunc {
	i := d.i
	ac := d.mbarrierAccess(1, Atomic)
	d.in.access = ac
	count, bytes := d.constant(ptx.U32, 1), d.constant(ptx.U32, 0)
	if len(i.Args) > 2 {
		if n := d.source(2); i.Has("expect_tx") {
			bytes = n
		} else {
			count = n
		}
	}
	state, wanted := uint32(0), false
	if _, sink := i.Args[0].(*ptx.Sink); !sink {
		state, wanted = d.result(0), true
		d.writesResults()
	}
	drops, noComplete := i.Has("arrive_drop"), i.Has("noComplete")
	return func(w *warp, in *inst) {
		w.mbarriers(in, ac, func(lane int, word []byte, m *mbarrier, at mbarrierAt) error {
			n := int(reg[uint32](w, count)[lane])
			at.emit(MbarrierArrive, 0)
			if wanted {
				reg[uint64](w, state)[lane] = m.pack()
			}
			if err := m.expect(int(reg[uint32](w, bytes)[lane])); err != nil {
				return err
			}
			if drops {
				m.expected -= min(n, m.expected)
			}
			if err := m.arrive(n); err != nil {
				return err
			}
			if noComplete && m.pending == 0 {
				return fmt.Errorf("the arrival completes the phase, which .noComplete forbids")
			}
			at.settle(word, m)
			return nil
		})
		w.syncWorkers(Release)
	}
}

// mbarrierWait decodes test_wait and try_wait. try_wait usually suspends the thread, and gives up
// at random.
func (d *decoder) mbarrierWait() execFunc {
	i := d.i
	ac := d.mbarrierAccess(1, Read)
	d.in.access = ac
	d.in.d = d.result(0)
	d.writesResults()
	phase, byParity, blocks := d.source(2), i.Has("parity"), i.Has("try_wait")
	// over reports whether the phase that a lane waits for is complete.
	over := func(w *warp, lane int, m *mbarrier) bool {
		if byParity {
			return m.phase != int(reg[uint32](w, phase)[lane]&1)
		}
		state, _ := unpackMbarrier(reg[uint64](w, phase)[lane])
		return m.phase != state.phase
	}
	return func(w *warp, in *inst) {
		if blocks && w.mustWait(in, ac, over) && w.block.cluster.rng.next()%8 != 0 {
			w.uncount(in)
			w.suspend(in, atMbarrier)
			w.pick()
			return
		}
		done := uint32(0)
		w.mbarriers(in, ac, func(lane int, _ []byte, m *mbarrier, at mbarrierAt) error {
			if over(w, lane, m) {
				done |= 1 << lane
				at.emit(MbarrierWait, 0)
			}
			return nil
		})
		setPred(w, in.d, done)
		w.syncWorkers(Acquire)
		w.poll(in)
	}
}

// mustWait reports whether the phase is incomplete for all active lanes. It emits no events.
func (w *warp) mustWait(in *inst, ac *access, over func(w *warp, lane int, m *mbarrier) bool) bool {
	for mask := w.active; mask != 0; mask &= mask - 1 {
		lane := firstLane(mask)
		if m, ok := w.mbarrierOf(in, ac, lane); !ok || over(w, lane, &m) {
			return false
		}
	}
	return true
}

// mbarrierOf returns the mbarrier at a lane's address and leaves the addresses in w.addr.
func (w *warp) mbarrierOf(in *inst, ac *access, lane int) (m mbarrier, ok bool) {
	w.addresses(ac)
	t := &w.at
	w.resolve(t, in, ac, w.addr[lane])
	off := w.addr[lane] - t.shift()
	if t.block == nil || off%mbarrierBytes != 0 || off >= t.span(mbarrierBytes) {
		return m, false
	}
	return unpackMbarrier(binary.LittleEndian.Uint64(t.bytes(off, mbarrierBytes)))
}

// mbarrierText describes the mbarrier that a group waits at.
func (w *warp) mbarrierText(g *group) string {
	// The addresses are in the registers of the group's frame.
	base := w.base
	w.base = g.frame.base
	in := &g.frame.fn.code[g.pc]
	lane := firstLane(g.mask)
	m, _ := w.mbarrierOf(in, in.access, lane)
	w.base = base
	return fmt.Sprintf("at the mbarrier at %#x of block %v's shared memory, %v", w.addr[lane]-w.at.shift(),
		w.at.block.index, &m)
}
