package emu

import (
	"unsafe"

	"tilework/ptx"
)

// decodeStoreAsync decodes st.async, a store to the shared memory of a block of the cluster that
// completes bytes at an mbarrier in the same block.
func decodeStoreAsync(d *decoder) execFunc {
	tr := d.transferOf(1)
	if d.err != nil {
		return nil
	}
	size := int(tr.step) * len(tr.slots)
	to, bar := d.accessOf(0, AsyncWrite, size), d.accessOf(2, Atomic, mbarrierBytes)
	to.space, bar.space = ptx.SharedCluster, ptx.SharedCluster
	d.in.flow = flowUses
	return func(w *warp, in *inst) {
		for m := w.active; m != 0; m &= m - 1 {
			lane := firstLane(m)
			dst, ok1 := w.sharedAddr(in, to, lane, size, uint64(size))
			at, ok2 := w.sharedAddr(in, bar, lane, mbarrierBytes, mbarrierBytes)
			if !ok1 || !ok2 {
				return
			}
			if dst.block != at.block {
				w.misuse(in, "the store is to block %v and its mbarrier in block %v: want the same block", dst.block.index,
					at.block.index)
				return
			}
			dst.mbarrier = at.off
			w.storeAsync(in, tr, &dst, lane, size)
		}
	}
}

func (w *warp) storeAsync(in *inst, tr *transfer, to *sharedLocation, lane, size int) {
	data, off := new([lanes]wide), [lanes]uint64{}
	for k, slot := range tr.slots {
		tr.store(unsafe.Pointer(data), &off, 1<<lane, uint64(k)*tr.step, unsafe.Add(w.base, slot))
	}
	c := w.block.cluster
	c.operations++
	id := c.operations
	o := w.origin(in)
	o.Mask = 1 << lane
	w.emitBulk(&Bulk{
		Origin: o, Kind: AsyncWrite, Space: ptx.Shared, Rank: to.block.rank, Spans: []Span{{to.off, size}}, Copy: id,
		Mbarrier: to.mbarrier, HasMbarrier: true,
	})
	c.startAsync(&asyncOp{id: id, origin: o, warp: w, uses: []*block{to.block}, parts: []func(){func() {
		copy(to.block.shared.bytes()[to.off:], unsafe.Slice((*byte)(unsafe.Pointer(data)), size))
		to.completeTx(w, in, lane, id, size)
	}}})
}
