package cpu

import (
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// factorForms are shapes that together use every method, with sums of parts of K.
var factorForms = [][3]int{{20, 19, 900}, {50, 70, 800}, {13, 100, 900}, {1, 90, 900}, {3, 2, 3000}, {2, 40, 5000},
	{40, 3, 5000}, {30, 60, 7}, {70, 100, 5}, {60, 33, 64}, {20, 9, 100}, {4, 4, 70000}, {17, 260, 90}, {12, 1, 2500},
	{4096, 2, 33}}

// TestAlphaTimesFinishedSums checks that alpha multiplies finished sums, for every method of every
// kernel, and for all layouts, result types and values of beta: alpha times the sum of the first
// half of K would overflow.
func TestAlphaTimesFinishedSums(t *testing.T) {
	tried := map[algorithm]bool{}
	for i, k := range Kernels() {
		if !k.Available() {
			continue
		}
		for j, types := range [][2]dtype.Type{{dtype.F64, dtype.F64}, {dtype.F32, dtype.F32}, {dtype.F32, dtype.BF16},
			{dtype.BF16, dtype.F32}, {dtype.BF16, dtype.BF16}} {
			for n, form := range factorForms {
				if way := i + j + n; k.Multiplies(types[0]) {
					testAlpha(t, k, types[0], types[1], form, way, tried)
				}
			}
		}
	}
	for a := range algoBlocked + 1 {
		if asm.F32AVX2.ISA.Supported && !tried[a] {
			t.Errorf("no product used the method %v", a)
		}
	}
}

// testAlpha multiplies by each method of kernel k. way selects the layouts, beta, the number of
// threads and the order of summation.
func testAlpha(t *testing.T, k *Kernel, in, out dtype.Type, form [3]int, way int, tried map[algorithm]bool) {
	t.Helper()
	depth, limit, beta := form[2], out.Info().Max, []float64{0, 1, -2}[way%3]
	const second = -0.875 // the elements of A from the middle of K on. All others of A and B are 1.
	sum := float64(depth-depth/2) + float64(depth/2)*second
	alpha := limit / sum / 2.1
	p, buffers := halves(t, in, out, form, way, 1, second)
	p.Alpha, p.Beta = complex(alpha, 0), complex(beta, 0)
	if way%4 == 3 && !k.naive {
		p.Invariance = gemm.InvariantRows
	}
	want := alpha*sum + beta*out.Round(limit/16)
	for _, w := range runMethods(t, k, p, buffers, limit/16, way, func(got float64) bool {
		return math.Abs(got-want) <= math.Abs(want)*0x1p-6
	}) {
		tried[w] = true
	}
}

// TestFactors compares products with α·(A·B) + β·C by every method of every kernel, for factors and
// elements of C that are not finite, overflow, or underflow. The sum of each half of K is finite.
func TestFactors(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for i, k := range Kernels() {
		for j, ty := range []dtype.Type{dtype.F32, dtype.F64} {
			if !k.Available() || !k.Multiplies(ty) {
				continue
			}
			most, least := ty.Info().Max, ty.Info().Tiny
			top := math.Ldexp(1, math.Ilogb(most)) // the largest power of two
			cases := []struct{ alpha, beta, c, first, second float64 }{
				{inf, 1, 1, 1, -0.5}, {-inf, 1, -1, 1, -0.5}, {inf, -1, inf, 1, -0.5}, {inf, 1, 1, 0, 0}, {nan, 1, 1, 1, 1},
				{2, inf, 1, 1, -1}, {2, inf, 0, 1, -1}, {-3, nan, 1, 1, 1}, {3, most, 2, 1, -1}, {3, -5, 7, 1, -0.5},
				{most, 1, 1, 0, 0}, {0.75 * top, 40 / top, most, 0, 0}, {top / 64, 1, -3, 0, 0}, {3, 1, 5 * least, 0, 0},
			}
			for n, form := range factorForms {
				for at, c := range cases {
					if at%len(factorForms) != (n+i+j)%len(factorForms) && form[2] > 100 {
						continue // the products with many terms are one case each
					}
					p, buffers := halves(t, ty, ty, form, n, c.first, c.second)
					p.Alpha, p.Beta = complex(c.alpha, 0), complex(c.beta, 0)
					half := float64(form[2] / 2)
					sum, terms := (float64(form[2])-half)*c.first+half*c.second, float64(form[2])*math.Abs(c.first)
					want := ty.Round(ty.Round(c.alpha*sum) + ty.Round(c.beta*c.c))
					limit := ty.Info().Roundoff*(math.Abs(c.alpha)*terms*terms+2*math.Abs(want)) + math.Abs(c.alpha)*least
					runMethods(t, k, p, buffers, c.c, n+at, func(got float64) bool {
						return got == want || got != got && want != want || math.Abs(got-want) <= limit && limit < inf
					})
				}
			}
		}
	}
}

// halves returns a product without factors. The elements of A are first and, from the middle of K
// on, second. Those of B are 1. way selects the layouts.
func halves(t *testing.T, in, out dtype.Type, form [3]int, way int, first, second float64) (*gemm.Problem,
	*gemm.Buffers) {
	t.Helper()
	m, n, depth := form[0], form[1], form[2]
	a, b := gemm.Dense(in, m, depth), gemm.Dense(in, depth, n)
	if way&1 > 0 {
		a = gemm.Dense(in, depth, m).T()
	}
	if way&2 > 0 {
		b = gemm.Dense(in, n, depth).T()
	}
	buffers := gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes())}
	for p := range depth {
		x := first
		if p >= depth-depth/2 {
			x = second
		}
		for i := range m {
			in.Set(buffers[gemm.A], a.Index(i, p), x)
		}
		for j := range n {
			in.Set(buffers[gemm.B], b.Index(p, j), 1)
		}
	}
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return &p, &buffers
}

// runMethods computes p by each method of kernel k, with c as the elements of C, and checks all
// elements. way selects the number of threads. runMethods returns the algorithms.
func runMethods(t *testing.T, k *Kernel, p *gemm.Problem, buffers *gemm.Buffers, c float64, way int,
	isRight func(got float64) bool) (used []algorithm) {
	t.Helper()
	names := []string{""}
	if !k.naive {
		names = nil
		for _, w := range k.tiles(p.Accum()).methods(p) {
			names = append(names, w.String())
		}
	}
	for _, name := range names {
		choice := backend.Choice{Kernel: k.Name, Config: backend.Config{Method: name}}
		pl, err := NewPlan(p, backend.Options{Choice: choice, Threads: 1 + way%2*2})
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, pl.method.algorithm)
		buffers[gemm.C] = make([]byte, p.C().Bytes())
		for i := range p.M * p.N {
			p.Out().Set(buffers[gemm.C], i, c)
		}
		if err := pl.Run(t.Context(), buffers); err != nil {
			t.Fatal(err)
		}
		for i := range p.M * p.N {
			if got := p.Out().At(buffers[gemm.C], i); !isRight(got) {
				t.Fatalf("%v with C of %g by %s %s: element %d is %g", p, c, k.Name, name, i, got)
			}
		}
	}
	return used
}
