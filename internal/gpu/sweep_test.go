package gpu

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx/emu/check"
)

// TestSweep: matrices of every floating-point type, both ways round and of sizes at the
// edges of warps and blocks, times vectors, under the checkers.
func TestSweep(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
	b := New(d)
	for _, typ := range sweeps {
		for _, s := range [][2]int{{1, 1}, {7, 31}, {8, 32}, {9, 33}, {32, 8}, {33, 9}, {65, 100}, {0, 5}, {5, 0}} {
			for _, trans := range []bool{false, true} {
				l := gemm.Dense(typ, s[0], s[1])
				if trans {
					l = gemm.Dense(typ, s[1], s[0]).T()
				}
				l.LD += 3
				data := make([]byte, l.Bytes())
				for i := range l.OpRows() {
					for j := range l.OpCols() {
						typ.Set(data, l.Index(i, j), rng.NormFloat64())
					}
				}
				vectors, weights := make([][]float64, 5), make([]float64, s[1]) // two launches
				for j := range weights {
					weights[j] = rng.Float64()
				}
				for n := range vectors {
					vectors[n] = make([]float64, s[1])
					for j := range vectors[n] {
						vectors[n][j] = rng.NormFloat64()
					}
				}
				sweepOnce(t, b, l, data, vectors, weights)
				sweepOnce(t, b, l, data, vectors[:2], nil)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Used(); n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
	if _, _, err := b.Sweep(t.Context(), 0, gemm.Dense(dtype.I8, 1, 1), nil, nil); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("a matrix of int8: %v", err)
	}
}

// sweepOnce compares what the device sums with sums here, and looks for what is not
// finite.
func sweepOnce(t *testing.T, b *Backend, l gemm.Layout, data []byte, vectors [][]float64, weights []float64) {
	t.Helper()
	at, err := b.Device.Alloc(max(len(data), 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Device.Free(at); err != nil {
			t.Error(err)
		}
	}()
	upload := func() {
		if l.Len() > 0 {
			if err := b.Device.CopyIn(t.Context(), at, data, device.Rows{Count: l.Rows, Width: l.Cols * l.Type.Size(), Host: l.LD * l.Type.Size(), Device: l.LD * l.Type.Size()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	upload()
	out, size, err := b.Sweep(t.Context(), at, l, vectors, weights)
	if err != nil {
		t.Fatalf("%v: %v", l, err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-12*float64(l.OpCols()+1) }
	for i := range l.OpRows() {
		sum, gauge := make([]float64, len(vectors)), 0.0
		for j := range l.OpCols() {
			x := l.Type.At(data, l.Index(i, j))
			for n, v := range vectors {
				sum[n] += x * v[j]
			}
			if weights != nil {
				gauge += math.Abs(x) * weights[j]
			} else {
				gauge += x * x
			}
		}
		for n := range vectors {
			if !near(out[n][i], sum[n]) {
				t.Fatalf("%v: row %d of vector %d is %v, want %v", l, i, n, out[n][i], sum[n])
			}
		}
		if !near(size[i], gauge) {
			t.Fatalf("%v: the size of row %d is %v, want %v", l, i, size[i], gauge)
		}
	}
	if l.Len() == 0 {
		return
	}
	row, last := l.OpRows()-1, l.Index(l.OpRows()-1, l.OpCols()-1)
	was := l.Type.At(data, last)
	l.Type.Set(data, last, math.Inf(-1))
	upload()
	l.Type.Set(data, last, was)
	if _, size, err = b.Sweep(t.Context(), at, l, vectors, weights); err != nil || !math.IsInf(size[row], 1) {
		t.Errorf("%v: with an infinity the size is %v, %v", l, size[row], err)
	}
}
