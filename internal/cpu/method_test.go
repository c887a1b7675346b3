package cpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestMethodNames checks that the name of every method parses to the method.
func TestMethodNames(t *testing.T) {
	for a := algoDirect; a <= algoBlocked; a++ {
		for bits := range 8 {
			w := method{algorithm: a, swapAB: bits&1 != 0, packsA: bits&2 != 0, packsB: bits&4 != 0}
			if got, err := parseMethod(w.String()); err != nil || got != w {
				t.Errorf("%+v: %s parses to %+v, %v", w, w, got, err)
			}
		}
	}
	for _, name := range []string{"", "naive", "magic", "direct-", "direct-pack-B-swapAB", "blocked packA"} {
		if w, err := parseMethod(name); err == nil {
			t.Errorf("%q parses to %v, want an error", name, w)
		}
	}
}

// TestFewRowsWidenInRegisters checks that products of few rows of 16-bit elements, with B stored in
// rows or along K, do not pack B.
func TestFewRowsWidenInRegisters(t *testing.T) {
	for _, k := range Kernels() {
		for _, in := range []dtype.Type{dtype.F16, dtype.BF16} {
			if !k.Available() || !k.Multiplies(in) || k.f32 == nil || k.f32.WidenF16 == nil {
				continue
			}
			for _, s := range [][2]int{{768, 3072}, {1024, 1024}, {4096, 4096}} {
				for m := 1; m <= 8; m++ {
					for want, b := range map[algorithm]gemm.Layout{
						algoAxpy: gemm.Dense(in, s[0], s[1]), algoDot: gemm.Dense(in, s[1], s[0]).T(),
					} {
						p, _, err := gemm.New(1, gemm.Dense(in, m, s[0]), b, 0, gemm.Dense(in, m, s[1]), gemm.Epilogue{})
						if err != nil {
							t.Fatal(err)
						}
						if got := k.f32.method(&p); got.algorithm != want {
							t.Errorf("%s, %v, B transposed %v: %v, want %v", k.Name, &p, p.B().Trans, got, want)
						}
					}
				}
			}
		}
	}
}

// BenchmarkMethod measures the choice of a method for a new product and for a repeated one.
func BenchmarkMethod(b *testing.B) {
	c, err := chooseCached("", dtype.F32)
	if err != nil || c.kernel.f32.costs == nil {
		b.Skip("no kernel with several methods")
	}
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 16, 16).T(), gemm.Dense(dtype.F32, 16, 16), 0,
		gemm.Dense(dtype.F32, 16, 16), gemm.Epilogue{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			var l methodList
			c.kernel.f32.list(&l, &p)
			c.kernel.f32.fastest(&l, &p)
		}
	})
	b.Run("repeated", func(b *testing.B) {
		for b.Loop() {
			c.kernel.f32.method(&p)
		}
	})
}
