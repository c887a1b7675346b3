package gonumblas

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"

	"tilework/internal/testkit/testrand"
)

// TestContract compares all routines with their definitions, on small matrices of all
// transpositions and triangles, for all factors and increments. Elements are zeros, NaNs and
// infinities too. All memory that a routine must not read or write is NaN: C if β is 0, A and B if
// α is 0, the other triangle, and the memory around the elements.
func TestContract(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testContract(t, &single) })
	t.Run("float64", func(t *testing.T) { testContract(t, &double) })
}

func testContract[T float32 | float64](t *testing.T, r *routines[T]) {
	c := contract[T]{T: t, rng: testrand.New(t), r: r.methods()}
	for _, c.m = range []int{1, 2, 5, 11} {
		for _, c.n = range []int{1, 2, 5, 11} {
			for _, c.alpha = range []T{0, 1, -2} {
				for _, c.beta = range []T{0, 1, -2} {
					c.k = []int{0, 1, 2, 3, 12}[c.rng.IntN(5)]
					c.check()
				}
			}
		}
	}
	for range 10 {
		c.m, c.n, c.k = 1+c.rng.IntN(40), 1+c.rng.IntN(40), c.rng.IntN(40)
		c.alpha, c.beta = T(c.rng.IntN(3)-1), T(c.rng.IntN(3)-1)
		c.check()
	}
}

// contract checks calls with these sizes and factors.
type contract[T float32 | float64] struct {
	*testing.T
	rng         *rand.Rand
	r           *routines[T]
	m, n, k     int
	alpha, beta T
}

// check checks each routine with each kind of operands.
func (c *contract[T]) check() {
	for _, t := range []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans} {
		for _, u := range []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans} {
			c.checkGemm(t, u)
		}
		for _, incX := range []int{1, 2, -1, -3} {
			for _, incY := range []int{1, 2, -1, -3} {
				c.checkGemv(t, incX, incY)
			}
		}
		for _, ul := range []blas.Uplo{blas.Lower, blas.Upper} {
			c.checkSyrk(ul, t)
			for _, d := range []blas.Diag{blas.NonUnit, blas.Unit} {
				for _, s := range []blas.Side{blas.Left, blas.Right} {
					c.checkTrmm(s, ul, t, d)
					c.checkTrsm(s, ul, t, d)
				}
				for _, inc := range []int{1, 2, -1, -3} {
					c.checkTrmv(ul, t, d, inc)
				}
			}
		}
	}
	for _, ul := range []blas.Uplo{blas.Lower, blas.Upper} {
		c.checkSymm(blas.Left, ul)
		c.checkSymm(blas.Right, ul)
	}
}

func (c *contract[T]) checkGemm(tA, tB blas.Transpose) {
	a, b, out := c.operand(tA, c.m, c.k), c.operand(tB, c.k, c.n), c.result(c.m, c.n)
	want := out.plus(c.beta, c.alpha, productOf(a, b))
	c.r.mul(tA, tB, c.m, c.n, c.k, c.alpha, a.data, a.ld, b.data, b.ld, c.beta, out.data, out.ld)
	c.compare(out, want, "gemm", tA, tB)
}

func (c *contract[T]) checkSymm(s blas.Side, ul blas.Uplo) {
	a, b, out := c.triangle(s, ul, blas.NonUnit), c.operand(blas.NoTrans, c.m, c.n), c.result(c.m, c.n)
	whole := a
	whole.at = func(i, j int) T {
		if isStored(ul, blas.NonUnit, i, j) {
			return a.at(i, j)
		}
		return a.at(j, i)
	}
	terms := productOf(whole, b)
	if s == blas.Right {
		terms = productOf(b, whole)
	}
	want := out.plus(c.beta, c.alpha, terms)
	c.r.symm(s, ul, c.m, c.n, c.alpha, a.data, a.ld, b.data, b.ld, c.beta, out.data, out.ld)
	c.compare(out, want, "symm", s, ul)
}

func (c *contract[T]) checkSyrk(ul blas.Uplo, t blas.Transpose) {
	a, b := c.operand(t, c.n, c.k), c.operand(t, c.n, c.k)
	out := c.result(c.n, c.n).only(ul, blas.NonUnit)
	want := out.plus(c.beta, c.alpha, productOf(a, a.t()))
	c.r.syrk(ul, t, c.n, c.k, c.alpha, a.data, a.ld, c.beta, out.data, out.ld)
	c.compare(out, want, "syrk", ul, t)

	out = c.result(c.n, c.n).only(ul, blas.NonUnit)
	ab, ba := productOf(a, b.t()), productOf(b, a.t())
	want = out.plus(c.beta, c.alpha, func(i, j int) T { return ab(i, j) + ba(i, j) })
	c.r.syr2k(ul, t, c.n, c.k, c.alpha, a.data, a.ld, b.data, b.ld, c.beta, out.data, out.ld)
	c.compare(out, want, "syr2k", ul, t)
}

func (c *contract[T]) checkTrmm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag) {
	a, b := c.triangle(s, ul, d), c.inPlace()
	op, x := a.op(t), b
	if s == blas.Right { // B·A is (Aᵀ·Bᵀ)ᵀ
		op, x = op.t(), b.t()
	}
	terms := triangleProduct(op, x)
	if s == blas.Right {
		terms = swapped(terms)
	}
	want := b.plus(0, c.alpha, terms)
	c.r.trmm(s, ul, t, d, c.m, c.n, c.alpha, a.data, a.ld, b.data, b.ld)
	c.compare(b, want, "trmm", s, ul, t, d)
}

func (c *contract[T]) checkTrsm(s blas.Side, ul blas.Uplo, t blas.Transpose, d blas.Diag) {
	a, b := c.triangle(s, ul, d), c.inPlace()
	op, x := a.op(t), b
	if s == blas.Right { // X·A = B is Aᵀ·Xᵀ = Bᵀ
		op, x = op.t(), b.t()
	}
	terms := solution(op, d, c.alpha, x)
	if s == blas.Right {
		terms = swapped(terms)
	}
	factor := T(1)
	if c.alpha == 0 {
		factor = 0
	}
	want := b.plus(0, factor, terms)
	c.r.trsm(s, ul, t, d, c.m, c.n, c.alpha, a.data, a.ld, b.data, b.ld)
	c.compare(b, want, "trsm", s, ul, t, d)
}

func (c *contract[T]) checkTrmv(ul blas.Uplo, t blas.Transpose, d blas.Diag, inc int) {
	alpha := c.alpha
	defer func() { c.alpha = alpha }()
	c.alpha = 1 // the routines have no factor
	a, x := c.triangle(blas.Right, ul, d), c.vector(c.n, inc, false)
	want := x.plus(0, 1, triangleProduct(a.op(t), x))
	c.r.trmv(ul, t, d, c.n, a.data, a.ld, x.data, inc)
	c.compare(x, want, "trmv", ul, t, d, inc)

	x = c.vector(c.n, inc, false)
	want = x.plus(0, 1, solution(a.op(t), d, 1, x))
	c.r.trsv(ul, t, d, c.n, a.data, a.ld, x.data, inc)
	c.compare(x, want, "trsv", ul, t, d, inc)
}

func (c *contract[T]) checkGemv(t blas.Transpose, incX, incY int) {
	a := c.operand(blas.NoTrans, c.m, c.n)
	op := a.op(t)
	x, y := c.vector(op.cols, incX, c.alpha == 0), c.vector(op.rows, incY, c.beta == 0)
	want := y.plus(c.beta, c.alpha, productOf(op, x))
	c.r.gemv(t, c.m, c.n, c.alpha, a.data, a.ld, x.data, incX, c.beta, y.data, incY)
	c.compare(y, want, "gemv", t, incX, incY)

	x, y = c.vector(c.m, incX, c.alpha == 0), c.vector(c.n, incY, c.alpha == 0)
	out := c.stored(c.m, c.n, false)
	want = out.plus(1, c.alpha, productOf(x, y.t()))
	c.r.ger(c.m, c.n, c.alpha, x.data, incX, y.data, incY, out.data, out.ld)
	c.compare(out, want, "ger", incX, incY)
}

// compare fails if a routine has not given the wanted contents of the memory of out.
func (c *contract[T]) compare(out grid[T], want []T, routine string, args ...any) {
	c.Helper()
	for i, v := range out.data {
		if v != want[i] && !(v != v && want[i] != want[i]) {
			c.Fatalf("%s %c, %d×%d×%d, α=%v, β=%v: element %d of the memory of %d×%d is %v, want %v", routine, args,
				c.m, c.n, c.k, c.alpha, c.beta, i, out.rows, out.cols, v, want[i])
		}
	}
}

// grid is a matrix in memory, or its transpose. Element (i, j) is data[index(i, j)].
type grid[T float32 | float64] struct {
	data       []T
	rows, cols int
	ld         int
	index      func(i, j int) int
	at         func(i, j int) T
}

// newGrid returns a matrix in memory of n elements, which are all NaN.
func newGrid[T float32 | float64](n, rows, cols, ld int, index func(i, j int) int) grid[T] {
	data := make([]T, n)
	for i := range data {
		data[i] = T(math.NaN())
	}
	return grid[T]{data, rows, cols, ld, index, func(i, j int) T { return data[index(i, j)] }}
}

// t returns the transpose.
func (g grid[T]) t() grid[T] {
	index, at := g.index, g.at
	g.rows, g.cols = g.cols, g.rows
	g.index = func(i, j int) int { return index(j, i) }
	g.at = func(i, j int) T { return at(j, i) }
	return g
}

// op returns the matrix, or its transpose.
func (g grid[T]) op(t blas.Transpose) grid[T] {
	if t != blas.NoTrans {
		return g.t()
	}
	return g
}

// only sets all elements outside a triangle to NaN, and excludes them from the matrix.
func (g grid[T]) only(ul blas.Uplo, d blas.Diag) grid[T] {
	index := g.index
	for i := range g.rows {
		for j := range g.cols {
			if !isStored(ul, d, i, j) {
				g.data[index(i, j)] = T(math.NaN())
			}
		}
	}
	g.index = func(i, j int) int {
		if !isStored(ul, d, i, j) {
			return -1
		}
		return index(i, j)
	}
	return g
}

// plus returns the memory with α·terms + β·C in the elements of the matrix C. It uses terms only if
// α is not 0, and C only if β is not 0.
func (g grid[T]) plus(beta, alpha T, terms func(i, j int) T) []T {
	to := clone(g.data)
	for i := range g.rows {
		for j := range g.cols {
			at := g.index(i, j)
			if at < 0 {
				continue
			}
			var v T
			if alpha != 0 {
				v = alpha * terms(i, j)
			}
			if beta != 0 {
				v += beta * g.data[at]
			}
			to[at] = v
		}
	}
	return to
}

// stored returns a matrix of random elements, with some zeros, NaNs and infinities, or if unread is
// set a matrix of NaNs.
func (c *contract[T]) stored(rows, cols int, unread bool) grid[T] {
	ld := max(1, cols) + c.rng.IntN(3)
	g := newGrid[T](max(0, rows-1)*ld+cols+c.rng.IntN(3), rows, cols, ld, func(i, j int) int { return i*ld + j })
	c.fill(g, unread)
	return g
}

func (c *contract[T]) fill(g grid[T], unread bool) {
	if unread {
		return
	}
	for i := range g.rows {
		for j := range g.cols {
			g.data[g.index(i, j)] = T(max(0, c.rng.IntN(7)-2) - 2)
		}
	}
	for range c.rng.IntN(3) * min(1, g.rows*g.cols) {
		special := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[c.rng.IntN(3)]
		g.data[g.index(c.rng.IntN(g.rows), c.rng.IntN(g.cols))] = T(special)
	}
}

// operand returns op(X) of rows×cols for a matrix X that is not read if α is 0.
func (c *contract[T]) operand(t blas.Transpose, rows, cols int) grid[T] {
	if t != blas.NoTrans {
		rows, cols = cols, rows
	}
	return c.stored(rows, cols, c.alpha == 0).op(t)
}

// result returns a C, which is not read if β is 0, and inPlace a B, which is not read if α is 0.
func (c *contract[T]) result(rows, cols int) grid[T] { return c.stored(rows, cols, c.beta == 0) }
func (c *contract[T]) inPlace() grid[T]              { return c.stored(c.m, c.n, c.alpha == 0) }

// vector returns a column with elements that are inc apart.
func (c *contract[T]) vector(n, inc int, unread bool) grid[T] {
	first := max(0, (1-n)*inc)
	g := newGrid[T]((n-1)*max(inc, -inc)+1+c.rng.IntN(3), n, 1, 0, func(i, _ int) int { return first + i*inc })
	c.fill(g, unread)
	return g
}

// triangle returns a triangle for side s of an m×n matrix. Rows of large triangles that have
// elements beside the diagonal are not used by others, so that solutions stay exact.
func (c *contract[T]) triangle(s blas.Side, ul blas.Uplo, d blas.Diag) grid[T] {
	n := c.m
	if s == blas.Right {
		n = c.n
	}
	g := c.stored(n, n, c.alpha == 0)
	for i := range n {
		for j := range n {
			if v := &g.data[g.index(i, j)]; i == j && *v == 0 && c.rng.IntN(4) > 0 {
				*v = 1
			} else if i != j && n > 4 && (i%2 == 0 || j%2 == 1) && *v-*v == 0 {
				*v = 0
			}
		}
	}
	return g.only(ul, d)
}

// productOf returns the elements of A·B.
func productOf[T float32 | float64](a, b grid[T]) func(i, j int) T {
	return func(i, j int) (sum T) {
		for p := range a.cols {
			sum += a.at(i, p) * b.at(p, j)
		}
		return sum
	}
}

func swapped[T any](f func(i, j int) T) func(i, j int) T { return func(i, j int) T { return f(j, i) } }

// triangleProduct returns the elements of A·B for a triangle A.
func triangleProduct[T float32 | float64](a, b grid[T]) func(i, j int) T {
	return func(i, j int) (sum T) {
		for p := range a.cols {
			switch {
			case a.index(i, p) >= 0:
				sum += a.at(i, p) * b.at(p, j)
			case i == p:
				sum += b.at(p, j)
			}
		}
		return sum
	}
}

// solution returns the elements of the X of A·X = α·B for a triangle A.
func solution[T float32 | float64](a grid[T], d blas.Diag, alpha T, b grid[T]) func(i, j int) T {
	known := map[[2]int]T{}
	var x func(i, j int) T
	x = func(i, j int) T {
		v, ok := known[[2]int{i, j}]
		if ok {
			return v
		}
		v = alpha * b.at(i, j)
		for p := range a.cols {
			if p != i && a.index(i, p) >= 0 {
				v -= a.at(i, p) * x(p, j)
			}
		}
		if d == blas.NonUnit {
			v /= a.at(i, i)
		}
		known[[2]int{i, j}] = v
		return v
	}
	return x
}
