package gemm

import "unsafe"

// Overlap reports whether two matrices have a byte in common. The padding
// between rows does not count: two halves of the columns of one matrix do not
// overlap.
func Overlap(l Layout, lb []byte, r Layout, rb []byte) bool {
	return OverlapAt(l, address(lb), r, address(rb))
}

// OverlapAt is Overlap for matrices that are known by address only, such as those in device memory.
func OverlapAt(l Layout, la uintptr, r Layout, ra uintptr) bool {
	a, b := rowsOf(l, la), rowsOf(r, ra)
	if a.n == 0 || b.n == 0 || a.end() <= b.start || b.end() <= a.start {
		return false
	}
	// Both lists of rows are sorted and without overlap: walk them together and always leave the row
	// that ends first.
	for i, j := a.firstAfter(b.start), b.firstAfter(a.start); i < a.n && j < b.n; {
		x, y := a.start+uintptr(i)*a.step, b.start+uintptr(j)*b.step
		switch {
		case x+a.width <= y:
			i++
		case y+b.width <= x:
			j++
		default:
			return true
		}
	}
	return false
}

// Extent returns the range of addresses [start, end) from the first byte of a matrix to its last.
// It is empty for an empty matrix.
func Extent(l Layout, b []byte) (start, end uintptr) {
	r := rowsOf(l, address(b))
	if r.n == 0 {
		return 0, 0
	}
	return r.start, r.end()
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// rows is a sequence of n byte ranges [start + i·step, start + i·step + width).
type rows struct {
	start, step, width uintptr
	n                  int
}

func rowsOf(l Layout, start uintptr) rows {
	if l.Rows == 0 || l.Cols == 0 {
		return rows{}
	}
	return rows{
		start: start,
		step:  uintptr(l.Type.Bytes(l.LD)),
		width: uintptr(l.Type.Bytes(l.Cols)),
		n:     l.Rows,
	}
}

func (r rows) end() uintptr { return r.start + uintptr(r.n-1)*r.step + r.width }

// firstAfter returns the first row that ends after address p.
func (r rows) firstAfter(p uintptr) int {
	if p < r.start+r.width {
		return 0
	}
	return min(int((p-r.start-r.width)/r.step)+1, r.n)
}
