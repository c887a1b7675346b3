//go:build unix

package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit/testrand"
)

// bfloat16Kernels lists the kernels for words of two bfloat16. Each has a function that adds a
// number of steps of K to a sum: a block of steps, or one.
var bfloat16Kernels = []struct {
	*Kernels[float32]
	steps func(a, b []float32, sum float32) float32
}{
	{&BF16AVX512, func(a, b []float32, sum float32) float32 {
		for i := 1; i >= 0; i-- {
			sum = flushed(fma(half(a[0], i), half(b[0], i), flushed(sum)))
		}
		return sum
	}},
	{&BF16AMX, func(a, b []float32, sum float32) float32 {
		var sums [2]float32
		for p := range a {
			for i := range sums {
				sums[i] = flushed(fma(half(a[p], i), half(b[p], i), sums[i]))
			}
		}
		return flushed(flushed(sum) + flushed(sums[0]+sums[1]))
	}},
}

// half returns one of the two bfloat16 of a word as float32, and 0 for a subnormal one.
func half(word float32, i int) float32 {
	return flushed(dtype.BFloat16(math.Float32bits(word) >> (16 * i)).Float32())
}

// flushed returns v, or a zero of its sign if v is subnormal.
func flushed(v float32) float32 {
	if math.Abs(float64(v)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(v)))
	}
	return v
}

// halves fills s with random words of numbers around 1, and sometimes of arbitrary bits.
func halves(s []float32, r *rand.Rand) {
	any := r.IntN(4) == 0
	for i := range s {
		bits := r.Uint32()
		if !any {
			bits = bits&0x83ff83ff | 0x3c003c00
		}
		s[i] = math.Float32frombits(bits)
	}
}

// TestBFloat16 compares the micro-kernels with the loops in their doc comments, bit for bit.
func TestBFloat16(t *testing.T) {
	for _, ks := range bfloat16Kernels {
		t.Run(ks.ISA.Name, func(t *testing.T) {
			require(t, ks.ISA)
			r := testrand.New(t)
			as, bs, cs := newArena[float32](t, 1<<15), newArena[float32](t, 1<<14), newArena[float32](t, 1<<14)
			block := max(ks.Block, 1)
			for _, k := range depths(ks.Kernels) {
				for _, m := range heights(ks.Kernels) {
					for n := 1; n <= ks.NR; n++ {
						if someEdges(k/block) && m%5 != 0 && n%7 != 0 {
							continue
						}
						ldc := n + r.IntN(2*ks.NR)
						a, b, c := as.last(panels(ks.Kernels, m)*ks.MR*k), bs.last(ks.NR*k), cs.last((m-1)*ldc+n)
						halves(a, r)
						halves(b, r)
						fill(c, r, finite[float32])
						alpha, beta := finite[float32](r), finite[float32](r)*float32(r.IntN(2))
						want := slices.Clone(c)
						x, y := make([]float32, block), make([]float32, block)
						for i := range m {
							for j := range n {
								var sum float32
								for p := 0; p < k; p += block {
									for q := range block {
										x[q], y[q] = a[inPanel(ks.Kernels, i, p+q, k)], b[(p+q)*ks.NR+j]
									}
									sum = ks.steps(x, y, sum)
								}
								if at := i*ldc + j; beta == 0 {
									want[at] = alpha * sum
								} else {
									want[at] = fma(alpha, sum, float32(beta*want[at]))
								}
							}
						}
						what := fmt.Sprintf("%d×%d×%d, ldc %d, α = %v, β = %v", m, n, k, ldc, alpha, beta)
						if fault := faults(func() {
							ks.Packed(k, as.start(a), bs.start(b), &c[0], bs.start(b), ldc, m, n, alpha, beta)
						}); fault != nil {
							t.Fatalf("%s: %v", what, fault)
						}
						for i := range want {
							if !same(c[i], want[i]) {
								t.Fatalf("%s: c[%d·ldc+%d] = %v, want %v", what, i/ldc, i%ldc, c[i], want[i])
							}
						}
					}
				}
			}
		})
	}
}
