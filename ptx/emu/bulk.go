package emu

import (
	"slices"

	"tilework/ptx"
)

// bulkCopy holds the operands of cp.async.bulk, cp.async.bulk.tensor and cp.reduce.async.bulk.
type bulkCopy struct {
	to, from *access // for a tensor, the address of its tensor map
	coords   []uint32
	offsets  []uint32 // of an im2col load
	size     uint32   // slot of the number of bytes; unused for a tensor
	mbarrier *access
	mask     uint32 // slot of the multicast mask, or always
	op       string // of a reduction
	elem     ptx.Type
}

// bulkGroups holds the bulk copies of a warp that no wait has completed.
type bulkGroups struct {
	open   []openBulk
	groups commitGroups
}

type openBulk struct {
	*asyncOp
	lane, group int
	read        bool // a wait observed that the source was read
}

func decodeBulk(d *decoder) execFunc {
	i := d.i
	switch {
	case i.Has("prefetch"):
		return decodeNop(d)
	case i.Has("commit_group"):
		return func(w *warp, in *inst) { w.bulk.groups.commit(w.active) }
	case i.Has("wait_group"):
		n, read := int(d.constInt(0)), i.Has("read")
		return func(w *warp, in *inst) { w.waitBulk(in, n, read) }
	}
	c := &bulkCopy{to: d.accessOf(0, AsyncWrite, 0), from: d.accessOf(1, AsyncRead, 0), mask: always, op: i.Mod("op")}
	if c.op != "" {
		if t, ok := ptx.ParseType(i.Mod("type")); ok {
			c.elem = t
		}
		reduced := *c.to
		reduced.kind = Atomic
		d.in.access = &reduced
	}
	for k, arg := range i.Args {
		if a, ok := arg.(*ptx.Addr); ok && a.Coords != nil {
			for _, e := range a.Coords.Elems {
				c.coords = append(c.coords, d.value(e, ptx.S32))
			}
		}
		switch i.Operand(k).Name {
		case "offsets":
			for _, e := range arg.(*ptx.Vector).Elems {
				c.offsets = append(c.offsets, d.value(e, ptx.U16))
			}
		case "n":
			c.size = d.source(k)
		case "mbar":
			c.mbarrier = d.accessOf(k, Atomic, mbarrierBytes)
			c.mbarrier.space = ptx.SharedCluster
		case "mask":
			c.mask = d.source(k)
		}
	}
	if c.to.space == ptx.Shared {
		c.to.space = ptx.SharedCluster
	}
	return func(w *warp, in *inst) {
		w.eachLane(func(lane int) { c.begin(w, in, lane) })
	}
}

// bulkMove is the bulk copy of one lane with its resolved addresses.
type bulkMove struct {
	*bulkCopy
	warp         *warp
	in           *inst
	lane         int
	bytes        int // total size
	swizzle      int
	row          int // bytes of a row of the TMA box, and the distance of two rows in shared memory
	pitch        int
	roundsToTF32 bool            // values are rounded to tf32 on the way
	global       []segment       // in order of their position in the data
	alloc        *Allocation     // contains the segments
	source       *sharedLocation // nil for a source in global memory
	targets      []sharedLocation
	fillNaN      bool   // fills the part outside of the tensor with NaNs
	data         []byte // set once the source was read
}

// sharedLocation is a source or destination of a copy in the shared memory of a block, with the
// mbarrier that tracks its completion.
type sharedLocation struct {
	block    *block
	off      uint64
	mbarrier uint64 // offset in the block's shared memory
}

func (c *bulkCopy) begin(w *warp, in *inst, lane int) {
	m := &bulkMove{bulkCopy: c, warp: w, in: in, lane: lane}
	if !m.resolve() {
		return
	}
	if m.bytes == 0 {
		return
	}
	f := &asyncOp{origin: w.origin(in), warp: w, id: w.block.cluster.operations + 1}
	if m.source != nil {
		f.uses = append(f.uses, m.source.block)
		m.emitShared(f.id, AsyncRead, m.source)
	} else {
		m.emitGlobal(f.id, AsyncRead)
	}
	if m.mbarrier == nil { // to global memory
		w.block.cluster.operations++
		m.emitGlobal(f.id, AsyncWrite)
		f.parts = append(f.parts, func() {
			m.read()
			f.release(m.source.block)
		}, m.writeGlobal)
		w.checkOpen(in, len(w.bulk.open))
		w.bulk.open = append(w.bulk.open, openBulk{asyncOp: f, lane: lane, group: w.bulk.groups[lane]})
		w.block.cluster.startAsync(f)
		return
	}
	f.parts = append(f.parts, m.read)
	// A multicast copy reaches its destination blocks in random order.
	for _, n := range w.block.cluster.rng.order(len(m.targets)) {
		to := &m.targets[n]
		w.block.cluster.operations++
		id := w.block.cluster.operations
		f.uses = append(f.uses, to.block)
		m.emitShared(id, AsyncWrite, to)
		f.parts = append(f.parts, func() {
			m.writeShared(id, to)
			f.release(to.block)
		})
	}
	w.block.cluster.startAsync(f)
}

// resolve determines the data to copy and its addresses. It returns false after a fault or misuse.
func (m *bulkMove) resolve() bool {
	w, in := m.warp, m.in
	ok := true
	switch {
	case m.coords != nil:
		ok = m.resolveTensor()
	default:
		m.bytes = int(reg[uint32](w, m.size)[m.lane])
		m.row, m.pitch = m.bytes, m.bytes
		if m.bytes%16 != 0 {
			w.misuse(in, "copy size is %d bytes: want a multiple of 16", m.bytes)
			return false
		}
		for _, ac := range []*access{m.from, m.to} {
			if ac.space == ptx.Global {
				w.addresses(ac)
				m.global = []segment{{addr: w.addr[m.lane], n: m.bytes}}
			}
		}
	}
	if !ok || !m.checkGlobal() {
		return false
	}
	align := uint64(16)
	if m.coords != nil {
		align = 128
	}
	if m.from.space == ptx.Shared {
		p, ok := w.sharedAddr(in, m.from, m.lane, m.sharedExtent(), align)
		if !ok {
			return false
		}
		m.source = &p
	}
	if m.mbarrier == nil {
		return true
	}
	to, ok1 := w.sharedAddr(in, m.to, m.lane, m.sharedExtent(), align)
	at, ok2 := w.sharedAddr(in, m.mbarrier, m.lane, mbarrierBytes, mbarrierBytes)
	if !ok1 || !ok2 {
		return false
	}
	to.mbarrier = at.off
	if m.mask == always {
		if to.block != at.block {
			w.misuse(in, "the copy writes to block %v and its mbarrier is in block %v: want the same block", to.block.index,
				at.block.index)
			return false
		}
		m.targets = []sharedLocation{to}
		return true
	}
	blocks, ok := w.multicast(in, m.mask, m.lane)
	for _, b := range blocks {
		to.block = b
		m.targets = append(m.targets, to)
	}
	return ok
}

// multicast returns the blocks of the multicast mask that a lane has in a slot. ok is false after a
// misuse.
func (w *warp) multicast(in *inst, slot uint32, lane int) (blocks []*block, ok bool) {
	mask, all := bitsAt(w, slot, lane, 2), w.block.cluster.blocks
	if mask>>len(all) != 0 {
		w.misuse(in, "multicast mask is %#x in a cluster of %d blocks", mask, len(all))
		return nil, false
	}
	for n, b := range all {
		if mask>>n&1 != 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks, true
}

// resolveTensor does the work of resolve for a TMA box.
func (m *bulkMove) resolveTensor() bool {
	w, in := m.warp, m.in
	ac := m.from
	if m.mbarrier == nil {
		ac = m.to
	}
	w.addresses(ac)
	addr := w.addr[m.lane]
	t := &w.at
	w.resolve(t, in, ac, addr)
	off := addr - t.shift()
	if off%ptx.TensorMapAlign != 0 || off >= t.span(ptx.TensorMapBytes) {
		w.misuse(in, "tensor map is at %#x of %v memory: want 128 bytes at a multiple of 64", off, t.space)
		return false
	}
	tm, ok := decodeTensorMap(t.bytes(off, ptx.TensorMapBytes))
	switch {
	case !ok:
		w.misuse(in, "no tensor map at %#x of %v memory", off, t.space)
		return false
	case len(tm.Dims) != len(m.coords):
		w.misuse(in, "%d coordinates for a tensor of %d dimensions", len(m.coords), len(tm.Dims))
		return false
	case tm.Im2col() && m.offsets == nil:
		w.misuse(in, "the tensor map is for im2col mode: want an instruction with .im2col")
		return false
	case !tm.Im2col() && m.offsets != nil:
		w.misuse(in, "the tensor map is for tiled mode: want an instruction without .im2col")
		return false
	}
	var coords, offsets []int
	for _, slot := range m.coords {
		coords = append(coords, int(int32(reg[uint32](w, slot)[m.lane])))
	}
	for _, slot := range m.offsets {
		offsets = append(offsets, int(bitsAt(w, slot, m.lane, 2)))
	}
	if coords[0]*tm.ElementBytes()%tensorPiece != 0 {
		w.misuse(in, "the rows of the TMA box start at element %d of %d bytes each: want a multiple of 16 bytes", coords[0],
			tm.ElementBytes())
		return false
	}
	if m.mbarrier == nil && slices.Min(coords) < 0 {
		w.misuse(in, "the TMA store has coordinates %v: want no negative ones", coords)
		return false
	}
	rows := tiledRows(&tm, coords)
	if tm.Im2col() {
		if err := checkIm2col(&tm, coords, offsets); err != nil {
			w.misuse(in, "%v", err)
			return false
		}
		rows = im2colRows(&tm, coords, offsets)
	}
	m.global, m.bytes, m.swizzle = segments(&tm, rows, m.mbarrier == nil), tm.BoxBytes(), tm.Swizzle
	m.fillNaN = tm.FillNaN
	m.row = tm.Box[0] * tm.ElementBytes()
	m.pitch = max(m.row, m.swizzle)
	m.roundsToTF32 = tm.Element == ptx.TF32 && m.mbarrier != nil
	if m.op != "" {
		reduce := *m.bulkCopy
		reduce.elem = tm.Element
		m.bulkCopy = &reduce
	}
	return true
}

// checkGlobal raises a fault unless all segments are in one allocation.
func (m *bulkMove) checkGlobal() bool {
	if len(m.global) == 0 {
		return true
	}
	w := m.warp
	kind := AsyncRead
	if m.mbarrier == nil {
		kind = AsyncWrite
	}
	m.alloc = w.block.run.mem.find(m.global[0].addr)
	for _, s := range m.global {
		f := &Fault{Origin: w.origin(m.in), Access: kind, Space: ptx.Global, Size: s.n, FirstAddr: s.addr}
		switch a := m.alloc; {
		case a == nil || s.addr < a.Base || s.addr-a.Base+uint64(s.n) > uint64(a.Size):
			f.Kind, f.Detail = OutOfBounds, w.block.run.mem.describe(s.addr, s.n)
		case s.addr%16 != 0 && m.coords == nil:
			f.Kind, f.Detail = Misaligned, "the address must be a multiple of 16 bytes"
		case kind == AsyncWrite && a.ReadOnly:
			f.Kind, f.Detail = ReadOnly, "the memory is read-only"
		default:
			continue
		}
		w.raise(f)
		return false
	}
	return true
}

// sharedAddr resolves a lane's address in the shared memory of the cluster. If there is no room for
// n bytes at this address, it raises a fault and returns false.
func (w *warp) sharedAddr(in *inst, ac *access, lane, n int, align uint64) (sharedLocation, bool) {
	w.addresses(ac)
	t := &w.at
	w.resolve(t, in, ac, w.addr[lane])
	off := w.addr[lane] - t.shift()
	f := &Fault{Origin: w.origin(in), Access: ac.kind, Space: ptx.Shared, Size: n, FirstAddr: off}
	switch {
	case t.space != ptx.Shared:
		w.misuse(in, "the address is in %v memory: want shared memory", t.space)
		return sharedLocation{}, false
	case off >= t.span(uintptr(n)):
		f.Kind, f.Detail = w.outside(t, off, n)
	case off%align != 0:
		f.Kind, f.Detail = Misaligned, "the address must be a multiple of "+bytesText(align)
	default:
		return sharedLocation{block: t.block, off: off}, true
	}
	w.raise(f)
	return sharedLocation{}, false
}

// waitBulk completes the copies of the active lanes except those of the last n groups. With read
// set, it completes only the reads of their sources.
func (w *warp) waitBulk(in *inst, n int, read bool) {
	q := &w.bulk
	var finished []CopyLanes
	kept := q.open[:0]
	for _, o := range q.open {
		if w.active>>o.lane&1 == 0 || o.group >= q.groups[o.lane]-n {
			kept = append(kept, o)
			continue
		}
		if !read || !o.read {
			finished = append(finished, CopyLanes{o.id, 1 << o.lane})
		}
		if read {
			o.runUntil(min(len(o.parts), 1))
			o.read = true
			kept = append(kept, o)
			continue
		}
		o.runUntil(0)
	}
	clear(q.open[len(kept):])
	q.open = kept
	w.emitCopyDone(in, finished, read)
}
