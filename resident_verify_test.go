package tilework

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/dispatch"
)

// TestVerifyOn verifies products on a device: of every type, transposed and in parts of
// larger matrices, with all that they can have, whole numbers and what is not finite.
func TestVerifyOn(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	t.Run("float32", func(t *testing.T) { verifyOn[float32, float32](t, d) })
	if testing.Short() {
		return
	}
	t.Run("float64", func(t *testing.T) { verifyOn[float64, float64](t, d) })
	t.Run("float16", func(t *testing.T) { verifyOn[Float16, float32](t, d) })
	t.Run("bfloat16", func(t *testing.T) { verifyOn[BFloat16, BFloat16](t, d) })
	t.Run("int8", func(t *testing.T) { verifyOn[int8, int32](t, d) })
}

// TestVerifyOnOlder: where the kernel for it does not run, the host reads the matrices.
func TestVerifyOnOlder(t *testing.T) { verifyOn[float32, float32](t, on(t, "emu:t4")) }

func verifyOn[I, O Element](t *testing.T, d *Device) {
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
	whole := c.m.Layout.Type.Info().Integer
	bias := make([]O, n)
	for i := range bias {
		bias[i] = dtype.FromFloat64[O](float64(i % 5))
	}
	for name, err := range map[string]error{
		"C transposed": GemmOn(t.Context(), 1, a, b, 0, c, WithVerify()),
		"C added to":   GemmOn(t.Context(), -2, a, b, 1, old, WithVerify()),
		"a bias":       GemmOn(t.Context(), 1, a, b, 0, old, WithVerify(), WithColBias(bias)),
		"nothing":      GemmOn(t.Context(), 1, a.Sub(0, 0, 0, k), b, 0, old.Sub(0, 0, 0, n), WithVerify()),
		"no terms":     GemmOn(t.Context(), 1, a.Sub(0, 0, m, 0), b.Sub(0, 0, 0, n), 2, old, WithVerify()),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !whole {
		host.Set(5, 3, dtype.FromFloat64[I](math.Inf(1)))
		host.Set(6, 9, dtype.FromFloat64[I](math.NaN()))
		if err := GemmOn(t.Context(), 1, upload(t, d, host).T(), b, 1, old, WithVerify()); err != nil {
			t.Errorf("with what is not finite: %v", err)
		}
	}
}

// spoiler is a device that overwrites an element of C when that is summed, in the third sweep of a
// product.
type spoiler struct {
	device.Device
	sweeps int
	value  float32
}

func (s *spoiler) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	if strings.HasPrefix(f.Name(), "tilework_sweep") {
		if s.sweeps++; s.sweeps%3 == 0 {
			const row, col = 7, 9
			// Its parameters are sizes, the matrix, and how far its rows are apart.
			c, ld := binary.LittleEndian.Uint64(l.Params[16:]), binary.LittleEndian.Uint64(l.Params[24:])
			at := device.Ptr(c + 4*(row*ld+col))
			if err := s.CopyIn(ctx, at, dtype.Bytes([]float32{s.value}), device.Rows{Count: 1, Width: 4, Host: 4, Device: 4}); err != nil {
				return err
			}
		}
	}
	return s.Device.Launch(ctx, f, l)
}

// TestVerifyOnFinds spoils results on the device: verification finds it, and what is
// right it lets pass.
func TestVerifyOnFinds(t *testing.T) {
	var s *spoiler
	restore := dispatch.Substitute(func(dispatch.Device) (device.Device, error) {
		inner, err := emu.Open(emu.Options{})
		s = &spoiler{Device: inner}
		return s, err
	})
	defer func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	}()
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(15, 16))
	a, b := upload(t, d, whole[float32](rng, 40, 30)), upload(t, d, whole[float32](rng, 30, 50))
	right, err := MulOn(t.Context(), a, b)
	if err != nil {
		t.Fatal(err)
	}
	value := download(t, right).At(7, 9)
	for _, c := range []struct {
		value float32
		want  error
	}{{value, nil}, {value + 1, ErrVerify}, {value - 0.01, ErrVerify}, {float32(math.NaN()), ErrVerify}, {float32(math.Inf(1)), ErrVerify}} {
		s.value = c.value
		if _, err := MulOn(t.Context(), a, b, WithVerify()); !errors.Is(err, c.want) {
			t.Errorf("%v for %v: %v, want %v", c.value, value, err, c.want)
		}
	}
	if s.sweeps != 15 {
		t.Errorf("%d sweeps, want 15", s.sweeps)
	}
}

// TestVerifyShortSums: 8-bit floats, whose sums on Hopper have 14 bits, are judged by that.
func TestVerifyShortSums(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	rng := rand.New(rand.NewPCG(15, 16))
	random := func() Matrix[Float8E4M3] {
		m := New[Float8E4M3](128, 128)
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[Float8E4M3](2*rng.Float64() - 1)
		}
		return m
	}
	a, b, c := upload(t, d, random()), upload(t, d, random()), upload(t, d, New[float32](128, 128))
	for _, precision := range []Precision{Native, Fast} {
		if err := GemmOn(t.Context(), 1, a, b, 0, c, WithVerify(), WithPrecision(precision)); err != nil {
			t.Errorf("%v: %v", precision, err)
		}
	}
}
