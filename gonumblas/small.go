package gonumblas

import "gonum.org/v1/gonum/blas"

// The functions below compute triangles of a few rows, for which calls of micro-kernels take longer
// than loops.

// smallRankUpdate computes a triangle of C ← α·A·Bᵀ + β·C, or of C ← α·(A·Bᵀ + B·Aᵀ) + β·C if both
// is set. It does not read A and B if α is 0.
func smallRankUpdate[T float32 | float64](alpha T, a, b matrix[T], both bool, beta T, c triangle[T]) {
	for i := range c.rows {
		to, first := c.row(i)
		for x := range to {
			j := first + x
			var v T
			if alpha != 0 {
				v = dot(a, i, b, j)
				if both {
					v += dot(b, i, a, j)
				}
				v *= alpha
			}
			if beta != 0 {
				v += beta * to[x]
			}
			to[x] = v
		}
	}
}

// dot returns the product of row i of A and row j of B.
func dot[T float32 | float64](a matrix[T], i int, b matrix[T], j int) (sum T) {
	p, q := i*a.down, j*b.down
	for range a.cols {
		sum += a.data[p] * b.data[q]
		p, q = p+a.right, q+b.right
	}
	return sum
}

// smallSolve computes B ← α·A⁻¹·B.
func smallSolve[T float32 | float64](alpha T, a triangle[T], b matrix[T]) {
	for step := range a.rows {
		i, from, to := step, 0, step
		if !a.lower {
			i = a.rows - 1 - step
			from, to = i+1, a.rows
		}
		for j := range b.cols {
			v := alpha * b.data[i*b.down+j*b.right]
			for p := from; p < to; p++ {
				v -= a.data[i*a.down+p*a.right] * b.data[p*b.down+j*b.right]
			}
			if a.diag == blas.NonUnit {
				v /= a.data[i*(a.down+a.right)]
			}
			b.data[i*b.down+j*b.right] = v
		}
	}
}

// smallMultiply computes B ← α·A·B.
func smallMultiply[T float32 | float64](alpha T, a triangle[T], b matrix[T]) {
	for step := range a.rows {
		i := a.rows - 1 - step
		from, to := 0, i
		if !a.lower {
			i = step
			from, to = i+1, a.rows
		}
		for j := range b.cols {
			v := b.data[i*b.down+j*b.right]
			if a.diag == blas.NonUnit {
				v *= a.data[i*(a.down+a.right)]
			}
			for p := from; p < to; p++ {
				v += a.data[i*a.down+p*a.right] * b.data[p*b.down+j*b.right]
			}
			b.data[i*b.down+j*b.right] = alpha * v
		}
	}
}
