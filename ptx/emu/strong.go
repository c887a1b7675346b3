package emu

import (
	"sync/atomic"
	"unsafe"
)

// strongLoad is the load function of a mover for strong accesses. Other host threads may access the
// same memory at the same time.
func strongLoad[M integer, R unsigned](mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64,
	r unsafe.Pointer) {
	d := (*[lanes]R)(r)
	for ; mask != 0; mask &= mask - 1 {
		i := firstLane(mask)
		p := unsafe.Add(mem, off[i]+at)
		switch unsafe.Sizeof(M(0)) {
		case 4:
			d[i] = R(M(atomic.LoadUint32((*uint32)(p))))
		case 8:
			d[i] = R(M(atomic.LoadUint64((*uint64)(p))))
		default: // Go has no atomics for narrower types
			d[i] = R(*(*M)(p))
		}
	}
}

// strongStore is the store function that corresponds to strongLoad.
func strongStore[M integer, R unsigned](mem unsafe.Pointer, off *[lanes]uint64, mask uint32, at uint64,
	r unsafe.Pointer) {
	s := (*[lanes]R)(r)
	for ; mask != 0; mask &= mask - 1 {
		i := firstLane(mask)
		p := unsafe.Add(mem, off[i]+at)
		switch unsafe.Sizeof(M(0)) {
		case 4:
			atomic.StoreUint32((*uint32)(p), uint32(s[i]))
		case 8:
			atomic.StoreUint64((*uint64)(p), uint64(s[i]))
		default:
			*(*M)(p) = M(s[i])
		}
	}
}
