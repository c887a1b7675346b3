package gemmtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// matrix is a matrix between guards. What is not an element of it, and every
// element not set, is poison: bytes that make a NaN, or a number unlike the test
// data where the type has no NaN.
type matrix struct {
	name   string
	layout gemm.Layout
	all    []byte // guard, matrix, guard
	start  int    // of the matrix
	before []byte // all, as it was before the product
}

// guard is how many elements lie on either side of a matrix, at least.
const guard = 32

func newMatrix(rng *rand.Rand, name string, l gemm.Layout) *matrix {
	size := l.Type.Size()
	m := &matrix{name: name, layout: l, start: (guard + rng.IntN(16)) * size}
	total := m.start + l.Bytes() + guard*size
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

// bytes is the matrix without its guards.
func (m *matrix) bytes() []byte {
	end := m.start + m.layout.Bytes()
	return m.all[m.start:end:end]
}

func (m *matrix) at(i, j int) float64 {
	return m.layout.Type.At(m.bytes(), m.layout.Index(i, j))
}

func (m *matrix) set(i, j int, v float64) {
	m.layout.Type.Set(m.bytes(), m.layout.Index(i, j), v)
}

// fill sets every element of op(matrix), row after row.
func (m *matrix) fill(value func(i, j int) float64) {
	for i := range m.layout.OpRows() {
		for j := range m.layout.OpCols() {
			m.set(i, j, value(i, j))
		}
	}
}

// remember notes the memory as it is, for [matrix.untouched] and [matrix.restore].
func (m *matrix) remember() { m.before = bytes.Clone(m.all) }

func (m *matrix) restore() { copy(m.all, m.before) }

// untouched says where memory has changed since remember, the elements aside where
// they are the result.
func (m *matrix) untouched(result bool) error {
	if bytes.Equal(m.all, m.before) {
		return nil
	}
	size, ld := m.layout.Type.Size(), m.layout.LD
	for at, b := range m.all {
		if b == m.before[at] {
			continue
		}
		pos := at - m.start
		row, col := pos/size/ld, pos/size%ld
		switch {
		case pos < 0:
			return fmt.Errorf("%s: memory was written %d bytes before the matrix", m.name, -pos)
		case pos >= m.layout.Bytes():
			return fmt.Errorf("%s: memory was written %d bytes past the end of the matrix", m.name, pos-m.layout.Bytes()+1)
		case col >= m.layout.Cols:
			return fmt.Errorf("%s: the padding of row %d was written, at column %d of %d", m.name, row, col, m.layout.Cols)
		case !result:
			return fmt.Errorf("%s was changed, at row %d, column %d of its memory", m.name, row, col)
		}
	}
	return nil
}

// operands are a problem and its memory.
type operands struct {
	p             Problem
	a, b, c, bias *matrix
	extras        [gemm.Extras]*matrix // nil for what the epilogue does not read
}

func newOperands(rng *rand.Rand, p Problem) *operands {
	o := &operands{
		p: p,
		a: newMatrix(rng, "A", p.A), b: newMatrix(rng, "B", p.B), c: newMatrix(rng, "C", p.C),
		bias: newMatrix(rng, "bias", gemm.Dense(p.C.Type, 1, p.BiasLen())),
	}
	for x := range gemm.Extra(gemm.Extras) {
		if p.Has(x) {
			o.extras[x] = newMatrix(rng, x.String(), p.Extra(x))
		}
	}
	return o
}

func (o *operands) buffers() Buffers {
	b := Buffers{A: o.a.bytes(), B: o.b.bytes(), C: o.c.bytes(), Bias: o.bias.bytes()}
	for x, m := range o.extras {
		if m != nil {
			b.Extras[x] = m.bytes()
		}
	}
	return b
}

func (o *operands) matrices() []*matrix {
	all := []*matrix{o.a, o.b, o.c, o.bias}
	for _, m := range o.extras {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

// fillInputs sets what the product reads; the rest stays poison.
func (o *operands) fillInputs(value func(m *matrix, i, j int) float64) {
	for _, m := range o.matrices() {
		if m == o.c && o.p.Beta == 0 || (m == o.a || m == o.b) && !o.p.ReadsAB() {
			continue
		}
		m.fill(func(i, j int) float64 { return value(m, i, j) })
	}
}
