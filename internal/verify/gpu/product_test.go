package gpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/ints"
	"tilework/internal/testkit/testrand"
	"tilework/internal/verify"
	"tilework/ptx/emu/check"
)

// TestProduct runs the Freivalds product under the checkers: of matrices of every type, transposed
// or not, with block scales or without, and with sizes around those of warps and blocks.
func TestProduct(t *testing.T) {
	s := productTest{T: t, rng: testrand.New(t)}
	checkers := []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit, check.Banks}
	d := devicetest.Checked(t, check.Options{Only: checkers})
	s.Backend = exec.New(d)
	for _, typ := range checkedTypes() {
		for _, size := range [][2]int{
			{1, 1}, {7, 31}, {8, 32}, {9, 33}, {32, 8}, {33, 9}, {65, 100}, {5, 260}, {33, 512}, {2, 1000}, {0, 5}, {5, 0},
		} {
			for _, trans := range []bool{false, true} {
				l := gemm.Dense(typ, size[0], size[1])
				if trans {
					l = gemm.Dense(typ, size[1], size[0]).T()
				}
				l.LD += []int{0, 3, 4}[s.rng.IntN(3)] // vector loads or not
				m := matrix{layout: l}
				s.check(m, true)
				s.check(m, false)
				if typ == dtype.F8E4M3 {
					for _, sides := range [][2]int{{1, gemm.ScaleBlock}, {gemm.ScaleBlock, gemm.ScaleBlock}, {gemm.ScaleBlock, 1}} {
						m.high, m.wide = sides[0], sides[1]
						m.blocks = gemm.Dense(dtype.F32, ints.CeilDiv(size[0], m.high), ints.CeilDiv(size[1], m.wide))
						s.check(m, m.wide > 1)
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

// checkedTypes returns the element types of the matrices that a device checks. The host checks
// products of uint8.
func checkedTypes() []dtype.Type {
	return slices.DeleteFunc(slices.Clone(dtype.All()), func(t dtype.Type) bool { return t == dtype.U8 })
}

type productTest struct {
	*testing.T
	*exec.Backend
	rng *rand.Rand
}

// check compares the sums of the device with those of the host, and checks that the norm of a row
// with an infinity is not finite.
func (s productTest) check(m matrix, weighted bool) {
	s.Helper()
	d, l := s.Device, m.layout
	rows, cols, whole := l.OpRows(), l.OpCols(), l.Type.Info().Integer
	data := make([]byte, l.Bytes())
	for i := range l.OpRows() {
		for j := range l.OpCols() {
			x := s.rng.NormFloat64()
			if whole {
				x = float64(int32(s.rng.Uint32()) >> (32 - l.Type.Bits()))
			}
			l.Type.Set(data, l.Index(i, j), x)
		}
	}
	vectors := make([]float64, rowSums*cols) // and weights
	words := make([]int32, verify.NumVectors*cols)
	for j := range vectors {
		vectors[j] = s.rng.Float64()
	}
	for j := range words {
		words[j] = int32(s.rng.Uint32())
	}
	scales := make([]float32, m.blocks.Len())
	for i := range scales {
		scales[i] = s.rng.Float32()
	}
	in, sums := dtype.Bytes(vectors), rowSums
	if whole {
		in, sums = dtype.Bytes(words), verify.NumVectors
	} else if !weighted {
		in = in[:8*verify.NumVectors*cols]
	}

	var memory [4]device.Ptr // the matrix, its scales, the vectors, the result
	for i, n := range []int{len(data), 4 * len(scales), len(in), vectorBytes(rows)} {
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
	m.at, m.scales = memory[0], memory[1]
	run := func() []float64 {
		if l.Len() > 0 {
			if err := d.CopyIn(s.Context(), m.at, data, exec.Rows(l, l)); err != nil {
				s.Fatal(err)
			}
		}
		for i, x := range [][]byte{1: dtype.Bytes(scales), 2: in} {
			if err := d.CopyIn(s.Context(), memory[i], x, device.Whole(len(x))); err != nil {
				s.Fatal(err)
			}
		}
		if err := multiply(s.Context(), s.Backend, &m, memory[2], memory[3], weighted); err != nil {
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
		var want [rowSums]float64
		var word [verify.NumVectors]int32
		for j := range cols {
			x := l.Type.At(data, l.Index(i, j))
			if m.high > 0 {
				x *= float64(scales[m.blocks.Index(i/m.high, j/m.wide)])
			}
			for n := range verify.NumVectors {
				want[n] += x * vectors[n*cols+j]
				word[n] += int32(x) * words[n*cols+j]
			}
			if weighted {
				want[verify.NumVectors] = math.Hypot(want[verify.NumVectors], x*vectors[verify.NumVectors*cols+j])
			} else {
				want[verify.NumVectors] = math.Hypot(want[verify.NumVectors], x)
			}
		}
		for n, want := range want[:sums] {
			near := 1e-12 * float64(cols+1)
			if whole {
				want, near = float64(word[n]), 0
			}
			if got := out[n*rows+i]; !(math.Abs(got-want) <= near) {
				s.Fatalf("%v, weighted %v, scales %d×%d: sum %d of row %d is %v, want %v",
					l, weighted, m.high, m.wide, n, i, got, want)
			}
		}
	}
	if l.Len() == 0 || whole {
		return
	}
	l.Type.Set(data, l.Index(rows-1, cols-1), math.Inf(-1))
	if norm := run()[rowSums*rows-1]; norm-norm == 0 {
		s.Errorf("%v: with an infinity the norm is %v, want no finite number", l, norm)
	}
}
