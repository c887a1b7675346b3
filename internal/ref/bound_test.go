package ref

import (
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref/reftest"
	"tilework/internal/testkit/testrand"
)

// TestCorrectProductsPass compares correct products, summed sequentially or in blocks, and requires
// the lower RMS from which maxRMS was derived.
func TestCorrectProductsPass(t *testing.T) {
	rng := testrand.New(t)
	for name, fill := range reftest.Distributions(rng) {
		for _, ty := range reftest.AllTypes() {
			if ty.Integer() {
				continue
			}
			for range reftest.Repeats(25) {
				m, n, k := 1+rng.IntN(8), 1+rng.IntN(8), rng.IntN(300)
				e := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3)), Activation: gemm.Activation(rng.IntN(len(gemm.Activations())))}
				alpha, beta := []float64{1, 0.1, -1.7}[rng.IntN(3)], []float64{0, 1, 0.3}[rng.IntN(3)]
				p, buf := reftest.Problem(t, rng, ty, m, n, k, alpha, beta, e, fill)
				block := []int{1, 8, 1000}[rng.IntN(3)]
				c := Gemm(p, buf).Compare(reftest.Product(p, buf, block), gemm.Accuracy{})
				if err := c.Err(); err != nil {
					t.Errorf("%s %v %v in blocks of %d: %v", name, p, e, block, err)
				}
				if limit := 0.75 + 1.2/math.Sqrt(float64(m*n)); c.RMS > limit {
					t.Errorf("%s %v %v in blocks of %d: RMS is %.3g: want at most %.3g", name, p, e, block, c.RMS, limit)
				}
			}
		}
	}
}

// TestInaccurateProductsFail compares products with small errors that only a sensitive check finds.
func TestInaccurateProductsFail(t *testing.T) {
	rng := testrand.New(t)
	f32, f16, bf16 := dtype.F32, dtype.F16, dtype.BF16
	operands := func(round func(float64) float64) func(*gemm.Problem, gemm.Buffers) []byte {
		return func(p *gemm.Problem, buf gemm.Buffers) []byte {
			for i := range p.A().Len() {
				p.In().Set(buf[gemm.A], i, round(p.In().At(buf[gemm.A], i)))
			}
			return reftest.Product(p, buf, p.K)
		}
	}
	sumIn := func(acc dtype.Type) func(*gemm.Problem, gemm.Buffers) []byte {
		return func(p *gemm.Problem, buf gemm.Buffers) []byte {
			for i := range p.M {
				for j := range p.N {
					var sum float64
					for k := range p.K {
						a := p.In().At(buf[gemm.A], p.A().Index(i, k))
						b := p.B().Type.At(buf[gemm.B], p.B().Index(k, j))
						sum = acc.Round(sum + a*b)
					}
					p.Out().Set(buf[gemm.C], p.C().Index(i, j), sum)
				}
			}
			return buf[gemm.C]
		}
	}
	for _, tc := range []struct {
		name string
		ty   reftest.Types
		do   func(*gemm.Problem, gemm.Buffers) []byte
	}{
		{"operands truncated to tf32", reftest.Types{In: f32, Out: f32}, operands(func(x float64) float64 {
			return float64(math.Float32frombits(math.Float32bits(float32(x)) &^ 0x1fff))
		})},
		{"operands rounded to bfloat16", reftest.Types{In: f32, Out: f32}, operands(bf16.Round)},
		{"float64 operands rounded to float32", reftest.Types{In: dtype.F64, Out: dtype.F64}, operands(f32.Round)},
		{"last term omitted", reftest.Types{In: f32, Out: f32}, func(p *gemm.Problem, buf gemm.Buffers) []byte {
			q := *p
			q.K--
			return reftest.Product(&q, buf, q.K)
		}},
		{"bfloat16 accumulator", reftest.Types{In: f16, Out: f16}, sumIn(bf16)},
		{"float16 accumulator", reftest.Types{In: f16, Out: f16}, sumIn(f16)},
		{"bfloat16 accumulator with float32 result", reftest.Types{In: bf16, Out: f32}, sumIn(bf16)},
	} {
		for name, fill := range reftest.Distributions(rng) {
			for _, k := range []int{64, 500} {
				p, buf := reftest.Problem(t, rng, tc.ty, 8, 8, k, 1, 0, gemm.Epilogue{}, fill)
				r := Gemm(p, buf)
				if c := r.Compare(tc.do(p, buf), gemm.Accuracy{}); c.Err() == nil {
					t.Errorf("%s, %s data, k = %d: product with RMS %.3g passes: want an error", tc.name, name, k, c.RMS)
				}
			}
		}
	}
}

// TestDeclaredAccuracy compares products of lower accuracy. They must pass with the accuracy of
// their arithmetic, and fail with the default.
func TestDeclaredAccuracy(t *testing.T) {
	rng := testrand.New(t)
	truncate := func(x float64) float64 {
		n := float32(x)
		if math.Abs(float64(n)) > math.Abs(x) {
			n = math.Nextafter32(n, 0)
		}
		return float64(n)
	}
	flush := func(x float64) float64 {
		if math.Abs(x) < 0x1p-126 {
			return 0
		}
		return float64(float32(x))
	}
	tf32 := func(x float64) float64 {
		return float64(math.Float32frombits((math.Float32bits(float32(x)) + 0x1000) &^ 0x1fff))
	}
	same := func(x float64) float64 { return x }
	for _, tc := range []struct {
		name     string
		operand  func(float64) float64 // rounds an element of A or B
		sum      func(float64) float64 // rounds a product or a sum
		fill     func() float64
		accuracy gemm.Accuracy
	}{
		{"truncation", same, truncate, rng.Float64, gemm.Accuracy{Roundoff: 0x1p-23, Truncates: true}},
		{"tf32", tf32, func(x float64) float64 { return float64(float32(x)) }, rng.NormFloat64,
			gemm.Accuracy{Roundoff: 0x1p-24, Operand: 0x1p-11}},
		{"flush to zero", flush, flush, func() float64 { return math.Ldexp(rng.Float64()-0.5, -60-rng.IntN(70)) },
			gemm.Accuracy{Roundoff: 0x1p-24, FlushesToZero: true}},
	} {
		p, buf := reftest.Problem(t, rng, reftest.Types{In: dtype.F32, Out: dtype.F32}, 8, 8, 400, 1, 0, gemm.Epilogue{},
			tc.fill)
		r := Gemm(p, buf)
		for i := range p.M {
			for j := range p.N {
				var sum float64
				for k := range p.K {
					a, b := p.In().At(buf[gemm.A], p.A().Index(i, k)), p.B().Type.At(buf[gemm.B], p.B().Index(k, j))
					sum = tc.sum(sum + tc.sum(tc.operand(a)*tc.operand(b)))
				}
				p.Out().Set(buf[gemm.C], p.C().Index(i, j), sum)
			}
		}
		if err := r.Compare(buf[gemm.C], tc.accuracy).Err(); err != nil {
			t.Errorf("%s with declared accuracy: %v", tc.name, err)
		}
		if err := r.Compare(buf[gemm.C], gemm.Accuracy{}).Err(); err == nil {
			t.Errorf("%s passes with the default accuracy: want an error", tc.name)
		}
	}
}

// TestElementBound changes one element by three times its bound, or an integer by 1, and expects
// errors from ElementErr and Exactly.
func TestElementBound(t *testing.T) {
	rng := testrand.New(t)
	for _, ty := range reftest.AllTypes() {
		fill := func() float64 { return float64(rng.IntN(7) - 3) } // all sums are within the range of e4m3
		p, buf := reftest.Problem(t, rng, ty, 9, 7, 30, 1, 1, gemm.Epilogue{}, fill)
		r := Gemm(p, buf)
		c := reftest.Product(p, buf, p.K)
		if err := r.Compare(c, gemm.Accuracy{}).Err(); err != nil {
			t.Fatalf("%v: %v", ty, err)
		}
		i, j := rng.IntN(p.M), rng.IntN(p.N)
		step, extremes := 1.0, []float64{math.MinInt32, math.MaxInt32}
		if !ty.Integer() {
			step, extremes = 3*r.Bound(i, j, gemm.AccuracyOf(p)), []float64{math.NaN(), math.Inf(1)}
		}
		for _, wrong := range append(extremes, r.Value[i*p.N+j]+step, r.Value[i*p.N+j]-step) {
			bad := append([]byte(nil), c...)
			at := p.C().Index(i, j)
			p.Out().Set(bad, at, wrong)
			cmp := r.Compare(bad, gemm.Accuracy{})
			if cmp.ElementErr() == nil || cmp.I != i || cmp.J != j {
				t.Errorf("%v: C(%d,%d) is %v and ElementErr does not report it: want %v; %+v",
					ty, i, j, wrong, r.Value[i*p.N+j], cmp)
			}
			if r.Exactly(bad) == nil {
				t.Errorf("%v: C(%d,%d) is %v and Exactly accepts it: want %v", ty, i, j, wrong, r.Value[i*p.N+j])
			}
		}
	}
}

// TestOverflow accepts an infinity only with the sign of a result that is out of range.
func TestOverflow(t *testing.T) {
	l := gemm.Dense(dtype.F16, 1, 1)
	p := &gemm.Problem{M: 1, N: 1, K: 1, Layouts: gemm.Layouts{gemm.A: l, gemm.B: l, gemm.C: l}, Alpha: 1}
	half := func(v float64) []byte {
		b := make([]byte, 2)
		dtype.F16.Set(b, 0, v)
		return b
	}
	for _, tc := range []struct {
		a, b, got float64
		ok        bool
	}{
		{300, 300, math.Inf(1), true},
		{300, 300, math.Inf(-1), false},
		{300, 300, 65504, false},
		{300, 300, math.NaN(), false},
		{-300, 300, math.Inf(-1), true},
		{256, 255, 65280, true},
		{250, 250, math.Inf(1), false},
	} {
		r := Gemm(p, gemm.Buffers{gemm.A: half(tc.a), gemm.B: half(tc.b), gemm.C: half(0)})
		if err := r.Compare(half(tc.got), gemm.Accuracy{}).ElementErr(); (err == nil) != tc.ok {
			t.Errorf("%v·%v = %v has error %v: want it accepted: %v", tc.a, tc.b, tc.got, err, tc.ok)
		}
	}
}

// TestFinishedSumsOverflow checks elements whose terms overflow if α multiplies their magnitudes.
// They are left out only if a sum before α, or the result, may overflow.
func TestFinishedSumsOverflow(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		large := math.Ldexp(1, math.Ilogb(ty.Info().Max)-4)
		for _, tc := range []struct {
			alpha, first, beta, got float64
			checked, ok             bool
		}{
			{large, 8, 0, large, true, true},
			{large, 8, 0, math.Inf(1), true, false},
			{-large, 8, 0, math.NaN(), true, false},
			{large, 8, 1, 2 * large, true, true},
			{2, large * 8, 0, 2, false, true},       // the first term
			{large, 8, 64, math.NaN(), false, true}, // β·C
			{0.5, large * 8, 0, 0.5, false, true},
		} {
			a, b, c := gemm.Dense(ty, 1, 3), gemm.Dense(ty, 3, 1), gemm.Dense(ty, 1, 1)
			p := &gemm.Problem{M: 1, N: 1, K: 3, Layouts: gemm.Layouts{gemm.A: a, gemm.B: b, gemm.C: c},
				Alpha: complex(tc.alpha, 0), Beta: complex(tc.beta, 0)}
			of := func(values ...float64) []byte {
				to := make([]byte, ty.Bytes(len(values)))
				for i, v := range values {
					ty.Set(to, i, v)
				}
				return to
			}
			r := Gemm(p, gemm.Buffers{gemm.A: of(tc.first, 1, -tc.first), gemm.B: of(1, 1, 1), gemm.C: of(large)})
			compared := r.Compare(of(tc.got), gemm.Accuracy{})
			if checked := compared.Elements > 0; checked != tc.checked || (compared.ElementErr() == nil) != tc.ok {
				t.Errorf("%v, %+v: checked %v, error %v", ty, tc, checked, compared.ElementErr())
			}
		}
	}
}
