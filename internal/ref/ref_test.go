package ref

import (
	"math"
	"math/big"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref/reftest"
	"tilework/internal/testkit/testrand"
)

// representable reports whether type t can represent v. Integers have no NaN, and some
// floating-point types have no infinities.
func representable(t dtype.Type, v float64) bool { return same(t.Round(v), v) }

// TestAgainstRationals compares the reference with products in rational arithmetic.
func TestAgainstRationals(t *testing.T) {
	rng := testrand.New(t)
	number := func(v float64) *big.Rat { return new(big.Rat).SetFloat64(v) }
	for range reftest.Repeats(400) {
		ty := reftest.AllTypes()[rng.IntN(len(reftest.AllTypes()))]
		m, n, k := rng.IntN(5), rng.IntN(5), rng.IntN(40)
		fill := func() float64 { return math.Ldexp(rng.Float64()*2-1, rng.IntN(8)) } // finite in every type
		alpha, beta := []float64{1, 0.1, -2}[rng.IntN(3)], []float64{0, 1, 0.3}[rng.IntN(3)]
		if ty.Integer() {
			fill = func() float64 { return float64(int32(rng.Uint32())) }
			alpha, beta = []float64{1, math.MaxInt32, -2}[rng.IntN(3)], []float64{0, 1, -math.MaxInt32}[rng.IntN(3)]
		}
		p, buf := reftest.Problem(t, rng, ty, m, n, k, alpha, beta, gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}, fill)
		r := Gemm(p, buf)
		scale := p.ScaleType()
		for i := range m {
			for j := range n {
				sum, abs := new(big.Rat), new(big.Rat)
				add := func(t *big.Rat) { sum.Add(sum, t); abs.Add(abs, new(big.Rat).Abs(t)) }
				product := func(f float64, v ...float64) *big.Rat {
					t := number(scale.Round(f))
					for _, v := range v {
						t.Mul(t, number(v))
					}
					return t
				}
				dot := 0.0 // exact for integers
				for k := range k {
					x, y := ty.In.At(buf[gemm.A], p.A().Index(i, k)), ty.In.At(buf[gemm.B], p.B().Index(k, j))
					if dot += x * y; !p.Converts() {
						add(product(alpha, x, y))
					}
				}
				if p.Converts() {
					add(product(alpha, dot))
				}
				add(product(beta, ty.Out.At(buf[gemm.C], p.C().Index(i, j))))
				switch p.Epilogue.Bias {
				case gemm.BiasRow:
					add(number(ty.Out.At(buf[gemm.Bias], i)))
				case gemm.BiasCol:
					add(number(ty.Out.At(buf[gemm.Bias], j)))
				}
				at := i*n + j
				if ty.Integer() {
					wrapped := new(big.Int).And(sum.Num(), big.NewInt(math.MaxUint32)).Uint64()
					if got := r.Value[at]; got != float64(int32(uint32(wrapped))) {
						t.Fatalf("%v: C(%d,%d) is %v: want %d", p, i, j, got, int32(uint32(wrapped)))
					}
					continue
				}
				got, tolerance := number(r.Value[at]), 0x1p-53
				if r.low != nil {
					got.Add(got, number(r.low[at]))
					tolerance = 0x1p-103
				}
				diff := new(big.Rat).Abs(got.Sub(got, sum))
				if limit := new(big.Rat).Mul(abs, number(tolerance*float64(k+4))); diff.Cmp(limit) > 0 {
					e, _ := diff.Float64()
					most, _ := limit.Float64()
					t.Fatalf("%v: C(%d,%d) has error %g: want at most %g", p, i, j, e, most)
				}
				want, _ := abs.Float64()
				if math.Abs(r.absSum[at]-want) > 1e-12*want {
					t.Fatalf("%v: absSum of C(%d,%d) is %v: want %v", p, i, j, r.absSum[at], want)
				}
			}
		}
	}
}

// TestNonfinite checks that NaN and infinities propagate, even if they are multiplied by a zero
// element. Operands with a scalar of 0 are not read.
func TestNonfinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name        string
		a, b, c     float64
		alpha, beta float64
		want        float64
	}{
		{"NaN in A", nan, 1, 0, 1, 1, nan},
		{"zero times infinity", 0, inf, 0, 1, 0, nan},
		{"infinity", -2, inf, 0, 1, 1, -inf},
		{"infinities of opposite sign", 1, inf, -inf, 1, 1, nan},
		{"C not read", 2, 3, nan, 1, 0, 6},
		{"A and B not read", nan, inf, 5, 0, 2, 10},
		{"NaN alpha", 1, 1, 1, nan, 1, nan},
	} {
		for _, ty := range reftest.AllTypes() {
			if ty.Integer() || !representable(ty.In, tc.a) || !representable(ty.In, tc.b) {
				continue
			}
			in, out := gemm.Dense(ty.In, 1, 1), gemm.Dense(ty.Out, 1, 1)
			layouts := gemm.Layouts{gemm.A: in, gemm.B: in, gemm.C: out}
			p := &gemm.Problem{M: 1, N: 1, K: 1, Layouts: layouts, Alpha: complex(tc.alpha, 0), Beta: complex(tc.beta, 0)}
			cell := func(ty dtype.Type, v float64) []byte {
				b := make([]byte, ty.Size())
				ty.Set(b, 0, v)
				return b
			}
			r := Gemm(p, gemm.Buffers{gemm.A: cell(ty.In, tc.a), gemm.B: cell(ty.In, tc.b), gemm.C: cell(ty.Out, tc.c)})
			if got := r.Value[0]; !same(got, tc.want) {
				t.Errorf("%s, %v: value is %v: want %v", tc.name, ty, got, tc.want)
			}
			if err := r.Compare(cell(ty.Out, tc.want), gemm.Accuracy{}).Err(); err != nil {
				t.Errorf("%s, %v: %v", tc.name, ty, err)
			}
			if err := r.Compare(cell(ty.Out, 7), gemm.Accuracy{}).ElementErr(); err == nil {
				t.Errorf("%s, %v: 7 passes: want %v", tc.name, ty, tc.want)
			}
		}
	}
}
