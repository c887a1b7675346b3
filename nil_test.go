package tilework

import (
	"errors"
	"strings"
	"testing"

	"tilework/internal/cache"
	"tilework/internal/dispatch/tuned"
	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ranks"
)

// TestZeroArguments calls every exported function and option with nil and zero arguments. A wrong
// argument must be a documented error, without a panic, and without an internal name in the text.
func TestZeroArguments(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	ctx, d := t.Context(), on(t, "emu")
	m, device, batch := New[float32](3, 3), DeviceMatrix[float32]{}, DeviceBatch[float32]{}
	reads, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg {
		return k.Add(e.Value, e.Data.At(0).Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, call func() error, want ...error) {
		calm(t, what, func(string) {
			err := call()
			switch is := func(want error) bool { return errors.Is(err, want) }; {
			case len(want) == 0 && err != nil:
				t.Errorf("%s: %v", what, err)
			case len(want) > 0 && (err == nil || !is(want[0])):
				t.Errorf("%s: got error %v, want %v", what, err, want[0])
			case err != nil && (strings.Contains(err.Error(), "function-") || strings.Contains(err.Error(), "%!")):
				t.Errorf("%s: unclear error %q", what, err)
			}
		})
	}
	with := func(o Option) func() error {
		return func() error { _, err := Mul(ctx, m, m, WithDevice("emu"), o); return err }
	}
	for what, o := range map[string]Option{
		"nil Option":   nil,
		"WithTileFunc": WithTileFunc[float32](nil), "WithProgress": WithProgress(nil), "WithDevice": WithDevice(""),
		"WithVerify": WithVerify(), "WithThreads": WithThreads(0),
		"WithKernel": WithKernel(""), "WithRowInvariance": WithRowInvariance(), "WithSaturation": WithSaturation(),
	} {
		check(what, with(o))
	}
	for what, o := range map[string]Option{
		"WithColBias": WithColBias[float32](nil), "WithRowBias": WithRowBias[float32](nil),
		"WithColScale": WithColScale[float32](nil), "WithRowScale": WithRowScale[float32](nil),
		"WithOutputScale": WithOutputScale[float32](nil), "WithResidual": WithResidual[float32](nil),
		"WithGated": WithGated[float32](nil), "WithBlockScales": WithBlockScales(nil, nil), "WithGroups": WithGroups(nil),
		"WithDeviceFunc, nil data": WithDeviceFunc[float32](reads, nil),
	} {
		check(what, with(o), ErrShape)
	}
	for what, o := range map[string]Option{
		"WithDeviceFunc, nil":  WithDeviceFunc[float32](nil, nil),
		"WithDeviceFunc, zero": WithDeviceFunc[float32](&DeviceFunc{}, nil),
		"WithVerify, zero":     WithVerifyLimit(0),
	} {
		check(what, with(o), ErrUnsupported)
	}
	second := func(_ any, err error) error { return err }
	check("NewDeviceFunc", func() error { return second(NewDeviceFunc(nil)) }, ErrUnsupported)
	check("NewDeviceFunc, zero Reg", func() error {
		return second(NewDeviceFunc(func(*build.Kernel, DeviceElement) build.Reg { return build.Reg{} }))
	}, ErrUnsupported)
	check("Open", func() error { return second(Open("")) }, ErrUnsupported)
	check("OpenRanks, nil", func() error { return second(OpenRanks(ctx, nil, "cpu")) }, ErrUnsupported)
	check("OpenRanks, zero", func() error { return second(OpenRanks(ctx, &ranks.Group{}, "cpu")) }, ErrUnsupported)
	check("Mul", func() error { return second(Mul[Matrix[float32]](ctx, m, nil)) }, ErrShape)
	check("Mul, zero", func() error { return second(Mul(ctx, device, device)) }, ErrNoDevice)
	check("Gemm", func() error { return Gemm[float32, float32, float32](ctx, 1, nil, nil, 0, nil) }, ErrShape)
	var empty Batch[float32]
	check("Gemm, nil Batch", func() error { return Gemm(ctx, 1, empty, empty, 0, empty) })
	check("Gemm, DeviceBatch", func() error { return Gemm(ctx, 1, batch, batch, 0, batch) }, ErrNoDevice)
	check("Copy", func() error { return Copy[float32](ctx, nil, nil) }, ErrUnsupported)
	check("Upload", func() error {
		return second(Upload[Matrix[float32], DeviceMatrix[float32]](ctx, nil, m))
	}, ErrNoDevice)
	check("Upload, nil Batch", func() error { return second(Upload[Batch[float32], DeviceBatch[float32]](ctx, d, nil)) })
	check("Pack", func() error { return second(Pack(ctx, Matrix[float32]{})) })
	check("PlanGemm", func() error { return second(PlanGemm[float32, float32, float32](ctx, nil, nil, nil)) }, ErrShape)
	check("TuneGemm", func() error { return second(TuneGemm[float32, float32, float32](ctx, nil, nil, nil, 0)) }, ErrShape)
	check("NewDeviceMatrix", func() error { return second(NewDeviceMatrix[float32](nil, 0, 0)) }, ErrNoDevice)
	check("NewDeviceBatch", func() error { return second(NewDeviceBatch[float32](nil, 0, 0, 0)) }, ErrNoDevice)
	check("Vector", func() error { return Vector[float32]().Err() })
	check("GroupEnds", func() error { return GroupEnds().Err() })
	check("FromSlice", func() error { return FromSlice[float32](17, 0, nil).Err() })
	check("FromStrided", func() error { return FromStrided[float32](17, 0, 0, nil).Err() })
	check("FromStrided, stride 0", func() error { return FromStrided[float32](1, 1, 0, []float32{1}).Err() }, ErrShape)
	check("FromStrided, stride -1", func() error { return FromStrided[float32](1, 0, -1, nil).Err() }, ErrShape)
	for what, call := range map[string]func(){
		"Plan": func() { _ = Plan{}.String() },
		"Device": func() {
			for _, d := range []*Device{nil, {}} {
				_ = d.String()
				check("Device.Sync", func() error { return d.Sync(ctx) }, ErrNoDevice)
				check("Device.Close", d.Close, ErrNoDevice)
			}
		},
		"Matrix": func() {
			var m Matrix[float32]
			_, _, _, _ = m.T(), m.Sub(0, 0, 0, 0), m.Data(), m.String()
		},
		"DeviceMatrix": func() {
			_, _, _, _ = device.T(), device.Sub(0, 0, 0, 0), device.Batch(0, 0), device.String()
			_, _, _, _ = device.Part()
			check("Download", func() error { return second(device.Download(ctx)) }, ErrNoDevice)
			check("Close", device.Close)
		},
		"DeviceBatch": func() {
			_, _, _, _ = batch.T(), batch.Matrix(0), batch.Count(), batch.String()
			check("Download", func() error { return second(batch.Download(ctx)) }, ErrNoDevice)
			check("Close", batch.Close)
		},
	} {
		calm(t, what, func(string) { call() })
	}
}

// TestClearRefusals checks that errors give the wanted value, in the words of the documentation.
func TestClearRefusals(t *testing.T) {
	ctx, d := t.Context(), on(t, "emu")
	m := New[float32](2, 3)
	square := New[float32](3, 3)
	on, err := Upload[Matrix[float32], DeviceMatrix[float32]](ctx, d, square)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg { return k.Add(e.Value, e.Value) })
	if err != nil {
		t.Fatal(err)
	}
	reads, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg { return e.Data.At(0).Load() })
	if err != nil {
		t.Fatal(err)
	}
	float32Only, err := NewDeviceFunc(func(k *build.Kernel, e DeviceElement) build.Reg { return k.Var("", ptx.F32, 0) })
	if err != nil {
		t.Fatal(err)
	}
	wide := New[float64](3, 3)
	batch := on.Batch(1, 0)
	for _, c := range []struct {
		err  error
		want string
	}{
		{FromStrided[float32](2, 3, 1, nil).Err(), "a 2×3 matrix of stride 1, want a stride of at least 3"},
		{Gemm(ctx, 1, batch, batch, 0, batch, WithOutputScale(Vector[float32](2))),
			"a batch with the output scale, want at most a bias and an activation: alpha scales the products"},
		{Gemm(ctx, 1, batch, batch, 0, batch, WithDeviceFunc[float32](plain, nil)), "a batch with a device function, want"},
		{Gemm(ctx, 1, m, square, 0, New[float32](2, 3), WithDevice("emu"), WithDeviceFunc[float32](reads, nil)),
			"no data for a device function that reads some: want a vector"},
		{Gemm(ctx, 1, wide, wide, 0, New[float64](3, 3), WithDeviceFunc[float64](float32Only, nil)),
			"a device function on the CPU: want a function of tiles, or a GPU"},
		{Gemm(ctx, 1, square, square, 0, New[float32](3, 3), WithDevice("emu"), WithDeviceFunc[float32](plain, nil),
			WithVerify()),
			"verifying a product with a device function"},
		{Gemm(ctx, 1, wide, wide, 0, New[float64](3, 3), WithDevice("emu"), WithDeviceFunc[float64](float32Only, nil)),
			"the device function on elements of float64"},
		{Gemm(ctx, 1, square, square, 0, New[float32](3, 3), WithOutputScale(Vector[float32](1, 2))),
			"the output scale of length 2 for a result of 3×3, want 1"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || strings.Contains(c.err.Error(), "function-") {
			t.Errorf("got error %v, want %q", c.err, c.want)
		}
	}
	err = Gemm(ctx, 1, square, square, 0, New[float32](3, 3), WithDeviceFunc[float32](plain, nil))
	if err != nil && !strings.Contains(err.Error(), "the device function is for device gpu or emu: ") { // without a GPU
		t.Errorf("on any device: %v", err)
	}
}
