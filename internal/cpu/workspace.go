package cpu

import (
	"sync"
	"unsafe"

	"tilework/dtype"
)

// A workspace is the memory that a product packs into: at most ms·kc + kc·ns
// elements and, where C holds a narrower type than the sums, 1024·ns sums. The
// largest rows of the kernel list make that 16 and 16 MiB.
type workspace struct {
	free, all []byte
	need      int // what the product before took, growth included
}

// idle holds workspaces to be used again, those last given back at the end: no
// more than maxIdle, so that no more than 64 MiB lie unused. (A sync.Pool loses
// what a goroutine gives back that has moved to another processor meanwhile, and
// to fill megabytes with zeros again costs more than a small product.)
var idle struct {
	sync.Mutex
	list []*workspace
}

const maxIdle = 2

// borrow returns an empty workspace; give it back when nothing uses its memory.
func borrow() *workspace {
	w := new(workspace)
	idle.Lock()
	if n := len(idle.list); n > 0 {
		w, idle.list = idle.list[n-1], idle.list[:n-1]
	}
	idle.Unlock()
	if w.need > len(w.all) {
		w.all = aligned(w.need)
	}
	w.free, w.need = w.all, 0
	return w
}

func (w *workspace) giveBack() {
	idle.Lock()
	if len(idle.list) < maxIdle {
		idle.list = append(idle.list, w)
	}
	idle.Unlock()
}

// take returns n elements of the workspace's memory, starting on a cache line.
// What they hold is arbitrary.
func take[T scalar](w *workspace, n int) []T {
	bytes := (max(n, 1)*int(unsafe.Sizeof(*new(T))) + cacheLine - 1) &^ (cacheLine - 1)
	w.need += bytes
	if bytes > len(w.free) {
		return dtype.View[T](aligned(bytes))[:n]
	}
	s := dtype.View[T](w.free[:bytes])[:n]
	w.free = w.free[bytes:]
	return s
}

const cacheLine = 64

// aligned allocates n bytes that start on a cache line.
func aligned(n int) []byte {
	b := make([]byte, n+cacheLine)
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))%cacheLine:][:n]
}

// slice is the n elements at p.
func slice[T scalar](p *T, n int) []T { return unsafe.Slice(p, n) }
