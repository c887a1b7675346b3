package verify

import (
	"context"
	"errors"
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref/reftest"
	"tilework/internal/testkit/testrand"
)

// TestNonfinite checks that expected NaN and infinities pass, and that missing or misplaced ones
// are found.
func TestNonfinite(t *testing.T) {
	rng := testrand.New(t)
	bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
	for _, ty := range reftest.AllTypes() {
		if ty.Integer() {
			continue
		}
		for n := range reftest.Repeats(300) {
			p, buf := reftest.Problem(t, rng, ty, 2+rng.IntN(8), 2+rng.IntN(80), 1+rng.IntN(80),
				1, float64(n%2), gemm.Epilogue{Bias: gemm.BiasDim(n % 3)}, rng.NormFloat64)
			i, j, k := rng.IntN(p.M), rng.IntN(p.N), rng.IntN(p.K)
			v := bad[rng.IntN(3)]
			ti, tj := i, j // element that must not be finite
			where := []string{"A", "B", "C", "bias", ""}[n%5]
			if n%5 < 2 && ty.In.Info().Integer {
				where = "" // integers are finite
			}
			switch {
			case where == "A":
				p.In().Set(buf[gemm.A], p.A().Index(i, k), v)
			case where == "B":
				p.B().Type.Set(buf[gemm.B], p.B().Index(k, j), v)
			case where == "C" && p.Beta != 0:
				p.Out().Set(buf[gemm.C], p.C().Index(i, j), v)
			case where == "bias" && p.Epilogue.Bias == gemm.BiasRow:
				p.Out().Set(buf[gemm.Bias], i, v)
			case where == "bias" && p.Epilogue.Bias == gemm.BiasCol:
				p.Out().Set(buf[gemm.Bias], j, v)
			default:
				where, ti = "", -1
			}
			check := verifier(t, p, buf, rng.Uint64())
			c := reftest.Product(p, buf, p.K)
			if _, err := check.Check(context.Background(), c); err != nil {
				t.Fatalf("%v, %v in %s: false alarm: %v", p, v, where, err)
			}
			if ti >= 0 {
				lost := append([]byte(nil), c...)
				p.Out().Set(lost, p.C().Index(ti, tj), 0)
				if _, err := check.Check(context.Background(), lost); err == nil {
					t.Fatalf("%v, %v in %s: not missed in C(%d,%d)", p, v, where, ti, tj)
				}
				continue
			}
			p.Out().Set(c, p.C().Index(i, j), v)
			if _, err := check.Check(context.Background(), c); err == nil {
				t.Fatalf("%v: a stray %v in C(%d,%d) passes", p, v, i, j)
			}
		}
	}
}

// TestOverflow checks that true overflows of float16 pass.
func TestOverflow(t *testing.T) {
	rng := testrand.New(t)
	p, buf := reftest.Problem(t, rng, reftest.Types{In: dtype.F16, Out: dtype.F16}, 6, 40, 50, 1, 0, gemm.Epilogue{},
		func() float64 { return 100 * rng.NormFloat64() })
	for k := range p.K {
		p.In().Set(buf[gemm.A], p.A().Index(2, k), 5e4)
	}
	check := verifier(t, p, buf, rng.Uint64())
	c := reftest.Product(p, buf, p.K)
	report, err := check.Check(context.Background(), c)
	if err != nil || report.Unsummed == 0 {
		t.Errorf("%v (%v)", err, report)
	}
	for i := range p.N {
		p.Out().Set(c, p.C().Index(2, i), -p.Out().At(c, p.C().Index(2, i)))
	}
	if _, err := check.Check(context.Background(), c); err == nil {
		t.Error("infinities of the wrong sign pass")
	}
}

// TestOverflowOfSums checks results that overflow because of the bias or the old C, or because
// partial sums do.
func TestOverflowOfSums(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range []struct {
		typ   dtype.Type
		beta  float64
		bias  gemm.BiasDim
		added float64 // elements of the bias and of the old C
		a     float64
		b     []float64
	}{
		{dtype.F16, 0, gemm.BiasCol, 6e4, 100, []float64{50, 30, 20}},
		{dtype.F16, 1, gemm.BiasNone, 6e4, 100, []float64{50, 30, 20}},
		{dtype.F32, 0, gemm.BiasNone, 0, 1, []float64{3e38, 3e38, -3e38}},
	} {
		p, buf := reftest.Problem(t, rng, reftest.Types{In: c.typ, Out: c.typ}, 3, 4, 3, 1, c.beta,
			gemm.Epilogue{Bias: c.bias}, func() float64 { return c.added })
		for k, v := range c.b {
			for i := range p.M {
				c.typ.Set(buf[gemm.A], p.A().Index(i, k), c.a)
			}
			for j := range p.N {
				c.typ.Set(buf[gemm.B], p.B().Index(k, j), v)
			}
		}
		out := reftest.Product(p, buf, p.K)
		if v := c.typ.At(out, 0); !math.IsInf(v, 1) {
			t.Fatalf("%v: C(0,0) is %v, want an infinity", c.typ, v)
		}
		if _, err := verifier(t, p, buf, rng.Uint64()).Check(t.Context(), out); err != nil {
			t.Errorf("%v: %v", c.typ, err)
		}
	}
}

// TestNonfiniteFactors checks that products with an infinite or NaN factor pass, and that finite
// results do not.
func TestNonfiniteFactors(t *testing.T) {
	rng := testrand.New(t)
	ty := reftest.Types{In: dtype.F32, Out: dtype.F32}
	for _, f := range [][2]float64{{math.Inf(1), 0}, {math.NaN(), 1}, {1, math.Inf(-1)}, {0, math.NaN()}} {
		p, buf := reftest.Problem(t, rng, ty, 5, 7, 3, f[0], f[1], gemm.Epilogue{}, rng.NormFloat64)
		check := verifier(t, p, buf, rng.Uint64())
		if _, err := check.Check(t.Context(), reftest.Product(p, buf, p.K)); err != nil {
			t.Errorf("alpha and beta %v: %v", f, err)
		}
		if _, err := check.Check(t.Context(), make([]byte, len(buf[gemm.C]))); !errors.Is(err, gemm.ErrVerify) {
			t.Errorf("alpha and beta %v: zeros: error %v, want ErrVerify", f, err)
		}
	}
}

// TestFinishedSums checks that infinities and NaN of a kernel that multiplies partial sums by alpha
// are found where alpha times the finished sum has none, or another one. Right results pass.
func TestFinishedSums(t *testing.T) {
	rng := testrand.New(t)
	inf, nan := math.Inf(1), math.NaN()
	for _, tc := range []struct {
		ty               dtype.Type
		k                int
		alpha, beta, old float64
		want             float64
		wrong            []float64
	}{
		{dtype.F64, 1200, 4e305, 0, 0, 1.2e308, []float64{inf, -inf, nan}},
		{dtype.F64, 1200, 4e305, 1, 2e307, 1.4e308, []float64{inf, -inf, nan}},
		{dtype.F64, 1200, 4e305, 1, -9e307, 3e307, []float64{inf, -inf, nan}},
		{dtype.F64, 1200, 4e305, 1, 9e307, inf, []float64{-inf, nan}},
		{dtype.F64, 1200, 7e305, -1, 1e308, inf, []float64{-inf, nan}}, // alpha times the sum overflows
		{dtype.F32, 2400, 4e35, 0, 0, 2.4e38, []float64{inf, nan}},
		{dtype.F32, 2400, 4e35, -1, 1e38, 1.4e38, []float64{inf, nan}},
		{dtype.F64, 1200, inf, 0, 0, inf, []float64{-inf, nan}},
		{dtype.F32, 1200, -inf, 1, 1, -inf, []float64{inf, nan}},
		{dtype.F32, 1200, 1e-300, 0, 0, 0, []float64{inf, nan}},
		{dtype.F32, 1200, 1, 1, inf, inf, []float64{-inf, nan}},
	} {
		types := reftest.Types{In: tc.ty, Out: tc.ty}
		p, buf := reftest.Problem(t, rng, types, 7, 5, tc.k, tc.alpha, tc.beta, gemm.Epilogue{},
			func() float64 { return 1 })
		for i := range p.M {
			for k := p.K / 2; k < p.K; k++ {
				tc.ty.Set(buf[gemm.A], p.A().Index(i, k), -0.5)
			}
			for j := range p.N {
				tc.ty.Set(buf[gemm.C], p.C().Index(i, j), tc.old)
			}
		}
		check := verifier(t, p, buf, rng.Uint64())
		c := append([]byte(nil), buf[gemm.C]...)
		for i := range p.M {
			for j := range p.N {
				tc.ty.Set(c, p.C().Index(i, j), tc.want)
			}
		}
		if _, err := check.Check(t.Context(), c); err != nil {
			t.Errorf("%v: false alarm: %v", p, err)
		}
		for _, wrong := range tc.wrong {
			at := p.C().Index(rng.IntN(p.M), rng.IntN(p.N))
			tc.ty.Set(c, at, wrong)
			if _, err := check.Check(t.Context(), c); !errors.Is(err, gemm.ErrVerify) {
				t.Errorf("%v with alpha %g: %v for %v: error %v, want ErrVerify", p, tc.alpha, wrong, tc.want, err)
			}
			tc.ty.Set(c, at, tc.want)
		}
	}
}

// TestNonfiniteClasses checks that a NaN for an infinity, the other infinity, and a second stray
// element in a row or column that must not be finite are found.
func TestNonfiniteClasses(t *testing.T) {
	rng := testrand.New(t)
	inf, nan := math.Inf(1), math.NaN()
	for n := range reftest.Repeats(100) {
		ty := []dtype.Type{dtype.F16, dtype.BF16, dtype.F32, dtype.F64}[n%4]
		p, buf := reftest.Problem(t, rng, reftest.Types{In: ty, Out: ty}, 3+rng.IntN(8), 3+rng.IntN(40), 1+rng.IntN(40), 1,
			float64(n/4%2), gemm.Epilogue{}, rng.NormFloat64)
		i, j, k := rng.IntN(p.M), rng.IntN(p.N), rng.IntN(p.K)
		switch v := []float64{inf, -inf}[rng.IntN(2)]; n / 8 % 3 {
		case 0:
			ty.Set(buf[gemm.A], p.A().Index(i, k), v)
		case 1:
			ty.Set(buf[gemm.B], p.B().Index(k, j), v)
		default:
			ty.Set(buf[gemm.C], p.C().Index(i, j), v)
		}
		check := verifier(t, p, buf, rng.Uint64())
		c := reftest.Product(p, buf, p.K)
		if _, err := check.Check(t.Context(), c); err != nil {
			t.Fatalf("%v: false alarm: %v", p, err)
		}
		for x := range p.M {
			for y := range p.N {
				at := p.C().Index(x, y)
				right := ty.At(c, at)
				for _, wrong := range []float64{nan, inf, -inf} {
					if right == wrong || right != right && wrong != wrong {
						continue
					}
					ty.Set(c, at, wrong)
					if _, err := check.Check(t.Context(), c); !errors.Is(err, gemm.ErrVerify) {
						t.Fatalf("%v: C(%d,%d) is %v for %v: error %v, want ErrVerify", p, x, y, wrong, right, err)
					}
				}
				ty.Set(c, at, right)
			}
		}
	}
}

// TestExplained checks long sums of equal terms, whose rounding errors do not cancel. They exceed
// the threshold for typical data.
func TestExplained(t *testing.T) {
	rng := testrand.New(t)
	p, buf := reftest.Problem(t, rng, reftest.Types{In: dtype.F32, Out: dtype.F32}, 2, 8, 20_000, 1, 0, gemm.Epilogue{},
		func() float64 { return 1.0 / 3 })
	v := verifier(t, p, buf, rng.Uint64())
	c := reftest.Product(p, buf, p.K)
	report, err := v.Check(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	f := v.checker.(*freivalds[float64])
	if typical := f.threshold.of(f.terms[0], 0); report.Residual < typical {
		t.Errorf("residual %g is below the threshold for typical data, %g", report.Residual, typical)
	}
	at := p.C().Index(1, 3)
	dtype.View[float32](c)[at] *= 1.05
	if _, err := v.Check(t.Context(), c); !errors.Is(err, gemm.ErrVerify) {
		t.Errorf("an element that is 5 %% larger: error %v, want ErrVerify", err)
	}
}
