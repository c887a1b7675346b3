package cpu

import (
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestSplitK compares products with a small C and a long K, in integers, with the naive loop: for
// every kernel, element type and layout, with and without β and an epilogue.
func TestSplitK(t *testing.T) {
	rng := testrand.New(t)
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I8} {
		for i, side := range [][2]int{{1, 1}, {1, 7}, {9, 1}, {3, 5}, {17, 6}} {
			for n, out := range typ.Info().Results {
				if !testkit.Full() && n != i%len(typ.Info().Results) {
					continue
				}
				for trans := range 4 {
					if (!testkit.Full() || typ != dtype.F32 || n > 0) && trans != i%4 {
						continue
					}
					p, b := thinProblem(t, rng, typ, out,
						[3]int{side[0], side[1], splitDepth(side[0], side[1], typ) + rng.IntN(999)}, trans)
					want := naiveC(t, &p, b)
					for _, k := range kernelsFor(typ) {
						seen := map[algorithm]int{}
						if checkMethods(t, k, &p, b, want, 1+rng.IntN(8), seen); seen[algoSplitK] != 1 {
							t.Errorf("%s: %v: %v, want split-K once", k.Name, &p, seen)
						}
					}
				}
			}
		}
	}
}

// splitDepth returns the least K for which an m×n product is split.
func splitDepth(m, n int, typ dtype.Type) int {
	return minPieces*pieceBytes/typ.Bytes(m+n) + 1
}

// TestPieces checks the number of pieces by shape, that each piece may have a thread, and that the
// parts cover K.
func TestPieces(t *testing.T) {
	for _, s := range []struct{ m, n, k, pieces int }{
		{1, 1, 262144, 0}, {1, 1, 262145, 3}, {1, 1, 10_000_000, 77}, {64, 64, 4096, 0}, {64, 64, 10_000, 5},
		{64, 64, 100_000, 49}, {64, 65, 100_000, 0},
	} {
		p, _, err := gemm.New(1, gemm.Dense(dtype.F32, s.m, s.k), gemm.Dense(dtype.F32, s.k, s.n), 0,
			gemm.Dense(dtype.F32, s.m, s.n), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if splits(&p) != (s.pieces > 0) {
			t.Errorf("%v: splits = %v, want %d pieces", &p, splits(&p), s.pieces)
		}
		if !splits(&p) {
			continue
		}
		if got := ints.CeilDiv(s.k, pieceDepth(&p)); got != s.pieces {
			t.Errorf("%v: %d pieces, want %d", &p, got, s.pieces)
		}
		if got, want := threadCount(&p, 0), min(Workers(0), s.pieces); got != want {
			t.Errorf("%v: %d threads, want %d", &p, got, want)
		}
		pl, err := NewPlan(&p, backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var d splitK[float32]
		d.prepare(&pl, pl.Kernel.f32, &gemm.Buffers{gemm.C: allocAligned(p.C().Bytes())})
		if d.parts > maxParts || d.parts*d.deep < s.k || (d.parts-1)*d.deep >= s.k {
			t.Errorf("%v: %d parts of %d steps, want at most %d that cover K", &p, d.parts, d.deep, maxParts)
		}
	}
}
