package gpu

// The tensor cores read 32-bit elements of shared memory along K alone, and a B of tf32 usually runs
// across K. Of the left operand they take fragments from registers, which threads load as they like: turned
// tiles are of Cᵀ = Bᵀ·Aᵀ. The kernel multiplies a left operand, of which a tile has M rows, and a right
// one, of which it has N columns. Which they are is up to turned.

// turned says which of two, one of A or of C's rows, the other of B or of C's columns, is the left operand's
// and which the right one's. It leads back, too.
func turned[T any](s Shape, a, b T) (left, right T) {
	if s.Turned {
		return b, a
	}
	return a, b
}
