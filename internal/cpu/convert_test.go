package cpu

import (
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestConverted checks that every kernel sums int8 exactly, wraps at 32 bits, and converts the sums
// to float32, to nearest with ties to even, before it multiplies by alpha.
func TestConverted(t *testing.T) {
	// terms are n terms a·b of a dot product.
	type terms struct {
		n    int
		a, b int8
	}
	for _, tc := range []struct {
		name        string
		terms       []terms
		alpha, beta complex128
		want        float32
	}{
		{"exact", []terms{{1040, 127, 127}, {1, 127, 24}, {1, 7, 1}}, 1, 0, 1<<24 - 1},
		{"tie to even below", []terms{{1040, 127, 127}, {1, 127, 24}, {1, 9, 1}}, 1, 0, 1 << 24},
		{"tie to even above", []terms{{1040, 127, 127}, {1, 127, 24}, {1, 11, 1}}, 1, 0, 1<<24 + 4},
		{"wraps", []terms{{1 << 17, -128, -128}}, 1, 0, -1 << 31},
		{"alpha and beta", []terms{{3, 5, -7}}, 0.5, 0.25, -52.5 + 0.25*8},
		{"split-K", []terms{{3 << 20, 1, 2}, {3, 1, 1}}, 0.5, 0.25, 3<<20 + 1.5 + 2},
		{"no terms", nil, 2, -3, -24},
	} {
		var a, b []int8
		for _, x := range tc.terms {
			for range x.n {
				a, b = append(a, x.a), append(b, x.b)
			}
		}
		p, _, err := gemm.New(tc.alpha, gemm.Dense(dtype.I8, 1, len(a)), gemm.Dense(dtype.I8, len(b), 1), tc.beta,
			gemm.Dense(dtype.F32, 1, 1), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range Kernels() {
			if !k.Available() || !k.Multiplies(dtype.I8) {
				continue
			}
			pl, err := NewPlan(&p, backend.Options{Choice: backend.Choice{Kernel: k.Name}})
			if err != nil {
				t.Fatal(err)
			}
			c := []float32{8}
			if err := pl.Run(t.Context(), &gemm.Buffers{gemm.A: dtype.Bytes(a), gemm.B: dtype.Bytes(b),
				gemm.C: dtype.Bytes(c)}); err != nil || c[0] != tc.want {
				t.Errorf("%s, %s: %v (%v), want %v", tc.name, k.Name, c[0], err, tc.want)
			}
		}
	}
}
