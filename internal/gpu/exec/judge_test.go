package exec

import (
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/ptx/emu/check"
)

// TestJudge: sums of rows at the edges of warps and blocks are judged as they are here, of C in
// every type, with each bias, under the checkers; and so is what is not finite.
func TestJudge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
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
				j := Judgement{Rows: rows, Type: typ, Alpha: 2, Beta: -3, Bias: bias, OfSize: 0.5, OfNorm: 0.75, Least: 0.125}
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
				at, err := d.Alloc(JudgeBytes(rows))
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.Judge(t.Context(), &j, at)
				if err != nil {
					t.Fatal(err)
				}

				want, worst, within := Verdict{Finite: true}, -1.0, 0.0
				for i := range rows {
					size, squares := 0.0, 0.0
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
						squares += off * off
					}
					residual, limit, hidden, norm := math.Sqrt(squares/SweepVectors), 0.0, 0.0, 0.0
					if !whole {
						norm = c[SweepVectors*rows+i]
						hidden = j.OfSize*size + j.OfNorm*norm
						limit = hidden + j.Least
						within = max(within, hidden*(1+residual/limit)/max(size, norm))
					}
					if ratio := residual / limit; ratio > worst {
						worst, want = ratio, Verdict{Finite: true, Row: i, Residual: residual, Limit: limit}
					}
				}
				want.Within = within
				near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*(1+math.Abs(y)) }
				if got.Finite != want.Finite || got.Row != want.Row || !near(got.Residual, want.Residual) || !near(got.Limit, want.Limit) || !near(got.Within, want.Within) {
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
