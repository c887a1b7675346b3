package gemmtest

import (
	"fmt"
	"math"

	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/ref"
)

// batch is one case of a batched or grouped product, with all matrices in shared memory. parts
// holds a separate copy of the operands of each product for the reference.
type batch struct {
	operands         // of the whole batch, each as one row that includes the gaps between products
	ends     []int32 // of a grouped product: the first row after each group
	parts    []*operands
}

// batch computes a random batched or grouped product.
func (t *trial) batch() error {
	o, err := t.product(kind{form: batchForm, epilogue: func(t *trial, _ Pair) Epilogue {
		return Epilogue{Bias: choose(t, BiasNone, BiasNone, BiasRow, BiasCol)}
	}})
	if err != nil {
		return err
	}
	t.fillExact(o)
	if o.p.K > 0 && !o.p.In().Info().Integer && t.rng.IntN(8) == 0 { // NaN, which does not equal itself
		o.p.Alpha = complex(math.NaN(), 0)
	}
	x := &batch{operands: operands{p: o.p}}
	if t.drawn.grouped && !o.p.A().Trans {
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
	if err := guarded(func() error { return t.impl.Batch(t.ctx, &x.p, x.ends, x.buffers()) }); err != nil {
		return err
	}
	for i, part := range x.parts {
		x.move(part.of[gemm.C], x.of[gemm.C], x.at(gemm.C, i), true)
		if err := want[i].Exactly(part.of[gemm.C].bytes()); err != nil {
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
	count, unit := t.rng.IntN(maxProducts+1), t.unit()
	var b gemm.Batch
	for o := range gemm.C + 1 {
		l := &x.p.Layouts[o]
		l.LD = ints.RoundUp(l.LD, unit)
		b.Stride[o] = ints.RoundUp(l.Len()+choose(t, 0, 1, 40), unit)
		switch {
		case t.rng.IntN(4) == 0:
			b.Stride[o] = ints.RoundUp(l.Cols, unit)
			l.LD = t.drawn.alignment.ld(max(l.LD, maxProducts*b.Stride[o]))
		case o != gemm.C && t.rng.IntN(4) == 0:
			b.Stride[o] = 0
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
	unit := t.unit()
	for _, l := range []*Layout{&x.p.Layouts[gemm.A], &x.p.Layouts[gemm.B], &x.p.Layouts[gemm.C]} {
		l.LD = ints.RoundUp(l.LD, unit)
	}
	x.p, err = x.p.Grouped(count, choose(t, 0, ints.RoundUp(x.p.B().Len()+t.rng.IntN(3), unit)))
	return err
}

// layOut creates the products with elements drawn from those of o, and the shared memory of the
// batch.
func (t *trial) layOut(x *batch, o *operands) {
	x.of[gemm.Bias] = o.of[gemm.Bias]
	whole := func(name string, l Layout, stride int) *matrix {
		n, err := l.Span(max(x.p.Batch.Count, 1), stride, name)
		if err != nil {
			panic(err)
		}
		return newMatrix(t.rng, name, gemm.Dense(l.Type, 1, n))
	}
	for name := range gemm.C + 1 {
		x.of[name] = whole(name.String(), x.p.Layouts[name], x.p.Batch.Stride[name])
	}
	for i := range x.p.Products() {
		p := x.p
		p.Batch = gemm.Batch{}
		bias := o.of[gemm.Bias]
		if x.ends != nil {
			from, to := x.rows(i)
			p.M, p.A().Rows, p.C().Rows = to-from, to-from, to-from
			if p.Epilogue.Bias == BiasRow {
				bias = newMatrix(t.rng, "bias", gemm.Dense(p.Out(), 1, p.M))
				bias.fill(func(_, j int) float64 { return o.of[gemm.Bias].at(0, from+j) })
			}
		}
		part := newOperands(t.rng, p)
		like := map[*matrix]*matrix{part.of[gemm.A]: o.of[gemm.A], part.of[gemm.B]: o.of[gemm.B],
			part.of[gemm.C]: o.of[gemm.C], part.of[gemm.Bias]: o.of[gemm.Bias]}
		part.fillInputs(func(m *matrix, _, _ int) float64 {
			from := like[m]
			return from.at(t.rng.IntN(from.layout.OpRows()), t.rng.IntN(from.layout.OpCols()))
		})
		part.of[gemm.Bias] = bias
		if i > 0 && x.p.Batch.Stride[gemm.A] == 0 && x.ends == nil {
			part.of[gemm.A] = x.parts[0].of[gemm.A]
		}
		if i > 0 && x.p.Batch.Stride[gemm.B] == 0 {
			part.of[gemm.B] = x.parts[0].of[gemm.B]
		}
		x.parts = append(x.parts, part)
		x.move(part.of[gemm.A], x.of[gemm.A], x.at(gemm.A, i), false)
		x.move(part.of[gemm.B], x.of[gemm.B], x.at(gemm.B, i), false)
		x.move(part.of[gemm.C], x.of[gemm.C], x.at(gemm.C, i), false)
	}
}

// rows returns the first row of group i and the first row after it.
func (x *batch) rows(i int) (from, to int) {
	if i > 0 {
		from = int(x.ends[i-1])
	}
	return from, int(x.ends[i])
}

// at returns the offset of an operand of product i in the shared memory, in elements.
func (x *batch) at(o gemm.Operand, i int) int {
	if x.ends != nil && o != gemm.B {
		from, _ := x.rows(i)
		return from * x.p.Layouts[o].LD
	}
	return i * x.p.Batch.Stride[o]
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
