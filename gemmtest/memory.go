package gemmtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// matrix is a matrix between two guard regions. Guards, padding and elements that have not been set
// hold poison: bytes that encode a NaN, or, in integer types, a number unlike the test data.
type matrix struct {
	name   string
	layout gemm.Layout
	all    []byte // guard, matrix, guard
	start  int    // offset of the matrix in all
	before []byte // copy of all before the product
}

// guard is the minimum number of elements in each guard region.
const guard = 32

// newMatrix allocates a matrix of poison.
func newMatrix(rng *rand.Rand, name string, l gemm.Layout) *matrix {
	m := &matrix{name: name, layout: l, start: l.Type.Bytes(guard + rng.IntN(16))}
	total := m.start + l.Bytes() + l.Type.Bytes(guard)
	m.all = dtype.Bytes(make([]float64, (total+7)/8))[:total]
	poison := byte(0xff)
	if l.Type.Info().Integer {
		poison = 0x7b
	}
	for i := range m.all {
		m.all[i] = poison
	}
	return m
}

// bytes returns the memory of the matrix without the guards.
func (m *matrix) bytes() []byte {
	end := m.start + m.layout.Bytes()
	return m.all[m.start:end:end]
}

// at returns element (i, j) of op(matrix).
func (m *matrix) at(i, j int) float64 {
	return m.layout.Type.At(m.bytes(), m.layout.Index(i, j))
}

// set sets element (i, j) of op(matrix).
func (m *matrix) set(i, j int, v float64) {
	m.layout.Type.Set(m.bytes(), m.layout.Index(i, j), v)
}

// fill sets every element of op(matrix) in row-major order.
func (m *matrix) fill(value func(i, j int) float64) {
	b, rows, cols := m.bytes(), m.layout.OpRows(), m.layout.OpCols()
	for i := range rows {
		for j := range cols {
			m.layout.Type.Set(b, m.layout.Index(i, j), value(i, j))
		}
	}
}

// remember saves the memory for [matrix.checkUntouched] and [matrix.restore].
func (m *matrix) remember() { m.before = bytes.Clone(m.all) }

// restore restores the saved memory.
func (m *matrix) restore() { copy(m.all, m.before) }

// checkUntouched returns an error if memory has changed since remember. If result is set, elements
// of the matrix may have changed.
func (m *matrix) checkUntouched(result bool) error {
	if bytes.Equal(m.all, m.before) {
		return nil
	}
	size := m.layout.Bytes()
	for at, b := range m.all {
		if b == m.before[at] {
			continue
		}
		pos := at - m.start
		element := m.layout.Type.Elements(pos)
		row, col := element/m.layout.LD, element%m.layout.LD
		switch {
		case pos < 0:
			return fmt.Errorf("%s: byte %d before the start of the matrix was written", m.name, -pos)
		case pos >= size:
			return fmt.Errorf("%s: byte %d past the end of the matrix was written", m.name, pos-size+1)
		case col >= m.layout.Cols:
			return fmt.Errorf("%s: padding of row %d was written at column %d; the matrix has %d columns", m.name, row,
				col, m.layout.Cols)
		case !result:
			return fmt.Errorf("%s: row %d, column %d (as stored) was written, want it unchanged", m.name, row, col)
		}
	}
	return nil
}

// operands holds a problem and its matrices.
type operands struct {
	p  Problem
	of [gemm.GroupEnds]*matrix // nil for an operand that the problem does not use
}

// newOperands allocates matrices of poison for p.
func newOperands(rng *rand.Rand, p Problem) *operands {
	o := &operands{p: p}
	for x := range gemm.GroupEnds {
		if p.Uses(x) {
			o.of[x] = newMatrix(rng, x.String(), p.Layout(x))
		}
	}
	return o
}

// buffers returns the memory of all matrices.
func (o *operands) buffers() (b Buffers) {
	for x, m := range o.of {
		if m != nil {
			b[x] = m.bytes()
		}
	}
	return b
}

// matrices returns all matrices.
func (o *operands) matrices() (all []*matrix) {
	for _, m := range o.of {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

// fillInputs sets all elements that the product reads. Matrices that it does not read stay poison.
func (o *operands) fillInputs(value func(m *matrix, i, j int) float64) {
	for _, m := range o.matrices() {
		if m == o.of[gemm.C] && o.p.Beta == 0 || (m == o.of[gemm.A] || m == o.of[gemm.B] || m == o.of[gemm.Up]) &&
			!o.p.ReadsAB() {
			continue
		}
		m.fill(func(i, j int) float64 { return value(m, i, j) })
	}
}
