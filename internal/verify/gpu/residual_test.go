package gpu

import (
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/testkit/testrand"
	"tilework/internal/verify"
	"tilework/ptx/emu/check"
)

// TestResidualCheck compares the residual check with a computation on the host, under the checkers:
// for C in every type, each bias, and numbers of rows around those of warps and blocks. A norm that
// is not finite is reported.
func TestResidualCheck(t *testing.T) {
	rng := testrand.New(t)
	d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
	b := exec.New(d)
	upload := func(data []byte) device.Ptr {
		p, err := d.Alloc(len(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.CopyIn(t.Context(), p, data, device.Whole(len(data))); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, typ := range checkedTypes() {
		whole := typ.Info().Integer
		// numbers returns n sums, on the device and as numbers.
		numbers := func(n int) (device.Ptr, []float64) {
			values, words := make([]float64, n), make([]int32, n)
			for i := range values {
				values[i] = rng.NormFloat64()
				if i >= n/rowSums*verify.NumVectors { // norms
					values[i] = rng.Float64()
				}
				if whole {
					words[i] = int32(rng.Uint32())
					values[i] = float64(words[i])
				}
			}
			if whole {
				return upload(dtype.Bytes(words)), values
			}
			return upload(dtype.Bytes(values)), values
		}
		for _, rows := range []int{1, 32, 33, 300} {
			for _, bias := range []gemm.BiasDim{gemm.BiasNone, gemm.BiasRow, gemm.BiasCol} {
				r := residuals{
					rows: rows, typ: typ, alpha: 2, beta: -3, biasDim: bias,
					threshold: verify.Threshold{OfTerms: 0.5, OfNorm: 0.75, Min: 0.125},
				}
				var ab, old, c, ofBias, totals []float64
				r.c, c = numbers(rowSums * rows)
				r.ab, ab = numbers(rowSums * rows)
				if rows != 33 {
					r.old, old = numbers(rowSums * rows)
				}
				r.totals, totals = numbers(rowSums)
				r.bias, ofBias = numbers(rowSums)
				if bias == gemm.BiasRow {
					ofBias = make([]float64, rows)
					stored := make([]byte, typ.Bytes(rows))
					for i := range ofBias {
						typ.Set(stored, i, float64(rng.IntN(5)-2))
						ofBias[i] = typ.At(stored, i)
					}
					r.bias = upload(stored)
				}
				var err error
				if r.results, err = d.Alloc(resultBytes(rows)); err != nil {
					t.Fatal(err)
				}
				got, allFinite, err := r.check(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}

				want, worst, within := verify.RowResidual{}, -1.0, 0.0
				for i := range rows {
					terms, squares := 0.0, 0.0
					for n := range rowSums {
						x := r.alpha * ab[n*rows+i]
						scale := math.Abs(r.alpha) * ab[n*rows+i]
						if old != nil {
							x += r.beta * old[n*rows+i]
							scale += math.Abs(r.beta) * old[n*rows+i]
						}
						switch bias {
						case gemm.BiasRow:
							x += ofBias[i] * totals[n]
							scale += math.Abs(ofBias[i]) * totals[n]
						case gemm.BiasCol:
							x += ofBias[n]
							scale += ofBias[n]
						}
						if n == verify.NumVectors {
							terms = scale
							continue
						}
						off := math.Abs(c[n*rows+i] - x)
						if whole {
							off = math.Abs(float64(int32(int64(c[n*rows+i]) - int64(x))))
						}
						squares += off * off
					}
					residual, threshold, hidden, norm := math.Sqrt(squares/verify.NumVectors), 0.0, 0.0, 0.0
					if !whole {
						norm = c[verify.NumVectors*rows+i]
						hidden = r.threshold.OfTerms*terms + r.threshold.OfNorm*norm
						threshold = hidden + r.threshold.Min
						within = max(within, hidden*(1+residual/threshold)/max(terms, norm))
					}
					if ratio := residual / threshold; ratio > worst {
						worst, want = ratio, verify.RowResidual{Row: i, Residual: residual, Threshold: threshold}
					}
				}
				want.Within = within
				near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*(1+math.Abs(y)) }
				if !allFinite || got.Row != want.Row || !near(got.Residual, want.Residual) ||
					!near(got.Threshold, want.Threshold) || !near(got.Within, want.Within) {
					t.Errorf("%v, %d rows, bias %v: %+v, want %+v", typ, rows, bias, got, want)
				}
				if whole {
					continue
				}
				c[verify.NumVectors*rows+rows-1] = math.Inf(1) // the last row's norm
				r.c = upload(dtype.Bytes(c))
				if got, finite, err := r.check(t.Context(), b); err != nil || finite {
					t.Errorf("%v, %d rows, bias %v, with an infinite norm: %+v, %v, want finite = false", typ, rows, bias, got, err)
				}
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
