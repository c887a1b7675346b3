package cpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// TestFewRowsKeepBInL2 checks that products of few rows pack B in parts that stay in L2, also if
// their sums go to scratch memory because C has 16-bit elements.
func TestFewRowsKeepBInL2(t *testing.T) {
	const n, rows = 3072, 16
	for _, k := range Kernels() {
		if k.naive || !k.Available() || !k.Multiplies(dtype.BF16) {
			continue
		}
		for _, depth := range []int{k.f32.kc * k.f32.Group, 4000} {
			for _, out := range []dtype.Type{dtype.F32, dtype.BF16} {
				p, _, err := gemm.New(1, gemm.Dense(dtype.BF16, rows, depth), gemm.Dense(dtype.BF16, depth, n), 0,
					gemm.Dense(out, rows, n), gemm.Epilogue{})
				if err != nil {
					t.Fatal(err)
				}
				pl, err := k.plan(&p, backend.Options{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				pl.method = method{algorithm: algoBlocked, packsA: true}
				d := newBlocked(&pl, k.f32, &gemm.Buffers{})
				if _, b, _ := d.sizes(); b > 2*d.mk.mc*d.mk.kc {
					t.Errorf("%s, K = %d, C of %v: packs %d words of B at a time, want at most two blocks of A, %d", k.Name,
						depth, out, b, 2*d.mk.mc*d.mk.kc)
				}
			}
		}
	}
}
