package cpu

import "tilework/internal/ints"

// grid divides C into down×across parts, one for each thread. Parts are numbered down the columns,
// so that neighbouring threads use, and pack, the same columns of B.
type grid struct{ down, across int }

// newGrid returns the best grid for a C of rows×cols tiles of mr×nr. The cost of a part is its
// multiply-adds (the product of its sides) plus its reads of A and B (their sum).
func newGrid(threads, rows, mr, cols, nr int) (best grid) {
	// Fetching an element that another core packed takes as long as about 24 multiply-adds: 0.4 ns,
	// at 60 to 130 operations per nanosecond and core.
	const fetch = 24
	leastCost := 0
	for down := 1; down <= threads; down++ {
		if threads%down != 0 {
			continue
		}
		r, c := ints.CeilDiv(rows, down)*mr, ints.CeilDiv(cols, threads/down)*nr
		if cost := r*c + fetch*(r+c); down == 1 || cost < leastCost {
			best, leastCost = grid{down, threads / down}, cost
		}
	}
	return best
}

// part returns the bounds of part i if n is divided into parts of nearly equal size.
func part(n, i, parts int) (first, end int) { return i * n / parts, (i + 1) * n / parts }

// equalParts divides n into the fewest parts of at most size and returns their size. All parts but
// the last are equal multiples of unit.
func equalParts(n, size, unit int) int {
	switch { // the cases save divisions, which take noticeable time in small products
	case n <= unit:
		return unit
	case n <= size-unit: // one part
		return ints.CeilDiv(n, unit) * unit
	case unit == 1:
		return ints.CeilDiv(n, ints.CeilDiv(n, max(size, 1)))
	}
	size = max(size/unit*unit, unit)
	return ints.CeilDiv(ints.CeilDiv(n, ints.CeilDiv(n, size)), unit) * unit
}
