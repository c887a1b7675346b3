//go:build unix

package asm

import (
	"fmt"
	"testing"
	"unsafe"
)

func TestUpdate(t *testing.T) { eachKernel(t, testUpdate[float32], testUpdate[float64]) }
func TestAlignedRow(t *testing.T) {
	eachKernel(t, func(t *testing.T, ks *Kernels[float32]) { testAlignedRows(t, ks, ks.AlignedRow) },
		func(t *testing.T, ks *Kernels[float64]) { testAlignedRows(t, ks, ks.AlignedRow) })
}

func TestStreamRow(t *testing.T) {
	eachKernel(t, func(t *testing.T, ks *Kernels[float32]) { testAlignedRows(t, ks, ks.StreamRow) },
		func(t *testing.T, ks *Kernels[float64]) { testAlignedRows(t, ks, ks.StreamRow) })
}
func TestDot(t *testing.T) { eachKernel(t, testDot[float32], testDot[float64]) }

func testUpdate[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	for x, all := range ks.Update {
		for y, update := range all {
			m, k := 1<<x, 1<<y
			for _, n := range append(upTo(2*ks.NR + 1)[1:], 300) {
				ldb, ldc := n+tt.rand.IntN(9), n+tt.rand.IntN(9)
				rsa, csa := tt.stridesOfA(m, k)
				tt.check(tile[T]{
					name: fmt.Sprintf("update %d×%d×%d, rsa %d, csa %d, ldb %d, ldc %d", m, n, k, rsa, csa, ldb, ldc),
					m:    m, n: n, k: k, ldc: ldc,
					a: matrix{span(m, rsa, k, csa), rsa, csa}, b: matrix{span(k, ldb, n, 1), ldb, 1},
					run: func(a, b, c *T, alpha, beta T) { update(a, rsa, csa, b, ldb, c, ldc, n, alpha, beta) },
				})
			}
		}
	}
}

func TestNarrow(t *testing.T) { eachKernel(t, testNarrow[float32], testNarrow[float64]) }

func testNarrow[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	for x, narrow := range ks.Narrow {
		k := x + 1
		for n := 1; n <= ks.NR/2; n++ {
			for _, m := range []int{1, 2, 3, 17} {
				ldb, ldc := n+tt.rand.IntN(9), n+tt.rand.IntN(9)
				rsa, csa := tt.stridesOfA(m, k)
				tt.check(tile[T]{
					name: fmt.Sprintf("narrow %d×%d×%d, rsa %d, csa %d, ldb %d, ldc %d", m, n, k, rsa, csa, ldb, ldc),
					m:    m, n: n, k: k, ldc: ldc, overwrites: true,
					a: matrix{span(m, rsa, k, csa), rsa, csa}, b: matrix{span(k, ldb, n, 1), ldb, 1},
					run: func(a, b, c *T, alpha, beta T) { narrow(m, a, rsa, csa, b, ldb, c, ldc, n, alpha) },
				})
			}
		}
	}
}

// testAlignedRows tests rows that start at any element of a line.
func testAlignedRows[T float32 | float64](t *testing.T, ks *Kernels[T], rows []Update[T]) {
	tt := newTester[T](t)
	for x, row := range rows {
		k := x + 1
		for _, n := range append(upTo(2*ks.NR + 1)[1:], 300) {
			for range 8 {
				ldb, csa := n+tt.rand.IntN(9), 1+tt.rand.IntN(9)
				tt.check(tile[T]{
					name: fmt.Sprintf("row of %d, k %d, csa %d, ldb %d", n, k, csa, ldb),
					m:    1, n: n, k: k, ldc: n, overwrites: true,
					a: matrix{span(1, 1, k, csa), 1, csa}, b: matrix{span(k, ldb, n, 1), ldb, 1},
					run: func(a, b, c *T, alpha, beta T) { row(a, 1, csa, b, ldb, c, n, n, alpha, beta) },
				})
			}
		}
	}
}

func testDot[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	if len(ks.Dot) != DotRows {
		t.Fatalf("dot kernels for %d rows, want %d", len(ks.Dot), DotRows)
	}
	for r, dots := range ks.Dot {
		for s, dot := range dots {
			testDotOf(tt, ks.NR/2, r+1, s+1, dot)
		}
	}
	for s, dot := range ks.Tall {
		testDotOf(tt, ks.NR/2, ks.NR/2, s+1, dot)
	}
}

// testDotOf compares a dot kernel of r rows with s others to the loop in its doc comment, for each
// k up to two iterations of its main loop and one element.
func testDotOf[T float32 | float64](tt *tester[T], lanes, r, s int, dot Dot[T]) {
	sets := setsFor(r * s)
	steps := max(sets, Line/(lanes*int(unsafe.Sizeof(*new(T)))))
	for _, k := range append(upTo(2*steps*lanes+1), 300) {
		for _, value := range []func() T{func() T { return finite[T](tt.rand) },
			func() T { return special[T](tt.rand) }} {
			ldx, ldy, tiles := k+tt.rand.IntN(9), k+tt.rand.IntN(9), 1+tt.rand.IntN(3)
			take := (*arena[T]).last
			if tt.round++; tt.round%3 == 0 {
				take = (*arena[T]).first
			}
			x, y := take(tt.a, span(tiles*r, ldx, k, 1)), take(tt.b, span(s, ldy, k, 1))
			for _, in := range [][]T{x, y} {
				for i := range in {
					in[i] = value()
				}
			}
			apart := max(r, DotRows)
			sums := take(tt.c, (tiles*s-1)*apart+r)
			for i := range sums {
				sums[i] = T(i)
			}
			name := fmt.Sprintf("dot of %d·%d rows with %d, k %d, ldx %d, ldy %d", tiles, r, s, k, ldx, ldy)
			if fault := faults(func() { dot(tiles, k, tt.a.start(x), ldx, tt.b.start(y), ldy, &sums[0]) }); fault != nil {
				tt.Fatalf("%s: %v", name, fault)
			}
			for at, got := range sums {
				i, j, want := at%apart, at/apart%s, T(at)
				if i < r {
					i += at / (apart * s) * r
					var a, b []T
					if k > 0 {
						a, b = x[i*ldx:][:k], y[j*ldy:][:k]
					}
					want = lanewise(a, b, lanes, sets, steps)
				}
				if !same(got, want) {
					tt.Fatalf("%s: sum (%d, %d) is %v, want %v", name, i, j, got, want)
				}
			}
		}
	}
}

// lanewise computes the sum in the doc comments of the dot kernels. Vectors go to the sets in turn
// during the main loop, and to the first set after it.
func lanewise[T float32 | float64](x, y []T, lanes, sets, steps int) T {
	lane := make([]T, sets*lanes)
	for p := 0; p < (len(x)+lanes-1)/lanes*lanes; p++ {
		var a, b T
		if p < len(x) {
			a, b = x[p], y[p]
		}
		l := p % (sets * lanes)
		if p >= len(x)/(steps*lanes)*(steps*lanes) {
			l = p % lanes
		}
		lane[l] = fma(a, b, lane[l])
	}
	return pairwise(lane)
}
