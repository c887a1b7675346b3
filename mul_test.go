package tilework

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
)

// whole returns a rows×cols matrix of random -1, 0 and 1. Every element type represents products of
// such matrices exactly up to k = 256.
func whole[T dtype.Float](rng *rand.Rand, rows, cols int) Matrix[T] {
	m := New[T](rows, cols)
	for i := range m.data {
		m.data[i] = dtype.FromFloat64[T](float64(rng.IntN(3) - 1))
	}
	return m
}

// plain returns the product of a and b in float64, by rows, computed with the textbook loop.
func plain[T dtype.Float](a, b Matrix[T]) []float64 {
	n := b.Cols()
	c := make([]float64, a.Rows()*n)
	for k := range a.Cols() {
		row := make([]float64, n)
		for j := range row {
			row[j] = dtype.ToFloat64(b.At(k, j))
		}
		for i := range a.Rows() {
			x := dtype.ToFloat64(a.At(i, k))
			for j, y := range row {
				c[i*n+j] += x * y
			}
		}
	}
	return c
}

func testViews[T dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 2}, {33, 17, 65}, {100, 90, 130}} {
		m, n, k := s[0], s[1], s[2]
		a, b := whole[T](rng, m, k), whole[T](rng, k, n)
		want := plain(a, b)
		room := whole[T](rng, m+2, n+3)
		for name, c := range map[string]Matrix[T]{
			"dense":      New[T](m, n),
			"a part":     room.Sub(1, 2, m, n),
			"transposed": New[T](n, m).T(),
		} {
			for form, ab := range map[string][2]Matrix[T]{
				"A·B":     {a, b},
				"Aᵀᵀ·B":   {a.T().clone().T(), b},
				"A·Bᵀᵀ":   {a, b.T().clone().T()},
				"Aᵀᵀ·Bᵀᵀ": {a.T().clone().T(), b.T().clone().T()},
			} {
				if err := Gemm(t.Context(), 1, ab[0], ab[1], 0, c); err != nil {
					t.Fatal(err)
				}
				for i := range m {
					for j := range n {
						if got := dtype.ToFloat64(c.At(i, j)); got != want[i*n+j] {
							t.Fatalf("%d×%d·%d×%d as %s into %s: element (%d, %d) is %v, want %v", m, k, k, n, form, name, i, j, got,
								want[i*n+j])
						}
					}
				}
			}
		}
	}
}

func TestViewsOfEveryType(t *testing.T) {
	t.Run("float64", testViews[float64])
	t.Run("float32", testViews[float32])
	t.Run("float16", testViews[dtype.Float16])
	t.Run("bfloat16", testViews[dtype.BFloat16])
}

func TestWiderResults(t *testing.T) {
	a, b := FromSlice(1, 2, []dtype.Float16{0x7bff, 0x7bff}),
		FromSlice(2, 1, []dtype.Float16{0x3c00, 0x3c00}) // 65504 + 65504
	narrow, err := Mul(t.Context(), a, b)
	if err != nil || narrow.At(0, 0) != 0x7c00 {
		t.Errorf("65504 + 65504 in float16 is %#x (%v), want infinity", narrow.At(0, 0), err)
	}
	wide := New[float32](1, 1)
	if err := Gemm(t.Context(), 1, a, b, 0, wide); err != nil || wide.At(0, 0) != 131008 {
		t.Errorf("65504 + 65504 in float32 is %v (%v), want 131008", wide.At(0, 0), err)
	}
}

func TestErrors(t *testing.T) {
	ctx := t.Context()
	a, b, c := counted(3, 4), counted(4, 5), counted(3, 5)
	both := counted(8, 8)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, cancelledPlan := PlanGemm(cancelled, a, b, c)
	_, noGroup := OpenRanks(ctx, nil, "cpu")
	for _, test := range []struct {
		name string
		err  error
		want error
		text string // substring of the message
	}{
		{"inner sizes", Gemm(ctx, 1, a, b.T(), 0, c), ErrShape, ": want a B of 4×4"},
		{"inner sizes of a large C", second(Mul(ctx, New[float64](1<<20, 1), New[float64](2, 1<<20))), ErrShape,
			"A is 1048576×1 and B is 2×1048576: want a B of 1×1048576"},
		{"C's size", Gemm(ctx, 1, a, b, 0, counted(5, 3)), ErrShape, "C is 5×3, want 3×5"},
		{"C over A", Gemm(ctx, 1, both.Sub(2, 3, 3, 4), b, 0, both.Sub(0, 0, 3, 5)), ErrOverlap, "C shares memory with A"},
		{"C over B", Gemm(ctx, 1, a, both.Sub(2, 2, 4, 5), 0, both.Sub(0, 0, 3, 5)), ErrOverlap, "C shares memory with B"},
		{"C over the bias", Gemm(ctx, 1, a, b, 0, c, WithColBias(Vector(c.Data()[2:7]...))), ErrOverlap, "bias"},
		{"bias too short", Gemm(ctx, 1, a, b, 0, c, WithColBias(Vector(make([]float64, 3)...))), ErrShape,
			"the bias of length 3 for a result of 3×5, want 5"},
		{"bias of another type", Gemm(ctx, 1, a, b, 0, c, WithRowBias(Vector(make([]float32, 3)...))), ErrUnsupported,
			"the bias of float32"},
		{"two kinds of bias", Gemm(ctx, 1, a, b, 0, c, WithRowBias(Vector(1.0, 2, 3)), WithColBias(Vector(1.0, 2, 3, 4, 5))),
			ErrUnsupported, "WithRowBias and WithColBias"},
		{"kernel", Gemm(ctx, 1, a, b, 0, c, WithKernel("fast")), ErrUnsupported,
			`unknown CPU kernel "fast": want one of loop, `},
		{"no group", noGroup, ErrUnsupported, "no group of ranks"},
		{"device", Gemm(ctx, 1, a, b, 0, c, WithDevice("tpu")), ErrNoDevice, `unknown device "tpu"`},
		{"GPU", Gemm(ctx, 1, a, b, 0, c, WithDevice("gpu:99")), ErrNoDevice, "no such device"},
		{"precision", Gemm(ctx, 1, a, b, 0, c, WithTF32()), ErrUnsupported,
			"precision tf32 of float64 matrices (it is for float32)"},
		{"division", Gemm(ctx, 1, a, b, 0, c, WithColumnDivision()), ErrUnsupported,
			"split by columns is for a new matrix on a device"},
		{"limit of memory", Gemm(ctx, 1, a, b, 0, c, WithGPUMemory(-1)), ErrUnsupported, "want a positive number"},
		{"result type", Gemm(ctx, 1, a, b, 0, New[float32](3, 5)), ErrUnsupported,
			"a product of float64 matrices as float32"},
		{"cancelled", Gemm(cancelled, 1, a, b, 0, c), context.Canceled, ""},
		{"cancelled plan", cancelledPlan, context.Canceled, ""},
		{"batch lengths", Gemm(ctx, 1, Batch[float64]{a}, Batch[float64]{b, b}, 0, Batch[float64]{c}), ErrShape,
			"1 A, 2 B and 1 C"},
		{"same C twice", Gemm(ctx, 1, Batch[float64]{a, a}, Batch[float64]{b, b}, 0, Batch[float64]{c, c}), ErrOverlap,
			"C of product"},
		{"C of one, A of another", Gemm(ctx, 1, Batch[float64]{a, c}, Batch[float64]{b, counted(5, 1)}, 0,
			Batch[float64]{c, counted(3, 1)}), ErrOverlap, "shares memory"},
	} {
		if !errors.Is(test.err, test.want) || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: error %q, want %q with %q in the message", test.name, test.err, test.want, test.text)
		}
		if test.err != nil && strings.Contains(test.err.Error(), "\n") {
			t.Errorf("%s: the message has more than one line: %q", test.name, test.err)
		}
	}
	ints := New[int32](2, 2)
	if err := Gemm(ctx, 0.5, New[int8](2, 2), New[int8](2, 2), 0, ints); !errors.Is(err, ErrUnsupported) {
		t.Errorf("alpha = 0.5 with an int32 result: error %v, want ErrUnsupported", err)
	}
	if err := Gemm(ctx, 1, New[int32](2, 2), New[int32](2, 2), 0, ints); !errors.Is(err, ErrUnsupported) {
		t.Errorf("int32 operands: error %v, want ErrUnsupported", err)
	}
	// The rows of the two halves of a matrix alternate in memory, but the halves do not overlap.
	if err := Gemm(ctx, 1, both.Sub(0, 4, 4, 4), both.Sub(4, 0, 4, 4), 0, both.Sub(0, 0, 4, 4)); err != nil {
		t.Errorf("a product within one matrix: %v", err)
	}
}

func TestBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var a, b, c Batch[float32]
	for range 40 { // some small, some large enough to be partitioned among threads
		m, n, k := 1+rng.IntN(60), 1+rng.IntN(60), 1+rng.IntN(60)
		if rng.IntN(8) == 0 {
			m, n, k = m+200, n+250, k+220
		}
		a, b = append(a, whole[float32](rng, m, k)), append(b, whole[float32](rng, k, n))
		c = append(c, whole[float32](rng, m, n))
	}
	var want [][]float64
	for i := range a {
		w := plain(a[i], b[i])
		for j := range w {
			w[j] = 2*w[j] - float64(c[i].data[j])
		}
		want = append(want, w)
	}
	if err := Gemm(t.Context(), 2, a, b, -1, c); err != nil {
		t.Fatal(err)
	}
	for i := range c {
		for j, v := range c[i].data {
			if float64(v) != want[i][j] {
				t.Fatalf("product %d, element %d: %v, want %v", i, j, v, want[i][j])
			}
		}
	}
}

// TestOddFactors checks products and batches with a NaN factor, and with factors that are 0 in
// float32, for which the operands that must not be read are NaN.
func TestOddFactors(t *testing.T) {
	ctx, d := t.Context(), on(t, "emu")
	nan := float32(math.NaN())
	const tiny = 1e-60
	for _, x := range []struct {
		alpha, beta   float64
		a, b, c, want float32
	}{
		{math.NaN(), 0, 1, 2, 3, nan},
		{1, math.NaN(), 1, 2, 3, nan},
		{tiny, 5, nan, nan, 3, 15},
		{5, -tiny, 1, 2, nan, 10},
		{tiny, tiny, nan, nan, nan, 0},
	} {
		one := func(v float32) Matrix[float32] { return FromSlice(1, 1, []float32{v}) }
		two := func(v float32) Batch[float32] { return Batch[float32]{one(v), one(v)} }
		check := func(how string, c Matrix[float32], err error) {
			if got := c.At(0, 0); err != nil || got != x.want && (got == got || x.want == x.want) {
				t.Errorf("%s, alpha %v, beta %v: got %v, error %v, want %v", how, x.alpha, x.beta, got, err, x.want)
			}
		}
		for _, device := range []string{"cpu", "emu"} {
			for _, opts := range [][]Option{{WithDevice(device)}, {WithDevice(device), WithVerify()}} {
				c, all := one(x.c), two(x.c)
				check(device, c, Gemm(ctx, x.alpha, one(x.a), one(x.b), x.beta, c, opts...))
				err := Gemm(ctx, x.alpha, two(x.a), two(x.b), x.beta, all, opts...)
				check("a batch on "+device, all[0], err)
				check("a batch on "+device, all[1], err)
			}
		}
		a, b, c, got := upload(t, d, one(x.a)), upload(t, d, one(x.b)), upload(t, d, one(x.c)), one(0)
		for _, opts := range [][]Option{nil, {WithVerify()}} {
			err := errors.Join(Copy(ctx, c, one(x.c)), Gemm(ctx, x.alpha, a, b, x.beta, c, opts...), Copy(ctx, got, c))
			check("on a device", got, err)
		}
	}
}

func TestCancelMidway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 700
	a, b := New[float32](n, n), New[float32](n, n)
	calls := 0
	_, err := Mul(ctx, a, b, WithKernel("portable"), WithThreads(1), WithTileFunc(func(Matrix[float32], int, int) {
		calls++
		cancel()
	}))
	if !errors.Is(err, context.Canceled) || calls == 0 {
		t.Errorf("cancelled at the first of %d tiles: error %v, want context.Canceled", calls, err)
	}
}

func TestVerifyAcceptsCorrectProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	a, b := whole[float32](rng, 130, 70), whole[float32](rng, 70, 90)
	for _, opts := range [][]Option{
		nil,
		{WithColBias(Vector(make([]float32, 90)...))},
		{WithGELU(), WithRowBias(Vector(make([]float32, 130)...))},
	} {
		unverified, err := Mul(t.Context(), a, b, opts...)
		if err != nil {
			t.Fatal(err)
		}
		verified, err := Mul(t.Context(), a, b, append(opts, WithVerify())...)
		if err != nil || !slices.Equal(unverified.data, verified.data) {
			t.Errorf("with %d options and verification: error %v, or a bitwise different result", len(opts), err)
		}
	}
}

// TestPrecisionOnRequest multiplies numbers that need 13 significant bits by the identity. Without
// WithPrecision the product is exact on every device and by every kernel that accepts it. With TF32
// it is not.
func TestPrecisionOnRequest(t *testing.T) {
	const n = 64
	a, identity := New[float32](n, n), New[float32](n, n)
	for i := range n {
		identity.Set(i, i, 1)
		for j := range n {
			a.Set(i, j, 1+0x1p-12)
		}
	}
	calls := map[string][]Option{"tf32": {WithDevice("emu:h200"), WithKernel("mma"), WithTF32()}}
	for _, device := range []string{"cpu", "emu:t4", "emu:a30", "emu:h200", "emu:b200"} {
		calls[device] = []Option{WithDevice(device)}
	}
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		device := "cpu"
		if k.Kind == backend.GPU {
			device = "emu:h200"
		}
		if k.Available {
			calls[k.Name] = []Option{WithDevice(device), WithKernel(k.Name)}
		}
	}
	exact := 0 // products by the kernel that WithKernel names
	for name, opts := range calls {
		c, err := Mul(t.Context(), a, identity, opts...)
		byKernel := len(opts) > 1 && name != "tf32"
		switch {
		case byKernel && errors.Is(err, ErrUnsupported):
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case slices.Equal(c.Data(), a.Data()) != (name != "tf32"):
			t.Errorf("%s: got %v, want float32 arithmetic unless TF32 is asked for", name, c)
		case byKernel:
			exact++
		}
	}
	if exact < 4 {
		t.Errorf("%d kernels multiply float32 exactly, want at least 4", exact)
	}
}

// TestEmptyResults checks that a result without elements takes neither time nor memory, even with
// very many rows or columns, and with any combination of activation and verification.
func TestEmptyResults(t *testing.T) {
	const many = math.MaxInt / 8
	for _, size := range [][3]int{{0, 3, 5}, {3, 0, 5}, {0, 0, 0}, {many, 0, 0}, {0, many, 0}} {
		a, b := New[float32](size[0], size[2]), New[float32](size[2], size[1])
		for name, opts := range map[string][]Option{
			"plain": nil, "activated": {WithGELU()}, "verified": {WithVerify()},
			"both": {WithVerify(), WithReLU()},
		} {
			for _, device := range []string{"cpu", "emu"} {
				for _, beta := range []float64{0, 2} {
					c := New[float32](size[0], size[1])
					if err := Gemm(t.Context(), 1, a, b, beta, c, append(opts, WithDevice(device))...); err != nil {
						t.Errorf("%v, %s on %s, beta %v: %v", size, name, device, beta, err)
					}
				}
			}
		}
	}
}

// TestNilOption checks that a nil Option does nothing, as for a variable that no branch sets.
func TestNilOption(t *testing.T) {
	a := FromSlice(1, 2, []float32{3, 4})
	c, err := Mul(t.Context(), a, a.T(), nil, WithThreads(1), nil)
	if err != nil || c.At(0, 0) != 25 {
		t.Fatalf("got %v, %v, want 25", c, err)
	}
	p, err := PlanGemm(t.Context(), a, a.T(), c, WithThreads(1), nil, WithDevice("cpu"))
	if err != nil || !strings.Contains(p.String(), ", 1 thread:") {
		t.Errorf("got %q, %v, want 1 thread", p, err)
	}
}
