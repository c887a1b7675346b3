package ref

import (
	"flag"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

var seed = flag.Uint64("seed", rand.Uint64(), "seed of the random cases")

func newRand(t *testing.T) *rand.Rand {
	t.Logf("-seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// repeats is n, or less with -short: under the race detector a float loop takes
// twenty times as long. Where a long test is asked for it is fifty times as much.
func repeats(n int) int { return testkit.Repeats(n/10+1, n, 50*n) }

// pair is a type of operands and a type of result.
type pair struct{ in, out dtype.Type }

func pairs() (all []pair) {
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			all = append(all, pair{in, out})
		}
	}
	return all
}

// integer reports whether products of the pair are computed in integers throughout.
func (ty pair) integer() bool { return ty.in.Info().ScaleType(ty.out).Info().Integer }

// holds reports whether t has the value v: integers have no NaN, and some floats no infinities.
func holds(t dtype.Type, v float64) bool {
	r := t.Round(v)
	return r == v || r != r && v != v
}

// problem makes a product of random layouts with its memory, every element of it,
// padding too, filled by fill.
func problem(t testing.TB, rng *rand.Rand, ty pair, m, n, k int, alpha, beta float64, e gemm.Epilogue, fill func() float64) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	operand := func(ty dtype.Type, rows, cols int, trans bool) gemm.Layout {
		if trans {
			rows, cols = cols, rows
		}
		l := gemm.Dense(ty, rows, cols)
		l.LD += rng.IntN(3)
		l.Trans = trans
		return l
	}
	p, _, err := gemm.New(alpha, operand(ty.in, m, k, rng.IntN(2) == 0), operand(ty.in, k, n, rng.IntN(2) == 0),
		beta, operand(ty.out, m, n, false), e)
	if err != nil {
		t.Fatal(err)
	}
	memory := func(ty dtype.Type, n int) []byte {
		b := make([]byte, n*ty.Size())
		for i := range n {
			ty.Set(b, i, fill())
		}
		return b
	}
	return &p, gemm.Buffers{gemm.A: memory(ty.in, p.A().Len()), gemm.B: memory(ty.in, p.B().Len()), gemm.C: memory(ty.out, p.C().Len()), gemm.Bias: memory(ty.out, p.BiasLen())}
}

// honest computes the product in the accumulator's own type, k in blocks of the
// given size that are summed apart, the rest in the ScaleType, and returns the new C.
func honest(p *gemm.Problem, buf gemm.Buffers, block int) []byte {
	switch t := p.Accum(); {
	case p.Converts():
		return honestIn[int32, float32](p, buf, block)
	case t == dtype.F64:
		return honestIn[float64, float64](p, buf, block)
	case t == dtype.F32:
		return honestIn[float32, float32](p, buf, block)
	default:
		return honestIn[int32, int32](p, buf, block)
	}
}

type arithmetic interface{ float32 | float64 | int32 }

func honestIn[T, S arithmetic](p *gemm.Problem, buf gemm.Buffers, block int) []byte {
	c := append([]byte(nil), buf[gemm.C]...)
	for i := range p.M {
		for j := range p.N {
			var total T
			for first := 0; p.ReadsAB() && first < p.K; first += block {
				var part T
				for k := first; k < min(first+block, p.K); k++ {
					part += T(T(p.In().At(buf[gemm.A], p.A().Index(i, k))) * T(p.B().Type.At(buf[gemm.B], p.B().Index(k, j))))
				}
				total += part
			}
			sum := S(S(total) * S(p.Alpha))
			at := p.C().Index(i, j)
			if p.Beta != 0 {
				sum += S(p.Beta) * S(p.Out().At(buf[gemm.C], at))
			}
			switch p.Epilogue.Bias {
			case gemm.BiasRow:
				sum += S(p.Out().At(buf[gemm.Bias], i))
			case gemm.BiasCol:
				sum += S(p.Out().At(buf[gemm.Bias], j))
			}
			p.Out().Set(c, at, p.Epilogue.Activation.Info().F(float64(sum)))
		}
	}
	return c
}

// TestAgainstRationals compares the reference with the exact product.
func TestAgainstRationals(t *testing.T) {
	rng := newRand(t)
	number := func(v float64) *big.Rat { return new(big.Rat).SetFloat64(v) }
	for range repeats(400) {
		ty := pairs()[rng.IntN(len(pairs()))]
		m, n, k := rng.IntN(5), rng.IntN(5), rng.IntN(40)
		fill := func() float64 { return math.Ldexp(rng.Float64()*2-1, rng.IntN(8)) } // finite in every type
		alpha, beta := []float64{1, 0.1, -2}[rng.IntN(3)], []float64{0, 1, 0.3}[rng.IntN(3)]
		if ty.integer() {
			fill = func() float64 { return float64(int32(rng.Uint32())) }
			alpha, beta = []float64{1, math.MaxInt32, -2}[rng.IntN(3)], []float64{0, 1, -math.MaxInt32}[rng.IntN(3)]
		}
		p, buf := problem(t, rng, ty, m, n, k, alpha, beta, gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}, fill)
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
				whole := 0.0 // of integers, exactly
				for k := range k {
					x, y := ty.in.At(buf[gemm.A], p.A().Index(i, k)), ty.in.At(buf[gemm.B], p.B().Index(k, j))
					if whole += x * y; !p.Converts() {
						add(product(alpha, x, y))
					}
				}
				if p.Converts() {
					add(product(alpha, whole))
				}
				add(product(beta, ty.out.At(buf[gemm.C], p.C().Index(i, j))))
				switch p.Epilogue.Bias {
				case gemm.BiasRow:
					add(number(ty.out.At(buf[gemm.Bias], i)))
				case gemm.BiasCol:
					add(number(ty.out.At(buf[gemm.Bias], j)))
				}
				at := i*n + j
				if ty.integer() {
					wrapped := new(big.Int).And(sum.Num(), big.NewInt(math.MaxUint32)).Uint64()
					if got := r.Value[at]; got != float64(int32(uint32(wrapped))) {
						t.Fatalf("%v: integer (%d,%d) is %v, want %d", p, i, j, got, int32(uint32(wrapped)))
					}
					continue
				}
				got, tolerance := number(r.Value[at]), 0x1p-53
				if r.low != nil {
					got.Add(got, number(r.low[at]))
					tolerance = 0x1p-103
				}
				off := new(big.Rat).Abs(got.Sub(got, sum))
				if limit := new(big.Rat).Mul(abs, number(tolerance*float64(k+4))); off.Cmp(limit) > 0 {
					f, _ := off.Float64()
					t.Fatalf("%v: (%d,%d) is %g off", p, i, j, f)
				}
				want, _ := abs.Float64()
				if math.Abs(r.scale[at]-want) > 1e-12*want {
					t.Fatalf("%v: scale (%d,%d) is %v, want %v", p, i, j, r.scale[at], want)
				}
			}
		}
	}
}

// TestNonfinite: what is not finite propagates, zeros are not skipped, and what is
// not to be read is not.
func TestNonfinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name        string
		a, b, c     float64
		alpha, beta float64
		want        float64
	}{
		{"nan in A", nan, 1, 0, 1, 1, nan},
		{"zero times infinity", 0, inf, 0, 1, 0, nan},
		{"infinity", -2, inf, 0, 1, 1, -inf},
		{"infinities that cancel", 1, inf, -inf, 1, 1, nan},
		{"old C unread", 2, 3, nan, 1, 0, 6},
		{"A and B unread", nan, inf, 5, 0, 2, 10},
		{"nan scalar", 1, 1, 1, nan, 1, nan},
	} {
		for _, ty := range pairs() {
			if ty.integer() || !holds(ty.in, tc.a) || !holds(ty.in, tc.b) {
				continue
			}
			p := &gemm.Problem{M: 1, N: 1, K: 1, Layouts: gemm.Layouts{gemm.A: gemm.Dense(ty.in, 1, 1), gemm.B: gemm.Dense(ty.in, 1, 1), gemm.C: gemm.Dense(ty.out, 1, 1)}, Alpha: tc.alpha, Beta: tc.beta}
			cell := func(ty dtype.Type, v float64) []byte {
				b := make([]byte, ty.Size())
				ty.Set(b, 0, v)
				return b
			}
			r := Gemm(p, gemm.Buffers{gemm.A: cell(ty.in, tc.a), gemm.B: cell(ty.in, tc.b), gemm.C: cell(ty.out, tc.c)})
			if got := r.Value[0]; got != tc.want && (got == got || tc.want == tc.want) {
				t.Errorf("%s, %v: got %v, want %v", tc.name, ty, got, tc.want)
			}
			if err := r.Compare(cell(ty.out, tc.want), Accuracy{}).Err(); err != nil {
				t.Errorf("%s, %v: %v", tc.name, ty, err)
			}
			if err := r.Compare(cell(ty.out, 7), Accuracy{}).ElementErr(); err == nil {
				t.Errorf("%s, %v: a 7 passes for %v", tc.name, ty, tc.want)
			}
		}
	}
}
