package gonumblas

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/blas"

	"tilework"
	"tilework/internal/cpu/block"
	"tilework/internal/ints"
)

// matrix is a view of elements of an argument: element (i, j) is data[i*down+j*right]. One of down
// and right is 1.
type matrix[T float32 | float64] struct {
	data        []T
	rows, cols  int
	down, right int
}

// dense returns a matrix without gaps between its rows.
func dense[T float32 | float64](rows, cols int, data []T) matrix[T] {
	return matrix[T]{data, rows, cols, cols, 1}
}

// t returns the transpose.
func (m matrix[T]) t() matrix[T] { return matrix[T]{m.data, m.cols, m.rows, m.right, m.down} }

// sub returns the rows×cols part that starts at element (i, j).
func (m matrix[T]) sub(i, j, rows, cols int) matrix[T] {
	if rows == 0 || cols == 0 {
		return matrix[T]{nil, rows, cols, m.down, m.right}
	}
	return matrix[T]{m.data[i*m.down+j*m.right:], rows, cols, m.down, m.right}
}

// split splits a matrix after its first h rows.
func (m matrix[T]) split(h int) (first, second matrix[T]) {
	return m.sub(0, 0, h, m.cols), m.sub(h, 0, m.rows-h, m.cols)
}

// set copies the elements of a matrix of the same size to m, whose rows are contiguous.
func (m matrix[T]) set(from matrix[T]) {
	for i := range m.rows {
		to, row := m.data[i*m.down:][:m.cols], from.data[i*from.down:]
		if from.right == 1 {
			copy(to, row)
			continue
		}
		for j := range to {
			to[j] = row[j*from.right]
		}
	}
}

// scale multiplies all elements by alpha.
func (m matrix[T]) scale(alpha T) {
	if m.right != 1 {
		m = m.t()
	}
	for i := range m.rows {
		row := m.data[i*m.down:][:m.cols]
		for j := range row {
			row[j] *= alpha
		}
	}
}

// beside copies a and b, of equally many rows, to data as one matrix.
func beside[T float32 | float64](a, b matrix[T], data []T) matrix[T] {
	m := dense(a.rows, a.cols+b.cols, data)
	m.sub(0, 0, a.rows, a.cols).set(a)
	m.sub(0, a.cols, b.rows, b.cols).set(b)
	return m
}

// tilework returns the matrix as an operand of a product.
func (m matrix[T]) tilework() tilework.Matrix[T] {
	if m.right != 1 {
		return tilework.FromStrided(m.cols, m.rows, max(m.right, m.rows), m.data).T()
	}
	return tilework.FromStrided(m.rows, m.cols, max(m.down, m.cols), m.data) // a single row has any stride
}

// block returns the matrix as an operand of package block.
func (m matrix[T]) block() block.Matrix[T] {
	return block.Matrix[T]{Data: m.data, Rows: m.rows, Cols: m.cols, Down: m.down, Right: m.right}
}

// triangle is a square matrix. Only one of its triangles is read or written.
type triangle[T float32 | float64] struct {
	matrix[T]
	lower bool // the triangle after a transposition of the view
	diag  blas.Diag
}

// t returns the transpose.
func (a triangle[T]) t() triangle[T] { return triangle[T]{a.matrix.t(), !a.lower, a.diag} }

// halves splits a triangle into two triangles along the diagonal, the first of size h, and the
// rectangle below the first and left of the second. For an upper triangle, it returns the transpose
// of the rectangle right of the first and above the second.
func (a triangle[T]) halves() (h int, first, second triangle[T], below matrix[T]) {
	n := a.rows
	h = ints.RoundUp(n/2, wholeRows)
	first = triangle[T]{a.sub(0, 0, h, h), a.lower, a.diag}
	second = triangle[T]{a.sub(h, h, n-h, n-h), a.lower, a.diag}
	if a.lower {
		return h, first, second, a.sub(h, 0, n-h, h)
	}
	return h, first, second, a.sub(0, h, h, n-h).t()
}

// row returns the part of row i of a triangle that is not transposed, and its first column.
func (a triangle[T]) row(i int) (part []T, first int) {
	if a.lower {
		return a.data[i*a.down:][:i+1], 0
	}
	return a.data[i*a.down+i:][:a.cols-i], i
}

// onCPU are the options of products.
var onCPU = []tilework.Option{tilework.WithDevice("cpu")}

// isVector reports whether m is a column of contiguous elements.
func isVector[T float32 | float64](m matrix[T]) bool { return m.cols == 1 && m.down == 1 }

// gemm computes C ← α·A·B + β·C, without planning if it is small, or B and C are vectors and A is
// in a cache.
func (r *routines[T]) gemm(alpha T, a, b matrix[T], beta T, c matrix[T]) {
	switch {
	case terms(c.rows, c.cols, a.cols) <= r.blocks.MaxTerms():
		r.blocks.Product(c.rows, c.cols, a.cols, alpha, a.data, a.down, a.right, b.data, b.down, b.right, beta, c.data,
			c.down, c.right)
	case alpha != 0 && isVector(b) && isVector(c) && a.rows*a.cols <= vectorTerms:
		r.blocks.MatrixVector(alpha, a.block(), b.data, beta, c.data)
	default:
		multiply(onCPU, alpha, a, b, beta, c)
	}
}

// multiply computes C ← α·A·B + β·C with tilework.
func multiply[T float32 | float64](options []tilework.Option, alpha T, a, b matrix[T], beta T, c matrix[T]) {
	err := tilework.Gemm(context.Background(), float64(alpha), a.tilework(), b.tilework(), float64(beta), c.tilework(),
		options...)
	if err != nil {
		panic(fmt.Sprintf("gonumblas: %v", err)) // the shapes match, so C must share memory with A or B
	}
}
