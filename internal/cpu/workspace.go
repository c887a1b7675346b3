package cpu

import (
	"slices"
	"sync"
	"unsafe"

	"tilework/dtype"
)

// memory is what a product packs into: at most ms·kc + kc·ns elements and, where C
// holds a narrower type than the sums, some 1024·ns sums, with a row of K for each thread.
// The largest rows of the kernel list make that 16 and 16 MiB.
type workspace struct {
	all, free []byte
}

// idle holds memory to be used again, what was given back last at the end: no more
// than maxIdle bytes of it. (A sync.Pool loses what a goroutine gives back that has
// moved to another processor meanwhile, and to fill megabytes with zeros again costs
// more than a small product.)
var freeList struct {
	sync.Mutex
	list  []workspace
	bytes int
}

const maxFreeBytes = 64 << 20

// borrow returns n bytes of memory; give it back when nothing uses it. What it holds is
// arbitrary.
func getWorkspace(n int) workspace {
	if n == 0 {
		return workspace{}
	}
	freeList.Lock()
	for i := len(freeList.list) - 1; i >= 0; i-- {
		if m := freeList.list[i]; len(m.all) >= n {
			freeList.list = slices.Delete(freeList.list, i, i+1)
			freeList.bytes -= len(m.all)
			freeList.Unlock()
			return workspace{m.all, m.all}
		}
	}
	freeList.Unlock()
	all := allocHuge(n)
	return workspace{all, all}
}

// giveBack ends a loan. Of what lies idle the oldest is let go where it is too much.
func (m *workspace) put() {
	if n := len(m.all); 0 < n && n <= maxFreeBytes {
		freeList.Lock()
		old := 0
		for freeList.bytes += n; freeList.bytes > maxFreeBytes; old++ {
			freeList.bytes -= len(freeList.list[old].all)
		}
		freeList.list = append(slices.Delete(freeList.list, 0, old), *m)
		freeList.Unlock()
	}
	*m = workspace{}
}

// bytesFor is the memory that n elements take.
func allocBytes[T scalar](n int) int {
	return (n*int(unsafe.Sizeof(*new(T))) + cacheLine - 1) &^ (cacheLine - 1)
}

// take returns n elements of the memory, starting on a cache line.
func alloc[T scalar](m *workspace, n int) []T {
	bytes := allocBytes[T](n)
	s := dtype.View[T](m.free[:bytes])[:n]
	m.free = m.free[bytes:]
	return s
}

const cacheLine = 64

// spacious is aligned for memory that is gone through again and again: on huge pages, as
// far as the system has some.
func allocHuge(n int) []byte {
	if n < hugePage/2 {
		return allocAligned(n)
	}
	whole := (n + hugePage - 1) &^ (hugePage - 1)
	b := make([]byte, whole+hugePage)
	b = b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%hugePage:][:whole]
	preferHugePages(b)
	return b[:n:n]
}

const hugePage = 2 << 20

// aligned allocates n bytes that start on a cache line.
func allocAligned(n int) []byte {
	b := make([]byte, n+cacheLine)
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%cacheLine:][:n:n]
}

// slice is the n elements at p.
func slice[T scalar](p *T, n int) []T { return unsafe.Slice(p, n) }
