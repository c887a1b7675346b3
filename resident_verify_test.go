package tilework

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gpu"
)

// TestVerifyOn checks that correct products on a device pass verification: for every type,
// transposed and partial matrices, alpha, beta and biases, and infinite and NaN elements.
func TestVerifyOn(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	verifyAllOn(t, d)
}

// TestGPUVerify checks that correct products on a GPU pass verification.
func TestGPUVerify(t *testing.T) { verifyAllOn(t, firstGPU(t)) }

func verifyAllOn(t *testing.T, d *Device) {
	t.Run("float32", func(t *testing.T) { verifyOn[float32, float32](t, d) })
	t.Run("float64", func(t *testing.T) { verifyOn[float64, float64](t, d) })
	t.Run("float16", func(t *testing.T) { verifyOn[dtype.Float16, float32](t, d) })
	t.Run("bfloat16", func(t *testing.T) { verifyOn[dtype.BFloat16, dtype.BFloat16](t, d) })
	t.Run("e4m3", func(t *testing.T) { verifyOn[dtype.Float8E4M3, float32](t, d) })
	t.Run("e5m2", func(t *testing.T) { verifyOn[dtype.Float8E5M2, dtype.Float8E5M2](t, d) })
	t.Run("int8", func(t *testing.T) { verifyOn[int8, int32](t, d) })
	t.Run("int8 as float32", func(t *testing.T) { verifyOn[int8, float32](t, d) })
	t.Run("float32 as float16", func(t *testing.T) { verifyOn[float32, dtype.Float16](t, d) })
}

// TestVerifyOnOlder checks verification on a GPU that cannot run the verification kernels. The host
// then downloads the matrices and verifies.
func TestVerifyOnOlder(t *testing.T) { verifyOn[float32, float32](t, on(t, "emu:t4")) }

func verifyOn[I, O dtype.Element](t *testing.T, d *Device) {
	rng := rand.New(rand.NewPCG(13, 14))
	random := func(rows, cols int) Matrix[I] {
		m := New[I](rows, cols)
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[I](float64(rng.IntN(9)-4) / 2)
		}
		return m
	}
	const m, n, k = 34, 35, 50
	host := random(k, m)
	room := upload(t, d, random(k+5, n+9))
	a, b, c := upload(t, d, host).T(), room.Sub(2, 3, k, n), upload(t, d, New[O](n, m)).T()
	old := upload(t, d, New[O](m, n))
	whole := a.layout.Type.Info().Integer
	bias := make([]O, n)
	for i := range bias {
		bias[i] = dtype.FromFloat64[O](float64(i % 5))
	}
	for name, err := range map[string]error{
		"C transposed":          Gemm(t.Context(), 1, a, b, 0, c, WithVerify()),
		"beta":                  Gemm(t.Context(), -2, a, b, 1, old, WithVerify()),
		"column bias":           Gemm(t.Context(), 1, a, b, 0, old, WithVerify(), WithColBias(Vector(bias...))),
		"row bias":              Gemm(t.Context(), 1, a, b, 0, old, WithVerify(), WithRowBias(Vector(bias[:m]...))),
		"alpha, beta, row bias": Gemm(t.Context(), 3, a, b, -1, old, WithVerify(), WithRowBias(Vector(bias[:m]...))),
		"no rows":               Gemm(t.Context(), 1, a.Sub(0, 0, 0, k), b, 0, old.Sub(0, 0, 0, n), WithVerify()),
		"K = 0":                 Gemm(t.Context(), 1, a.Sub(0, 0, m, 0), b.Sub(0, 0, 0, n), 2, old, WithVerify()),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !whole {
		host.Set(5, 3, dtype.FromFloat64[I](math.Inf(1)))
		host.Set(6, 9, dtype.FromFloat64[I](math.NaN()))
		if err := Gemm(t.Context(), 1, upload(t, d, host).T(), b, 1, old, WithVerify()); err != nil {
			t.Errorf("with infinite and NaN elements: %v", err)
		}
	}
}

// spoiler is a device that corrupts results before they are verified. It overwrites an element of C
// before the last of the Freivalds kernels of a product, if element is not nil.
type spoiler struct {
	device.Device
	products int    // launches of Freivalds kernels so far
	of       int    // launches of Freivalds kernels per product
	element  []byte // memory of the new element
}

// spoiledRow and spoiledCol locate the element that a spoiler overwrites.
const spoiledRow, spoiledCol = 7, 9

func (s *spoiler) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	if strings.HasPrefix(f.Name(), "tilework_freivalds_product") {
		if s.products++; s.products%s.of == 0 && s.element != nil {
			// The kernel's parameters are sizes, the address of the matrix and its leading
			// dimension.
			c, ld := binary.LittleEndian.Uint64(l.Params[16:]), binary.LittleEndian.Uint64(l.Params[24:])
			n := len(s.element)
			at := device.Ptr(c) + device.Ptr(n*(spoiledRow*int(ld)+spoiledCol))
			if err := s.CopyIn(ctx, at, s.element, device.Whole(n)); err != nil {
				return err
			}
		}
	}
	return s.Device.Launch(ctx, f, l)
}

// spoiled opens an emulated device that corrupts results, and returns its spoiler.
func spoiled(t *testing.T) (*Device, *spoiler) {
	s := &spoiler{}
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
		inner, err := emu.Open(emu.Options{})
		s.Device = inner
		return s, err
	})
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	return on(t, "emu"), s
}

// TestVerifyOnFinds corrupts an element of the result on a device, for every type. Verification
// must reject the corrupted result and accept the correct one.
func TestVerifyOnFinds(t *testing.T) {
	d, s := spoiled(t)
	inf := math.Inf(1)
	t.Run("float32", func(t *testing.T) { verifyFinds[float32, float32](t, d, s, 1, -0.01, math.NaN(), inf) })
	t.Run("float16", func(t *testing.T) { verifyFinds[dtype.Float16, float32](t, d, s, 1, -0.1, math.NaN(), inf) })
	t.Run("float64", func(t *testing.T) { verifyFinds[float64, float64](t, d, s, 1e-9) })
	t.Run("bfloat16", func(t *testing.T) { verifyFinds[dtype.BFloat16, dtype.BFloat16](t, d, s, 16, -16) })
	t.Run("e4m3", func(t *testing.T) { verifyFinds[dtype.Float8E4M3, float32](t, d, s, 1, -0.1) })
	t.Run("e5m2", func(t *testing.T) { verifyFinds[dtype.Float8E5M2, dtype.Float16](t, d, s, 8, math.NaN()) })
	t.Run("int8", func(t *testing.T) { verifyFinds[int8, int32](t, d, s, 1, -1, 1<<30) })
	scales := []Option{WithBlockScales(
		FromSlice(1, 1, []float32{2}), FromSlice(1, 50, slices.Repeat([]float32{0.5, 1}, 25)),
	)}
	t.Run("block scales", func(t *testing.T) { verifyFindsWith[dtype.Float8E4M3, float32](t, d, s, scales, 1, -0.02) })
}

func verifyFinds[I, O dtype.Element](t *testing.T, d *Device, s *spoiler, by ...float64) {
	verifyFindsWith[I, O](t, d, s, nil, by...)
}

func verifyFindsWith[I, O dtype.Element](t *testing.T, d *Device, s *spoiler, opts []Option, by ...float64) {
	rng := rand.New(rand.NewPCG(15, 16))
	few := func(rows, cols int) Matrix[I] {
		m := New[I](rows, cols)
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[I](float64(rng.IntN(7) - 3))
		}
		return m
	}
	a, b := upload(t, d, few(40, 30)), upload(t, d, few(30, 50))
	c := upload(t, d, New[O](40, 50))
	s.element = nil
	if err := Gemm(t.Context(), 1, a, b, 0, c, opts...); err != nil {
		t.Fatal(err)
	}
	right := dtype.ToFloat64(download(t, c).At(spoiledRow, spoiledCol))
	s.products, s.of = 0, 3
	for _, off := range append(by, 0) {
		value := dtype.FromFloat64[O](right + off)
		s.element = dtype.Bytes([]O{value})
		var want error
		if off != 0 {
			want = ErrVerify
		}
		if err := Gemm(t.Context(), 1, a, b, 0, c, append(opts, WithVerify())...); !errors.Is(err, want) {
			t.Errorf("%v in place of %v: error %v, want %v", value, right, err, want)
		}
	}
	if want := 3 * (len(by) + 1); s.products != want {
		t.Errorf("%d launches of Freivalds kernels, want %d", s.products, want)
	}
	// With beta = 1 there is one more Freivalds kernel, which reads C before the product.
	s.products, s.of = 0, 4
	for _, off := range append(by, 0) {
		s.element = nil
		if err := Gemm(t.Context(), 1, a, b, 0, c, opts...); err != nil {
			t.Fatal(err)
		}
		s.element = dtype.Bytes([]O{dtype.FromFloat64[O](2*right + off)})
		var want error
		if off != 0 {
			want = ErrVerify
		}
		if err := Gemm(t.Context(), 1, a, b, 1, c, append(opts, WithVerify())...); !errors.Is(err, want) {
			t.Errorf("beta = 1, %v in place of %v: error %v, want %v", 2*right+off, 2*right, err, want)
		}
	}
}

// TestVerifyOnOverflow checks that verification accepts only the correctly signed infinity for an
// element that overflows.
func TestVerifyOnOverflow(t *testing.T) {
	d, s := spoiled(t)
	s.of = 4
	a, b := New[dtype.Float16](10, 3), New[dtype.Float16](3, 10)
	for i := range a.data {
		a.data[i] = dtype.FromFloat64[dtype.Float16](300)
	}
	for i := range 3 {
		b.Set(i, spoiledCol, dtype.FromFloat64[dtype.Float16](300))
	}
	onA, onB := upload(t, d, a), upload(t, d, b)
	for value, want := range map[float64]error{math.Inf(1): nil, math.Inf(-1): ErrVerify, math.NaN(): ErrVerify,
		5: ErrVerify} {
		s.products, s.element = 0, dtype.Bytes([]dtype.Float16{dtype.FromFloat64[dtype.Float16](value)})
		err := Gemm(t.Context(), 1, onA, onB, 1, upload(t, d, New[dtype.Float16](10, 10)), WithVerify())
		if !errors.Is(err, want) {
			t.Errorf("overflow stored as %v: error %v, want %v", value, err, want)
		}
	}
}

// TestVerifyShortSums checks that the error bound for 8-bit floats allows for Hopper's
// accumulators, which keep 14 bits.
func TestVerifyShortSums(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(15, 16))
	random := func() Matrix[dtype.Float8E4M3] {
		m := New[dtype.Float8E4M3](128, 128)
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[dtype.Float8E4M3](2*rng.Float64() - 1)
		}
		return m
	}
	a, b, c := upload(t, d, random()), upload(t, d, random()), upload(t, d, New[float32](128, 128))
	for precision, option := range map[string]Option{"native": nil, "fast": WithFastAccumulation()} {
		if err := Gemm(t.Context(), 1, a, b, 0, c, WithVerify(), option); err != nil {
			t.Errorf("%s: %v", precision, err)
		}
	}
}
