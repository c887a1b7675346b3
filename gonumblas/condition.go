package gonumblas

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/gonum"
)

// The methods below estimate reciprocal condition numbers and compute the norms that the estimates
// need. As those in lapack.go, they forward invalid arguments and empty matrices to gonum.

// Dgecon estimates the reciprocal condition number of a matrix from its LU factorisation and its
// norm.
func (l LAPACK) Dgecon(norm lapack.MatrixNorm, n int, a []float64, lda int, anorm float64, work []float64,
	iwork []int) float64 {
	v := &views{bad: !isSumNorm(norm)}
	view(v, n, n, lda, a)
	if v.bad || !isUsable(anorm) || len(work) < 4*n || len(iwork) < n {
		return l.Implementation.Dgecon(norm, n, a, lda, anorm, work, iwork)
	}
	lower := system{blas.Lower, blas.Unit, n, a, lda}
	upper := system{blas.Upper, blas.NonUnit, n, a, lda}
	return reciprocalCondition(n, anorm, work, iwork, func(transposed bool, x, spare []float64) float64 {
		if transposed == (norm == lapack.MaxColumnSum) {
			return upper.solve(blas.Trans, x, spare) * lower.solve(blas.Trans, x, spare)
		}
		return lower.solve(blas.NoTrans, x, spare) * upper.solve(blas.NoTrans, x, spare)
	})
}

// Dpocon estimates the reciprocal condition number of a symmetric positive definite matrix from its
// Cholesky factorisation and its norm.
func (l LAPACK) Dpocon(ul blas.Uplo, n int, a []float64, lda int, anorm float64, work []float64, iwork []int) float64 {
	v := &views{}
	view(v, n, n, lda, a)
	first, second := blas.Trans, blas.NoTrans
	if v.lower(ul) {
		first, second = second, first
	}
	if v.bad || !isUsable(anorm) || len(work) < 3*n || len(iwork) < n {
		return l.Implementation.Dpocon(ul, n, a, lda, anorm, work, iwork)
	}
	factor := system{ul, blas.NonUnit, n, a, lda}
	return reciprocalCondition(n, anorm, work, iwork, func(_ bool, x, spare []float64) float64 {
		return factor.solve(first, x, spare) * factor.solve(second, x, spare)
	})
}

// Dtrcon estimates the reciprocal condition number of a triangular matrix.
func (l LAPACK) Dtrcon(norm lapack.MatrixNorm, ul blas.Uplo, d blas.Diag, n int, a []float64, lda int, work []float64,
	iwork []int) float64 {
	v := &views{bad: !isSumNorm(norm) || d != blas.NonUnit && d != blas.Unit}
	view(v, n, n, lda, a)
	v.lower(ul)
	if v.bad || len(work) < 3*n || len(iwork) < n {
		return l.Implementation.Dtrcon(norm, ul, d, n, a, lda, work, iwork)
	}
	anorm := l.Dlantr(norm, ul, d, n, n, a, lda, work)
	if anorm == 0 {
		return 0
	}
	triangle := system{ul, d, n, a, lda}
	return reciprocalCondition(n, anorm, work, iwork, func(transposed bool, x, spare []float64) float64 {
		if transposed == (norm == lapack.MaxColumnSum) {
			return triangle.solve(blas.Trans, x, spare)
		}
		return triangle.solve(blas.NoTrans, x, spare)
	})
}

// isSumNorm reports whether norm is the 1-norm or the ∞-norm.
func isSumNorm(norm lapack.MatrixNorm) bool {
	return norm == lapack.MaxColumnSum || norm == lapack.MaxRowSum
}

// isUsable reports whether the condition number depends on more than its norm or is NaN: whether
// the norm is positive and finite, or NaN.
func isUsable(norm float64) bool { return norm > 0 && norm <= math.MaxFloat64 || math.IsNaN(norm) }

// reciprocalCondition returns 1/(‖A⁻¹‖·anorm) with an estimate of ‖A⁻¹‖. See N. Higham, "FORTRAN
// codes for estimating the one-norm of a real or complex matrix", 1988. solve replaces x by
// scale·A⁻¹·x or by scale·A⁻ᵀ·x, where scale ≤ 1 prevents overflow, and returns scale. It is NaN
// if A has a NaN, and so is the result. spare holds n elements.
func reciprocalCondition(n int, anorm float64, work []float64, iwork []int,
	solve func(transposed bool, x, spare []float64) (scale float64)) float64 {
	const smallest = 0x1p-1022
	impl := gonum.Implementation{}
	x, v, spare := work[:n], work[n:2*n], work[2*n:3*n]
	if math.IsNaN(anorm) {
		return anorm
	}
	estimate, step := 0.0, 0
	var state [3]int
	for {
		estimate, step = impl.Dlacn2(n, v, x, iwork, estimate, step, &state)
		if step == 0 {
			if estimate == 0 {
				return 0
			}
			return 1 / estimate / anorm
		}
		switch scale := solve(step == 2, x, spare); {
		case math.IsNaN(scale):
			return scale
		case scale == 0 || scale < largest(x)*smallest:
			return 0
		case scale < 1:
			impl.Drscl(n, scale, x, 1)
		}
	}
}

// system is a triangular system of linear equations, with its matrix as gonum stores it.
type system struct {
	ul  blas.Uplo
	d   blas.Diag
	n   int
	a   []float64
	lda int
}

// solve replaces x by scale·A⁻¹·x, or by scale·A⁻ᵀ·x, and returns scale. It is 1 unless the result
// with that scale is not finite, and NaN if A has a NaN. spare holds n elements.
func (s system) solve(t blas.Transpose, x, spare []float64) (scale float64) {
	copy(spare, x)
	double.triangularVectorSolve(s.ul, t, s.d, s.n, s.a, s.lda, x, 1)
	if areFinite(x) {
		return 1
	}
	if s.hasNaN() {
		return math.NaN()
	}
	copy(x, spare)
	return gonum.Implementation{}.Dlatrs(s.ul, t, s.d, false, s.n, s.a, s.lda, x, spare)
}

// hasNaN reports whether the matrix has a NaN.
func (s system) hasNaN() bool {
	a := triangle[float64]{dense(s.n, s.n, s.a), s.ul == blas.Lower, s.d}
	a.down = s.lda
	for i := range s.n {
		row, first := a.row(i)
		for j, v := range row {
			if math.IsNaN(v) && (s.d == blas.NonUnit || first+j != i) {
				return true
			}
		}
	}
	return false
}

// largest returns the largest absolute value of the elements of x.
func largest(x []float64) float64 {
	most := 0.0
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	return most
}

// areFinite reports whether no element of x is infinite or not a number.
func areFinite(x []float64) bool {
	sum := 0.0
	for _, v := range x {
		sum += v - v
	}
	return sum == 0
}
