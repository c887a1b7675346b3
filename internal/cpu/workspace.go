package cpu

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"tilework/dtype"
)

// workspace is the memory that a product packs into. The blocked algorithm needs up to ms·kc +
// kc·ns elements and, if C is narrower than the accumulators, about 1024·ns sums and one row along
// K per thread. With the largest block sizes of the kernel list (AMX), A, B and the sums take up to
// 16 MiB each.
type workspace struct {
	all, free []byte
	unused    bool // since the last sweep
}

// freeList holds unused workspaces, the most recently used last. They are dropped if they take too
// much memory, and after about [idleTime]. A sync.Pool would lose the workspace of a goroutine that
// has moved to another processor meanwhile, and clearing megabytes of new memory takes longer than
// a small product.
var freeList struct {
	sync.Mutex
	list  []workspace
	bytes int // that their allocations take
}

// maxFreeBytes is the memory that the free list may take if GOMAXPROCS is at most 16. Otherwise it
// may take two huge pages for each, the allocation for a workspace of up to one page.
const maxFreeBytes = 64 << 20

// tooMuch reports whether bytes is more than the free list may take.
func tooMuch(bytes int) bool { return bytes > maxFreeBytes && bytes > 2*hugePage*runtime.GOMAXPROCS(0) }

// getWorkspace returns a workspace of n bytes with arbitrary contents. Call put when nothing uses
// it any more.
func getWorkspace(n int) workspace {
	if n == 0 {
		return workspace{}
	}
	freeList.Lock()
	for i := len(freeList.list) - 1; i >= 0; i-- {
		if m := freeList.list[i]; len(m.all) >= n {
			freeList.list = slices.Delete(freeList.list, i, i+1)
			freeList.bytes -= allocHugeBytes(len(m.all))
			freeList.Unlock()
			return workspace{all: m.all, free: m.all}
		}
	}
	freeList.Unlock()
	all := allocHuge(n)
	return workspace{all: all, free: all}
}

// put returns the workspace to the free list and drops the oldest ones if they take too much.
func (m *workspace) put() {
	if n := allocHugeBytes(len(m.all)); len(m.all) > 0 && !tooMuch(n) {
		freeList.Lock()
		old := 0
		for freeList.bytes += n; tooMuch(freeList.bytes); old++ {
			freeList.bytes -= allocHugeBytes(len(freeList.list[old].all))
		}
		freeList.list = append(slices.Delete(freeList.list, 0, old), *m)
		freeList.Unlock()
		sweeps.schedule()
	}
	*m = workspace{}
}

// dropUnused drops the workspaces that no product has used since the last call. It returns the
// number of those that are left.
func dropUnused() int {
	freeList.Lock()
	defer freeList.Unlock()
	freeList.list = slices.DeleteFunc(freeList.list, func(m workspace) bool {
		if m.unused {
			freeList.bytes -= allocHugeBytes(len(m.all))
		}
		return m.unused
	})
	for i := range freeList.list {
		freeList.list[i].unused = true
	}
	return len(freeList.list)
}

// allocBytes returns the number of bytes that n elements take in a workspace.
func allocBytes[T scalar](n int) int {
	return (n*int(unsafe.Sizeof(*new(T))) + cacheLine - 1) &^ (cacheLine - 1)
}

// alloc returns n elements of the workspace, starting on a cache line.
func alloc[T scalar](m *workspace, n int) []T {
	bytes := allocBytes[T](n)
	s := dtype.View[T](m.free[:bytes])[:n]
	m.free = m.free[bytes:]
	return s
}

const cacheLine = 64

// allocHuge is allocAligned for memory that is read many times: it uses huge pages if the system
// provides them.
func allocHuge(n int) []byte {
	if n < hugePage/2 {
		return allocAligned(n)
	}
	b := make([]byte, allocHugeBytes(n))
	b = b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%hugePage:][:len(b)-hugePage]
	preferHugePages(b)
	return b[:n:n]
}

// allocHugeBytes returns the number of bytes that allocHuge allocates for n: whole huge pages, and
// one more in which the first begins.
func allocHugeBytes(n int) int {
	if n < hugePage/2 {
		return n + cacheLine
	}
	return (n+hugePage-1)&^(hugePage-1) + hugePage
}

const hugePage = 2 << 20

// allocAligned allocates n bytes, starting on a cache line.
func allocAligned(n int) []byte {
	b := make([]byte, n+cacheLine)
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%cacheLine:][:n:n]
}

// slice returns the n elements at p.
func slice[T scalar](p *T, n int) []T { return unsafe.Slice(p, n) }
