package tilework

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit"
)

// e4m3 returns a rows×cols matrix whose element (i, j) is the whole number f(i, j).
func e4m3(rows, cols int, f func(i, j int) int) Matrix[dtype.Float8E4M3] {
	m := New[dtype.Float8E4M3](rows, cols)
	for i := range rows {
		for j := range cols {
			m.Set(i, j, dtype.Float8E4M3From32(float32(f(i, j))))
		}
	}
	return m
}

// TestBlockScales checks products of block-scaled operands, with one scale per row, column or block
// of 128, on every device. It transposes operands and scales, and enables verification.
func TestBlockScales(t *testing.T) {
	const m, n, k = 130, 140, 300
	a := e4m3(m, k, func(i, j int) int { return (i+3*j)%5 - 2 })
	at := e4m3(k, m, func(i, j int) int { return (j+3*i)%5 - 2 }).T()
	b := e4m3(k, n, func(i, j int) int { return (i*j)%3 - 1 })
	scales := func(rows, cols int) Matrix[float32] {
		s := New[float32](rows, cols)
		for i := range rows {
			for j := range cols {
				s.Set(i, j, float32(math.Ldexp(1, (i+2*j)%4-1)))
			}
		}
		return s
	}
	// transposed returns a copy of s stored by columns.
	transposed := func(s Matrix[float32]) Matrix[float32] {
		r, c := s.Rows(), s.Cols()
		x := New[float32](c, r).T()
		for i := range r {
			for j := range c {
				x.Set(i, j, s.At(i, j))
			}
		}
		return x
	}
	ctx := t.Context()
	devices := []string{"cpu", "emu:h200"}
	if testkit.Full() {
		devices = append(devices, "emu:t4")
	}
	for _, sides := range [][2]int{{1, 128}, {1, 1}, {128, 1}, {128, 128}} {
		sa, sb := scales((m+sides[0]-1)/sides[0], 3), scales(3, (n+sides[1]-1)/sides[1])
		want := New[float32](m, n)
		for i := range m {
			for j := range n {
				var sum float32
				for p := range k {
					sum += sa.At(i/sides[0], p/128) * a.At(i, p).Float32() * sb.At(p/128, j/sides[1]) * b.At(p, j).Float32()
				}
				want.Set(i, j, 2*sum)
			}
		}
		for _, device := range devices {
			t.Run(device, func(t *testing.T) {
				for name, x := range map[string]struct {
					a    Matrix[dtype.Float8E4M3]
					c    Matrix[float32]
					opts []Option
				}{
					"by rows":        {a, New[float32](m, n), []Option{WithBlockScales(sa, sb)}},
					"all transposed": {at, New[float32](n, m).T(), []Option{WithBlockScales(transposed(sa), transposed(sb))}},
					"verified":       {a, New[float32](m, n), []Option{WithBlockScales(sa, sb), WithVerify()}},
					"output scale": {a, New[float32](m, n), []Option{WithBlockScales(sa, transposed(sb)),
						WithOutputScale(Vector(0.5)), WithVerify()}},
				} {
					if device == "emu:t4" && (name != "by rows" || sides != [2]int{1, 128}) {
						continue // emulating a kernel of many threads is slow
					}
					name := fmt.Sprintf("%s, scale blocks of %v, %s", device, sides, name)
					factor := float32(1)
					if len(x.opts) == 3 {
						factor = 0.5
					}
					if err := Gemm(ctx, 2, x.a, b, 0, x.c, append(x.opts, WithDevice(device))...); err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					for i := range m * n {
						if got := x.c.At(i/n, i%n); got != factor*want.At(i/n, i%n) {
							t.Fatalf("%s: C(%d,%d) is %v, want %v", name, i/n, i%n, got, factor*want.At(i/n, i%n))
						}
					}
				}
			})
		}
	}
}

// TestBlockScalesOn checks block scales of operands on a device. The scales are on the host or on
// the device.
func TestBlockScalesOn(t *testing.T) {
	ctx := t.Context()
	d, err := Open("emu:h200")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	one := func(int, int) int { return 1 }
	a, b := upload(t, d, e4m3(3, 200, one)), upload(t, d, e4m3(200, 2, one))
	sa, sb := FromSlice(3, 2, []float32{1, 2, 3, 4, 5, 6}), FromSlice(2, 1, []float32{10, 100})
	for name, opt := range map[string]Option{
		"on the host":   WithBlockScales(sa, sb),
		"on the device": WithBlockScales(upload(t, d, sa), upload(t, d, sb)),
	} {
		c, err := NewDeviceMatrix[float32](d, 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := Gemm(ctx, 1, a, b, 0, c, opt); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := c.Download(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if want := 128*sa.At(i, 0)*10 + 72*sa.At(i, 1)*100; got.At(i, 1) != want {
				t.Errorf("%s: C(%d,1) is %v, want %v", name, i, got.At(i, 1), want)
			}
		}
		if err := Gemm(ctx, 1, a, b, 0, c, opt, WithVerify()); err != nil {
			t.Errorf("%s, verified: %v", name, err)
		}
	}
}

// TestBlockScaleErrors checks the errors of invalid block scales.
func TestBlockScaleErrors(t *testing.T) {
	a, b, c := New[dtype.Float8E4M3](4, 200), New[dtype.Float8E4M3](200, 6), New[float32](4, 6)
	s := New[float32]
	for _, x := range []struct {
		name string
		opts []Option
		want error
	}{
		{"too few rows", []Option{WithBlockScales(s(3, 2), s(2, 6))}, ErrShape},
		{"too few blocks along K", []Option{WithBlockScales(s(4, 1), s(1, 6))}, ErrShape},
		{"transposed by mistake", []Option{WithBlockScales(s(2, 4), s(2, 6))}, ErrShape},
		{"gated", []Option{WithBlockScales(s(4, 2), s(2, 6)), WithGated(b)}, ErrUnsupported},
		{"precision fast", []Option{WithBlockScales(s(4, 2), s(2, 1)), WithFastAccumulation(), WithDevice("emu:h200")},
			ErrUnsupported},
		{"kernel without block scales", []Option{WithBlockScales(s(4, 2), s(2, 1)), WithKernel("tiled"),
			WithDevice("emu:h200")}, ErrUnsupported},
	} {
		if err := Gemm(t.Context(), 1, a, b, 0, c, x.opts...); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
	f := New[float32](4, 4)
	if err := Gemm(t.Context(), 1, f, f, 0, New[float32](4, 4), WithBlockScales(s(4, 1), s(1, 4))); !errors.Is(err,
		ErrUnsupported) {
		t.Errorf("block scales of float32: %v, want ErrUnsupported", err)
	}
}
