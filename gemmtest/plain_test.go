package gemmtest

import (
	"context"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// plain is a triple loop for injecting faults. The zero value is correct. Each hook replaces one
// step.
type plain struct {
	index   func(l Layout, i, j int) int        // index of an element
	order   func(k int) []int                   // order of the terms
	operand func(p *Problem, v float64) float64 // applied to each element of A or B
	skip    func(a, b float64) bool             // selects terms to skip
	sum     func(p *Problem, s float64) float64 // applied to the sum after each term
	block   func(k int) int                     // term whose block scale is used
	bias    func(p *Problem, i, j int) int      // index of the bias of element (i, j)
	act     func(a gemm.Activation, x float64) float64
	extra   func(p *Problem, x gemm.Operand, v float64) float64 // applied to other epilogue operands
	up      func(x float64) float64                             // applied to the second factor of a gate

	readOld, readAB, ignoreContext bool
}

// multiply implements Implementation.Gemm.
func (f *plain) multiply(ctx context.Context, p *Problem, b Buffers) error {
	switch t := p.Accum(); {
	case p.Converts():
		return plainIn[int32, float32](ctx, f, p, b)
	case t == dtype.F64:
		return plainIn[float64, float64](ctx, f, p, b)
	case t == dtype.F32:
		return plainIn[float32, float32](ctx, f, p, b)
	default:
		return plainIn[int32, int32](ctx, f, p, b)
	}
}

type number interface{ float64 | float32 | int32 }

// plainIn accumulates in T and computes the epilogue in S.
func plainIn[T, S number](ctx context.Context, f *plain, p *Problem, b Buffers) error {
	index, readAB := Layout.Index, p.ReadsAB() || f.readAB
	if f.index != nil {
		index = f.index
	}
	var order []int
	if f.order != nil {
		order = f.order(p.K)
	} else {
		for k := range p.K {
			order = append(order, k)
		}
	}
	read := func(l Layout, data []byte, i, j int) float64 {
		v := l.Type.At(data, index(l, i, j))
		if f.operand != nil {
			v = f.operand(p, v)
		}
		return v
	}
	zero := func(x gemm.Operand, at int) float64 {
		if !p.Uses(x) {
			return 0
		}
		v := dtype.I32.At(b[x], at)
		if f.extra != nil {
			v = f.extra(p, x, v)
		}
		return v
	}
	scaleA, scaleB := p.ScalesOf(&b)
	for i := range p.M {
		if !f.ignoreContext && ctx.Err() != nil {
			return ctx.Err()
		}
		for j := range p.N {
			product := func(of Layout, data []byte, scales gemm.BlockScales) S {
				var sum T
				for _, k := range order {
					if !readAB {
						break
					}
					x, y := read(p.Layouts[gemm.A], b[gemm.A], i, k)-zero(gemm.RowZero, i), read(of, data, k, j)-zero(gemm.ColZero, j)
					if f.skip != nil && f.skip(x, y) {
						continue
					}
					term := T(T(x) * T(y))
					if p.BlockScaled() {
						at := k
						if f.block != nil {
							at = f.block(k)
						}
						term = T(T(T(x)*T(scaleA.At(i, at))) * T(T(y)*T(scales.At(j, at))))
					}
					sum += term
					if f.sum != nil {
						sum = T(f.sum(p, float64(sum)))
					}
				}
				return S(S(sum) * S(real(p.Alpha)))
			}
			sum := product(p.Layouts[gemm.B], b[gemm.B], scaleB)
			at := index(p.Layouts[gemm.C], i, j)
			if p.Beta != 0 || f.readOld {
				sum += S(S(real(p.Beta)) * S(p.Out().At(b[gemm.C], at)))
			}
			extra := func(x gemm.Operand, i, j int) S {
				l := p.Layout(x)
				v := l.Type.At(b[x], index(l, i, j))
				if f.extra != nil {
					v = f.extra(p, x, v)
				}
				return S(v)
			}
			if p.Epilogue.RowScale {
				sum *= extra(gemm.RowScale, 0, i)
			}
			if p.Epilogue.ColScale {
				sum *= extra(gemm.ColScale, 0, j)
			}
			if e := p.Epilogue.Bias; e != BiasNone {
				n := i
				if e == BiasCol {
					n = j
				}
				if f.bias != nil {
					n = f.bias(p, i, j)
				}
				sum += S(p.Out().At(b[gemm.Bias], n))
			}
			act := p.Epilogue.Activation
			out := act.Info().F(float64(sum))
			if f.act != nil {
				out = f.act(act, float64(sum))
			}
			x := S(out)
			if p.Epilogue.Gated {
				up := product(p.Layouts[gemm.Up], b[gemm.Up], gemm.BlockScales{})
				if f.up != nil {
					up = S(f.up(float64(up)))
				}
				x *= up
			}
			if p.Epilogue.Residual {
				x += extra(gemm.Residual, i, j)
			}
			if p.Epilogue.OutScale {
				x *= extra(gemm.OutScale, 0, 0)
			}
			if out = float64(x); p.Epilogue.Saturate {
				out = gemm.Saturated(p.Out(), out)
			}
			p.Out().Set(b[gemm.C], at, out)
		}
	}
	return nil
}

// after returns a Gemm that runs the loop and then step.
func after(step func(p *Problem, b Buffers)) func(context.Context, *Problem, Buffers) error {
	return func(ctx context.Context, p *Problem, b Buffers) error {
		err := new(plain).multiply(ctx, p, b)
		if err == nil {
			step(p, b)
		}
		return err
	}
}

// batch returns an Implementation.Batch. at returns the offsets of the matrices of product n in
// elements, and its first row and the first row after it.
func (f *plain) batch(at func(p *Problem, ends []int32, n int) (a, b, c, from, to int)) func(context.Context, *Problem,
	[]int32, Buffers) error {
	return func(ctx context.Context, p *Problem, ends []int32, m Buffers) error {
		for n := range p.Products() {
			one, _ := p.Product(n)
			a, b, c, from, to := at(p, ends, n)
			bias := m[gemm.Bias]
			if ends != nil {
				one.M, one.A().Rows, one.C().Rows = to-from, to-from, to-from
				if one.Epilogue.Bias == BiasRow {
					bias = bias[p.Out().Bytes(from):]
				}
			}
			if one.M == 0 || one.N == 0 {
				continue
			}
			part := Buffers{gemm.C: m[gemm.C][p.Out().Bytes(c):], gemm.Bias: bias}
			if one.ReadsAB() {
				part[gemm.A], part[gemm.B] = m[gemm.A][p.In().Bytes(a):], m[gemm.B][p.In().Bytes(b):]
			}
			if err := f.multiply(ctx, &one, part); err != nil {
				return err
			}
		}
		return nil
	}
}

// offsets returns the offsets of the matrices of product n and the rows of its group.
func offsets(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
	if ends == nil {
		return n * p.Batch.Stride[gemm.A], n * p.Batch.Stride[gemm.B], n * p.Batch.Stride[gemm.C], 0, p.M
	}
	if n > 0 {
		from = int(ends[n-1])
	}
	return from * p.A().LD, n * p.Batch.Stride[gemm.B], from * p.C().LD, from, int(ends[n])
}
