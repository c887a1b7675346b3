//go:build unix

package asm

import (
	"math"
	"testing"
)

func TestLargest(t *testing.T) { eachKernel(t, testLargest[float32], testLargest[float64]) }

// testLargest compares the places of the largest elements with those that a loop finds, next to
// either guard page. Few values differ, so that several elements are the largest.
func testLargest[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	tt := newTester[T](t)
	values := []T{0, 1, -1, 2, -2, 3, -3, T(math.Inf(-1)), T(math.NaN())}
	for n := LargestMin; n < 5*LargestMin; n++ {
		for _, take := range []func(*arena[T], int) []T{(*arena[T]).first, (*arena[T]).last} {
			for range 10 {
				x, some := take(tt.a, n), 1+tt.rand.IntN(len(values))
				for i := range x {
					x[i] = values[tt.rand.IntN(some)]
				}
				if x[0] != x[0] {
					x[0] = 0
				}
				want := 0
				for i, v := range x {
					if math.Abs(float64(v)) > math.Abs(float64(x[want])) {
						want = i
					}
				}
				got := -1
				if fault := faults(func() { got = ks.Largest(n, tt.a.start(x)) }); fault != nil {
					t.Fatalf("%d elements: %v", n, fault)
				}
				if got != want {
					t.Fatalf("element %d of %v, want %d", got, x, want)
				}
			}
		}
	}
}
