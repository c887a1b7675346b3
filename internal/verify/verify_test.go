package verify

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref"
	"tilework/internal/ref/reftest"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

func verifier(t *testing.T, p *gemm.Problem, buf gemm.Buffers, seed uint64) *Verifier {
	t.Helper()
	v, err := New(context.Background(), p, buf, Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// arithmetics lists the arithmetic that kernels declare, with the types of their operands.
var arithmetics = []struct {
	name string
	acc  gemm.Accuracy // the zero value rounds to nearest
	in   []dtype.Type
}{
	{"nearest", gemm.Accuracy{}, dtype.All()},
	{"mma", gemm.Accuracy{Roundoff: 0x1p-23, Truncates: true, Terms: 16, Bits: 25},
		[]dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2}},
	{"wgmma tf32", gemm.Accuracy{Roundoff: 0x1p-22, Operand: 0x1p-11, Truncates: true, Terms: 8, Bits: 25},
		[]dtype.Type{dtype.F32}},
	{"wgmma", gemm.Accuracy{Roundoff: 0x1p-13, Truncates: true, Terms: 32, Bits: 13, Chunk: 128},
		[]dtype.Type{dtype.F8E4M3, dtype.F8E5M2}},
	{"wgmma fast", gemm.Accuracy{Roundoff: 0x1p-13, Truncates: true, Terms: 32, Bits: 13},
		[]dtype.Type{dtype.F8E4M3, dtype.F8E5M2}},
}

// kernelProduct computes the new C in the given arithmetic, in a random order.
func kernelProduct(rng *rand.Rand, p *gemm.Problem, buf gemm.Buffers, acc gemm.Accuracy) []byte {
	if !acc.Truncates {
		return reftest.Product(p, buf, []int{1, 16, 1000}[rng.IntN(3)])
	}
	c := append([]byte(nil), buf[gemm.C]...)
	a, b := make([]float64, p.K), make([]float64, p.K)
	for i := range p.M {
		for j := range p.N {
			for k := range p.K {
				a[k], b[k] = p.In().At(buf[gemm.A], p.A().Index(i, k)), p.B().Type.At(buf[gemm.B], p.B().Index(k, j))
			}
			at := p.C().Index(i, j)
			sum := float32(real(p.Alpha)) * float32(KernelSums(acc, dtype.F32, a, b)[0])
			if p.Beta != 0 {
				sum += float32(real(p.Beta)) * float32(p.Out().At(buf[gemm.C], at))
			}
			if bias := p.Epilogue.Bias; bias == gemm.BiasRow {
				sum += float32(p.Out().At(buf[gemm.Bias], i))
			} else if bias == gemm.BiasCol {
				sum += float32(p.Out().At(buf[gemm.Bias], j))
			}
			p.Out().Set(c, at, float64(sum))
		}
	}
	return c
}

// fills returns distributions of elements by name, including those that are difficult to verify.
func fills(rng *rand.Rand) map[string]func() float64 {
	all := reftest.Distributions(rng)
	var constant float64
	left := 0
	all["constant"] = func() float64 {
		if left--; left < 0 {
			constant, left = rng.Float64(), 1<<14
		}
		return constant
	}
	all["outliers"] = func() float64 {
		x := rng.NormFloat64()
		if rng.IntN(100) == 0 {
			x *= 30
		}
		return x
	}
	all["sparse"] = func() float64 {
		if rng.IntN(20) > 0 {
			return 0
		}
		return rng.NormFloat64()
	}
	all["powers of two"] = func() float64 { return math.Ldexp(float64(1-2*rng.IntN(2)), rng.IntN(10)-7) }
	all["skewed"] = func() float64 { // a mean of 0, and most of one sign
		if rng.IntN(10) == 0 {
			return 0.9 * (0.5 + rng.Float64())
		}
		return -0.1 * (0.5 + rng.Float64())
	}
	all["blocks"] = rng.Float64 // see flip
	return all
}

// flip negates every second block of columns of op(A), so that partial sums grow and cancel.
func flip(p *gemm.Problem, buf gemm.Buffers, block int) {
	for i := range p.M {
		for k := range p.K {
			if at := p.A().Index(i, k); k/block%2 == 1 {
				p.In().Set(buf[gemm.A], at, -p.In().At(buf[gemm.A], at))
			}
		}
	}
}

// TestNoFalseAlarm checks correct products of random data in all types and in the arithmetic of all
// kernels. None is found wrong. The threshold may be too coarse to be accepted only for 8-bit
// floats that are summed in 14 bits.
func TestNoFalseAlarm(t *testing.T) {
	rng := testrand.New(t)
	products := 0
	for name, fill := range fills(rng) {
		worst, coarse := 0.0, 0
		for _, how := range arithmetics {
			for _, ty := range reftest.AllTypes() {
				fill, acc := fill, how.acc
				if !slices.Contains(how.in, ty.In) {
					continue
				}
				if ty.Integer() {
					fill = func() float64 { return float64(int32(rng.Uint32())) }
				}
				for n := range reftest.Repeats(testkit.Cases(10, 25)) {
					m, n, k := rng.IntN(9), rng.IntN(70), rng.IntN(150*(1+n%2))
					if rng.IntN(10) == 0 {
						m, n, k = rng.IntN(3), rng.IntN(300), rng.IntN(300)
					}
					p, buf := reftest.Problem(t, rng, ty, m, n, k, []float64{1, -2, 3}[rng.IntN(3)], []float64{0, 1, -1}[rng.IntN(3)],
						gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}, fill)
					if name == "blocks" && !ty.Integer() {
						flip(p, buf, 1<<rng.IntN(8))
					}
					v, err := New(t.Context(), p, buf, Options{Seed: rng.Uint64(), Accuracy: acc, Within: math.Inf(1)})
					if err != nil {
						t.Fatal(err)
					}
					report, err := v.Check(t.Context(), kernelProduct(rng, p, buf, acc))
					if err != nil || report.Unsummed > 0 && ty.Out.Info().Max > 1<<16 {
						t.Fatalf("%s, %s, %v: %v (%v)", name, how.name, p, err, report)
					}
					if report.err(accepted(p, 0), 1) != nil {
						if coarse++; acc.Roundoff < 0x1p-13 {
							t.Fatalf("%s, %s, %v: %v", name, how.name, p, report)
						}
					}
					worst = max(worst, report.Worst)
					products++
				}
			}
		}
		t.Logf("%s: the worst of the clean products came to %.2f of its threshold; %d thresholds were too coarse",
			name, worst, coarse)
	}
	t.Logf("%d products, no alarm", products)
}

// TestTiny checks correct products of elements so small that results or the squares of norms
// underflow.
func TestTiny(t *testing.T) {
	rng := testrand.New(t)
	for _, ty := range reftest.AllTypes() {
		if ty.In.Info().Integer {
			continue
		}
		_, out := math.Frexp(ty.Out.Info().Tiny)
		_, in := math.Frexp(ty.In.Info().Tiny)
		for range 20 {
			scale := math.Ldexp(1, max(out/(2+rng.IntN(2))+rng.IntN(4), in+2))
			p, buf := reftest.Problem(t, rng, ty, 1+rng.IntN(9), 1+rng.IntN(90), 1+rng.IntN(9), 1, float64(rng.IntN(2)),
				gemm.Epilogue{}, func() float64 { return scale * rng.NormFloat64() })
			if _, err := verifier(t, p, buf, rng.Uint64()).Check(t.Context(), reftest.Product(p, buf, p.K)); err != nil {
				t.Fatalf("%v, elements of about %.3g: %v", p, scale, err)
			}
		}
	}
}

// TestDraw checks that the elements of long vectors are ±1, and that neither whole words of signs
// nor vectors repeat. Each place in a word has both signs.
func TestDraw(t *testing.T) {
	const size = 64 * 50
	seen, negative := map[uint64]bool{}, [64]int{}
	for _, x := range draw[float64](1, size).rows() {
		for from := 0; from < size; from += 64 {
			signs := uint64(0)
			for j, v := range x[from : from+64] {
				if math.Abs(v) != 1 {
					t.Fatalf("element %d is %v, want ±1", from+j, v)
				}
				if v < 0 {
					signs |= 1 << j
					negative[j]++
				}
			}
			if n := bits.OnesCount64(signs); n < 8 || n > 56 || seen[signs] {
				t.Fatalf("elements %d to %d have %d negative signs, repeated: %v", from, from+63, n, seen[signs])
			}
			seen[signs] = true
		}
	}
	for j, n := range negative {
		if n < 50 || n > 150 {
			t.Errorf("%d of 200 elements at %d modulo 64 are negative", n, j)
		}
	}
}

// TestFindsChanges changes one element by more than its row's threshold plus the residual of the
// correct product. The vectors are of ±1, so the residual changes by the whole amount, and each
// change is found.
func TestFindsChanges(t *testing.T) {
	rng := testrand.New(t)
	found := 0
	for _, ty := range reftest.AllTypes() {
		integer := ty.Integer()
		for n := range reftest.Repeats(testkit.Cases(80, 200)) {
			fill := func() float64 { return float64(int32(rng.Uint32())) }
			if !integer {
				fill = func() float64 { return rng.Float64()*2 - 1 }
			}
			p, buf := reftest.Problem(t, rng, ty, 1+rng.IntN(20), 1+rng.IntN(90), 1+rng.IntN(90),
				2, float64(n%2), gemm.Epilogue{}, fill)
			v := verifier(t, p, buf, rng.Uint64())
			c := reftest.Product(p, buf, p.K)
			clean, err := v.Check(context.Background(), c)
			if err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			i, j := rng.IntN(p.M), rng.IntN(p.N)
			at := p.C().Index(i, j)
			was := p.Out().At(c, at)
			switch {
			case integer:
				dtype.View[int32](c)[at] ^= 1 << rng.IntN(32)
			default:
				squares := 0.0
				for j := range p.N {
					x := p.Out().At(c, p.C().Index(i, j))
					squares += x * x
				}
				f := v.checker.(*freivalds[float64])
				limit := f.threshold.of(f.terms[i], math.Sqrt(squares))
				if explained, err := f.explained(t.Context(), i, operand{p.Layouts[gemm.C], c}); err != nil {
					t.Fatal(err)
				} else {
					limit = max(limit, explained)
				}
				// The change of the stored element counts. The threshold grows with the row, for
				// which a twentieth is added.
				least := limit * (1.05 + clean.Worst) / (1 - f.threshold.OfNorm)
				change := math.Copysign(least*(1+2*rng.Float64()*rng.Float64()), rng.Float64()-0.5)
				for now := was; math.Abs(now-was) < least; change *= 1.5 {
					p.Out().Set(c, at, was+change)
					now = p.Out().At(c, at)
				}
			}
			report, err := v.Check(context.Background(), c)
			if !errors.Is(err, gemm.ErrVerify) || report.Row != i {
				t.Fatalf("%v: C(%d,%d) changed from %v to %v: %v (%v)", p, i, j, was, p.Out().At(c, at), err, report)
			}
			found++
		}
	}
	t.Logf("%d changes, all found", found)
}

// TestSensitivity compares the threshold with the worst-case bound.
func TestSensitivity(t *testing.T) {
	rng := testrand.New(t)
	const k = 2000
	p, buf := reftest.Problem(t, rng, reftest.Types{In: dtype.F32, Out: dtype.F32}, 4, 1000, k,
		1, 0, gemm.Epilogue{}, rng.NormFloat64)
	report, err := verifier(t, p, buf, 1).Check(context.Background(), reftest.Product(p, buf, k))
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	r := ref.Gemm(p, buf)
	for j := range p.N {
		worst += r.Bound(report.Row, j, gemm.AccuracyOf(p))
	}
	if worst < 100*report.Threshold {
		t.Errorf("threshold %.3g is not far below the worst case's %.3g", report.Threshold, worst)
	}
}

// TestTopBits adds 2^31 to two elements of a row, which vectors of ±1 alone cannot detect.
func TestTopBits(t *testing.T) {
	rng := testrand.New(t)
	found := 0
	for range 64 {
		p, buf := reftest.Problem(t, rng, reftest.Types{In: dtype.I8, Out: dtype.I32}, 3, 5, 4, 1, 0, gemm.Epilogue{},
			func() float64 { return float64(rng.IntN(256) - 128) })
		v := verifier(t, p, buf, rng.Uint64())
		c := reftest.Product(p, buf, p.K)
		dtype.View[int32](c)[p.C().Index(1, 2)] ^= math.MinInt32
		dtype.View[int32](c)[p.C().Index(1, 3)] ^= math.MinInt32
		if _, err := v.Check(context.Background(), c); err != nil {
			found++
		}
	}
	if found < 40 { // 7 of 8 are expected
		t.Errorf("%d of 64 found", found)
	}
}

// TestRefuses checks the errors of New and Check.
func TestRefuses(t *testing.T) {
	rng := testrand.New(t)
	p, buf := reftest.Problem(t, rng, reftest.Types{In: dtype.F32, Out: dtype.F32}, 3, 4, 5,
		1, 1, gemm.Epilogue{}, rng.NormFloat64)
	relu := *p
	relu.Epilogue.Activation = gemm.ActReLU
	short := buf
	short[gemm.B] = buf[gemm.B][:8]
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		p    *gemm.Problem
		buf  gemm.Buffers
		want error
	}{
		{"activation", context.Background(), &relu, buf, gemm.ErrUnsupported},
		{"short buffer", context.Background(), p, short, gemm.ErrShape},
		{"cancelled", cancelled, p, buf, context.Canceled},
	} {
		if _, err := New(tc.ctx, tc.p, tc.buf, Options{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	v := verifier(t, p, buf, 1)
	if _, err := v.Check(cancelled, buf[gemm.C]); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled check: %v", err)
	}
	if _, err := v.Check(context.Background(), buf[gemm.C][:4]); !errors.Is(err, gemm.ErrShape) {
		t.Errorf("short C: %v", err)
	}
}

// TestNothing checks that results without elements pass, and take no memory for their rows.
func TestNothing(t *testing.T) {
	const many = math.MaxInt / 8
	for _, out := range []dtype.Type{dtype.F32, dtype.I32} {
		in := out
		if in == dtype.I32 {
			in = dtype.I8
		}
		for _, s := range [][3]int{{many, 0, 0}, {0, many, 0}, {0, 0, many}} {
			p, _, err := gemm.New(1, gemm.Dense(in, s[0], s[2]), gemm.Dense(in, s[2], s[1]),
				2, gemm.Dense(out, s[0], s[1]), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			v, err := New(t.Context(), &p, gemm.Buffers{}, Options{Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := v.Check(t.Context(), nil); err != nil || r.Seed != 5 || r.Worst != 0 {
				t.Errorf("%v: %v, %v", &p, r, err)
			}
		}
	}
}

// TestZeroPoints checks products of int8 and uint8 with zero points of any size: a correct one
// passes, and one with another zero point or a single wrong element does not.
func TestZeroPoints(t *testing.T) {
	rng := testrand.New(t)
	s, u := dtype.I8, dtype.U8
	for _, in := range [][2]dtype.Type{{s, s}, {u, s}, {s, u}, {u, u}} {
		p, _, err := gemm.New(3, gemm.Dense(in[0], 9, 40), gemm.Dense(in[1], 7, 40).T(), 2, gemm.Dense(dtype.I32, 9, 7),
			gemm.Epilogue{RowZero: true, ColZero: true, Bias: gemm.BiasCol})
		if err != nil {
			t.Fatal(err)
		}
		buf := testkit.Filled(rng, &p)
		for _, o := range []gemm.Operand{gemm.A, gemm.B, gemm.RowZero, gemm.ColZero} {
			for i := range buf[o] {
				buf[o][i] = byte(rng.Uint32())
			}
		}
		v, err := New(t.Context(), &p, buf, Options{Seed: rng.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		product := func() []byte {
			c := make([]byte, p.C().Bytes())
			p.Out().Store(c, ref.Values(&p, buf).Value)
			return c
		}
		right := product()
		if _, err := v.Check(t.Context(), right); err != nil {
			t.Errorf("%v: %v", &p, err)
		}
		wrong := slices.Clone(right)
		wrong[rng.IntN(len(wrong))] ^= 1
		if _, err := v.Check(t.Context(), wrong); !errors.Is(err, gemm.ErrVerify) {
			t.Errorf("%v with a wrong element: error %v, want ErrVerify", &p, err)
		}
		zeros := dtype.View[int32](buf[[]gemm.Operand{gemm.RowZero, gemm.ColZero}[rng.IntN(2)]])
		zeros[rng.IntN(len(zeros))]++
		if _, err := v.Check(t.Context(), product()); !errors.Is(err, gemm.ErrVerify) {
			t.Errorf("%v with another zero point: error %v, want ErrVerify", &p, err)
		}
	}
}
