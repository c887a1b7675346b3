package emu

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// asyncCopy is a cp.async that some lanes have issued and not yet waited for.
type asyncCopy struct {
	id    uint64
	mask  uint32 // lanes that have not waited for it
	group commitGroups
	done  bool // the bytes were copied
	size  int
	// The addresses of each lane, resolved when the copy was issued.
	from, to [lanes]unsafe.Pointer
	bytes    [lanes]int // bytes to read from the source; the rest of the destination is zeroed
}

// copyQueue holds the copies of a warp, oldest first.
type copyQueue struct {
	open   []*asyncCopy
	spare  []*asyncCopy
	groups commitGroups
}

// commitGroups holds the number of the current group of each lane.
type commitGroups [lanes]int

// commit closes the current groups of the lanes of mask.
func (g *commitGroups) commit(mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		g[firstLane(mask)]++
	}
}

func (q *copyQueue) reset() {
	q.spare = append(q.spare, q.open...)
	q.open = q.open[:0]
	clear(q.groups[:])
}

// cpAsync holds the operands of cp.async.
type cpAsync struct {
	to, from *access
	size     int
	bytes    uint32 // slot of the number of bytes to read, or always if all bytes are read
}

func decodeCpAsync(d *decoder) execFunc {
	i := d.i
	switch {
	case i.Has("bulk"):
		return decodeBulk(d)
	case i.Has("mbarrier"):
		return d.arriveWithCopies()
	case i.Has("commit_group"):
		return func(w *warp, in *inst) { w.copies.groups.commit(w.active) }
	case i.Has("wait_all"):
		return func(w *warp, in *inst) {
			w.copies.groups.commit(w.active)
			w.waitCopies(in, 0)
		}
	case i.Has("wait_group"):
		n := int(d.constInt(0))
		return func(w *warp, in *inst) { w.waitCopies(in, n) }
	}
	size := int(d.constInt(2))
	c := &cpAsync{to: d.accessOf(0, AsyncWrite, size), from: d.accessOf(1, AsyncRead, size), size: size, bytes: always}
	last := len(i.Args)
	if i.Has("L2::cache_hint") {
		last--
	}
	if last == 4 {
		c.bytes = d.source(3)
	}
	d.in.x = c
	return execCpAsync
}

// execCpAsync issues a copy. The bytes move at random either now or at the wait, so a program that
// lacks the wait computes wrong results here too.
func execCpAsync(w *warp, in *inst) {
	c := in.x.(*cpAsync)
	b := w.block
	b.cluster.operations++
	q := &w.copies
	var a *asyncCopy
	if n := len(q.spare); n > 0 {
		a, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		a = &asyncCopy{}
	}
	a.id, a.done, a.size = b.cluster.operations, false, c.size
	all := w.active
	for i := range a.bytes {
		a.bytes[i] = c.size
	}
	if c.bytes != always {
		n := reg[uint32](w, c.bytes)
		for m := all; m != 0; m &= m - 1 {
			i := firstLane(m)
			if n[i] > uint32(c.size) {
				w.misuse(in, "cp.async reads %d bytes: want at most the copy size of %d", n[i], c.size)
				return
			}
			a.bytes[i] = int(n[i])
			if n[i] == 0 { // a source of 0 bytes is not read, so its address may be invalid
				w.active &^= 1 << i
			}
		}
	}
	var refused uint32
	w.moved.lanes = 0
	for todo := w.active; todo != 0; todo &^= w.active {
		from := *c.from // each pass handles the lanes that read the same number of bytes
		from.size, from.align = a.bytes[firstLane(todo)], c.size
		w.active = 0
		for m := todo; m != 0; m &= m - 1 {
			if i := firstLane(m); a.bytes[i] == from.size {
				w.active |= 1 << i
			}
		}
		refused |= w.eachRegion(in, &from, a.id, func(t *target, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				i := firstLane(m)
				a.from[i] = unsafe.Add(t.mem, w.off[i])
			}
		})
	}
	if w.active = all &^ refused; w.active != 0 {
		refused |= w.eachRegion(in, c.to, a.id, func(t *target, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				i := firstLane(m)
				a.to[i] = unsafe.Add(t.mem, w.off[i])
			}
		})
	}
	w.active = all
	a.mask = all &^ refused
	a.group = q.groups
	w.checkOpen(in, len(q.open))
	q.open = append(q.open, a)
	if b.cluster.rng.next()&1 == 0 {
		a.move()
	}
}

// maxOpen is the maximum number of operations of one kind that a warp can start without a wait.
const maxOpen = 1 << 14

// checkOpen ends the launch if a warp has started too many operations without a wait.
func (w *warp) checkOpen(in *inst, open int) {
	if open == maxOpen {
		w.misuse(in, "the warp has started %d operations without a wait: want fewer", maxOpen)
	}
}

// move copies the bytes of all lanes that have not waited yet.
func (a *asyncCopy) move() {
	if a.done {
		return
	}
	a.done = true
	for m := a.mask; m != 0; m &= m - 1 {
		i := firstLane(m)
		to := unsafe.Slice((*byte)(a.to[i]), a.size)
		n := a.bytes[i]
		if n > 0 {
			copy(to, unsafe.Slice((*byte)(a.from[i]), n))
		}
		clear(to[n:])
	}
}

// waitCopies completes the copies of the active lanes except those of the last n groups.
func (w *warp) waitCopies(in *inst, n int) {
	q := &w.copies
	var finished []CopyLanes
	kept := q.open[:0]
	for _, a := range q.open {
		var mask uint32
		for m := a.mask & w.active; m != 0; m &= m - 1 {
			if i := firstLane(m); a.group[i] < q.groups[i]-n {
				mask |= 1 << i
			}
		}
		if mask != 0 {
			a.move() // also moves the bytes of lanes that have not waited yet
			a.mask &^= mask
			if len(w.block.copyDone) > 0 {
				finished = append(finished, CopyLanes{a.id, mask})
			}
		}
		if a.mask != 0 {
			kept = append(kept, a)
		} else {
			q.spare = append(q.spare, a)
		}
	}
	q.open = kept
	w.emitCopyDone(in, finished, false)
}

// emitCopyDone reports that a wait completed copies, or only the reads of their sources.
func (w *warp) emitCopyDone(in *inst, finished []CopyLanes, read bool) {
	if len(finished) == 0 {
		return
	}
	e := CopyDone{Origin: w.origin(in), Copies: finished, Read: read}
	for _, f := range w.block.copyDone {
		f(&e)
	}
}

// arriveWithCopies decodes cp.async.mbarrier.arrive: an arrival that happens when all copies that
// the thread issued before are complete.
func (d *decoder) arriveWithCopies() execFunc {
	ac := d.mbarrierAccess(0, Atomic)
	d.in.access = ac
	counts := !d.i.Has("noinc")
	return func(w *warp, in *inst) {
		w.mbarriers(in, ac, func(lane int, word []byte, m *mbarrier, at mbarrierAt) error {
			if counts {
				if m.pending++; m.pending > mbarrierMax {
					return fmt.Errorf("the mbarrier has more than %d pending arrivals", mbarrierMax)
				}
				binary.LittleEndian.PutUint64(word, m.pack())
			}
			var before []*asyncCopy
			for _, a := range w.copies.open {
				if a.mask>>lane&1 != 0 {
					before = append(before, a)
				}
			}
			w.block.cluster.startAsync(&asyncOp{
				origin: at.origin, warp: w, uses: []*block{w.block, at.block},
				parts: []func(){func() { w.copiesArrive(in, at, before) }},
			})
			return nil
		})
	}
}

// copiesArrive completes copies and arrives at an mbarrier.
func (w *warp) copiesArrive(in *inst, at mbarrierAt, before []*asyncCopy) {
	at.warp = nil // the thread has moved on
	var ids []uint64
	for _, a := range before {
		a.move()
		ids = append(ids, a.id)
	}
	at.complete(w, in, func(m *mbarrier) error { return m.arrive(1) }, ids...)
}
