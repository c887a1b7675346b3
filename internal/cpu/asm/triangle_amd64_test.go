//go:build unix

package asm

import (
	"fmt"
	"slices"
	"testing"
)

func TestSolve(t *testing.T) {
	eachKernel(t, testTriangle(func(ks *Kernels[float32]) []Triangle[float32] { return ks.Solve }, substituted),
		testTriangle(func(ks *Kernels[float64]) []Triangle[float64] { return ks.Solve }, substituted))
}

func TestMultiply(t *testing.T) {
	eachKernel(t, testTriangle(func(ks *Kernels[float32]) []Triangle[float32] { return ks.Multiply }, multiplied),
		testTriangle(func(ks *Kernels[float64]) []Triangle[float64] { return ks.Multiply }, multiplied))
}

// substituted replaces a column x, given the sums of products with the rows above it. Element (i,
// j) of the triangle is l[j*mr+i].
func substituted[T float32 | float64](x, sums, l []T, mr int, alpha T) {
	for i := range x {
		x[i] = fma(alpha, x[i], -sums[i])
	}
	for i := range x {
		x[i] *= l[i*mr+i]
		for r := i + 1; r < len(x); r++ {
			x[r] = fma(-l[i*mr+r], x[i], x[r])
		}
	}
}

// multiplied is substituted for the product.
func multiplied[T float32 | float64](x, sums, l []T, mr int, alpha T) {
	for i := range x {
		for r := i; r < len(x); r++ {
			sums[r] = fma(l[i*mr+r], x[i], sums[r])
		}
	}
	for i := range x {
		x[i] = alpha * sums[i]
	}
}

// testTriangle compares kernels with the loop in their doc comments, bit by bit. The matrices lie
// directly before or after inaccessible memory, and their strides have both signs.
func testTriangle[T float32 | float64](kernels func(*Kernels[T]) []Triangle[T],
	finish func(x, sums, l []T, mr int, alpha T)) func(*testing.T, *Kernels[T]) {
	return func(t *testing.T, ks *Kernels[T]) {
		tt := newTester[T](t)
		all := kernels(ks)
		if n := len(all); n == 0 || min(1<<(n-1), ks.MR) != ks.MR || 1<<(n-2) >= ks.MR {
			t.Errorf("%d kernels, want one for each power of two below %d, and one for %[2]d", n, ks.MR)
		}
		for x, kernel := range all {
			rows := min(1<<x, ks.MR)
			for _, k := range append(upTo(2*unroll+1), 67) {
				for _, tiles := range []int{1, 2, 5} {
					n := tiles * ks.NR
					rsa, csa, ldb := k+tt.rand.IntN(9), 1, n+tt.rand.IntN(9)
					if tt.rand.IntN(2) == 0 {
						rsa, csa = 1, rows+tt.rand.IntN(9)
					}
					name := fmt.Sprintf("%d rows after %d, %d tiles, rsa %d, csa %d, ldb %d", rows, k, tiles, rsa, csa, ldb)
					place := (*arena[T]).first
					if tt.rand.IntN(2) == 0 {
						place = (*arena[T]).last
					}
					a, b := place(tt.a, span(rows, rsa, k, csa)), place(tt.b, span(k+rows, ldb, n, 1))
					l := place(tt.c, (rows-1)*ks.MR+rows)
					for _, s := range [][]T{a, b, l} {
						for i := range s {
							s[i] = T(tt.rand.Float64() - 0.5)
						}
					}
					atA, atB := 0, 0
					if tt.rand.IntN(2) == 0 { // from the last element back
						atA, atB = max(len(a)-1, 0), (k+rows-1)*ldb
						rsa, csa, ldb = -rsa, -csa, -ldb
					}
					alpha := T(tt.rand.Float64())
					want, sums, column := slices.Clone(b), make([]T, rows), make([]T, rows)
					for j := range n {
						for i := range rows {
							sums[i], column[i] = 0, b[atB+(k+i)*ldb+j]
							for p := range k {
								sums[i] = fma(a[atA+i*rsa+p*csa], b[atB+p*ldb+j], sums[i])
							}
						}
						finish(column, sums, l, ks.MR, alpha)
						for i, v := range column {
							want[atB+(k+i)*ldb+j] = v
						}
					}
					inputs := [2][]T{slices.Clone(a), slices.Clone(l)}
					at := tt.a.guard
					if k > 0 {
						at = &a[atA]
					}
					if fault := faults(func() { kernel(tiles, k, at, rsa, csa, &l[0], &b[atB], ldb, alpha) }); fault != nil {
						t.Fatalf("%s: %v", name, fault)
					}
					if !slices.Equal(a, inputs[0]) || !slices.Equal(l, inputs[1]) {
						t.Fatalf("%s: the kernel changed its input", name)
					}
					for i, v := range want {
						if b[i] != v {
							t.Fatalf("%s: element %d of b is %v, want %v", name, i, b[i], v)
						}
					}
				}
			}
		}
	}
}
