// Package ref computes reference products in float64 and the error bounds of correct
// implementations.
//
// [Gemm] computes a small product with the gauges that [Result.Compare] needs. [Values] leaves the
// gauges out, for data on which the product is exact.
// Package verify checks a product of any size in O(n²).
//
// Both read the buffers as they are before the product runs: C is the old C.
package ref

import (
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Accuracy is how an implementation computes; the zero value stands for [AccuracyOf] the
// problem.
type Accuracy = gemm.Accuracy

// AccuracyOf is [gemm.AccuracyOf].
func AccuracyOf(p *gemm.Problem) Accuracy { return gemm.AccuracyOf(p) }

// tiny is the largest absolute error of one operation below the normal range of t.
func tiny(a Accuracy, t dtype.Type) float64 {
	in := t.Info()
	if a.FlushesToZero && !in.Integer {
		return in.Tiny / (2 * in.Roundoff) // the smallest normal
	}
	return in.Tiny
}

// steps is how many roundings of full size the errors of n operations add up to:
// √n when they are as good as independent, n when they all point one way.
func steps(a Accuracy, n float64) float64 {
	if a.Truncates {
		return n
	}
	return math.Sqrt(n)
}

// Result is the reference's C, M×N without padding.
type Result struct {
	p *gemm.Problem

	// Value is each element of C before it is rounded to C's type: float64 sums for
	// the narrower types, twice float64's precision rounded to it for float64, exact
	// sums for the integers, which wrap. NaN and Inf propagate as IEEE 754 has it.
	Value []float64

	low   []float64 // float64 products: what Value leaves off
	scale []float64 // |α|·|A|·|B| + |β|·|C| + |bias|, the first two with the element's scales
	drift []float64 // (α·A·B)² + α²·Σ(a·b)² + (β·C)² + bias², likewise: see Compare
	normA []float64 // Σ|a| of each row of op(A), Σ|b| of each column of op(B)
	normB []float64
	// epilogue holds the elements of each operand of the epilogue, row by row without padding; nil
	// for an operand that is not read. The second B of a gated product is not among them.
	epilogue [gemm.Operands][]float64
	// up is the product that a gated one is gated with, and gate what the activation made of
	// each element.
	up   *Result
	gate []float64

	nonfinite bool // some input was
}

// Gemm computes the product p of buf, with the gauges for [Result.Compare].
func Gemm(p *gemm.Problem, buf gemm.Buffers) *Result { return compute(p, buf, true) }

// Values is [Gemm] without the gauges, in a third of its time.
func Values(p *gemm.Problem, buf gemm.Buffers) *Result { return compute(p, buf, false) }

func compute(p *gemm.Problem, buf gemm.Buffers, gauges bool) *Result {
	r := &Result{p: p, Value: make([]float64, p.M*p.N)}
	var a, b []float64
	if p.ReadsAB() {
		a, b = Factors(p, buf)
	}
	var c []float64
	if p.Beta != 0 {
		c = dense(p.Layouts[gemm.C], buf[gemm.C])
	}
	bias := make([]float64, p.BiasLen())
	p.Out().Load(bias, buf[gemm.Bias])
	for o := gemm.Residual; o < gemm.Operands; o++ {
		if p.Epilogue.Reads(o) && o != gemm.Up && o != gemm.Bias {
			r.epilogue[o] = dense(p.Layout(o), buf[o])
		}
	}
	if p.ScaleType().Info().Integer {
		r.integers(a, b, c, bias)
		return r
	}
	r.nonfinite = anyNonfinite(a, b, c, bias, []float64{p.Alpha, p.Beta}) || anyNonfinite(r.epilogue[:]...)
	if gauges {
		r.scale = make([]float64, p.M*p.N)
		r.drift = make([]float64, p.M*p.N)
		r.norms(a, b)
	}
	if p.Accum() == dtype.F64 {
		r.low = make([]float64, p.M*p.N)
	}
	if p.Epilogue.Gated {
		other := p.Other()
		r.up, r.gate = compute(&other, gemm.Buffers{gemm.A: buf[gemm.A], gemm.B: buf[gemm.Up]}, gauges), make([]float64, p.M*p.N)
		r.nonfinite = r.nonfinite || r.up.nonfinite
	}
	r.multiply(a, b)
	if p.Converts() {
		r.wrap()
	}
	r.finish(c, bias)
	return r
}

// dense is op(matrix) as float64, row after row without padding.
func dense(l gemm.Layout, b []byte) []float64 {
	out := make([]float64, l.Rows*l.Cols)
	row, size := out, l.Type.Size()
	if l.Trans {
		row = make([]float64, l.Cols)
	}
	for i := range l.Rows {
		if l.Cols == 0 {
			break
		}
		if l.Trans {
			l.Type.Load(row, b[i*l.LD*size:])
			for j, v := range row {
				out[j*l.Rows+i] = v
			}
			continue
		}
		l.Type.Load(row[:l.Cols], b[i*l.LD*size:])
		row = row[l.Cols:]
	}
	return out
}

// Factors are op(A) and op(B) as float64, with their block scales, row after row without padding.
func Factors(p *gemm.Problem, buf gemm.Buffers) (a, b []float64) {
	a, b = dense(p.Layouts[gemm.A], buf[gemm.A]), dense(p.Layouts[gemm.B], buf[gemm.B])
	if scaleA, scaleB := p.ScalesOf(&buf); p.BlockScaled() {
		for at := range a {
			a[at] *= float64(scaleA.At(at/p.K, at%p.K))
		}
		for at := range b {
			b[at] *= float64(scaleB.At(at%p.N, at/p.N))
		}
	}
	return a, b
}

func anyNonfinite(lists ...[]float64) bool {
	for _, s := range lists {
		for _, v := range s {
			if !finite(v) {
				return true
			}
		}
	}
	return false
}

// finite reports whether v is neither NaN nor an infinity.
func finite(v float64) bool { return v-v == 0 }

func (r *Result) norms(a, b []float64) {
	p := r.p
	r.normA, r.normB = make([]float64, p.M), make([]float64, p.N)
	if a == nil {
		return
	}
	for i := range p.M {
		for _, v := range a[i*p.K : (i+1)*p.K] {
			r.normA[i] += math.Abs(v)
		}
	}
	for k := range p.K {
		for j, v := range b[k*p.N : (k+1)*p.N] {
			r.normB[j] += math.Abs(v)
		}
	}
}
