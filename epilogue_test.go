package tilework

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/ptx/build"
)

// TestEpilogueOptions checks that the stages of the epilogue run in the documented order on the CPU
// and the emulated GPU, for a plain and a transposed C, with and without verification. It also
// checks the errors of invalid epilogue operands.
func TestEpilogueOptions(t *testing.T) {
	const m, n, k = 5, 7, 3
	fill := func(rows, cols int, f func(i, j int) float32) Matrix[float32] {
		x := New[float32](rows, cols)
		for i := range rows {
			for j := range cols {
				x.Set(i, j, f(i, j))
			}
		}
		return x
	}
	a := fill(m, k, func(i, j int) float32 { return float32(i - j) })
	b := fill(k, n, func(i, j int) float32 { return float32(2*i - j) })
	res := fill(m, n, func(i, j int) float32 { return float32(i * j) })
	resT := fill(n, m, func(i, j int) float32 { return float32(i * j) }).T()
	rows, cols, bias := make([]float32, m), make([]float32, n), make([]float32, n)
	for i := range rows {
		rows[i] = float32(1 - i)
	}
	for j := range cols {
		cols[j], bias[j] = float32(j-2), float32(3*j)
	}
	want := fill(m, n, func(i, j int) float32 {
		var x float32
		for p := range k {
			x += a.At(i, p) * b.At(p, j)
		}
		return (max(rows[i]*cols[j]*x+bias[j], 0) + res.At(i, j)) / 2
	})
	check := func(name string, got Matrix[float32], err error) {
		t.Helper()
		for i := range m {
			for j := range n {
				if err == nil && got.At(i, j) != want.At(i, j) {
					t.Errorf("%s: C(%d,%d) is %v, want %v", name, i, j, got.At(i, j), want.At(i, j))
					return
				}
			}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx := t.Context()
	for _, device := range []string{"cpu", "emu"} {
		for _, extra := range [][]Option{nil, {WithVerify()}} {
			opts := append([]Option{WithDevice(device), WithRowScale(Vector(rows...)), WithColScale(Vector(cols...)),
				WithColBias(Vector(bias...)), WithReLU(), WithOutputScale(Vector(0.5))}, extra...)
			c := New[float32](m, n)
			check(device, c, Gemm(ctx, 1, a, b, 0, c, append(opts, WithResidual(res))...))
			ct := New[float32](n, m).T()
			check(device+", transposed", ct, Gemm(ctx, 1, a, b, 0, ct, append(opts, WithResidual(resT))...))
		}
	}
	for _, x := range []struct {
		name string
		opt  Option
		want error
	}{
		{"residual of another shape", WithResidual(New[float32](m, n+1)), ErrShape},
		{"residual of another type", WithResidual(New[float64](m, n)), ErrUnsupported},
		{"residual stored by columns", WithResidual(resT), ErrUnsupported},
		{"too few scales", WithRowScale(Vector(cols[:m-1]...)), ErrShape},
		{"scales of another type", WithColScale(Vector(make([]float64, n)...)), ErrUnsupported},
	} {
		c := New[float32](m, n)
		if err := Gemm(ctx, 1, a, b, 0, c, x.opt, WithDevice("cpu")); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
	c := New[float32](m, n)
	if err := Gemm(ctx, 1, a, b, 0, c, WithResidual(c), WithDevice("cpu")); !errors.Is(err, ErrOverlap) {
		t.Errorf("C as its own residual: %v, want ErrOverlap", err)
	}
}

// TestDeviceFunc checks that the emulated GPU applies a DeviceFunc to each element, with its
// position and data. Products that cannot apply the function must fail.
func TestDeviceFunc(t *testing.T) {
	ctx := t.Context()
	f, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg {
		return k.Mad(e.Value, e.Data.At(e.Col).Load(), k.To(e.Value.Type(), e.Row))
	})
	if err != nil {
		t.Fatal(err)
	}
	a, b := FromSlice(2, 1, []float32{1, 2}), FromSlice(1, 3, []float32{1, 2, 3})
	data := []float32{10, 20, 30}
	want := []float32{10, 40, 90, 21, 81, 181}
	check := func(name string, c Matrix[float32], err error) {
		t.Helper()
		if err != nil {
			t.Fatal(name, err)
		}
		for i, x := range want {
			if got := c.At(i/3, i%3); got != x {
				t.Errorf("%s: element %d is %v, want %v", name, i, got, x)
			}
		}
	}
	c, err := Mul(ctx, a, b, WithDevice("emu"), WithDeviceFunc(f, Vector(data...)))
	check("on the host", c, err)
	c = New[float32](3, 2).T()
	check("transposed", c, Gemm(ctx, 1, a, b, 0, c, WithDevice("emu"), WithDeviceFunc(f, Vector(data...))))

	d, err := Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	up := func(m Matrix[float32]) DeviceMatrix[float32] {
		on, err := Upload(ctx, d, m)
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	for name, o := range map[string]Option{"data on the host": WithDeviceFunc(f, Vector(data...)),
		"data on the device": WithDeviceFunc(f, up(FromSlice(1, 3, data)))} {
		on, err := Mul(ctx, up(a), up(b), o)
		if err != nil {
			t.Fatal(name, err)
		}
		c, err := on.Download(ctx)
		check(name, c, err)
	}
	for name, opts := range map[string][]Option{
		"CPU":                  {WithDevice("cpu"), WithDeviceFunc(f, Vector(data...))},
		"verified product":     {WithDevice("emu"), WithDeviceFunc(f, Vector(data...)), WithVerify()},
		"data of another type": {WithDevice("emu"), WithDeviceFunc(f, Vector[float64](1, 2, 3))},
		"no function":          {WithDevice("emu"), WithDeviceFunc(nil, Vector(data...))},
	} {
		if _, err := Mul(ctx, a, b, opts...); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
	if _, err := Mul(ctx, a, b, WithDevice("emu"), WithDeviceFunc(f, Vector[float32]())); !errors.Is(err, ErrShape) {
		t.Errorf("a function that reads data, with empty data: %v, want ErrShape", err)
	}
}

// TestSaturation checks that WithSaturation clamps results to the range of float16 and keeps NaN.
func TestSaturation(t *testing.T) {
	a := FromSlice(3, 1, []dtype.Float16{dtype.Float16From32(300), dtype.Float16From32(-300),
		dtype.Float16From32(float32(math.NaN()))})
	b := FromSlice(1, 1, []dtype.Float16{dtype.Float16From32(300)})
	for _, device := range []string{"cpu", "emu"} {
		c, err := Mul(t.Context(), a, b, WithDevice(device), WithSaturation())
		if err != nil {
			t.Fatal(err)
		}
		if x, y, z := c.At(0, 0).Float32(), c.At(1, 0).Float32(), c.At(2, 0).Float32(); x != 65504 || y != -65504 || z == z {
			t.Errorf("%s: got %v, %v and %v, want 65504, -65504 and NaN", device, x, y, z)
		}
	}
}

// TestEpilogueOptionsOn checks the epilogue of products on a device, with epilogue operands on the
// device or on the host.
func TestEpilogueOptionsOn(t *testing.T) {
	ctx := t.Context()
	d, err := Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	up := func(rows, cols int, v ...float32) DeviceMatrix[float32] {
		m, err := Upload(ctx, d, FromSlice(rows, cols, v))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := up(2, 1, 1, 2), up(1, 3, 1, 2, 3)
	rows, out := up(1, 2, 10, 100), up(1, 1, 0.5)
	res := up(2, 3, 1, 2, 3, 4, 5, 6)
	want := []float32{5.5, -9, 31.5, 102, -197.5, 603}
	for name, opts := range map[string][]Option{
		"on the device": {WithRowScale(rows), WithColScale(Vector[float32](1, -1, 2)), WithResidual(res),
			WithOutputScale(out)},
		"on the host": {WithRowScale(Vector[float32](10, 100)), WithColScale(Vector[float32](1, -1, 2)),
			WithResidual(FromSlice(2, 3, []float32{1, 2, 3, 4, 5, 6})), WithOutputScale(Vector(0.5))},
	} {
		c, err := Mul(ctx, a, b, opts...)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := c.Download(ctx)
		if err != nil {
			t.Fatal(name, err)
		}
		for i, x := range want {
			if got.At(i/3, i%3) != x {
				t.Errorf("%s: element %d is %v, want %v", name, i, got.At(i/3, i%3), x)
			}
		}
	}
	if _, err := Mul(ctx, a, b, WithColScale(res)); !errors.Is(err, ErrShape) {
		t.Errorf("scales in a matrix: %v, want ErrShape", err)
	}
}

// TestGated checks gated products act(α·A·B)∘(α·A·up) on the CPU and the emulated GPU, from host
// and device matrices, with separate weights and with both weights in one matrix, with and without
// verification. Options that cannot be combined with gating must fail.
func TestGated(t *testing.T) {
	ctx := t.Context()
	const m, n, k = 9, 24, 16
	fill := func(rows, cols int, f func(i, j int) int) Matrix[dtype.BFloat16] {
		x := New[dtype.BFloat16](rows, cols)
		for i := range rows {
			for j := range cols {
				x.Set(i, j, dtype.BFloat16From32(float32(f(i, j))))
			}
		}
		return x
	}
	a := fill(m, k, func(i, j int) int { return (i+2*j)%3 - 1 })
	both := fill(k, 2*n, func(i, j int) int { return (3*i+j)%5 - 2 })
	gate, up := both.Sub(0, 0, k, n), both.Sub(0, n, k, n)
	res := fill(m, n, func(i, j int) int { return i - j })
	want := fill(m, n, func(i, j int) int {
		x, y := 0, 0
		for p := range k {
			x += int(a.At(i, p).Float32() * gate.At(p, j).Float32())
			y += int(a.At(i, p).Float32() * up.At(p, j).Float32())
		}
		return 4*max(x, 0)*y + i - j
	})
	check := func(name string, got Matrix[dtype.BFloat16], err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range m {
			for j := range n {
				if got.At(i, j) != want.At(i, j) {
					t.Fatalf("%s: C(%d,%d) is %v, want %v", name, i, j, got.At(i, j), want.At(i, j))
				}
			}
		}
	}
	opts := []Option{WithGated(up), WithReLU(), WithResidual(res)}
	for _, on := range [][]Option{
		{WithDevice("cpu")}, {WithDevice("cpu"), WithVerify()}, {WithDevice("emu")}, {WithDevice("emu"), WithVerify()},
		{WithDevice("emu"), WithKernel("naive")}, {WithDevice("emu"), WithKernel("wgmma")},
	} {
		c := New[dtype.BFloat16](m, n)
		check("from the host", c, Gemm(ctx, 2, a, gate, 0, c, append(on, opts...)...))
	}
	apart := fill(k, n, func(i, j int) int { return int(up.At(i, j).Float32()) }) // of another leading dimension
	for _, device := range []string{"cpu", "emu"} {
		c := New[dtype.BFloat16](m, n)
		check("separate weights on "+device, c, Gemm(ctx, 2, a, gate, 0, c, WithGated(apart), WithReLU(),
			WithResidual(res), WithDevice(device), WithVerify()))
	}
	w, err := Pack(ctx, gate)
	if err != nil {
		t.Fatal(err)
	}
	packed := New[dtype.BFloat16](m, n)
	check("packed", packed, Gemm(ctx, 2, a, w, 0, packed, opts...))
	d, err := Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	there := func(x Matrix[dtype.BFloat16]) DeviceMatrix[dtype.BFloat16] {
		on, err := Upload(ctx, d, x)
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	onA, onBoth, c := there(a), there(both), there(New[dtype.BFloat16](m, n))
	onGate, onUp := onBoth.Sub(0, 0, k, n), onBoth.Sub(0, n, k, n)
	for name, o := range map[string]Option{"up on the host": WithGated(up), "up on the device": WithGated(onUp)} {
		for _, kernel := range []string{"", "mma"} {
			if err := Gemm(ctx, 2, onA, onGate, 0, c, o, WithReLU(), WithResidual(res),
				WithKernel(kernel)); err != nil {
				t.Fatal(name, err)
			}
			got, err := c.Download(ctx)
			check(name, got, err)
		}
	}

	out := New[dtype.BFloat16](m, n)
	for name, x := range map[string]struct {
		err, want error
	}{
		"up of another shape": {Gemm(ctx, 1, a, gate, 0, out, WithGated(both)), ErrShape},
		"up of another type":  {Gemm(ctx, 1, a, gate, 0, out, WithGated(New[float32](k, n))), ErrUnsupported},
		"up stored by columns": {Gemm(ctx, 1, a, gate, 0, out, WithGated(New[dtype.BFloat16](n, k).T())),
			ErrUnsupported},
		"beta": {Gemm(ctx, 1, a, gate, 1, out, WithGated(up)), ErrUnsupported},
		"bias": {Gemm(ctx, 1, a, gate, 0, out, WithGated(up),
			WithColBias(Vector(make([]dtype.BFloat16, n)...))), ErrUnsupported},
		"C stored by columns": {Gemm(ctx, 1, a, gate, 0, New[dtype.BFloat16](n, m).T(), WithGated(up)),
			ErrUnsupported},
		"C shares memory with up": {Gemm(ctx, 1, a, gate, 0, both.Sub(0, n, m, n), WithGated(up)), ErrOverlap},
		"integers": {Gemm(ctx, 1, New[int8](2, 2), New[int8](2, 2), 0, New[int32](2, 2),
			WithGated(New[int8](2, 2))), ErrUnsupported},
		"groups": {Gemm(ctx, 1, a, Batch[dtype.BFloat16]{gate}, 0, out, WithGroups(GroupEnds(m)),
			WithGated(up)), ErrUnsupported},
		"verification on the device":    {Gemm(ctx, 1, onA, onGate, 0, c, WithGated(onUp), WithVerify()), ErrUnsupported},
		"up on a device, C on the host": {Gemm(ctx, 1, a, gate, 0, out, WithGated(onUp)), ErrUnsupported},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", name, x.err, x.want)
		}
	}
	err = Gemm(ctx, 1, a, gate, 0, New[dtype.BFloat16](n, m).T(), WithGated(up))
	if got := fmt.Sprint(err); !strings.HasSuffix(got, "a gated product with a transposed C") {
		t.Errorf("C stored by columns: %s, want an error about C alone", got)
	}
}
