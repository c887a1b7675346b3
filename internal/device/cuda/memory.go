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

// openPool creates the memory pool for Alloc, if the driver supports pools. Once the pool holds
// memory, an allocation takes microseconds instead of the hundreds of microseconds of cuMemAlloc.
// Allocation and release are stream-ordered, so Free does not wait for the device.
func (g *GPU) openPool() error {
	if !g.info.pools {
		return nil
	}
	const pinned, onDevice = 1, 1 // CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
	props := poolProps{allocation: pinned, locationType: onDevice, location: int32(g.info.handle)}
	if err := g.call(cuMemPoolCreate, uintptr(unsafe.Pointer(&g.pool)), uintptr(unsafe.Pointer(&props))); err != nil {
		return err
	}
	// The pool keeps up to half of the device memory. The next Sync releases the rest to other
	// users of the device.
	const releaseThreshold = 4 // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
	keep := uint64(g.info.Memory / 2)
	return g.call(cuMemPoolSetAttribute, g.pool, releaseThreshold, uintptr(unsafe.Pointer(&keep)))
}

// Alloc allocates n bytes. It returns the zero Ptr for n = 0.
func (g *GPU) Alloc(n int) (device.Ptr, error) {
	if n < 0 {
		return 0, fmt.Errorf("allocation of %d bytes on %s: want at least 0", n, g.info.Name)
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
		// Release unused memory of the pool and try again.
		if err := g.call(cuStreamSynchronize, g.stream); err != nil {
			return err
		}
		if err := g.call(cuMemPoolTrimTo, g.pool, 0); err != nil {
			return err
		}
		return g.call(cuMemAllocFromPool, uintptr(unsafe.Pointer(&p)), uintptr(n), g.pool, g.stream)
	})
	if err != nil {
		return 0, fmt.Errorf("allocating %d bytes on %s%s: %w", n, g.info.Name, g.memoryNote(err), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.memory.add(region{device.Ptr(p), n})
	return device.Ptr(p), nil
}

// memoryNote returns a note on the available memory for the message of err, or an empty string if
// err is not ErrOutOfMemory.
func (g *GPU) memoryNote(err error) string {
	if !errors.Is(err, device.ErrOutOfMemory) {
		return ""
	}
	var free, total uintptr
	queryErr := g.within(func() error {
		return g.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	})
	if queryErr != nil {
		return fmt.Sprintf(" (%d in total)", g.info.Memory)
	}
	return fmt.Sprintf(" (%d of %d free)", free, total)
}

// Free releases memory once all work enqueued on the default stream has finished.
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
			return fmt.Errorf("freeing %#x on %s: want an address from Alloc that has not been freed", uint64(p),
				g.info.Name)
		case g.pool == 0:
			return g.call(cuMemFree, uintptr(p))
		}
		return g.call(cuMemFreeAsync, uintptr(p), g.stream)
	})
}

// checkOwned returns an error unless n bytes at p are within one allocation.
func (g *GPU) checkOwned(p device.Ptr, n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.memory.contains(p, n) {
		return fmt.Errorf("copy of %d bytes at %#x on %s exceeds the allocation at that address", n, uint64(p),
			g.info.Name)
	}
	return nil
}

// regions is a list of allocations sorted by address.
type regions []region

type region struct {
	start device.Ptr
	size  int
}

// find returns the index of the region that starts at p, or the index at which to insert it.
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

// remove deletes the region that starts at p. It reports false if there is none.
func (r *regions) remove(p device.Ptr) bool {
	i, ok := r.find(p)
	if ok {
		*r = slices.Delete(*r, i, i+1)
	}
	return ok
}

// contains reports whether n bytes at p are within one region.
func (r regions) contains(p device.Ptr, n int) bool {
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
