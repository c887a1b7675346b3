//go:build unix

package asm

import "testing"

func TestColumns(t *testing.T) { eachKernel(t, testColumns[float32], testColumns[float64]) }

// testColumns checks the Columns functions next to either guard page: they copy all elements and
// change no others.
func testColumns[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	for i, columns := range ks.Columns {
		rows := i + 1
		for n := 0; n <= 40; n += 8 {
			for _, extra := range []int{0, 1, 5} {
				lds, ldd := n+extra, rows+extra
				for _, take := range []func(*arena[T], int) []T{(*arena[T]).first, (*arena[T]).last} {
					src, dst := take(tt.a, span(rows, lds, n, 1)), take(tt.c, span(n, ldd, rows, 1))
					fill(src, tt.rand, special[T])
					fill(dst, tt.rand, special[T])
					want := append([]T(nil), dst...)
					for j := range n {
						for i := range rows {
							want[j*ldd+i] = src[i*lds+j]
						}
					}
					if fault := faults(func() { columns(n, tt.c.start(dst), ldd, tt.a.start(src), lds) }); fault != nil {
						t.Fatalf("%d rows of %d, lds %d, ldd %d: %v", rows, n, lds, ldd, fault)
					}
					if !sameAll(dst, want) {
						t.Fatalf("%d rows of %d, lds %d, ldd %d: %v, want %v", rows, n, lds, ldd, dst, want)
					}
				}
			}
		}
	}
}
