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
	d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit, check.Banks}})
	b := New(d)
	for _, typ := range sweeps {
		for _, s := range [][2]int{{1, 1}, {7, 31}, {8, 32}, {9, 33}, {32, 8}, {33, 9}, {65, 100}, {5, 260}, {33, 512}, {2, 1000}, {0, 5}, {5, 0}} {
			for _, trans := range []bool{false, true} {
				l := gemm.Dense(typ, s[0], s[1])
				if trans {
					l = gemm.Dense(typ, s[1], s[0]).T()
				}
				l.LD += []int{0, 3, 4}[rng.IntN(3)] // in vectors or not
				data := make([]byte, l.Bytes())
				for i := range l.OpRows() {
					for j := range l.OpCols() {
						typ.Set(data, l.Index(i, j), rng.NormFloat64())
					}
				}
				vectors := make([]float64, sweepSums*s[1]) // and weights
				for j := range vectors {
					vectors[j] = rng.Float64()
				}
				sweepOnce(t, b, l, data, vectors, true)
				sweepOnce(t, b, l, data, vectors[:SweepVectors*s[1]], false)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Used(); n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
	if err := b.Sweep(t.Context(), d, 0, gemm.Dense(dtype.I8, 1, 1), 0, 0, true); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("a matrix of int8: %v", err)
	}
}

// sweepOnce compares what the device sums with sums here, and looks for what is not
// finite.
func sweepOnce(t *testing.T, b *Backend, l gemm.Layout, data []byte, vectors []float64, weighted bool) {
	t.Helper()
	rows, cols := l.OpRows(), l.OpCols()
	d := b.Device
	var memory [3]device.Ptr // the matrix, the vectors, the result
	for i, n := range []int{len(data), 8 * len(vectors), SweepBytes(rows)} {
		var err error
		if memory[i], err = d.Alloc(n); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.Free(memory[i]); err != nil {
				t.Error(err)
			}
		}()
	}
	run := func() []float64 {
		if l.Len() > 0 {
			if err := d.CopyIn(t.Context(), memory[0], data, device.Rows{Count: l.Rows, Width: l.Cols * l.Type.Size(), Host: l.LD * l.Type.Size(), Device: l.LD * l.Type.Size()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.CopyIn(t.Context(), memory[1], dtype.Bytes(vectors), device.Whole(8*len(vectors))); err != nil {
			t.Fatal(err)
		}
		if err := b.Sweep(t.Context(), d, memory[0], l, memory[1], memory[2], weighted); err != nil {
			t.Fatalf("%v: %v", l, err)
		}
		out := make([]float64, sweepSums*rows)
		if err := d.CopyOut(t.Context(), dtype.Bytes(out), memory[2], device.Whole(8*len(out))); err != nil {
			t.Fatalf("%v: %v", l, err)
		}
		return out
	}
	out := run()
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-12*float64(cols+1) }
	for i := range rows {
		var want [sweepSums]float64
		for j := range cols {
			x := l.Type.At(data, l.Index(i, j))
			for n := range SweepVectors {
				want[n] += x * vectors[n*cols+j]
			}
			if weighted {
				want[SweepVectors] += math.Abs(x) * vectors[SweepVectors*cols+j]
			} else {
				want[SweepVectors] = math.Hypot(want[SweepVectors], x)
			}
		}
		for n, want := range want {
			if got := out[n*rows+i]; !near(got, want) {
				t.Fatalf("%v, weighted %v: sum %d of row %d is %v, want %v", l, weighted, n, i, got, want)
			}
		}
	}
	if l.Len() == 0 {
		return
	}
	l.Type.Set(data, l.Index(rows-1, cols-1), math.Inf(-1))
	if size := run()[sweepSums*rows-1]; !math.IsInf(size, 1) {
		t.Errorf("%v: with an infinity the size is %v", l, size)
	}
	l.Type.Set(data, l.Index(rows-1, cols-1), 1)
}
