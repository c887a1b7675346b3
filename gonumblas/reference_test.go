package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"tilework/internal/cpu/block"
	"tilework/internal/testkit/testrand"
)

// routine is a call of one routine, which can run with this package or with gonum.
type routine[T float32 | float64] struct {
	name string
	call func(r *routines[T], a, b, c []T)
	out  byte // the overwritten argument: 'a', 'b' or 'c'
}

// methods returns the routines of this package as a routines value.
func (r *routines[T]) methods() *routines[T] {
	return &routines[T]{r.product, r.symmetric, r.rankK, r.rank2K, r.triangularProduct, r.triangularSolve,
		r.matrixVector, r.outer, r.triangularVector, r.triangularVectorSolve, r.blocks,
		r.rooms}
}

// draw returns a random call of each routine. All matrices have leading dimension ld.
func draw[T float32 | float64](rng *rand.Rand, m, n, k, ld int) []routine[T] {
	pick := func(n int) int { return rng.IntN(n) }
	trans := []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}
	tA, tB := trans[pick(3)], trans[pick(3)]
	side, ul := []blas.Side{blas.Left, blas.Right}[pick(2)], []blas.Uplo{blas.Lower, blas.Upper}[pick(2)]
	diag := []blas.Diag{blas.NonUnit, blas.Unit}[pick(2)]
	scalars := []T{0, 1, -1.5}
	alpha, beta := scalars[pick(3)], scalars[pick(3)]
	incX, incY := []int{1, 2, 3, -2}[pick(4)], 1+pick(3)
	args := fmt.Sprintf("%c%c %c%c%c, %d×%d×%d, α=%v β=%v, increments %d %d", tA, tB, side, ul, diag, m, n, k, alpha,
		beta, incX, incY)
	lenY := m
	if tA != blas.NoTrans {
		lenY = n
	}
	return []routine[T]{
		{"gemm " + args,
			func(r *routines[T], a, b, c []T) { r.mul(tA, tB, m, n, k, alpha, a, ld, b, ld, beta, c, ld) }, 'c'},
		{"symm " + args, func(r *routines[T], a, b, c []T) { r.symm(side, ul, m, n, alpha, a, ld, b, ld, beta, c, ld) },
			'c'},
		{"syrk " + args, func(r *routines[T], a, _, c []T) { r.syrk(ul, tA, n, k, alpha, a, ld, beta, c, ld) }, 'c'},
		{"syr2k " + args, func(r *routines[T], a, b, c []T) { r.syr2k(ul, tA, n, k, alpha, a, ld, b, ld, beta, c, ld) },
			'c'},
		{"trmm " + args, func(r *routines[T], a, b, _ []T) { r.trmm(side, ul, tA, diag, m, n, alpha, a, ld, b, ld) },
			'b'},
		{"trsm " + args, func(r *routines[T], a, b, _ []T) { r.trsm(side, ul, tA, diag, m, n, alpha, a, ld, b, ld) },
			'b'},
		// gonum's SGEMV of a transposed A clears all of y if beta is 0 and the increment 1.
		{"gemv " + args, func(r *routines[T], a, b, c []T) {
			r.gemv(tA, m, n, alpha, a, ld, b, incX, beta, c[:1+(lenY-1)*incY], incY)
		}, 'c'},
		// gonum's SGER reads outside its arguments if an increment is negative.
		{"ger " + args, func(r *routines[T], a, b, c []T) { r.ger(m, n, alpha, b, max(incX, 1), c, incY, a, ld) }, 'a'},
		{"trmv " + args, func(r *routines[T], a, b, _ []T) { r.trmv(ul, tA, diag, n, a, ld, b, incX) }, 'b'},
		{"trsv " + args, func(r *routines[T], a, b, _ []T) { r.trsv(ul, tA, diag, n, a, ld, b, incX) }, 'b'},
	}
}

// TestAgainstGonum compares every routine with gonum's, on sizes below and above the limits for
// splitting.
func TestAgainstGonum(t *testing.T) {
	small := []int{1, 3, 4, 7, 12, 16, 25, 40, 63, 64, 65, 127, 131, 192}
	large := []int{1, 3, 130, block.MaxSize, block.MaxSize + 1, 300, 530}
	t.Run("float32", func(t *testing.T) { againstGonum(t, &single, 1e-4, 60, small) })
	t.Run("float64", func(t *testing.T) { againstGonum(t, &double, 1e-12, 60, small) })
	t.Run("large/float32", func(t *testing.T) { againstGonum(t, &single, 1e-4, 8, large) })
	t.Run("large/float64", func(t *testing.T) { againstGonum(t, &double, 1e-12, 8, large) })
}

func againstGonum[T float32 | float64](t *testing.T, r *routines[T], tol float64, cases int, sizes []int) {
	rng := testrand.New(t)
	size := func() int { return sizes[rng.IntN(len(sizes))] }
	for range cases {
		m, n, k := size(), size(), size()
		ld := max(m, n, k) + rng.IntN(3)
		a, b, c := values[T](rng, ld), values[T](rng, ld), values[T](rng, ld)
		for i := range a {
			a[i] /= T(ld) // otherwise the inverse of a unit triangle is huge
		}
		for i := range ld {
			a[i*ld+i] = 2
		}
		for _, op := range draw[T](rng, m, n, k, ld) {
			got := map[byte][]T{'a': clone(a), 'b': clone(b), 'c': clone(c)}
			want := map[byte][]T{'a': clone(a), 'b': clone(b), 'c': clone(c)}
			op.call(r.methods(), got['a'], got['b'], got['c'])
			op.call(r, want['a'], want['b'], want['c'])
			for name := range got {
				if name == op.out {
					equal(t, op.name, got[name], want[name], tol)
				} else {
					equal(t, op.name, got[name], want[name], 0)
				}
			}
		}
	}
}

// values returns ld×ld random elements in [-1, 1].
func values[T float32 | float64](rng *rand.Rand, ld int) []T {
	v := make([]T, ld*ld)
	for i := range v {
		v[i] = T(2*rng.Float64() - 1)
	}
	return v
}

func clone[T any](v []T) []T { return append([]T(nil), v...) }

func equal[T float32 | float64](t *testing.T, name string, got, want []T, tol float64) {
	t.Helper()
	for i := range want {
		if diff := math.Abs(float64(got[i] - want[i])); !(diff <= tol*max(1, math.Abs(float64(want[i])))) {
			t.Fatalf("%s: element %d is %v, want %v as in gonum", name, i, got[i], want[i])
		}
	}
}

// TestPanics checks that invalid arguments cause the same panics as in gonum.
func TestPanics(t *testing.T) {
	const n = 530
	long := make([]float64, n*n)
	type call func(b blas.Float64)
	calls := map[string]call{
		"gemm trans": func(b blas.Float64) {
			b.Dgemm('x', blas.NoTrans, n, n, n, 1, long, n, long, n, 0, long,
				n)
		},
		"gemm transB": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, 'x', n, n, n, 1, long, n, long, n, 0, long,
				n)
		},
		"gemm m": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, -1, n, n, 1, long, n, long, n, 0, long, n)
		},
		"gemm n": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, -1, n, 1, long, n, long, n, 0, long, n)
		},
		"gemm k": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, -1, 1, long, n, long, n, 0, long, n)
		},
		"gemm lda": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, long, n-1, long, n, 0, long, n)
		},
		"gemm ldb": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, long, n, long, 0, 0, long, n)
		},
		"gemm ldc": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, long, n, long, n, 0, long, n-1)
		},
		"gemm a": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, long[1:], n, long, n, 0, long, n)
		},
		"gemm b": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, long, n, long[1:], n, 0, long, n)
		},
		"gemm c": func(b blas.Float64) {
			b.Dgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, long, n, long, n, 0, nil, n)
		},
		"symm side": func(b blas.Float64) { b.Dsymm('x', blas.Lower, n, n, 1, long, n, long, n, 0, long, n) },
		"symm uplo": func(b blas.Float64) { b.Dsymm(blas.Left, 'x', n, n, 1, long, n, long, n, 0, long, n) },
		"symm c": func(b blas.Float64) {
			b.Dsymm(blas.Left, blas.Lower, n, n, 1, long, n, long, n, 0,
				long[1:], n)
		},
		"syrk uplo":  func(b blas.Float64) { b.Dsyrk('x', blas.NoTrans, n, n, 1, long, n, 0, long, n) },
		"syrk trans": func(b blas.Float64) { b.Dsyrk(blas.Lower, 'x', n, n, 1, long, n, 0, long, n) },
		"syrk a": func(b blas.Float64) {
			b.Dsyrk(blas.Lower, blas.NoTrans, n, n, 1, long[1:], n, 0, long,
				n)
		},
		"syr2k ldb": func(b blas.Float64) {
			b.Dsyr2k(blas.Lower, blas.NoTrans, n, n, 1, long, n, long, 1, 0, long, n)
		},
		"trmm diag": func(b blas.Float64) {
			b.Dtrmm(blas.Left, blas.Lower, blas.NoTrans, 'x', n, n, 1, long, n, long, n)
		},
		"trmm lda": func(b blas.Float64) {
			b.Dtrmm(blas.Left, blas.Lower, blas.NoTrans, blas.Unit, n, n, 1, long, 1, long, n)
		},
		"trsm side": func(b blas.Float64) {
			b.Dtrsm('x', blas.Lower, blas.NoTrans, blas.Unit, n, n, 1, long, n, long, n)
		},
		"trsm b": func(b blas.Float64) {
			b.Dtrsm(blas.Left, blas.Lower, blas.NoTrans, blas.Unit, n, n, 1, long, n, long[1:], n)
		},
		"gemv trans": func(b blas.Float64) { b.Dgemv('x', n, n, 1, long, n, long, 1, 0, long, 1) },
		"gemv m":     func(b blas.Float64) { b.Dgemv(blas.NoTrans, -n, -n, 1, long, n, long, 1, 0, long, 1) },
		"gemv lda":   func(b blas.Float64) { b.Dgemv(blas.NoTrans, n, n, 1, long, n-1, long, 1, 0, long, 1) },
		"gemv a":     func(b blas.Float64) { b.Dgemv(blas.Trans, n, n, 1, long[1:], n, long, 1, 0, long, 1) },
		"gemv x":     func(b blas.Float64) { b.Dgemv(blas.NoTrans, n, n, 1, long, n, long[:n-1], 1, 0, long, 1) },
		"gemv incx":  func(b blas.Float64) { b.Dgemv(blas.NoTrans, n, n, 1, long, n, long, 0, 0, long, 1) },
		"gemv y":     func(b blas.Float64) { b.Dgemv(blas.NoTrans, n, n, 1, long, n, long, 1, 0, long[:n], 2) },
		"ger incy":   func(b blas.Float64) { b.Dger(n, n, 1, long, 1, long, 0, long, n) },
		"ger x":      func(b blas.Float64) { b.Dger(n, n, 1, long[:n-1], 1, long, 1, long, n) },
		"ger a":      func(b blas.Float64) { b.Dger(n, n, 1, long, 1, long, 1, long[1:], n) },
		"trmv uplo":  func(b blas.Float64) { b.Dtrmv('x', blas.NoTrans, blas.Unit, n, long, n, long, 1) },
		"trmv diag":  func(b blas.Float64) { b.Dtrmv(blas.Upper, blas.NoTrans, 'x', n, long, n, long, 1) },
		"trsv trans": func(b blas.Float64) { b.Dtrsv(blas.Upper, 'x', blas.Unit, n, long, n, long, 1) },
		"trsv incx":  func(b blas.Float64) { b.Dtrsv(blas.Upper, blas.Trans, blas.Unit, n, long, n, long, 0) },
		"trsv x":     func(b blas.Float64) { b.Dtrsv(blas.Upper, blas.Trans, blas.Unit, n, long, n, long[:n-1], 1) },
	}
	for name, call := range calls {
		want := panicOf(func() { call(gonum.Implementation{}) })
		if want == nil {
			t.Fatalf("%s: gonum did not panic", name)
		}
		if got := panicOf(func() { call(Implementation{}) }); got != want {
			t.Errorf("%s: panic %v, want %v as in gonum", name, got, want)
		}
	}
}

func panicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}
