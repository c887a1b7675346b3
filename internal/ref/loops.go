package ref

import (
	"math"

	"tilework/internal/gemm"
)

// multiply sets Value and low to op(A)·op(B), absSum to |op(A)|·|op(B)| and sumSquare to the sums
// of the squared terms. Fields that are nil are skipped. The innermost loops access rows of op(B)
// and C, which are contiguous.
func (r *Result) multiply(a, b []float64) {
	p := r.p
	if a == nil {
		return
	}
	for i := range p.M {
		row := func(s []float64) []float64 { return s[i*p.N : (i+1)*p.N] }
		for k, av := range a[i*p.K : (i+1)*p.K] {
			bs := b[k*p.N : (k+1)*p.N]
			if r.low != nil {
				addCompensated(row(r.Value), row(r.low), av, bs)
			} else {
				add(row(r.Value), av, bs)
			}
			if r.absSum != nil {
				addMagnitudes(row(r.absSum), row(r.sumSquare), av, bs)
			}
		}
	}
}

// wrapSums wraps integer sums before they are converted to floats. Wrapped sums are exact. Errors
// of later operations are proportional to the sum, not to its terms, so wrapSums sets absSum to
// the magnitude of the sum and sumSquare to 0.
func (r *Result) wrapSums() {
	for at, sum := range r.Value {
		r.Value[at] = r.p.Wrapped(sum)
		if r.absSum != nil {
			r.absSum[at], r.sumSquare[at] = math.Abs(r.Value[at]), 0
		}
	}
}

// add adds a·b to sum.
func add(sum []float64, a float64, b []float64) {
	for j, v := range b {
		sum[j] += a * v
	}
}

// addMagnitudes adds |a·b| to abs and (a·b)² to squares.
func addMagnitudes(abs, squares []float64, a float64, b []float64) {
	abs, squares = abs[:len(b)], squares[:len(b)]
	for j, v := range b {
		t := a * v
		abs[j] += math.Abs(t)
		squares[j] += t * t
	}
}

// addCompensated adds a·b to sum and the rounding errors of the products and sums to low. sum + low
// is as accurate as if computed in twice the precision (Ogita, Rump and Oishi, "Accurate sum and
// dot product", algorithm 5.3). The conversion rounds the product, which the compiler could
// otherwise fuse with the addition.
func addCompensated(sum, low []float64, a float64, b []float64) {
	sum, low = sum[:len(b)], low[:len(b)]
	for j, v := range b {
		t := float64(a * v)
		s, e := twoSum(sum[j], t)
		sum[j] = s
		low[j] += e + math.FMA(a, v, -t)
	}
}

// twoSum returns the rounded sum s of a and b, and the exact rounding error e = a + b - s (Knuth,
// The Art of Computer Programming, volume 2, section 4.2.2).
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

// multiply returns x·y without the product of the two low parts, which is negligible.
func (x DoubleDouble) multiply(y DoubleDouble) DoubleDouble {
	z := x.Times(y.High)
	z.Low += x.High * y.Low
	return z
}

// value returns the element at index at with its low part.
func (r *Result) value(at int) DoubleDouble {
	x := DoubleDouble{High: r.Value[at]}
	if r.low != nil {
		x.Low = r.low[at]
	}
	return x
}

// Normalize returns x with High rounded to the float64 nearest to the sum of both parts. If High is
// not finite, Low becomes 0.
func (x DoubleDouble) Normalize() DoubleDouble {
	if !finite(x.High) {
		return DoubleDouble{High: x.High}
	}
	s, e := twoSum(x.High, x.Low)
	return DoubleDouble{s, e}
}

// finish computes α·op(A)·op(B) + β·C and applies the epilogue. It adds the terms of C, the scales
// and the bias to absSum and sumSquare.
func (r *Result) finish(c, bias []float64) {
	p := r.p
	alpha, beta := real(p.Alpha), real(p.Beta)
	act := p.Epilogue.Activation
	for i := range p.M {
		for j := range p.N {
			at := i*p.N + j
			var z DoubleDouble
			if p.ReadsAB() {
				z = r.value(at).Times(alpha)
			}
			product := z.High
			var old float64
			if c != nil {
				old = beta * c[at]
				z = z.Plus(DoubleDouble{High: c[at]}.Times(beta))
			}
			scale := 1.0
			for _, s := range r.scales(i, j) {
				z = z.Times(s)
				scale *= s
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
				z = z.multiply(r.up.value(at))
			}
			for _, x := range r.addends(at) {
				z = z.Plus(DoubleDouble{High: x})
			}
			if outScale := r.epilogue[gemm.OutScale]; outScale != nil {
				z = z.Times(outScale[0])
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
			if r.absSum != nil {
				terms := math.Abs(alpha) * r.absSum[at]
				finished := max(r.absSum[at], math.Abs(product))
				r.absSum[at] = math.Abs(scale)*(terms+math.Abs(old)) + math.Abs(shift)
				r.largest[at] = math.Abs(scale)*(min(terms, finished)+math.Abs(old)) + math.Abs(shift)
				r.sumSquare[at] = scale*scale*(product*product+alpha*alpha*r.sumSquare[at]+old*old) + shift*shift
			}
		}
	}
}

// scales returns the RowScale and ColScale factors of element (i, j), which the epilogue applies
// before the bias.
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

// addends returns the terms that the epilogue adds to the element at index at after the activation.
func (r *Result) addends(at int) (all []float64) {
	if residual := r.epilogue[gemm.Residual]; residual != nil {
		all = append(all, residual[at])
	}
	return all
}

// computeInt32 sets Value for a product in int32 arithmetic. It computes modulo 2^32, so that the
// order of summation has no effect.
func (r *Result) computeInt32(a, b, c, bias []float64) {
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
			z := word(real(p.Alpha)) * sum[j]
			if c != nil {
				z += word(real(p.Beta)) * word(c[i*p.N+j])
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

// BiasAt returns the bias of element (i, j), or 0 if p has no bias.
func BiasAt(p *gemm.Problem, bias []float64, i, j int) float64 {
	switch p.Epilogue.Bias {
	case gemm.BiasRow:
		return bias[i]
	case gemm.BiasCol:
		return bias[j]
	}
	return 0
}

// word returns the integer v modulo 2^32.
func word(v float64) uint32 { return uint32(int64(v)) }
