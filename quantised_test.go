package tilework

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
)

// quantised holds the operands of an int8 layer y = out·act(sx·sw·(α·q·w + β·y0) + b).
type quantised struct {
	q, w    Matrix[int8]
	sx, sw  []float32
	b       []float32
	y0      []float32
	silu    bool
	out     float64
	m, n, k int
}

func newQuantised(rng *rand.Rand, m, n, k int) *quantised {
	bytes := func(rows, cols int) Matrix[int8] {
		x := New[int8](rows, cols)
		for i := range x.data {
			x.data[i] = int8(rng.IntN(256) - 128)
		}
		return x
	}
	floats := func(n int, from, to float64) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = float32(from + rng.Float64()*(to-from))
		}
		return s
	}
	return &quantised{
		q: bytes(m, k), w: bytes(k, n), sx: floats(m, 1e-3, 2e-3), sw: floats(n, 1e-3, 2e-3), b: floats(n, -1, 1),
		y0: floats(m*n, -4, 4), silu: rng.IntN(2) == 0, out: 0.5, m: m, n: n, k: k,
	}
}

const quantisedAlpha, quantisedBeta = 0.7, -1.5

// want returns element (i, j) of the result in float64, and the sum of the magnitudes of the added
// terms. The arguments y0 and b are rounded to the type of the result.
func (l *quantised) want(i, j int, y0, b float64) (y, size float64) {
	sum := 0.0
	for p := range l.k {
		sum += float64(l.q.At(i, p)) * float64(l.w.At(p, j))
	}
	scale := float64(l.sx[i]) * float64(l.sw[j])
	x := scale*(quantisedAlpha*sum+quantisedBeta*y0) + b
	size = scale*(quantisedAlpha*math.Abs(sum)+math.Abs(quantisedBeta*y0)) + math.Abs(b)
	if l.silu {
		x /= 1 + math.Exp(-x)
	} else {
		x = max(x, 0)
	}
	return x * l.out, size
}

func (l *quantised) options() []Option {
	activation := WithReLU()
	if l.silu {
		activation = WithSiLU()
	}
	return []Option{WithRowScale(Vector(l.sx...)), WithColScale(Vector(l.sw...)), activation,
		WithOutputScale(Vector(l.out))}
}

// TestQuantisedLayer checks that an int8 product with a float result is scaled, biased and
// activated in float32. The error against the formula in float64 must be within the bound for
// float32 and the type of the result.
func TestQuantisedLayer(t *testing.T) {
	t.Run("float32", testQuantisedLayer[float32])
	t.Run("float16", testQuantisedLayer[dtype.Float16])
	t.Run("bfloat16", testQuantisedLayer[dtype.BFloat16])
}

func testQuantisedLayer[O dtype.Element](t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	ctx, info := t.Context(), dtype.Of[O]().Info()
	for range 3 {
		l := newQuantised(rng, 1+rng.IntN(40), 1+rng.IntN(40), 1+rng.IntN(300))
		bias := make([]O, l.n)
		for j := range bias {
			bias[j] = dtype.FromFloat64[O](float64(l.b[j]))
		}
		start := func(c Matrix[O]) Matrix[O] {
			for i := range l.m {
				for j := range l.n {
					c.Set(i, j, dtype.FromFloat64[O](float64(l.y0[i*l.n+j])))
				}
			}
			return c
		}
		opts := append(l.options(), WithColBias(Vector(bias...)))
		check := func(name string, c Matrix[O], err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			for i := range l.m {
				for j := range l.n {
					y0 := dtype.ToFloat64(dtype.FromFloat64[O](float64(l.y0[i*l.n+j])))
					want, size := l.want(i, j, y0, dtype.ToFloat64(bias[j]))
					bound := 16*0x1p-24*size + info.Roundoff*math.Abs(want) + info.Tiny
					if got := dtype.ToFloat64(c.At(i, j)); !(math.Abs(got-want) <= bound) {
						t.Errorf("%s: element (%d,%d) of %d×%d×%d is %v, want %v ± %.2g", name, i, j, l.m, l.n, l.k, got, want, bound)
						return
					}
				}
			}
		}
		for _, device := range []string{"cpu", "emu"} {
			for name, more := range map[string][]Option{"": nil, ", verified": {WithVerify()}} {
				with := append(append([]Option{WithDevice(device)}, opts...), more...)
				c := start(New[O](l.m, l.n))
				check(device+name, c, Gemm(ctx, quantisedAlpha, l.q, l.w, quantisedBeta, c, with...))
				c = start(New[O](l.n, l.m).T())
				check(device+name+", C transposed", c, Gemm(ctx, quantisedAlpha, l.q, l.w, quantisedBeta, c, with...))
			}
		}
		w, err := Pack(ctx, l.w)
		if err != nil {
			t.Fatal(err)
		}
		c := start(New[O](l.m, l.n))
		check("packed", c, Gemm(ctx, quantisedAlpha, l.q, w, quantisedBeta, c, append(opts, WithDevice("cpu"))...))
	}
}

// TestQuantisedSums checks that without an epilogue a float32 result is the int32 sum. The sum is
// exact below 2²⁴ and rounded to nearest above.
func TestQuantisedSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	l := newQuantised(rng, 33, 35, 1500)
	for _, device := range []string{"cpu", "emu"} {
		sums, floats := New[int32](l.m, l.n), New[float32](l.m, l.n)
		if err := errors.Join(Gemm(t.Context(), 1, l.q, l.w, 0, sums, WithDevice(device)),
			Gemm(t.Context(), 1, l.q, l.w, 0, floats, WithDevice(device))); err != nil {
			t.Fatal(err)
		}
		for i, sum := range sums.data {
			if floats.data[i] != float32(sum) {
				t.Fatalf("%s: the sum %d is %v in float32", device, sum, floats.data[i])
			}
		}
	}
}

// TestQuantisedGate checks that both factors of a gated product are scaled in float32.
func TestQuantisedGate(t *testing.T) {
	gate, up := FromSlice(2, 2, []int8{1, -2, 3, 4}), FromSlice(2, 2, []int8{5, 6, -7, 8})
	x := FromSlice(1, 2, []int8{100, 127})
	want := []float32{(100 + 381) / 4. * (500 - 889) / 4, (-200 + 508) / 4. * (600 + 1016) / 4}
	for _, device := range []string{"cpu", "emu"} {
		for _, more := range [][]Option{nil, {WithVerify()}} {
			c := New[float32](1, 2)
			err := Gemm(t.Context(), 0.25, x, gate, 0, c,
				append([]Option{WithDevice(device), WithGated(up), WithReLU()}, more...)...)
			if err != nil || c.data[0] != want[0] || c.data[1] != want[1] {
				t.Errorf("%s: got %v, error %v, want %v", device, c.data, err, want)
			}
		}
	}
}

// TestQuantisedVerify checks verification of float results whose int32 sums may wrap. The host
// verifies them exactly, and a device returns an error.
func TestQuantisedVerify(t *testing.T) {
	const k = 1 << 17
	a, b, c := New[int8](1, k), New[int8](k, 1), New[float32](1, 1)
	for i := range k {
		a.data[i], b.data[i] = -128, -128
	}
	if err := Gemm(t.Context(), 0.5, a, b, 0, c, WithVerify(), WithDevice("cpu")); err != nil || c.data[0] != -1<<30 {
		t.Errorf("2³¹/2 is %v, error %v, want %v", c.data[0], err, float32(-1<<30))
	}
	d := on(t, "emu")
	err := Gemm(t.Context(), 1, upload(t, d, a), upload(t, d, b), 0, upload(t, d, c), WithVerify())
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "may wrap") {
		t.Errorf("verifying sums that may wrap on a device: %v, want ErrUnsupported", err)
	}
}

// TestRoundedResults checks that float32 sums are rounded once to a 16-bit result, and saturate
// with WithSaturation.
func TestRoundedResults(t *testing.T) {
	t.Run("float16", testRoundedResults[dtype.Float16])
	t.Run("bfloat16", testRoundedResults[dtype.BFloat16])
}

func testRoundedResults[O dtype.Element](t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	a, b := New[float32](20, 70), New[float32](70, 30)
	for _, s := range [][]float32{a.data, b.data} {
		for i := range s {
			s[i] = float32(rng.NormFloat64())
		}
	}
	a.data[0] = 1e38
	for _, device := range []string{"cpu", "emu"} {
		want, got := New[float32](20, 30), New[O](20, 30)
		opts := []Option{WithDevice(device), WithSiLU(), WithSaturation(), WithVerify()}
		if device == "emu" {
			opts = append(opts, WithKernel("blocked"))
		} else {
			opts = append(opts, WithKernel("portable"))
		}
		if err := errors.Join(Gemm(t.Context(), 1, a, b, 0, want, opts...),
			Gemm(t.Context(), 1, a, b, 0, got, opts...)); err != nil {
			t.Fatal(err)
		}
		most := dtype.Of[O]().Info().Max
		for i, x := range want.data {
			if w := dtype.FromFloat64[O](min(max(float64(x), -most), most)); got.data[i] != w {
				t.Fatalf("%s: %v is rounded to %v, want %v", device, x, dtype.ToFloat64(got.data[i]), dtype.ToFloat64(w))
			}
		}
	}
}
