//go:build unix

package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"tilework/internal/testkit/testrand"
)

// The floating-point micro-kernels under test.
var (
	F32 = []*Kernels[float32]{&F32AVX512, &F32AVX2}
	F64 = []*Kernels[float64]{&F64AVX512, &F64AVX2}
)

// unroll is the number of steps of k in the kernels' main loop.
const unroll = 4

// eachKernel runs a test on every variant that this CPU supports.
func eachKernel(t *testing.T, f32 func(*testing.T, *Kernels[float32]), f64 func(*testing.T, *Kernels[float64])) {
	for _, ks := range F32 {
		t.Run("float32/"+ks.ISA.Name, func(t *testing.T) { require(t, ks.ISA); f32(t, ks) })
	}
	for _, ks := range F64 {
		t.Run("float64/"+ks.ISA.Name, func(t *testing.T) { require(t, ks.ISA); f64(t, ks) })
	}
}

func TestPacked(t *testing.T) { eachKernel(t, testPacked[float32], testPacked[float64]) }
func TestDirect(t *testing.T) { eachKernel(t, testDirect[float32], testDirect[float64]) }
func TestDeep(t *testing.T)   { eachKernel(t, testDeep[float32], testDeep[float64]) }
func TestCopy(t *testing.T)   { eachKernel(t, testCopy[float32], testCopy[float64]) }
func TestStream(t *testing.T) { eachKernel(t, testStream[float32], testStream[float64]) }

func testPacked[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	for _, k := range append(upTo(2*unroll+1), 67, 256) {
		for m := 1; m <= ks.MR; m++ {
			for n := 1; n <= ks.NR; n++ {
				if someEdges(k) && m != ks.MR && n%7 != 0 {
					continue
				}
				ldc := n + tt.rand.IntN(2*ks.NR)
				tt.check(tile[T]{
					name: fmt.Sprintf("packed %d×%d×%d, ldc %d", m, n, k, ldc),
					m:    m, n: n, k: k, ldc: ldc,
					a: matrix{ks.MR * k, 1, ks.MR}, b: matrix{ks.NR * k, ks.NR, 1},
					run: func(a, b, c *T, alpha, beta T) { ks.Packed(k, a, b, c, a, ldc, m, n, alpha, beta) },
				})
			}
		}
	}
}

func testDirect[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	if len(ks.Direct) != ks.MR {
		t.Errorf("%d direct kernels, want one for each number of rows up to %d", len(ks.Direct), ks.MR)
	}
	for row, direct := range ks.Direct {
		for _, k := range append(upTo(2*unroll+1), 67, 256) {
			testRows(tt, ks, "direct", direct, row+1, k, func(int) int { return 1 })
		}
	}
}

func testDeep[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	if want := min(ks.MR, 7); len(ks.Deep) != want {
		t.Errorf("%d deep kernels, want one for each number of rows up to %d", len(ks.Deep), want)
	}
	for row, deep := range ks.Deep {
		for _, k := range append(upTo(2*8+1), 67, 256) {
			testRows(tt, ks, "deep", deep, row+1, k, func(n int) int {
				vectors := 1
				if n > ks.NR/2 {
					vectors = 2
				}
				return setsFor((row + 1) * vectors)
			})
		}
	}
}

// stridesOfA draws the strides of an m×k matrix between rows and along K. Half of the matrices are
// transposed.
func (tt *tester[T]) stridesOfA(m, k int) (rsa, csa int) {
	if tt.rand.IntN(2) == 0 {
		return 1, m + tt.rand.IntN(9)
	}
	return k + tt.rand.IntN(9), 1
}

// testRows compares a direct kernel of tiles of the given rows with the loop in its doc comment.
// sets returns the number of sets of sums for n columns.
func testRows[T float32 | float64](tt *tester[T], ks *Kernels[T], name string, direct Direct[T], rows, k int,
	sets func(n int) int) {
	for n := 1; n <= ks.NR; n++ {
		if someEdges(k) && n%7 != 0 && n != ks.NR {
			continue
		}
		tiles := 1 + tt.rand.IntN(3)
		m := tiles * rows
		ldb, ldc := n+tt.rand.IntN(2*ks.NR), n+tt.rand.IntN(2*ks.NR)
		rsa, csa := tt.stridesOfA(m, k)
		tt.check(tile[T]{
			name: fmt.Sprintf("%s, tiles of %d rows, %d×%d×%d, rsa %d, csa %d, ldb %d, ldc %d", name, rows, m, n, k, rsa, csa,
				ldb, ldc),
			m: m, n: n, k: k, ldc: ldc, sets: sets(n),
			a: matrix{span(m, rsa, k, csa), rsa, csa}, b: matrix{span(k, ldb, n, 1), ldb, 1},
			run: func(a, b, c *T, alpha, beta T) {
				direct(tiles, k, a, rsa, csa, b, ldb, c, a, ldc, ldc, n, alpha, beta)
			},
		})
	}
}

func testCopy[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	panels := newArena[T](t, 1<<12)
	for _, k := range append(upTo(2*unroll+1), 67) {
		for trans := range 2 {
			ldb, ldc := ks.NR+tt.rand.IntN(2*ks.NR), ks.NR+tt.rand.IntN(2*ks.NR)
			rsa, csa := k+tt.rand.IntN(9), 1
			if trans > 0 {
				rsa, csa = 1, ks.MR+tt.rand.IntN(9)
			}
			tt.check(tile[T]{
				name: fmt.Sprintf("copy of %d steps, rsa %d, csa %d, ldb %d, ldc %d", k, rsa, csa, ldb, ldc),
				m:    ks.MR, n: ks.NR, k: k, ldc: ldc,
				a: matrix{span(ks.MR, rsa, k, csa), rsa, csa}, b: matrix{span(k, ldb, ks.NR, 1), ldb, 1},
				run: func(a, b, c *T, alpha, beta T) {
					panel := panels.last(k * ks.NR)
					ks.Copy(k, a, rsa, csa, b, ldb, c, panels.start(panel), 0, ldc, ks.NR, alpha, beta)
					for p := range k {
						if row := unsafe.Slice(b, (k-1)*ldb+ks.NR)[p*ldb:][:ks.NR]; !sameAll(row, panel[p*ks.NR:]) {
							t.Fatalf("%d steps, ldb %d: copy of row %d = %v, want %v", k, ldb, p,
								panel[p*ks.NR:][:ks.NR], row)
						}
					}
				},
			})
		}
	}
}

func testStream[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	for _, k := range append(upTo(2*unroll+1), 67) {
		for trans := range 2 {
			tiles := 1 + tt.rand.IntN(3)
			m := tiles * ks.MR
			ldb, ldc := ks.NR+tt.rand.IntN(2*ks.NR), ks.NR*(1+tt.rand.IntN(3)) // whole lines
			rsa, csa := k+tt.rand.IntN(9), 1
			if trans > 0 {
				rsa, csa = 1, m+tt.rand.IntN(9)
			}
			tt.check(tile[T]{
				name: fmt.Sprintf("stream %d tiles, %d steps, rsa %d, csa %d, ldb %d, ldc %d", tiles, k, rsa, csa, ldb, ldc),
				m:    m, n: ks.NR, k: k, ldc: ldc, overwrites: true,
				a: matrix{span(m, rsa, k, csa), rsa, csa}, b: matrix{span(k, ldb, ks.NR, 1), ldb, 1},
				run: func(a, b, c *T, alpha, beta T) {
					ks.Stream(tiles, k, a, rsa, csa, b, ldb, c, a, ldc, ldc, ks.NR, alpha, beta)
				},
			})
		}
	}
	Fence()
}

// someEdges reports whether to test only some tile edges for sums of k steps. No step, one step,
// and a number of steps that runs each loop are tested with all of them.
func someEdges(k int) bool { return k > 1 && k != 2*unroll+1 }

// upTo returns 0, 1, …, n.
func upTo(n int) []int {
	all := make([]int, n+1)
	for i := range all {
		all[i] = i
	}
	return all
}

// span returns the number of elements from the first of a matrix to its last.
func span(rows, rs, cols, cs int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*rs + (cols-1)*cs + 1
}

// matrix describes the elements of an operand: their span, and the strides between rows and
// columns.
type matrix struct{ span, rs, cs int }

// tile is one call of a micro-kernel.
type tile[T float32 | float64] struct {
	name         string
	m, n, k, ldc int
	a, b         matrix
	sets         int  // of sums, which steps of k use in turn; 0 counts as 1
	overwrites   bool // whether β is 0
	run          func(a, b, c *T, alpha, beta T)
}

// tester compares micro-kernels with the loops in their doc comments.
type tester[T float32 | float64] struct {
	*testing.T
	rand    *rand.Rand
	a, b, c *arena[T]
	round   int
}

func newTester[T float32 | float64](t *testing.T) *tester[T] {
	const room = 1 << 15
	return &tester[T]{
		T: t, rand: testrand.New(t),
		a: newArena[T](t, room), b: newArena[T](t, room), c: newArena[T](t, room),
	}
}

// check runs the tile with each kind of β, next to either guard page, on ordinary and sometimes on
// special values. The results must have the same bits, and no other memory may change.
func (tt *tester[T]) check(x tile[T]) {
	tt.Helper()
	negZero, nan := T(math.Copysign(0, -1)), T(math.NaN())
	betas := []T{0, negZero, 1, finite[T](tt.rand), nan}
	if x.overwrites {
		betas = betas[:2]
	}
	for _, beta := range betas {
		tt.round++
		take := (*arena[T]).last
		if tt.round%3 == 0 {
			take = (*arena[T]).first
		}
		value := finite[T]
		if tt.round%4 == 0 {
			value = special[T]
		}
		a, b, c := take(tt.a, x.a.span), take(tt.b, x.b.span), take(tt.c, span(x.m, x.ldc, x.n, 1))
		fill(a, tt.rand, value)
		fill(b, tt.rand, value)
		fill(c, tt.rand, value)
		if beta == 0 {
			fill(c, nil, func(*rand.Rand) T { return nan })
		}
		alpha := value(tt.rand)
		want := reference(x, a, b, c, alpha, beta)
		oldA, oldB := append([]T(nil), a...), append([]T(nil), b...)

		if fault := faults(func() { x.run(tt.a.start(a), tt.b.start(b), &c[0], alpha, beta) }); fault != nil {
			tt.Fatalf("%s, α = %v, β = %v: %v", x.name, alpha, beta, fault)
		}
		for i := range want {
			if !same(c[i], want[i]) {
				tt.Fatalf("%s, α = %v, β = %v: c[%d·ldc+%d] = %v, want %v", x.name, alpha, beta, i/x.ldc, i%x.ldc,
					c[i], want[i])
			}
		}
		if !sameAll(a, oldA) || !sameAll(b, oldB) {
			tt.Fatalf("%s, α = %v, β = %v: A or B changed", x.name, alpha, beta)
		}
	}
}

// reference is the loop in the micro-kernels' doc comments.
func reference[T float32 | float64](x tile[T], a, b, old []T, alpha, beta T) []T {
	c := append([]T(nil), old...)
	for i := range x.m {
		for j := range x.n {
			sums := make([]T, max(x.sets, 1))
			for p := range x.k {
				u := p % len(sums)
				if steps := max(unroll, len(sums)); p >= x.k/steps*steps {
					u = 0
				}
				sums[u] = fma(a[i*x.a.rs+p*x.a.cs], b[p*x.b.rs+j*x.b.cs], sums[u])
			}
			sum := pairwise(sums)
			if beta == 0 {
				c[i*x.ldc+j] = alpha * sum
			} else {
				c[i*x.ldc+j] = fma(alpha, sum, T(beta*c[i*x.ldc+j]))
			}
		}
	}
	return c
}

// pairwise adds the upper half of the sums to the lower half until one is left.
func pairwise[T float32 | float64](sums []T) T {
	for half := len(sums) / 2; half > 0; half /= 2 {
		for u := range half {
			sums[u] += sums[u+half]
		}
	}
	return sums[0]
}

// setsFor returns the number of sets of sums that steps of k use in turn: the least power of two
// that gives eight independent chains, one for each vector of each set.
func setsFor(vectors int) int {
	sets := 1
	for vectors*sets < 8 {
		sets *= 2
	}
	return sets
}

// same reports whether x and y have the same bits or are both NaN.
func same[T float32 | float64](x, y T) bool {
	return x == y && math.Signbit(float64(x)) == math.Signbit(float64(y)) || x != x && y != y
}

func sameAll[T float32 | float64](x, y []T) bool {
	for i := range x {
		if !same(x[i], y[i]) {
			return false
		}
	}
	return true
}
