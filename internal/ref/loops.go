package ref

import (
	"math"

	"tilework/internal/gemm"
)

// multiply sets Value (and low) to op(A)·op(B), scale to |op(A)|·|op(B)| and drift
// to the sums of the squared terms. The innermost loops run along rows of B and C.
func (r *Result) multiply(a, b []float64) {
	p := r.p
	if a == nil {
		return
	}
	for i := range p.M {
		row := func(s []float64) []float64 {
			if s == nil {
				return nil
			}
			return s[i*p.N : (i+1)*p.N]
		}
		for k, av := range a[i*p.K : (i+1)*p.K] {
			bs := b[k*p.N : (k+1)*p.N]
			if r.low != nil {
				addTwice(row(r.Value), row(r.low), av, bs)
			} else {
				add(row(r.Value), av, bs)
			}
			if r.scale != nil {
				addGauges(row(r.scale), row(r.drift), av, bs)
			}
		}
	}
}

// wrap wraps integer sums before they are converted to floats. They are exact, so that later
// errors are in proportion to their own size, not to that of their terms.
func (r *Result) wrap() {
	for at, sum := range r.Value {
		r.Value[at] = r.p.Wrapped(sum)
		if r.scale != nil {
			r.scale[at], r.drift[at] = math.Abs(r.Value[at]), 0
		}
	}
}

func add(sum []float64, a float64, b []float64) {
	for j, v := range b {
		sum[j] += a * v
	}
}

func addGauges(abs, squares []float64, a float64, b []float64) {
	abs, squares = abs[:len(b)], squares[:len(b)]
	for j, v := range b {
		t := a * v
		abs[j] += math.Abs(t)
		squares[j] += t * t
	}
}

// addTwice adds a·b with what each product and each sum leaves off gathered in
// low: the result is as accurate as if computed in twice the precision (Ogita,
// Rump and Oishi, "Accurate sum and dot product", algorithm 5.3). The conversion
// rounds the product, which some processors would otherwise fuse with the sum.
func addTwice(sum, low []float64, a float64, b []float64) {
	sum, low = sum[:len(b)], low[:len(b)]
	for j, v := range b {
		t := float64(a * v)
		s, e := twoSum(sum[j], t)
		sum[j] = s
		low[j] += e + math.FMA(a, v, -t)
	}
}

// twoSum is a + b and the error of that sum, exactly (Knuth).
func twoSum(a, b float64) (s, e float64) {
	s = a + b
	t := s - a
	return s, (a - (s - t)) + (b - t)
}

// DoubleDouble is an unevaluated sum of two float64 numbers.
type DoubleDouble struct{ High, Low float64 }

// Plus returns x + y.
func (x DoubleDouble) Plus(y DoubleDouble) DoubleDouble {
	s, e := twoSum(x.High, y.High)
	return DoubleDouble{s, e + x.Low + y.Low}
}

// Times returns x·f.
func (x DoubleDouble) Times(f float64) DoubleDouble {
	t := float64(x.High * f) // rounded, so not fused with the addition below
	return DoubleDouble{t, math.FMA(x.High, f, -t) + x.Low*f}
}

// by is the product of two sums, but for that of what both leave off.
func (x DoubleDouble) by(y DoubleDouble) DoubleDouble {
	z := x.Times(y.High)
	z.Low += x.High * y.Low
	return z
}

// at is an element's value.
func (r *Result) at(n int) DoubleDouble {
	x := DoubleDouble{High: r.Value[n]}
	if r.low != nil {
		x.Low = r.low[n]
	}
	return x
}

// Normalize returns x with the float64 nearest to the sum in High. If High is not finite, Low is 0.
func (x DoubleDouble) Normalize() DoubleDouble {
	if !finite(x.High) {
		return DoubleDouble{High: x.High}
	}
	s, e := twoSum(x.High, x.Low)
	return DoubleDouble{s, e}
}

// finish turns op(A)·op(B) into what the epilogue makes of α·op(A)·op(B) + β·C, and the
// gauges with it. The scalars are first rounded to p's ScaleType, in which every
// implementation holds them.
func (r *Result) finish(c, bias []float64) {
	p := r.p
	alpha, beta := p.ScaleType().Round(p.Alpha), p.ScaleType().Round(p.Beta)
	act := p.Epilogue.Activation
	for i := range p.M {
		for j := range p.N {
			at := i*p.N + j
			var z DoubleDouble
			if p.ReadsAB() {
				z.High = r.Value[at]
				if r.low != nil {
					z.Low = r.low[at]
				}
				z = z.Times(alpha)
			}
			product := z.High
			var old float64
			if c != nil {
				old = beta * c[at]
				z = z.Plus(DoubleDouble{High: c[at]}.Times(beta))
			}
			weight := 1.0
			for _, f := range r.scales(i, j) {
				z = z.Times(f)
				weight *= f
			}
			shift := BiasAt(p, bias, i, j)
			if len(bias) > 0 {
				z = z.Plus(DoubleDouble{High: shift})
			}
			if z = z.Normalize(); act != gemm.ActNone {
				z = DoubleDouble{High: act.Info().F(z.High)}
			}
			if r.up != nil {
				r.gate[at] = z.High
				z = z.by(r.up.at(at))
			}
			if res := r.epilogue[gemm.Residual]; res != nil {
				z = z.Plus(DoubleDouble{High: res[at]})
			}
			if g := r.epilogue[gemm.OutScale]; g != nil {
				z = z.Times(g[0])
			}
			z = z.Normalize()
			r.Value[at] = z.High
			if p.Epilogue.Saturate {
				r.Value[at] = gemm.Saturated(p.Out(), z.High)
			}
			if r.low != nil {
				r.low[at] = 0
				if r.Value[at] == z.High {
					r.low[at] = z.Low
				}
			}
			if r.scale != nil {
				r.scale[at] = math.Abs(weight)*(math.Abs(alpha)*r.scale[at]+math.Abs(old)) + math.Abs(shift)
				r.drift[at] = weight*weight*(product*product+alpha*alpha*r.drift[at]+old*old) + shift*shift
			}
		}
	}
}

// scales are the factors of element (i, j) before the bias.
func (r *Result) scales(i, j int) []float64 {
	var all []float64
	if s := r.epilogue[gemm.RowScale]; s != nil {
		all = append(all, s[i])
	}
	if s := r.epilogue[gemm.ColScale]; s != nil {
		all = append(all, s[j])
	}
	return all
}

// integers computes the product modulo 2^32, which is what int32 arithmetic does
// in any order.
func (r *Result) integers(a, b, c, bias []float64) {
	p := r.p
	sum := make([]uint32, p.N)
	act, residual := p.Epilogue.Activation.Info(), r.epilogue[gemm.Residual]
	for i := range p.M {
		clear(sum)
		if a != nil {
			for k, av := range a[i*p.K : (i+1)*p.K] {
				for j, bv := range b[k*p.N : (k+1)*p.N] {
					sum[j] += word(av) * word(bv)
				}
			}
		}
		for j := range sum {
			z := word(p.Alpha) * sum[j]
			if c != nil {
				z += word(p.Beta) * word(c[i*p.N+j])
			}
			z += word(BiasAt(p, bias, i, j))
			v := act.F(float64(int32(z)))
			if residual != nil {
				v = float64(int32(word(v) + word(residual[i*p.N+j])))
			}
			r.Value[i*p.N+j] = v
		}
	}
}

// BiasAt returns the bias of element (i, j).
func BiasAt(p *gemm.Problem, bias []float64, i, j int) float64 {
	switch p.Epilogue.Bias {
	case gemm.BiasRow:
		return bias[i]
	case gemm.BiasCol:
		return bias[j]
	}
	return 0
}

// word is the whole number v modulo 2^32.
func word(v float64) uint32 { return uint32(int64(v)) }
