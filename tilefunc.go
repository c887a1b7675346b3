package tilework

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// WithTileFunc calls f for every tile of the result as soon as its elements are final, after bias,
// activation and rounding, while they are in the cache. f receives the tile, a view of C that it
// may change, and the row and column of C at which the tile starts. Each element of C is in one
// tile. The size of the tiles depends on the kernel and the number of threads. Several goroutines
// call f at once, in any order. If f panics, the product ends, and then panics with the same value
// on the goroutine of its caller.
//
// The option selects the CPU. On a GPU, with matrices on a device, with groups, or with a T that is
// not C's type it is ErrUnsupported.
func WithTileFunc[T dtype.Element](f func(tile Matrix[T], row, col int)) Option {
	return func(c *config) {
		if f == nil {
			c.Tile = nil
			return
		}
		c.Tile = func(l gemm.Layout, memory []byte, swapped bool) (func(i, j, rows, cols int), error) {
			if l.Type != dtype.Of[T]() {
				return nil, fmt.Errorf("%w: a function for tiles of %v for a result of %v", ErrUnsupported, dtype.Of[T](), l.Type)
			}
			whole := Matrix[T]{view{shape{layout: l}}, dtype.View[T](memory)}
			if swapped { // the backend computes the transpose
				return func(i, j, rows, cols int) { f(whole.Sub(j, i, cols, rows), j, i) }, nil
			}
			return func(i, j, rows, cols int) { f(whole.Sub(i, j, rows, cols), i, j) }, nil
		}
	}
}
