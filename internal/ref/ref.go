// Package ref computes reference products in float64 and the error bounds of correct
// implementations.
//
// [Gemm] computes a small product and the magnitudes that the error bounds of [Result.Compare]
// depend on. [Values] omits these magnitudes; it suffices for data on which the product is exact.
// Both expect the buffers as they are before the implementation under test runs, with the old C.
//
// Package verify checks products of any size in O(n²) operations.
package ref

import (
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// underflowError returns the largest absolute error of one operation in the subnormal range of t.
func underflowError(a gemm.Accuracy, t dtype.Type) float64 {
	in := t.Info()
	if a.FlushesToZero && !in.Integer {
		return in.Tiny / (2 * in.Roundoff) // the smallest normal number
	}
	return in.Tiny
}

// errorGrowth returns the typical error of n operations, relative to the error of one operation:
// √n if the accumulator rounds to nearest, since its errors are nearly independent, and n if it
// truncates, since its errors then have a bias.
func errorGrowth(a gemm.Accuracy, n float64) float64 {
	if a.Truncates {
		return n
	}
	return math.Sqrt(n)
}

// Result is the reference's C, M×N, in row-major order without padding.
type Result struct {
	p *gemm.Problem

	// Value holds the elements of C before they are rounded to C's type. Sums of types narrower
	// than float64 are computed in float64. Float64 sums are computed in twice the precision and
	// rounded. Int32 sums are exact and wrap. NaN and Inf propagate as in IEEE 754.
	Value []float64

	// low holds the low parts of float64 products: Value + low has twice the precision.
	low []float64
	// absSum is |α|·|A|·|B| + |β|·|C| + |bias|. RowScale and ColScale multiply the first two terms.
	absSum []float64
	// largest is absSum with max(|A|·|B|, |α·A·B|) instead of |α|·|A|·|B| if |α| > 1, because α
	// multiplies finished sums: a bound on the values of every order of summation.
	largest []float64
	// sumSquare is (α·A·B)² + α²·Σ(a·b)² + (β·C)² + bias², scaled likewise. It is the square of
	// the typical magnitude of a partial sum; see Compare.
	sumSquare []float64
	normA     []float64 // Σ|a| of each row of op(A)
	normB     []float64 // Σ|b| of each column of op(B)

	// epilogue holds the elements of the epilogue operands except Bias and Up, in row-major order
	// without padding. Operands that are not read are nil.
	epilogue [gemm.Operands][]float64
	// up is the other factor of a gated product, α·op(A)·op(Up).
	up *Result
	// gate holds the elements of the first factor of a gated product, after the activation.
	gate []float64

	nonfinite bool // whether an input is not finite
}

// Gemm computes the product p of buf, with all that [Result.Compare] needs.
func Gemm(p *gemm.Problem, buf gemm.Buffers) *Result { return compute(p, buf, true) }

// Values computes the product p of buf for [Result.Exactly]. It takes a third of the time of
// [Gemm], but [Result.Compare] does not accept its result.
func Values(p *gemm.Problem, buf gemm.Buffers) *Result { return compute(p, buf, false) }

// compute computes the product p of buf. It computes the magnitudes for error bounds only if
// bounds is set.
func compute(p *gemm.Problem, buf gemm.Buffers, bounds bool) *Result {
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
		r.computeInt32(a, b, c, bias)
		return r
	}
	r.nonfinite = anyNonfinite(a, b, c, bias, []float64{real(p.Alpha), real(p.Beta)}) || anyNonfinite(r.epilogue[:]...)
	if bounds {
		r.absSum, r.largest = make([]float64, p.M*p.N), make([]float64, p.M*p.N)
		r.sumSquare = make([]float64, p.M*p.N)
		r.computeNorms(a, b)
	}
	if p.Accum() == dtype.F64 {
		r.low = make([]float64, p.M*p.N)
	}
	if p.Epilogue.Gated {
		other := p.Other()
		r.up = compute(&other, gemm.Buffers{gemm.A: buf[gemm.A], gemm.B: buf[gemm.Up]}, bounds)
		r.gate = make([]float64, p.M*p.N)
		r.nonfinite = r.nonfinite || r.up.nonfinite
	}
	r.multiply(a, b)
	if p.Converts() {
		r.wrapSums()
	}
	r.finish(c, bias)
	return r
}

// dense returns op(b) as float64, where b is a matrix with layout l. The result is in row-major
// order without padding.
func dense(l gemm.Layout, b []byte) []float64 {
	out := make([]float64, l.Rows*l.Cols)
	row := out
	if l.Trans {
		row = make([]float64, l.Cols)
	}
	for i := range l.Rows {
		if l.Cols == 0 {
			break
		}
		if l.Trans {
			l.Type.Load(row, b[l.Type.Bytes(i*l.LD):])
			for j, v := range row {
				out[j*l.Rows+i] = v
			}
			continue
		}
		l.Type.Load(row[:l.Cols], b[l.Type.Bytes(i*l.LD):])
		row = row[l.Cols:]
	}
	return out
}

// Factors returns op(A) and op(B) as float64, multiplied by their block scales or less their zero
// points, in row-major order without padding.
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
	if zeros := dtype.View[int32](buf[gemm.RowZero]); p.Uses(gemm.RowZero) {
		for at := range a {
			a[at] -= float64(zeros[at/p.K])
		}
	}
	if zeros := dtype.View[int32](buf[gemm.ColZero]); p.Uses(gemm.ColZero) {
		for at := range b {
			b[at] -= float64(zeros[at%p.N])
		}
	}
	return a, b
}

// anyNonfinite reports whether lists contain a NaN or an infinity.
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

// computeNorms sets normA and normB. They are 0 if a and b are nil.
func (r *Result) computeNorms(a, b []float64) {
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
