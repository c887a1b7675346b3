package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// TestSampled checks that the result of a simple kernel passes for every type, transpose, scalar
// and epilogue, and that an element with twice the allowed error fails.
func TestSampled(t *testing.T) {
	rng := testrand.New(t)
	worst := map[dtype.Type]float64{}
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			for range 60 {
				p := randomProblem(t, rng, in, out)
				data := newOperands(&Case{Problem: p}, rng.Uint64())
				// From a few sampled rows up to all.
				n := 1 + rng.IntN(12)
				check, err := Sampled(n, rng.Uint64())(t.Context(), &p, data.Buffers)
				if err != nil {
					t.Fatal(err)
				}
				got := data.Buffers
				got[gemm.C] = slices.Clone(data.Buffers[gemm.C])
				multiply(&p, got)
				ratio, err := check(got[gemm.C], 0)
				if err != nil || !(ratio <= 1) {
					t.Fatalf("%v, α %v, β %v, %+v: ratio %v, error %v", &p, real(p.Alpha), real(p.Beta), p.Epilogue, ratio, err)
				}
				worst[in] = max(worst[in], ratio)

				if n < max(p.M, p.N) {
					continue
				}
				i, j := rng.IntN(p.M), rng.IntN(p.N)
				before := data.Buffers
				a := factor{Layout: p.Layouts[gemm.A], data: before[gemm.A]}
				rows := rowSums(t.Context(), &p, a, factor{Layout: p.B().T(), data: before[gemm.B]}, []int{i})
				other := make([]sum, p.N)
				if p.Epilogue.Gated {
					other = rowSums(t.Context(), &p, a, factor{Layout: p.Layouts[gemm.Up].T(), data: before[gemm.Up]}, []int{i})
				}
				e := expect(&p, before, i, j, rows[j], other[j])
				if e.overflows() {
					continue
				}
				shift := 2*e.bound + 2*out.Info().Roundoff*math.Abs(e.want)
				if out.Info().Integer {
					shift = 1
				}
				out.Set(got[gemm.C], e.index, e.want+shift)
				if ratio, _ := check(got[gemm.C], 0); ratio <= 1 {
					t.Fatalf("%v: C[%d,%d] = %v instead of %v ± %v passes with ratio %v", &p, i, j, e.want+shift, e.want, e.bound,
						ratio)
				}
			}
		}
	}
	t.Logf("largest error ratios: %v", worst)
}

func randomProblem(t *testing.T, rng *rand.Rand, in, out dtype.Type) gemm.Problem {
	layout := func(rows, cols int) gemm.Layout {
		l := gemm.Dense(in, rows, cols)
		if rng.IntN(2) == 1 {
			l = gemm.Dense(in, cols, rows).T()
		}
		l.LD += rng.IntN(3)
		return l
	}
	e := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3)), Activation: gemm.Activation(rng.IntN(len(gemm.Activations())))}
	if out.Info().Integer && !e.Activation.Info().Integer {
		e.Activation = gemm.ActReLU
	}
	scalar := []complex128{0, 1, -1, 2}
	beta := scalar[rng.IntN(4)]
	if e.Gated = !out.Info().Integer && in != dtype.U8 && rng.IntN(4) == 0; e.Gated {
		e.Bias, beta = gemm.BiasNone, 0
	}
	m, n, k := 1+rng.IntN(10), 1+rng.IntN(10), 1+rng.IntN(40)
	c := gemm.Dense(out, m, n)
	c.LD += rng.IntN(3)
	p, _, err := gemm.New(scalar[rng.IntN(4)], layout(m, k), layout(k, n), beta, c, e)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSumsAreExact adds terms that cancel beyond the precision of float64.
func TestSumsAreExact(t *testing.T) {
	var s sum
	for _, f := range [][2]float64{{1e100, 1}, {1, 1}, {-1e100, 1}, {1 + 0x1p-30, 1 + 0x1p-30}, {-1, 1}} {
		s.add(f[0], f[1])
	}
	if got, want := s.hi+s.lo, 1+0x1p-29+0x1p-60; math.Abs(got-want) > 0x1p-52 {
		t.Errorf("got sum %v, want %v", got, want)
	}
}

// TestBound compares the bound of Sampled with one computed by hand: for 61 products of 1·1, γ(64)
// = 64·2⁻²⁴/(1 − 64·2⁻²⁴).
func TestBound(t *testing.T) {
	for _, c := range []struct {
		name        string
		alpha, beta complex128
		e           gemm.Epilogue
		want, bound float64
	}{
		{"plain", 1, 0, gemm.Epilogue{}, 61, 61*0x1p-18/(1-0x1p-18) + 61*0x1p-24},
		{"α and β", -2, 4, gemm.Epilogue{}, -118, 126*0x1p-18/(1-0x1p-18) + 118*0x1p-24},
		{"bias", 1, 0, gemm.Epilogue{Bias: gemm.BiasCol}, 62, 62*0x1p-18/(1-0x1p-18) + 62*0x1p-24},
		{"no products", 0, 0, gemm.Epilogue{}, 0, 64*0x1p-149 + 0x1p-149},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, err := gemm.New(c.alpha, gemm.Dense(dtype.F32, 1, 61), gemm.Dense(dtype.F32, 61, 1), c.beta,
				gemm.Dense(dtype.F32, 1, 1), c.e)
			if err != nil {
				t.Fatal(err)
			}
			ones := func(n int) []byte {
				b := make([]float32, n)
				for i := range b {
					b[i] = 1
				}
				return dtype.Bytes(b)
			}
			check, err := Sampled(1, 0)(t.Context(), &p, gemm.Buffers{gemm.A: ones(61), gemm.B: ones(61), gemm.C: ones(1),
				gemm.Bias: ones(1)})
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4)
			shift := math.Max(math.Abs(c.want)*0x1p-20, 0x1p-140)
			dtype.F32.Set(got, 0, c.want+shift)
			shift = dtype.F32.At(got, 0) - c.want // rounded to float32
			if ratio, _ := check(got, 0); math.Abs(ratio-shift/c.bound) > 1e-6*ratio {
				t.Errorf("error %v: got ratio %v, want %v", shift, ratio, shift/c.bound)
			}
		})
	}
}

// TestRoundedOperands checks that the rounding of A and B by a subject increases the bound by the
// right amount.
func TestRoundedOperands(t *testing.T) {
	p, err := (&Sample{Shape: Shape{5, 6, 7}}).Problem(dtype.F32, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	data := newOperands(&Case{Problem: p}, 1)
	check, err := Sampled(10, 1)(t.Context(), &p, data.Buffers)
	if err != nil {
		t.Fatal(err)
	}
	const u = 0x1p-10
	for i, m := range [][]byte{data.Buffers[gemm.A], data.Buffers[gemm.B]} { // A is rounded up by u, B is exact
		for j := range len(m) / 4 {
			v := dtype.F32.At(m, j)
			dtype.F32.Set(m, j, v*(1+float64(1-i)*u))
		}
	}
	multiply(&p, data.Buffers)
	if ratio, err := check(data.Buffers[gemm.C], u); err != nil || ratio > 1 || ratio < 0.01 {
		t.Errorf("operands within the bound: got ratio %v, error %v", ratio, err)
	}
	if ratio, _ := check(data.Buffers[gemm.C], u/8); ratio <= 1 {
		t.Errorf("operands off by 8 times their bound pass with ratio %v", ratio)
	}
	if ratio, _ := check(data.Buffers[gemm.C], 0); ratio <= 1 {
		t.Errorf("rounded operands pass with ratio %v and a roundoff of 0", ratio)
	}
}

// TestUnwritten checks that a NaN in any element is found.
func TestUnwritten(t *testing.T) {
	p, err := (&Sample{Shape: Cube(30)}).Problem(dtype.F32, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	data := newOperands(&Case{Problem: p}, 1)
	check, err := Sampled(1, 1)(t.Context(), &p, data.Buffers)
	if err != nil {
		t.Fatal(err)
	}
	b := data.Buffers
	if !hasNaN(p.Layouts[gemm.C], b[gemm.C]) {
		t.Fatal("the initial C has no NaN")
	}
	multiply(&p, b)
	good := slices.Clone(b[gemm.C])
	for at := range p.M * p.N {
		copy(b[gemm.C], good)
		dtype.F32.Set(b[gemm.C], at, math.NaN())
		if ratio, err := check(b[gemm.C], 0); err != nil || ratio <= 1 {
			t.Fatalf("element %d: ratio %v, error %v", at, ratio, err)
		}
	}
}

// TestVerifierStops checks that a cancelled verifier adds no products and returns the error of its
// context.
func TestVerifierStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, transB := range []bool{false, true} {
		p, err := (&Sample{Shape: Shape{5, 6, 7}, TransB: transB}).Problem(dtype.F32, dtype.F32)
		if err != nil {
			t.Fatal(err)
		}
		data := newOperands(&Case{Problem: p}, 1)
		a := factor{Layout: p.Layouts[gemm.A], data: data.Buffers[gemm.A]}
		b := factor{Layout: p.B().T(), data: data.Buffers[gemm.B]}
		for i, s := range rowSums(ctx, &p, a, b, []int{0, 4}) {
			if s != (sum{}) {
				t.Errorf("%v: sum %d is %v", &p, i, s)
			}
		}
		if _, err := defaultVerifier(1)(ctx, &p, data.Buffers); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: got error %v, want %v", &p, err, context.Canceled)
		}
	}
}

// TestDefaultVerifier checks that an error in any element of a small product is found.
func TestDefaultVerifier(t *testing.T) {
	p, err := (&Sample{Shape: Shape{23, 31, 5}}).Problem(dtype.F32, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	data := newOperands(&Case{Problem: p}, 1)
	check, err := defaultVerifier(1)(t.Context(), &p, data.Buffers)
	if err != nil {
		t.Fatal(err)
	}
	multiply(&p, data.Buffers)
	if ratio, err := check(data.Buffers[gemm.C], 0); err != nil || !(ratio <= 1) {
		t.Fatalf("ratio %v, error %v", ratio, err)
	}
	for i := range p.M * p.N {
		right := dtype.F32.At(data.Buffers[gemm.C], i)
		dtype.F32.Set(data.Buffers[gemm.C], i, right+1e-3)
		if ratio, _ := check(data.Buffers[gemm.C], 0); ratio <= 1 {
			t.Errorf("element %d is wrong and passes with ratio %v", i, ratio)
		}
		dtype.F32.Set(data.Buffers[gemm.C], i, right)
	}
}

// TestBatches checks that batchVerifier verifies four products of a batch and all rows of groups,
// and finds NaN in every product.
func TestBatches(t *testing.T) {
	one, err := (&Sample{Shape: Cube(6)}).Problem(dtype.F32, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	p, err := one.Strided(9, gemm.Batch{Stride: gemm.Strides{gemm.A: 36, gemm.B: 36, gemm.C: 40}})
	if err != nil {
		t.Fatal(err)
	}
	grouped, err := one.Grouped(2, 36)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Case{{Problem: p}, {Problem: grouped, Groups: []int{2, 4}}} {
		data := newOperands(&c, 1)
		check, err := batchVerifier(defaultVerifier(1), 1)(t.Context(), &c.Problem, data.Buffers)
		if err != nil {
			t.Fatal(err)
		}
		if ratio, err := check(data.Buffers[gemm.C], 0); err != nil || !math.IsNaN(ratio) {
			t.Errorf("%v: an unwritten C has ratio %v, error %v", &c.Problem, ratio, err)
		}
		for n := range c.Problem.Products() {
			product, at := c.Problem.Product(n)
			if c.Problem.Batch.Kind == gemm.Grouped {
				at = [3]int{}
			}
			multiply(&product, gemm.Buffers{gemm.A: data.Buffers[gemm.A][at[0]:], gemm.B: data.Buffers[gemm.B][at[1]:],
				gemm.C: data.Buffers[gemm.C][at[2]:]})
		}
		if ratio, err := check(data.Buffers[gemm.C], 0); err != nil || !(ratio <= 1) {
			t.Fatalf("%v: ratio %v, error %v", &c.Problem, ratio, err)
		}
		found := 0
		for n := range c.Problem.Products() {
			_, at := c.Problem.Product(n)
			right := dtype.F32.At(data.Buffers[gemm.C][at[2]:], 0)
			dtype.F32.Set(data.Buffers[gemm.C][at[2]:], 0, right+1e-2)
			if ratio, _ := check(data.Buffers[gemm.C], 0); ratio > 1 {
				found++
			}
			dtype.F32.Set(data.Buffers[gemm.C][at[2]:], 0, math.NaN())
			if ratio, _ := check(data.Buffers[gemm.C], 0); ratio <= 1 {
				t.Errorf("%v: a NaN in product %d passes", &c.Problem, n)
			}
			dtype.F32.Set(data.Buffers[gemm.C][at[2]:], 0, right)
		}
		if want := min(c.Problem.Products(), 4); found != want {
			t.Errorf("%v: %d products were verified, want %d", &c.Problem, found, want)
		}
		if want := []int32{2, 6}; c.Groups != nil && !slices.Equal(dtype.View[int32](data.Buffers[gemm.GroupEnds]), want) {
			t.Errorf("got group ends %v, want %v", dtype.View[int32](data.Buffers[gemm.GroupEnds]), want)
		}
	}
}
