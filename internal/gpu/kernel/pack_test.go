package kernel

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestRepackOnce checks that no operand of a packed product must be packed again, for operands of
// every small shape at every alignment.
func TestRepackOnce(t *testing.T) {
	sizes := []int{1, 2, 3, 16, 130}
	for _, in := range []dtype.Type{dtype.F8E5M2, dtype.BF16, dtype.F32} {
		for i := range 4 * len(sizes) * len(sizes) * len(sizes) {
			m, n, k := sizes[i/4%len(sizes)], sizes[i/4/len(sizes)%len(sizes)], sizes[i/4/len(sizes)/len(sizes)]
			a, b := gemm.Dense(in, m, k), gemm.Dense(in, k, n)
			if i&1 != 0 {
				a = gemm.Dense(in, k, m).T()
			}
			if i&2 != 0 {
				b = gemm.Dense(in, n, k).T()
			}
			p, _, err := gemm.New(1, a, b, 0, gemm.Dense(in.Info().Results[0], m, n), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			for _, align := range []int{0, in.Bytes(1), 8, 16} {
				for _, s := range []Tile{{}, {SwapAB: true}} {
					q, _ := Repack(&p, s, Align{gemm.A: align, gemm.B: align})
					if again, packed := Repack(&q, s, Align{}); packed.Any() {
						t.Errorf("%v at multiples of %d bytes, swapAB %v: packed as %v and %v, then again as %v and %v", &p, align,
							s.SwapAB, q.A(), q.B(), again.A(), again.B())
					}
				}
			}
		}
	}
}

// TestRaggedColumns checks that the right operand of a ragged tile stays K-major if it is a single
// column, contiguous or not: a part of a matrix is computed with the tile that was chosen for all
// of it.
func TestRaggedColumns(t *testing.T) {
	for _, ld := range []int{1, 2} {
		column, row := gemm.Dense(dtype.F16, 303, 1), gemm.Dense(dtype.F16, 1, 303)
		column.LD = ld
		p, _, err := gemm.New(1, gemm.Dense(dtype.F16, 2, 1), column.T(), 0, gemm.Dense(dtype.F16, 2, 303), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if q, _ := Repack(&p, Tile{N: 72}, Align{}); !q.B().Trans {
			t.Errorf("leading dimension %d: B is MN-major for 72 columns", ld)
		}
		p, _, err = gemm.New(1, column, row, 0, gemm.Dense(dtype.F16, 303, 303), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if q, _ := Repack(&p, Tile{N: 48, SwapAB: true}, Align{}); q.A().Trans {
			t.Errorf("leading dimension %d: A is MN-major for 48 rows with swapAB", ld)
		}
	}
}
