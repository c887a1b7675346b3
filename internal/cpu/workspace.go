package cpu

import (
	"sync"
	"unsafe"

	"tilework/dtype"
)

// A workspace is the memory that a product packs into: at most ms·kc + kc·ns
// elements and, where C holds a narrower type than the sums, 1024·ns sums. The
// largest rows of the kernel list make that 8 and 16 MiB. Workspaces are used
// again; the garbage collector takes those that lie idle.
type workspace struct {
	free, all []byte
	need      int // what the product before took, growth included
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// borrow returns an empty workspace; give it back when nothing uses its memory.
func borrow() *workspace {
	w := workspaces.Get().(*workspace)
	if w.need > len(w.all) {
		w.all = aligned(w.need)
	}
	w.free, w.need = w.all, 0
	return w
}

func (w *workspace) giveBack() { workspaces.Put(w) }

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
