package gemmtest

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// batch is one case of a batched or grouped product, with all matrices in shared memory. parts
// holds a separate copy of the operands of each product for the reference.
type batch struct {
	p             Problem
	ends          []int32 // of a grouped product: the first row after each group
	parts         []*operands
	a, b, c, bias *matrix // of the whole batch, each as one row that includes the gaps between products
}

// batch computes a random batched or grouped product.
func (t *trial) batch() error {
	o, err := t.product(kind{epilogue: func(Pair) Epilogue {
		return Epilogue{Bias: choose(t, BiasNone, BiasNone, BiasRow, BiasCol)}
	}})
	if err != nil {
		return err
	}
	t.fillExact(o)
	x := &batch{p: o.p}
	if t.rng.IntN(2) == 0 && !o.p.A.Trans {
		err = t.group(x)
	} else {
		err = t.stride(x)
	}
	if err != nil {
		return fmt.Errorf("gemmtest drew an invalid batch: %w", err)
	}
	t.what = fmt.Sprintf("%s; %+v, ends %v", describe(&x.p), x.p.Batch, x.ends)
	if !t.impl.supports(&x.p) {
		return errSkipped
	}
	t.layOut(x, o)
	want := make([]*ref.Result, len(x.parts))
	for i, part := range x.parts {
		want[i] = ref.Values(&part.p, part.buffers())
	}
	for _, m := range x.matrices() {
		m.remember()
	}
	all := Buffers{A: x.a.bytes(), B: x.b.bytes(), C: x.c.bytes(), Bias: x.bias.bytes()}
	if err := guarded(func() error { return t.impl.Batch(t.ctx, &x.p, x.ends, all) }); err != nil {
		return err
	}
	for i, part := range x.parts {
		x.move(part.c, x.c, x.at(inC, i), true)
		if err := want[i].Exactly(part.c.bytes()); err != nil {
			return fmt.Errorf("product %d: %w", i, err)
		}
	}
	for _, m := range x.matrices() {
		if err := m.checkUntouched(false); err != nil {
			return err
		}
	}
	return nil
}

// maxProducts is the maximum number of products of a case.
const maxProducts = 4

// stride turns the product into a strided batch. Matrices follow each other, or share rows side by
// side, or an operand is shared by all products.
func (t *trial) stride(x *batch) (err error) {
	count := t.rng.IntN(maxProducts + 1)
	unit := choose(t, 1, 1, 16, 64) // leading dimensions and strides are multiples of unit
	var b gemm.Batch
	for _, m := range []struct {
		l      *Layout
		stride *int
		result bool
	}{{&x.p.A, &b.A, false}, {&x.p.B, &b.B, false}, {&x.p.C, &b.C, true}} {
		m.l.LD = roundUp(m.l.LD, unit)
		*m.stride = roundUp(m.l.Len()+choose(t, 0, 1, 40), unit)
		switch {
		case t.rng.IntN(4) == 0:
			*m.stride = roundUp(m.l.Cols, unit)
			m.l.LD = max(m.l.LD, maxProducts**m.stride)
		case !m.result && t.rng.IntN(4) == 0:
			*m.stride = 0
		}
	}
	x.p, err = x.p.Strided(count, b)
	return err
}

// group turns the product into a grouped product. Groups can be empty, and rows after the last
// group belong to no group.
func (t *trial) group(x *batch) (err error) {
	count, end := 1+t.rng.IntN(maxProducts), 0
	for range count {
		end += t.rng.IntN(x.p.M - end + 1)
		if t.rng.IntN(4) == 0 {
			end = x.p.M
		}
		x.ends = append(x.ends, int32(end))
	}
	unit := choose(t, 1, 16, 64)
	for _, l := range []*Layout{&x.p.A, &x.p.B, &x.p.C} {
		l.LD = roundUp(l.LD, unit)
	}
	x.p, err = x.p.Grouped(count, choose(t, 0, roundUp(x.p.B.Len()+t.rng.IntN(3), unit)))
	return err
}

// roundUp rounds n up to a multiple of unit.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// layOut creates the products with elements drawn from those of o, and the shared memory of the
// batch.
func (t *trial) layOut(x *batch, o *operands) {
	x.bias = o.bias
	whole := func(name string, l Layout, stride int) *matrix {
		n, err := l.Span(max(x.p.Batch.Count, 1), stride, name)
		if err != nil {
			panic(err)
		}
		return newMatrix(t.rng, name, gemm.Dense(l.Type, 1, n))
	}
	x.a, x.b, x.c = whole("A", x.p.A, x.p.Batch.A), whole("B", x.p.B, x.p.Batch.B), whole("C", x.p.C, x.p.Batch.C)
	for i := range x.p.Products() {
		p := x.p
		p.Batch = gemm.Batch{}
		bias := o.bias
		if x.ends != nil {
			from, to := x.rows(i)
			p.M, p.A.Rows, p.C.Rows = to-from, to-from, to-from
			if p.Epilogue.Bias == BiasRow {
				bias = newMatrix(t.rng, "bias", gemm.Dense(p.C.Type, 1, p.M))
				bias.fill(func(_, j int) float64 { return o.bias.at(0, from+j) })
			}
		}
		part := newOperands(t.rng, p)
		like := map[*matrix]*matrix{part.a: o.a, part.b: o.b, part.c: o.c, part.bias: o.bias}
		part.fillInputs(func(m *matrix, _, _ int) float64 {
			from := like[m]
			return from.at(t.rng.IntN(from.layout.OpRows()), t.rng.IntN(from.layout.OpCols()))
		})
		part.bias = bias
		if i > 0 && x.p.Batch.A == 0 && x.ends == nil {
			part.a = x.parts[0].a
		}
		if i > 0 && x.p.Batch.B == 0 {
			part.b = x.parts[0].b
		}
		x.parts = append(x.parts, part)
		x.move(part.a, x.a, x.at(inA, i), false)
		x.move(part.b, x.b, x.at(inB, i), false)
		x.move(part.c, x.c, x.at(inC, i), false)
	}
}

// Indices of the operands.
const (
	inA = iota
	inB
	inC
)

// rows returns the first row of group i and the first row after it.
func (x *batch) rows(i int) (from, to int) {
	if i > 0 {
		from = int(x.ends[i-1])
	}
	return from, int(x.ends[i])
}

// at returns the offset of an operand of product i in the shared memory, in elements.
func (x *batch) at(operand, i int) int {
	stride := [3]int{x.p.Batch.A, x.p.Batch.B, x.p.Batch.C}[operand]
	if x.ends != nil && operand != inB {
		from, _ := x.rows(i)
		return from * [3]int{x.p.A.LD, 0, x.p.C.LD}[operand]
	}
	return i * stride
}

// move copies the matrix of a product to offset at of the shared memory. If back is set, it copies
// the matrix from there instead and restores the earlier contents of the shared memory.
func (x *batch) move(m, whole *matrix, at int, back bool) {
	size := m.layout.Type.Size()
	for i := range m.layout.OpRows() {
		for j := range m.layout.OpCols() {
			alone, there := m.layout.Index(i, j)*size, (at+m.layout.Index(i, j))*size
			one, all := m.bytes()[alone:alone+size], whole.bytes()[there:there+size]
			if back {
				copy(one, all)
				copy(all, whole.before[whole.start+there:])
			} else {
				copy(all, one)
			}
		}
	}
}

// matrices returns the matrices in shared memory.
func (x *batch) matrices() []*matrix { return []*matrix{x.a, x.b, x.c, x.bias} }
