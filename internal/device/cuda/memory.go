package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"tilework/internal/device"
)

// poolProps is CUmemPoolProps of cuda.h.
type poolProps struct {
	allocation, handles    int32
	locationType, location int32
	security               uintptr
	maxSize                uintptr
	usage                  uint16
	_                      [54]byte
}

// openPool makes the pool that memory comes from. Reserving from it costs
// microseconds once it holds memory, where the driver's plain functions take hundreds,
// and giving memory back does not wait for the device: both happen in the stream's
// order.
func (g *GPU) openPool() error {
	if !g.info.pools {
		return nil
	}
	const pinned, onDevice = 1, 1 // CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
	props := poolProps{allocation: pinned, locationType: onDevice, location: int32(g.info.handle)}
	if err := g.call(cuMemPoolCreate, uintptr(unsafe.Pointer(&g.pool)), uintptr(unsafe.Pointer(&props))); err != nil {
		return err
	}
	// Half of the device may stay here between products; more goes back at the next
	// Sync, to others who share the device.
	const releaseThreshold = 4 // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
	keep := uint64(g.info.Memory / 2)
	return g.call(cuMemPoolSetAttribute, g.pool, releaseThreshold, uintptr(unsafe.Pointer(&keep)))
}

// Alloc reserves n bytes; none for 0, at the zero Ptr.
func (g *GPU) Alloc(n int) (device.Ptr, error) {
	if n < 0 {
		return 0, fmt.Errorf("an allocation of %d bytes on %s", n, g.info.Name)
	}
	if n == 0 {
		return 0, nil
	}
	var p uint64
	err := g.within(func() error {
		if g.pool == 0 {
			return g.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
		}
		err := g.call(cuMemAllocFromPool, uintptr(unsafe.Pointer(&p)), uintptr(n), g.pool, g.stream)
		if !errors.Is(err, device.ErrOutOfMemory) {
			return err
		}
		// What the pool keeps may be what is lacking.
		if err := g.call(cuStreamSynchronize, g.stream); err != nil {
			return err
		}
		if err := g.call(cuMemPoolTrimTo, g.pool, 0); err != nil {
			return err
		}
		return g.call(cuMemAllocFromPool, uintptr(unsafe.Pointer(&p)), uintptr(n), g.pool, g.stream)
	})
	if err != nil {
		return 0, fmt.Errorf("reserving %d bytes on %s%s: %w", n, g.info.Name, g.room(err), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.memory.add(region{device.Ptr(p), n})
	return device.Ptr(p), nil
}

// room says how much memory there is, if that was lacking, for a message.
func (g *GPU) room(why error) string {
	if !errors.Is(why, device.ErrOutOfMemory) {
		return ""
	}
	var free, total uintptr
	err := g.within(func() error {
		return g.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	})
	if err != nil {
		return fmt.Sprintf(", which has %d", g.info.Memory)
	}
	return fmt.Sprintf(", which has %d of its %d free", free, total)
}

// Free gives memory back, once what was asked for before is done.
func (g *GPU) Free(p device.Ptr) error {
	if p == 0 {
		return nil
	}
	return g.within(func() error {
		if g.pool == 0 {
			if err := g.call(cuStreamSynchronize, g.stream); err != nil {
				return err
			}
		}
		g.mu.Lock()
		known := g.memory.remove(p)
		g.mu.Unlock()
		switch {
		case !known:
			return fmt.Errorf("freeing %#x on %s, which is no memory of Alloc or has been freed", uint64(p), g.info.Name)
		case g.pool == 0:
			return g.call(cuMemFree, uintptr(p))
		}
		return g.call(cuMemFreeAsync, uintptr(p), g.stream)
	})
}

// owns refuses addresses that do not lie in one piece of memory of Alloc.
func (g *GPU) owns(p device.Ptr, n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.memory.hold(p, n) {
		return fmt.Errorf("a copy of %d bytes at %#x on %s, which are not within memory of Alloc", n, uint64(p), g.info.Name)
	}
	return nil
}

// regions are pieces of memory, in the order of their addresses.
type regions []region

type region struct {
	start device.Ptr
	size  int
}

// find is where the region that starts at p is, or would be.
func (r regions) find(p device.Ptr) (int, bool) {
	return slices.BinarySearchFunc(r, p, func(r region, p device.Ptr) int {
		switch {
		case r.start < p:
			return -1
		case r.start > p:
			return 1
		}
		return 0
	})
}

func (r *regions) add(x region) {
	i, _ := r.find(x.start)
	*r = slices.Insert(*r, i, x)
}

func (r *regions) remove(p device.Ptr) bool {
	i, ok := r.find(p)
	if ok {
		*r = slices.Delete(*r, i, i+1)
	}
	return ok
}

// hold says whether n bytes from p lie in one region.
func (r regions) hold(p device.Ptr, n int) bool {
	i, starts := r.find(p)
	if !starts {
		i--
	}
	if i < 0 {
		return false
	}
	offset := uint64(p - r[i].start)
	return offset <= uint64(r[i].size) && uint64(n) <= uint64(r[i].size)-offset
}
