package tilework_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework"
	"tilework/dtype"
	"tilework/internal/testkit/testrand"
	"tilework/ranks"
)

// byteElement is the element of a quantised operand.
type byteElement interface {
	int8 | uint8
	dtype.Element
}

// shiftedProduct is a product of quantised operands with zero points, and its sums.
type shiftedProduct[T, U byteElement] struct {
	a            tilework.Matrix[T]
	b            tilework.Matrix[U]
	zeroA, zeroB tilework.Matrix[int32]
	want         tilework.Matrix[int32]
}

// newShifted returns a product of m×k and k×n random elements. The zero points are any numbers, and
// A's are equal with oneA.
func newShifted[T, U byteElement](rng *rand.Rand, m, n, k int, oneA bool) *shiftedProduct[T, U] {
	x := &shiftedProduct[T, U]{
		a: tilework.New[T](m, k), b: tilework.New[U](n, k).T(),
		zeroA: tilework.New[int32](1, m), zeroB: tilework.New[int32](1, n), want: tilework.New[int32](m, n),
	}
	for i := range x.a.Data() {
		x.a.Data()[i] = T(rng.Uint32())
	}
	for i := range x.b.Data() {
		x.b.Data()[i] = U(rng.Uint32())
	}
	number := func() int32 { return int32(rng.Uint32()) >> (8 * rng.IntN(4)) }
	if oneA {
		x.zeroA = tilework.Vector(number())
	}
	for i := range x.zeroA.Data() {
		x.zeroA.Data()[i] = number()
	}
	for j := range x.zeroB.Data() {
		x.zeroB.Data()[j] = number()
	}
	for i := range m {
		for j := range n {
			x.want.Set(i, j, x.sum(i, j))
		}
	}
	return x
}

// sum returns Σ(a − za)·(b − zb) for element (i, j), modulo 2³².
func (x *shiftedProduct[T, U]) sum(i, j int) (sum int32) {
	za := x.zeroA.At(0, min(i, x.zeroA.Cols()-1))
	for p := range x.a.Cols() {
		sum += (int32(x.a.At(i, p)) - za) * (int32(x.b.At(p, j)) - x.zeroB.At(0, j))
	}
	return sum
}

// check reports a result that differs from the sums.
func (x *shiftedProduct[T, U]) check(t *testing.T, name string, c tilework.Matrix[int32], err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for i := range x.want.Rows() {
		for j := range x.want.Cols() {
			if got, want := c.At(i, j), x.want.At(i, j); got != want {
				t.Errorf("%s: element (%d, %d) of %v·%v is %d, want %d", name, i, j, x.a, x.b, got, want)
				return
			}
		}
	}
}

func (x *shiftedProduct[T, U]) option() tilework.Option {
	return tilework.WithZeroPoints(x.zeroA, x.zeroB)
}

// TestZeroPoints compares products of int8 and uint8 with zero points of any size with the sums of
// a loop: on the CPU, an emulated GPU and several, verified, packed, transposed, in batches and in
// groups.
func TestZeroPoints(t *testing.T) {
	t.Run("int8, int8", testZeroPoints[int8, int8])
	t.Run("uint8, int8", testZeroPoints[uint8, int8])
	t.Run("int8, uint8", testZeroPoints[int8, uint8])
	t.Run("uint8, uint8", testZeroPoints[uint8, uint8])
}

func testZeroPoints[T, U byteElement](t *testing.T) {
	rng, ctx := testrand.New(t), t.Context()
	for _, one := range []bool{false, true} {
		x := newShifted[T, U](rng, 1+rng.IntN(70), 1+rng.IntN(70), 1+rng.IntN(300), one)
		m, n := x.want.Rows(), x.want.Cols()
		on := func(name string, opts ...tilework.Option) {
			c := tilework.New[int32](m, n)
			err := tilework.Gemm(ctx, 1, x.a, x.b, 0, c, append(opts, x.option())...)
			x.check(t, name, c, err)
			c = tilework.New[int32](n, m).T()
			err = tilework.Gemm(ctx, 1, x.a, x.b, 0, c, append(opts, x.option())...)
			x.check(t, name+", C transposed", c, err)
		}
		for _, d := range []string{"cpu", "emu", "emu:h200,h200"} {
			on(d, tilework.WithDevice(d))
			on(d+", verified", tilework.WithDevice(d), tilework.WithVerify())
		}
		on("cpu, loop", tilework.WithDevice("cpu"), tilework.WithKernel("loop"))

		packed, err := tilework.Pack(ctx, x.b)
		c := tilework.New[int32](m, n)
		if err == nil {
			err = tilework.Gemm(ctx, 1, x.a, packed, 0, c, x.option())
		}
		x.check(t, "packed", c, err)

		half := tilework.Batch[int32]{tilework.New[int32](m, n), tilework.New[int32](m, n)}
		err = tilework.Gemm(ctx, 1, tilework.Batch[T]{x.a, x.a}, tilework.Batch[U]{x.b, x.b}, 0, half, x.option())
		x.check(t, "batch", half[1], err)

		c = tilework.New[int32](m, n)
		err = tilework.Gemm(ctx, 1, x.a, tilework.Batch[U]{x.b, x.b}, 0, c, x.option(),
			tilework.WithGroups(tilework.GroupEnds(m/2, m-m/2)))
		x.check(t, "groups", c, err)
	}
}

// TestZeroPointsResident computes products of matrices that stay on a GPU, and on several.
func TestZeroPointsResident(t *testing.T) {
	for _, name := range []string{"emu", "emu:h200,h200"} {
		x := newShifted[uint8, int8](testrand.New(t), 130, 96, 200, name == "emu")
		d, err := tilework.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		err = resident(t.Context(), d, x.a, x.b, func(a tilework.DeviceMatrix[uint8], b tilework.DeviceMatrix[int8],
			c tilework.DeviceMatrix[int32]) error {
			for _, opts := range [][]tilework.Option{nil, {tilework.WithVerify()}} {
				if err := tilework.Gemm(t.Context(), 1, a, b, 0, c, append(opts, x.option())...); err != nil {
					return err
				}
				got, err := c.Download(t.Context())
				x.check(t, name, got, err)
			}
			zeros, err := tilework.Upload(t.Context(), d, x.zeroB)
			if err != nil {
				return err
			}
			defer zeros.Close()
			if err := tilework.Gemm(t.Context(), 1, a, b, 0, c, tilework.WithZeroPoints(x.zeroA, zeros)); err != nil {
				return err
			}
			got, err := c.Download(t.Context())
			x.check(t, name+", zero points on the device", got, err)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// resident calls f with copies of a and b on a device, and with a C for their product.
func resident[T, U byteElement](ctx context.Context, d *tilework.Device, a tilework.Matrix[T], b tilework.Matrix[U],
	f func(a tilework.DeviceMatrix[T], b tilework.DeviceMatrix[U], c tilework.DeviceMatrix[int32]) error) error {
	da, err := tilework.Upload(ctx, d, a)
	if err != nil {
		return err
	}
	defer da.Close()
	db, err := tilework.Upload(ctx, d, b)
	if err != nil {
		return err
	}
	defer db.Close()
	dc, err := tilework.NewDeviceMatrix[int32](d, a.Rows(), b.Cols())
	if err != nil {
		return err
	}
	defer dc.Close()
	return f(da, db, dc)
}

// TestZeroPointsRanks computes a product of matrices that ranks store together.
func TestZeroPointsRanks(t *testing.T) {
	rng := testrand.New(t)
	x := newShifted[uint8, uint8](rng, 96, 64, 100, false)
	for _, device := range []string{"cpu", "emu"} {
		err := errors.Join(eachRank(t, 2, device, func(g *ranks.Group, d *tilework.Device) error {
			ctx := t.Context()
			a, errA := parts(ctx, d, x.a)
			b, errB := parts(ctx, d, x.b, tilework.WithCopyOnEach())
			c, errC := tilework.NewDeviceMatrix[int32](d, 96, 64)
			if err := errors.Join(errA, errB, errC); err != nil {
				return err
			}
			err := tilework.Gemm(ctx, 1, a, b, 0, c, x.option())
			if err != nil {
				return err
			}
			got, err := c.Download(ctx)
			row, col, rows, cols := c.Part()
			for i := range rows {
				for j := range cols {
					if v, want := got.At(i, j), x.want.At(row+i, col+j); v != want {
						return fmt.Errorf("rank %d: element (%d, %d) is %d, want %d", g.Rank(), row+i, col+j, v, want)
					}
				}
			}
			return errors.Join(err, a.Close(), b.Close(), c.Close())
		})...)
		if err != nil {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// parts returns a copy of m that ranks store together.
func parts[T dtype.Element](ctx context.Context, d *tilework.Device, m tilework.Matrix[T],
	opts ...tilework.Option) (tilework.DeviceMatrix[T], error) {
	all, err := tilework.NewDeviceMatrix[T](d, m.Rows(), m.Cols(), opts...)
	if err != nil {
		return all, err
	}
	row, col, rows, cols := all.Part()
	return all, tilework.Copy(ctx, all, m.Sub(row, col, rows, cols))
}

// TestZeroPointsConvert checks that sums are corrected before they are rounded to float32, and that
// α, β, scales and a bias apply after that.
func TestZeroPointsConvert(t *testing.T) {
	rng := testrand.New(t)
	m, n, k := 1+rng.IntN(40), 1+rng.IntN(40), 1+rng.IntN(600)
	x := newShifted[uint8, int8](rng, m, n, k, false)
	scale, bias := tilework.New[float32](1, n), tilework.New[float32](1, n)
	for j := range n {
		scale.Set(0, j, float32(rng.NormFloat64()))
		bias.Set(0, j, float32(rng.NormFloat64()))
	}
	for _, d := range []string{"cpu", "emu"} {
		for _, verify := range []bool{false, true} {
			opts := []tilework.Option{tilework.WithDevice(d), x.option(), tilework.WithColScale(scale),
				tilework.WithColBias(bias)}
			if verify {
				opts = append(opts, tilework.WithVerify())
			}
			y := tilework.New[float32](m, n)
			for i := range y.Data() {
				y.Data()[i] = 1
			}
			if err := tilework.Gemm(t.Context(), 0.5, x.a, x.b, -2, y, opts...); err != nil {
				t.Fatalf("%s: %v", d, err)
			}
			for i := range m {
				for j := range n {
					s := float64(scale.At(0, j))
					sum := 0.5 * float64(float32(x.want.At(i, j)))
					want := (sum-2)*s + float64(bias.At(0, j))
					bound := 4 * 0x1p-24 * ((math.Abs(sum)+2)*math.Abs(s) + math.Abs(float64(bias.At(0, j))))
					if got := float64(y.At(i, j)); math.Abs(got-want) > bound {
						t.Fatalf("%s, verified %v: element (%d, %d) is %v, want %v ± %.2g", d, verify, i, j, got, want, bound)
					}
				}
			}
		}
	}
}

// TestZeroPointsRefused checks the errors of operands and options that do not fit.
func TestZeroPointsRefused(t *testing.T) {
	ctx := t.Context()
	u, s, f := tilework.New[uint8](3, 4), tilework.New[int8](4, 5), tilework.New[float32](3, 5)
	one := tilework.Vector[int32](1)
	on := func(a, b tilework.Operand[int32], opts ...tilework.Option) error {
		return tilework.Gemm(ctx, 1, u, s, 0, f, append(opts, tilework.WithZeroPoints(a, b))...)
	}
	d, err := tilework.Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	batch, err := tilework.Upload(ctx, d, tilework.Batch[uint8]{tilework.New[uint8](4, 4)})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	sums, err := tilework.NewDeviceBatch[int32](d, 1, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	for _, tc := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"too few", on(tilework.Vector[int32](1, 2), nil), tilework.ErrShape,
			"row-zero of length 2 for a result of 3×5, want 3"},
		{"too many", on(nil, tilework.New[int32](1, 6)), tilework.ErrShape,
			"col-zero of length 6 for a result of 3×5, want 5"},
		{"floats", tilework.Gemm(ctx, 1, f.T(), f, 0, tilework.New[float32](5, 5), tilework.WithZeroPoints(one, nil)),
			tilework.ErrUnsupported, "zero points of float32: they are for int8 and uint8"},
		{"types", tilework.Gemm(ctx, 1, f.T(), u, 0, tilework.New[float32](5, 4)), tilework.ErrUnsupported,
			"A holds float32 and B holds uint8"},
		{"gated", on(one, nil, tilework.WithGated(s)), tilework.ErrUnsupported,
			"a gated product with zero points or of uint8"},
		{"result", tilework.Gemm(ctx, 1, u, s, 0, tilework.New[uint8](3, 5)), tilework.ErrUnsupported,
			"a product of uint8 matrices as uint8 (want int32 or float32"},
		{"batch", tilework.Gemm(ctx, 1, batch, batch, 0, sums), tilework.ErrUnsupported, "a batch of uint8"},
		{"nothing", on(nil, nil), nil, ""},
	} {
		if !errors.Is(tc.err, tc.want) || tc.err != nil && !strings.Contains(tc.err.Error(), tc.text) {
			t.Errorf("%s: error %v, want %v with %q", tc.name, tc.err, tc.want, tc.text)
		}
	}
}
