package gpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx/emu/check"
)

// TestJudge: sums of rows at the edges of warps and blocks are judged as they are here, of C in
// every type, with each bias, under the checkers; and so is what is not finite.
func TestJudge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
	b := New(d)
	bring := func(data []byte) device.Ptr {
		p, err := d.Alloc(len(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.CopyIn(t.Context(), p, data, device.Whole(len(data))); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, typ := range dtype.All() {
		whole := typ.Info().Integer
		// numbers are n sums and what they stand for.
		numbers := func(n int) (device.Ptr, []float64) {
			values, words := make([]float64, n), make([]int32, n)
			for i := range values {
				values[i] = rng.NormFloat64()
				if i >= n/sweepSums*SweepVectors { // norms and sizes
					values[i] = rng.Float64()
				}
				if whole {
					words[i] = int32(rng.Uint32())
					values[i] = float64(words[i])
				}
			}
			if whole {
				return bring(dtype.Bytes(words)), values
			}
			return bring(dtype.Bytes(values)), values
		}
		for _, rows := range []int{1, 32, 33, 300} {
			for _, bias := range []gemm.BiasDim{gemm.BiasNone, gemm.BiasRow, gemm.BiasCol} {
				j := Judgement{Rows: rows, Type: typ, Alpha: 2, Beta: -3, Bias: bias, OfSize: 0.5, OfRepeats: 0.25, OfNorm: 0.75, Least: 0.125}
				var product, old, c, ofBias, totals []float64
				j.C, c = numbers(sweepSums * rows)
				j.Product, product = numbers(sweepSums * rows)
				if rows != 33 {
					j.Old, old = numbers(sweepSums * rows)
				}
				j.Totals, totals = numbers(sweepSums)
				j.OfBias, ofBias = numbers(sweepSums)
				if bias == gemm.BiasRow {
					ofBias = make([]float64, rows)
					stored := make([]byte, rows*typ.Size())
					for i := range ofBias {
						typ.Set(stored, i, float64(rng.IntN(5)-2))
						ofBias[i] = typ.At(stored, i)
					}
					j.OfBias = bring(stored)
				}
				shares := []float64{rng.Float64(), rng.Float64()}
				j.Repeats = bring(dtype.Bytes(shares))
				at, err := d.Alloc(JudgeBytes(rows))
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.Judge(t.Context(), &j, at)
				if err != nil {
					t.Fatal(err)
				}

				want, worst := Verdict{Finite: true}, -1.0
				for i := range rows {
					size := 0.0
					residual := 0.0
					for n := range sweepSums {
						x := j.Alpha * product[n*rows+i]
						scale := math.Abs(j.Alpha) * product[n*rows+i]
						if old != nil {
							x += j.Beta * old[n*rows+i]
							scale += math.Abs(j.Beta) * old[n*rows+i]
						}
						switch bias {
						case gemm.BiasRow:
							x += ofBias[i] * totals[n]
							scale += math.Abs(ofBias[i]) * totals[n]
						case gemm.BiasCol:
							x += ofBias[n]
							scale += ofBias[n]
						}
						if n == SweepVectors {
							size = scale
							continue
						}
						off := math.Abs(c[n*rows+i] - x)
						if whole {
							off = math.Abs(float64(int32(int64(c[n*rows+i]) - int64(x))))
						}
						residual = max(residual, off)
					}
					limit := 0.0
					if !whole {
						limit = (j.OfSize+min(shares[0], shares[1])*j.OfRepeats)*size + j.OfNorm*c[SweepVectors*rows+i] + j.Least
					}
					if ratio := residual / limit; ratio > worst {
						worst, want = ratio, Verdict{Finite: true, Row: i, Residual: residual, Limit: limit}
					}
				}
				near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*(1+math.Abs(y)) }
				if got.Finite != want.Finite || got.Row != want.Row || !near(got.Residual, want.Residual) || !near(got.Limit, want.Limit) {
					t.Errorf("%v, %d rows, bias %v: %+v, want %+v", typ, rows, bias, got, want)
				}
				if whole {
					continue
				}
				c[SweepVectors*rows+rows-1] = math.Inf(1) // the last row's norm
				j.C = bring(dtype.Bytes(c))
				if got, err := b.Judge(t.Context(), &j, at); err != nil || got.Finite {
					t.Errorf("%v, %d rows, bias %v, with what is not finite: %+v, %v", typ, rows, bias, got, err)
				}
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestRepeats: all of a matrix repeats along its rows and nothing along its columns, or neither,
// or there is nothing to look at.
func TestRepeats(t *testing.T) {
	d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
	b := New(d)
	const rows, cols = 5, 7
	for _, typ := range dtype.All() {
		for _, x := range []struct {
			rows, cols         int
			value              func(i, j int) float64
			alongRow, alongCol float64
		}{
			{rows, cols, func(i, _ int) float64 { return float64(i + 1) }, 1, 0},
			{rows, cols, func(_, j int) float64 { return float64(j - 8) }, 0, 1},
			{rows, cols, func(i, j int) float64 { return 0 }, 0, 0},
			{1, 1, func(i, j int) float64 { return 1 }, 0, 0},
			{0, cols, nil, 0, 0},
		} {
			for _, trans := range []bool{false, true} {
				l := gemm.Dense(typ, x.rows, x.cols)
				if trans {
					l = gemm.Dense(typ, x.cols, x.rows).T()
				}
				data := make([]byte, max(l.Bytes(), 1))
				for i := range x.rows {
					for j := range x.cols {
						typ.Set(data, l.Index(i, j), x.value(i, j))
					}
				}
				at, err := d.Alloc(len(data))
				if err != nil {
					t.Fatal(err)
				}
				shares, err := d.Alloc(RepeatsBytes)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.CopyIn(t.Context(), at, data, device.Whole(len(data))); err != nil {
					t.Fatal(err)
				}
				m := Swept{At: at, Layout: l}
				if err := b.Repeats(t.Context(), 5, &m, &m, shares); err != nil {
					t.Fatal(err)
				}
				var got [2]float64
				if err := d.CopyOut(t.Context(), dtype.Bytes(got[:]), shares, device.Whole(RepeatsBytes)); err != nil {
					t.Fatal(err)
				}
				if want := [2]float64{x.alongRow, x.alongCol}; got != want {
					t.Errorf("%v, %d×%d, transposed %v: %v, want %v", typ, x.rows, x.cols, trans, got, want)
				}
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
