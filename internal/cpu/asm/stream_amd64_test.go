//go:build unix

package asm

import (
	"fmt"
	"testing"
)

func TestUpdate(t *testing.T) { eachKernel(t, testUpdate[float32], testUpdate[float64]) }
func TestDot(t *testing.T)    { eachKernel(t, testDot[float32], testDot[float64]) }

func testUpdate[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	for x, all := range ks.Update {
		for y, update := range all {
			m, k := 1<<x, 1<<y
			for _, n := range append(upTo(2*ks.NR + 1)[1:], 300) {
				ldb, ldc := n+tt.rand.IntN(9), n+tt.rand.IntN(9)
				rsa, csa := k+tt.rand.IntN(9), 1
				if tt.rand.IntN(2) == 0 {
					rsa, csa = 1, m+tt.rand.IntN(9)
				}
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

func testDot[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	lanes := ks.NR / 2
	for s, dot := range ks.Dot {
		s++
		for _, k := range append(upTo(3*lanes+1), 300) {
			for _, value := range []func() T{func() T { return finite[T](tt.rand) }, func() T { return special[T](tt.rand) }} {
				ldx, ldy := k+tt.rand.IntN(9), k+tt.rand.IntN(9)
				take := (*arena[T]).last
				if tt.round++; tt.round%3 == 0 {
					take = (*arena[T]).first
				}
				x, y := take(tt.a, span(DotRows, ldx, k, 1)), take(tt.b, span(s, ldy, k, 1))
				for _, in := range [][]T{x, y} {
					for i := range in {
						in[i] = value()
					}
				}
				sums := take(tt.c, s*DotRows)
				name := fmt.Sprintf("dot of %d rows, k %d, ldx %d, ldy %d", s, k, ldx, ldy)
				if fault := faults(func() { dot(k, tt.a.start(x), ldx, tt.b.start(y), ldy, &sums[0]) }); fault != nil {
					t.Fatalf("%s: %v", name, fault)
				}
				for i := range DotRows {
					for j := range s {
						var a, b []T
						if k > 0 {
							a, b = x[i*ldx:][:k], y[j*ldy:][:k]
						}
						if got, want := sums[j*DotRows+i], lanewise(a, b, lanes); !same(got, want) {
							t.Fatalf("%s: sum (%d, %d) is %v, want %v", name, i, j, got, want)
						}
					}
				}
			}
		}
	}
}

// lanewise is the sum in the doc comments of the dot kernels.
func lanewise[T float32 | float64](x, y []T, lanes int) T {
	lane := make([]T, lanes)
	for p := 0; p < (len(x)+lanes-1)/lanes*lanes; p++ {
		var a, b T
		if p < len(x) {
			a, b = x[p], y[p]
		}
		lane[p%lanes] = fma(a, b, lane[p%lanes])
	}
	for half := lanes / 2; half > 0; half /= 2 {
		for l := range half {
			lane[l] += lane[l+half]
		}
	}
	return lane[0]
}
