package emu

import (
	"unsafe"

	"tilework/ptx"
)

// decodeStoreAsync is st.async: a store to the shared memory of a block of the cluster that
// tells an mbarrier there.
func decodeStoreAsync(d *decoder) execFunc {
	tr := d.transferOf(1)
	if d.err != nil {
		return nil
	}
	size := int(tr.step) * len(tr.places)
	to, bar := d.accessOf(0, AsyncWrite, size), d.accessOf(2, Atomic, mbarrierBytes)
	to.space, bar.space = ptx.SharedCluster, ptx.SharedCluster
	return func(w *warp, in *inst) {
		for m := w.active; m != 0; m &= m - 1 {
			lane := firstLane(m)
			place, ok1 := w.sharedPlace(in, to, lane, size, uint64(size))
			at, ok2 := w.sharedPlace(in, bar, lane, mbarrierBytes, mbarrierBytes)
			if !ok1 || !ok2 {
				return
			}
			if place.block != at.block {
				w.misuse(in, "a store to block %v is told to an mbarrier of block %v", place.block.index, at.block.index)
				return
			}
			place.mbarrier = at.off
			w.storeAsync(in, tr, &place, lane, size)
		}
	}
}

func (w *warp) storeAsync(in *inst, tr *transfer, to *sharedPlace, lane, size int) {
	data, off := new([lanes]wide), [lanes]uint64{}
	for k, place := range tr.places {
		tr.store(unsafe.Pointer(data), &off, 1<<lane, uint64(k)*tr.step, unsafe.Add(w.base, place))
	}
	c := w.block.cluster
	c.begun++
	id := c.begun
	o := w.origin(in)
	o.Mask = 1 << lane
	w.tellBulk(&Bulk{
		Origin: o, Kind: AsyncWrite, Space: ptx.Shared, Rank: to.block.rank, Spans: []Span{{to.off, size}}, Copy: id, Mbarrier: to.mbarrier, Tells: true,
	})
	c.fly(&flight{id: id, origin: o, warp: w, uses: []*block{to.block}, parts: []func(){func() {
		copy(to.block.shared.bytes()[to.off:], unsafe.Slice((*byte)(unsafe.Pointer(data)), size))
		to.arrived(w, in, lane, id, size)
	}}})
}
