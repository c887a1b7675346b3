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
	m, n, depth := form[0], form[1], form[2]
	a, b := gemm.Dense(in, m, depth), gemm.Dense(in, depth, n)
	if way&1 > 0 {
		a = gemm.Dense(in, depth, m).T()
	}
	if way&2 > 0 {
		b = gemm.Dense(in, n, depth).T()
	}
	limit, beta := out.Info().Max, []float64{0, 1, -2}[way%3]
	const second = -0.875 // the elements of A from the middle of K on. All others of A and B are 1.
	sum := float64(depth-depth/2) + float64(depth/2)*second
	alpha := limit / sum / 2.1
	buffers := gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes())}
	for p := range depth {
		x := 1.0
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
	p, _, err := gemm.New(complex(alpha, 0), a, b, complex(beta, 0), gemm.Dense(out, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	methods := []string{""}
	if !k.naive {
		if way%4 == 3 {
			p.Invariance = gemm.InvariantRows
		}
		methods = nil
		for _, w := range k.tiles(p.Accum()).methods(&p) {
			methods = append(methods, w.String())
		}
	}
	for _, name := range methods {
		choice := backend.Choice{Kernel: k.Name, Config: backend.Config{Method: name}}
		o := backend.Options{Choice: choice, Threads: 1 + way%2*2}
		pl, err := NewPlan(&p, o)
		if err != nil {
			t.Fatal(err)
		}
		tried[pl.method.algorithm] = true
		buffers[gemm.C] = make([]byte, p.C().Bytes())
		for i := range m * n {
			out.Set(buffers[gemm.C], i, limit/16)
		}
		if err := pl.Run(t.Context(), &buffers); err != nil {
			t.Fatal(err)
		}
		want := alpha*sum + beta*out.Round(limit/16)
		for i := range m * n {
			if got := out.At(buffers[gemm.C], i); !(math.Abs(got-want) <= math.Abs(want)*0x1p-6) {
				t.Fatalf("%v by %s %s: element %d is %g, want %g", &p, k.Name, name, i, got, want)
			}
		}
	}
}
