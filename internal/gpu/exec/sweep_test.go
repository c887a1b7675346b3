package exec

import (
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/emu/check"
)

// TestSweep: matrices of every type, both ways round, with block scales and without, and of sizes
// at the edges of warps and blocks, times vectors, under the checkers.
func TestSweep(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := sweepTest{T: t, rng: rand.New(rand.NewPCG(seed, 0))}
	d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit, check.Banks}})
	s.Backend = New(d)
	for _, typ := range dtype.All() {
		for _, size := range [][2]int{{1, 1}, {7, 31}, {8, 32}, {9, 33}, {32, 8}, {33, 9}, {65, 100}, {5, 260}, {33, 512}, {2, 1000}, {0, 5}, {5, 0}} {
			for _, trans := range []bool{false, true} {
				l := gemm.Dense(typ, size[0], size[1])
				if trans {
					l = gemm.Dense(typ, size[1], size[0]).T()
				}
				l.LD += []int{0, 3, 4}[s.rng.IntN(3)] // in vectors or not
				m := Swept{Layout: l}
				s.of(m, true)
				s.of(m, false)
				if typ == dtype.F8E4M3 {
					for _, sides := range [][2]int{{1, gemm.ScaleBlock}, {gemm.ScaleBlock, gemm.ScaleBlock}, {gemm.ScaleBlock, 1}} {
						m.High, m.Wide = sides[0], sides[1]
						m.Blocks = gemm.Dense(dtype.F32, kernel.CeilDiv(size[0], m.High), kernel.CeilDiv(size[1], m.Wide))
						s.of(m, m.Wide > 1)
					}
				}
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Used(); n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
}

type sweepTest struct {
	*testing.T
	*Backend
	rng *rand.Rand
}

// of compares what the device sums of a matrix with sums here, and looks for what is not
// finite.
func (s sweepTest) of(m Swept, weighted bool) {
	s.Helper()
	d, l := s.Device, m.Layout
	rows, cols, whole := l.OpRows(), l.OpCols(), l.Type.Info().Integer
	data := make([]byte, l.Bytes())
	for i := range l.OpRows() {
		for j := range l.OpCols() {
			x := s.rng.NormFloat64()
			if whole {
				x = float64(int32(s.rng.Uint32()) >> (32 - 8*l.Type.Size()))
			}
			l.Type.Set(data, l.Index(i, j), x)
		}
	}
	vectors := make([]float64, sweepSums*cols) // and weights
	words := make([]int32, SweepVectors*cols)
	for j := range vectors {
		vectors[j] = s.rng.Float64()
	}
	for j := range words {
		words[j] = int32(s.rng.Uint32())
	}
	scales := make([]float32, m.Blocks.Len())
	for i := range scales {
		scales[i] = s.rng.Float32()
	}
	in, sums := dtype.Bytes(vectors), sweepSums
	if whole {
		in, sums = dtype.Bytes(words), SweepVectors
	} else if !weighted {
		in = in[:8*SweepVectors*cols]
	}

	var memory [4]device.Ptr // the matrix, its scales, the vectors, the result
	for i, n := range []int{len(data), 4 * len(scales), len(in), SweepBytes(rows)} {
		var err error
		if memory[i], err = d.Alloc(n); err != nil {
			s.Fatal(err)
		}
		defer func() {
			if err := d.Free(memory[i]); err != nil {
				s.Error(err)
			}
		}()
	}
	m.At, m.Scales = memory[0], memory[1]
	run := func() []float64 {
		if l.Len() > 0 {
			if err := d.CopyIn(s.Context(), m.At, data, Rows(l, l)); err != nil {
				s.Fatal(err)
			}
		}
		for i, x := range [][]byte{1: dtype.Bytes(scales), 2: in} {
			if err := d.CopyIn(s.Context(), memory[i], x, device.Whole(len(x))); err != nil {
				s.Fatal(err)
			}
		}
		if err := s.Sweep(s.Context(), &m, memory[2], memory[3], weighted); err != nil {
			s.Fatalf("%v: %v", l, err)
		}
		out, outWords := make([]float64, sums*rows), make([]int32, sums*rows)
		into := dtype.Bytes(out)
		if whole {
			into = dtype.Bytes(outWords)
		}
		if err := d.CopyOut(s.Context(), into, memory[3], device.Whole(len(into))); err != nil {
			s.Fatalf("%v: %v", l, err)
		}
		if whole {
			for i, w := range outWords {
				out[i] = float64(w)
			}
		}
		return out
	}
	out := run()
	for i := range rows {
		var want [sweepSums]float64
		var word [SweepVectors]int32
		for j := range cols {
			x := l.Type.At(data, l.Index(i, j))
			if m.High > 0 {
				x *= float64(scales[m.Blocks.Index(i/m.High, j/m.Wide)])
			}
			for n := range SweepVectors {
				want[n] += x * vectors[n*cols+j]
				word[n] += int32(x) * words[n*cols+j]
			}
			if weighted {
				want[SweepVectors] = math.Hypot(want[SweepVectors], x*vectors[SweepVectors*cols+j])
			} else {
				want[SweepVectors] = math.Hypot(want[SweepVectors], x)
			}
		}
		for n, want := range want[:sums] {
			near := 1e-12 * float64(cols+1)
			if whole {
				want, near = float64(word[n]), 0
			}
			if got := out[n*rows+i]; !(math.Abs(got-want) <= near) {
				s.Fatalf("%v, weighted %v, scales %d×%d: sum %d of row %d is %v, want %v", l, weighted, m.High, m.Wide, n, i, got, want)
			}
		}
	}
	if l.Len() == 0 || whole {
		return
	}
	l.Type.Set(data, l.Index(rows-1, cols-1), math.Inf(-1))
	if size := run()[sweepSums*rows-1]; size-size == 0 {
		s.Errorf("%v: with an infinity the size is %v", l, size)
	}
}
