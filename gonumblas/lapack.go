package gonumblas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/gonum"
)

// LAPACK is gonum's LAPACK with the LU, Cholesky and QR factorisations and the products with the Q
// of a QR factorisation replaced. Its methods are safe for concurrent use.
type LAPACK struct{ gonum.Implementation }

var _ lapack.Float64 = LAPACK{}

// The methods below forward a call with an invalid argument, an empty or small matrix or a query
// for the size of the workspace to gonum's routine. They do not use the workspace.

// Dgetrf computes the factorisation A = P·L·U with partial pivoting. It reports whether U has no
// zero on its diagonal.
func (l LAPACK) Dgetrf(m, n int, a []float64, lda int, ipiv []int) (ok bool) {
	v := &views{}
	va := view(v, m, n, lda, a)
	if v.bad || len(ipiv) != min(m, n) || m*n <= smallLU {
		return l.Implementation.Dgetrf(m, n, a, lda, ipiv)
	}
	return factorLU(va, ipiv)
}

// Dpotrf computes the factorisation A = Uᵀ·U or A = L·Lᵀ of a symmetric positive definite matrix.
// It reports whether A is positive definite.
func (l LAPACK) Dpotrf(ul blas.Uplo, n int, a []float64, lda int) (ok bool) {
	v := &views{}
	va := triangle[float64]{view(v, n, n, lda, a), v.lower(ul), blas.NonUnit}
	if v.bad || n*n < smallCholesky {
		return l.Implementation.Dpotrf(ul, n, a, lda)
	}
	room := double.borrow(rankRoom(n))
	defer double.rooms.Put(room)
	return factorCholesky(va, *room)
}

// Dgeqrf computes the factorisation A = Q·R. Q is the product of the reflectors I - tau[i]·v·vᵀ,
// whose vectors v are stored below the diagonal.
func (l LAPACK) Dgeqrf(m, n int, a []float64, lda int, tau, work []float64, lwork int) {
	v := &views{}
	va := view(v, m, n, lda, a)
	if v.bad || len(tau) != min(m, n) || lwork < n || len(work) < lwork || m*n <= smallQR {
		l.Implementation.Dgeqrf(m, n, a, lda, tau, work, lwork)
		return
	}
	factorQR(va, tau)
	work[0] = float64(lwork)
}

// Dormqr multiplies C by the Q of Dgeqrf, or by its transpose, from side s.
func (l LAPACK) Dormqr(s blas.Side, t blas.Transpose, m, n, k int, a []float64, lda int, tau, c []float64, ldc int,
	work []float64, lwork int) {
	v := &views{bad: t != blas.NoTrans && t != blas.Trans}
	side := v.side(s, m, n)
	va, vc := view(v, side, k, lda, a), view(v, m, n, ldc, c)
	if v.bad || k > side || len(tau) != k || lwork < m+n-side || len(work) < lwork || side*k <= smallQ {
		l.Implementation.Dormqr(s, t, m, n, k, a, lda, tau, c, ldc, work, lwork)
		return
	}
	if s == blas.Right { // C·Q is (Qᵀ·Cᵀ)ᵀ
		vc = vc.t()
	}
	multiplyQ((t == blas.Trans) == (s == blas.Left), va, tau, vc)
	work[0] = float64(lwork)
}
