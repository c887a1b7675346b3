package gemm

import (
	"cmp"
	"math/bits"
	"slices"
	"unsafe"
)

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

// Region is a matrix in memory that a computation reads or, if Written is set, writes. ID
// identifies it for the caller. The matrix starts Offset bytes after Memory, which is nil for
// matrices in one block of device memory.
type Region struct {
	ID      int
	Layout  Layout
	Memory  *byte
	Offset  int
	Written bool
}

func (r *Region) address() uintptr { return uintptr(unsafe.Pointer(r.Memory)) + uintptr(r.Offset) }

// FindOverlap returns the IDs of two regions that overlap, if at least one of them is written.
// found is false if there are none. FindOverlap reorders all.
//
// It takes O(n log n) time, and for each written region also the time to compare it with those
// whose range of addresses meets its own.
func FindOverlap(all []Region) (first, second int, found bool) {
	all = slices.DeleteFunc(all, func(r Region) bool { return r.Layout.span() == 0 })
	slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.address(), b.address()) })
	var read, written []*Region // those before r that r or a later region may overlap
	for i := range all {
		r := &all[i]
		other := r.overlaps(&written)
		if r.Written && other == nil {
			other = r.overlaps(&read)
		}
		switch {
		case other != nil:
			return other.ID, r.ID, true
		case r.Written:
			written = append(written, r)
		default:
			read = append(read, r)
		}
	}
	return 0, 0, false
}

// overlaps returns one of the regions before r that overlaps it, or nil. It removes those that end
// before r begins.
func (r *Region) overlaps(before *[]*Region) *Region {
	start := r.address()
	*before = slices.DeleteFunc(*before, func(b *Region) bool {
		return rowsOf(b.Layout, b.address()).end() <= start
	})
	for _, b := range *before {
		if OverlapAt(b.Layout, b.address(), r.Layout, start) {
			return b
		}
	}
	return nil
}

// Range is the range of addresses of a matrix in memory.
type Range struct {
	start, end uintptr
	written    bool
}

// RangeOf returns the range of a matrix of the given size in bytes at b, which a computation reads
// or, if written is set, writes.
func RangeOf(b []byte, size int, written bool) Range {
	start := address(b)
	return Range{start, start + uintptr(size), written}
}

// Disjoint reports whether no written range meets another one. If it returns false, the matrices
// may still be disjoint, as two halves of the columns of a matrix are. Disjoint reorders all and
// overwrites spare, which has as many ranges. It takes O(n) time in any order.
func Disjoint(all, spare []Range) bool {
	var end, writtenEnd uintptr // of the ranges before r
	for _, r := range sorted(all, spare) {
		switch {
		case r.start == r.end:
			continue
		case r.start < writtenEnd, r.written && r.start < end:
			return false
		case r.written:
			writtenEnd = max(writtenEnd, r.end)
		}
		end = max(end, r.end)
	}
	return true
}

// sorted returns the ranges in the order of their starts, in all or in spare. The matrices of a
// batch are often small and in no order: comparing them would take as long as their products.
func sorted(all, spare []Range) []Range {
	inOrder := true
	var last, differ uintptr // differ has the bits in which starts differ
	for _, r := range all {
		inOrder = inOrder && last <= r.start
		differ |= r.start ^ all[0].start
		last = r.start
	}
	const few = 64 // ranges that take less time to compare
	switch {
	case inOrder:
		return all
	case len(all) < few:
		slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.start, b.start) })
		return all
	}
	// Sort by one digit of 8 bits after the other.
	for shift := bits.TrailingZeros64(uint64(differ)); differ>>shift > 0; shift += 8 {
		var next [256]int // for each digit, the place of the next range
		for _, r := range all {
			next[uint8(r.start>>shift)]++
		}
		place := 0
		for digit, count := range next {
			next[digit] = place
			place += count
		}
		for _, r := range all {
			digit := uint8(r.start >> shift)
			spare[next[digit]] = r
			next[digit]++
		}
		all, spare = spare, all
	}
	return all
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
