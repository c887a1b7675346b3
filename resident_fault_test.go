package tilework

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/dispatch"
)

func TestResidentErrors(t *testing.T) {
	substitute(t, 1<<20)
	ctx := t.Context()
	d, other, again := on(t, "emu"), on(t, "emu:t4"), on(t, "emu")
	a, b, c := upload(t, d, New[float64](3, 4)), upload(t, d, New[float64](4, 5)), upload(t, d, New[float64](3, 5))
	far, twice := upload(t, other, New[float64](4, 5)), upload(t, again, New[float64](4, 5))
	both := upload(t, d, New[float64](8, 8))
	short := upload(t, d, New[float64](1, 3))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	var none DeviceMatrix[float64]
	gemm := func(a, b, c DeviceMatrix[float64], opts ...Option) error { return Gemm(ctx, 1, a, b, 0, c, opts...) }
	second := func(_ any, err error) error { return err }
	for _, test := range []struct {
		name string
		err  error
		want error
		text string // what the message must hold
	}{
		{"no such name", second(Open("gup")), ErrNoDevice, `unknown device "gup"`},
		{"the processor", second(Open("cpu")), ErrUnsupported, "matrices that stay on device cpu (want gpu, gpu:N, emu or emu:MODEL)"},
		{"any", second(Open("")), ErrUnsupported, "auto"},
		{"no device", second(Upload(ctx, nil, New[float32](1, 1))), ErrNoDevice, "Open"},
		{"no opened device", (&Device{}).Sync(ctx), ErrNoDevice, "Open"},
		{"no matrix", gemm(none, b, c), ErrNoDevice, "A on no device"},
		{"no C", gemm(a, b, none), ErrNoDevice, "C on no device"},
		{"no download", second(none.T().Download(ctx)), ErrNoDevice, "the matrix on no device"},
		{"no product", second(Mul(ctx, none, b)), ErrNoDevice, "A on no device"},
		{"inner sizes", gemm(a, b.T(), c), ErrShape, "A has 4 columns where B has 5 rows"},
		{"inner sizes of a new one", second(Mul(ctx, a, a)), ErrShape, "A has 4 columns where B has 3 rows"},
		{"C's size", gemm(a, b, both), ErrShape, "C is 8×8, want 3×5"},
		{"a part too large", gemm(a.Sub(0, 0, 3, 5), b, c), ErrShape, "a 3×5 part from (0, 0) of a 3×4 matrix"},
		{"a part of that", a.Sub(-1, 0, 3, 5).T().Sub(0, 0, 1, 1).Err(), ErrShape, "from (-1, 0)"},
		{"sizes that are none", second(NewDeviceMatrix[float32](d, -1, 2)), ErrShape, "-1×2"},
		{"sizes past counting", second(NewDeviceMatrix[float32](d, 1<<40, 1<<40)), ErrShape, "63 bits"},
		{"a broken matrix of the host's", second(Upload(ctx, d, New[float32](-1, 2))), ErrShape, "-1×2"},
		{"upload of another size", Copy(ctx, a, New[float64](4, 3)), ErrShape, "a copy between 3×4 on the device and 4×3 on the host"},
		{"download of another size", Copy(ctx, New[float64](4, 3), a), ErrShape, "a copy between 3×4 on the device and 4×3"},
		{"C over A", gemm(both.Sub(2, 3, 3, 4), b, both.Sub(0, 0, 3, 5)), ErrOverlap, "C shares memory with A"},
		{"C over B", gemm(a, both.Sub(2, 2, 4, 5), both.Sub(0, 0, 3, 5)), ErrOverlap, "C shares memory with B"},
		{"C over the bias", gemm(a, b, both.Sub(0, 0, 3, 5), WithColBias(both.Sub(1, 3, 1, 5))), ErrOverlap, "the bias"},
		{"bias too short", gemm(a, b, c, WithColBias(short)), ErrShape, "the bias with 3 elements for a result of 3×5, want 5"},
		{"bias in a column", gemm(a, b, c, WithColBias(both.Sub(0, 0, 5, 1))), ErrShape, "the bias stored as 5 rows of 1, want one row of 5"},
		{"bias of nothing", gemm(a, b, c, WithColBias(none)), ErrNoDevice, "the bias on no device"},
		{"bias of another type", gemm(a, b, c, WithRowBias(Vector(make([]float32, 3)...))), ErrUnsupported, "the bias of float32"},
		{"bias elsewhere", gemm(a, b, c, WithColBias(upload(t, other, New[float64](1, 5)))), ErrUnsupported, "the bias is on device emu:t4"},
		{"bias on a device for the host", Gemm(ctx, 1, New[float64](3, 4), New[float64](4, 3), 0, New[float64](3, 3), WithRowBias(short)), ErrUnsupported, "on device emu"},
		{"two devices", gemm(a, far, c), ErrUnsupported, "B is on device emu:t4 and C on emu: download one"},
		{"one device twice", gemm(a, twice, c), ErrUnsupported, "B and C are on device emu opened twice"},
		{"another device", gemm(a, b, c, WithDevice("cpu")), ErrUnsupported, "device cpu for matrices on emu"},
		{"no such device", gemm(a, b, c, WithDevice("gup")), ErrNoDevice, "gup"},
		{"no such kernel", gemm(a, b, c, WithKernel("fast")), ErrUnsupported, `no GPU kernel "fast"`},
		{"no such shape", gemm(a, b, c, WithKernel("tiled:17x")), ErrUnsupported, "17x"},
		{"verification of an activation", gemm(a, b, c, WithVerify(), WithActivation(ReLU)), ErrUnsupported, "without that, or on the host"},
		{"precision", gemm(a, b, c, WithPrecision(Fast)), ErrUnsupported, "precision fast of float64 matrices"},
		{"activation", gemm(a, b, c, WithActivation(99)), ErrUnsupported, "activation 99"},
		{"cancelled", Gemm(cancelled, 1, a, b, 0, c), context.Canceled, ""},
		{"cancelled upload", second(Upload(cancelled, d, New[float64](3, 4))), context.Canceled, ""},
		{"cancelled download", second(a.Download(cancelled)), context.Canceled, ""},
		{"cancelled sync", d.Sync(cancelled), context.Canceled, ""},
		{"too large", second(NewDeviceMatrix[float32](d, 1024, 1024)), ErrOutOfMemory, "a matrix of 1024×1024 float32: allocation of 4194304 bytes:"},
		{"too large a copy", second(Upload(ctx, d, New[float32](512, 1024))), ErrOutOfMemory, "512×1024"},
	} {
		if !errors.Is(test.err, test.want) || !strings.Contains(fmt.Sprint(test.err), test.text) {
			t.Errorf("%s: %v, want %v with %q", test.name, test.err, test.want, test.text)
		}
	}
	// None of this did harm.
	if err := gemm(a, b, c); err != nil {
		t.Error(err)
	}
	if got := none.String() + ", " + short.String() + ", " + far.String(); got != "0×0 float64 matrix on no device, 1×3 float64 matrix on emu, 4×5 float64 matrix on emu:t4" {
		t.Error(got)
	}
}

// TestOutOfDeviceMemory: it is recoverable, and the message tells how much there is.
func TestOutOfDeviceMemory(t *testing.T) {
	substitute(t, 1<<20)
	d := on(t, "emu")
	var all []DeviceMatrix[float32]
	var err error
	for err == nil {
		var m DeviceMatrix[float32]
		if m, err = NewDeviceMatrix[float32](d, 256, 256); err == nil {
			all = append(all, m)
		}
	}
	if len(all) != 4 || !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "262144 bytes: 1048576 of 1048576 bytes are in use") {
		t.Errorf("after %d matrices of 256 KiB on 1 MiB: %v", len(all), err)
	}
	if _, err := Mul(t.Context(), all[0], all[1]); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("a product: %v", err)
	}
	if err := all[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewDeviceMatrix[float32](d, 256, 256); err != nil {
		t.Errorf("after a Close: %v", err)
	}
}

// chain is a use of all that can be done with matrices on a device: what is
// downloaded, and all errors on the way.
func chain(ctx context.Context, to Matrix[float32]) (err error) {
	d, err := Open("emu")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	a, err := Upload(ctx, d, FromSlice(2, 2, []float32{1, 2, 3, 4}))
	if err != nil {
		return err
	}
	b, err := Mul(ctx, a, a, WithRowBias(Vector[float32](1, 2)), WithVerify())
	if err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	c, err := NewDeviceMatrix[float32](d, 2, 2)
	if err != nil {
		return err
	}
	if err := Copy(ctx, c, FromSlice(2, 2, []float32{1, 0, 0, 1})); err != nil {
		return err
	}
	if err := Gemm(ctx, 1, b, b.T(), 2, c.T()); err != nil {
		return err
	}
	if err := d.Sync(ctx); err != nil {
		return err
	}
	return Copy(ctx, to, c)
}

// TestEveryCallOfAChainFails: whichever call to the device fails, and if that loses the
// device all that follow, its error comes out, nothing is left on the device and the result is either whole or said to be none.
func TestEveryCallOfAChainFails(t *testing.T) {
	for from, all := range map[error][]error{
		device.ErrOutOfMemory: {ErrOutOfMemory}, device.ErrLost: {ErrDeviceLost, ErrNoDevice}, device.ErrLaunch: {ErrLaunch},
	} {
		runs := 0
		err := faulty.FailEachCall(1000, from, func() (device.Device, error) { return emu.Open(emu.Options{}) }, func(d *faulty.Device) {
			runs++
			restore := dispatch.Substitute(func(backend.Device) (device.Device, error) { return d, nil })
			to := New[float32](2, 2)
			err := chain(t.Context(), to)
			if left := d.Leaks(); len(left) > 0 || !d.Closed() {
				t.Errorf("%s failed: left are %v, closed: %v", d.FailedCall(), left, d.Closed())
			}
			switch {
			case d.FailedCall() == "" && (err != nil || !slices.Equal(to.Data(), []float32{187, 400, 400, 867})):
				t.Errorf("no call failed: %v, %v", to.Data(), err)
			case d.FailedCall() != "":
				for _, want := range all {
					if !errors.Is(err, want) || !strings.Contains(err.Error(), d.FailedCall()) {
						t.Errorf("%s failed with %v: %v, want %v", d.FailedCall(), from, err, want)
					}
				}
			}
			if err := restore(); err != nil {
				t.Error(err)
			}
		})
		if err != nil || runs < 20 {
			t.Errorf("%d runs: %v", runs, err)
		}
	}
}

// TestLaterErrors: what fails where nobody can be told comes out of the next Sync, and
// once.
func TestLaterErrors(t *testing.T) {
	devices := substitute(t, 0)
	d := on(t, "emu")
	devices("emu").Fail(3, device.ErrLaunch) // an allocation, a copy, and then the giving back
	square(t, d)
	deadline := time.Now().Add(20 * time.Second)
	for devices("emu").FailedCall() == "" {
		if time.Now().After(deadline) {
			t.Fatal("the matrix is not given back")
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	var err error
	for err == nil && time.Now().Before(deadline) { // the error is on its way
		err = d.Sync(t.Context())
	}
	if !errors.Is(err, ErrLaunch) {
		t.Errorf("got %v, want %v", err, ErrLaunch)
	}
	if err := d.Sync(t.Context()); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestCompileTime: a plan tells how long its kernel took to compile, once it was.
func TestCompileTime(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	a, b, c := square(t, d), square(t, d), square(t, d)
	before, err := PlanGemm(a, b, c)
	if err != nil || before.Compile != 0 || before.Device != "emu" || before.M != 2 || before.Kernel == "" {
		t.Errorf("before: %+v, %v", before, err)
	}
	if err := Gemm(t.Context(), 1, a, b, 0, c); err != nil {
		t.Fatal(err)
	}
	after, err := PlanGemm(a, b, c)
	if err != nil || after.Compile <= 0 || !strings.Contains(after.String(), ", compiled in ") {
		t.Errorf("after: %v, %v", after, err)
	}
	m := New[float32](2, 2)
	again, err := PlanGemm(m, m, m, WithDevice("emu")) // runs the same text
	if err != nil || again.Compile != after.Compile {
		t.Errorf("a product on the host: %v, %v, want a kernel that is compiled", again, err)
	}
}

// TestEveryCallOfAVerificationFails is the same of a product that is verified and added to C, with
// what is not finite, so that matrices come to the host, and of one with a bias of rows.
func TestEveryCallOfAVerificationFails(t *testing.T) {
	runs := 0
	err := faulty.FailEachCall(1000, device.ErrLaunch, func() (device.Device, error) { return emu.Open(emu.Options{}) }, func(d *faulty.Device) {
		runs++
		restore := dispatch.Substitute(func(backend.Device) (device.Device, error) { return d, nil })
		err := verifications(t.Context())
		if left := d.Leaks(); len(left) > 0 || !d.Closed() {
			t.Errorf("%s failed: left are %v, closed: %v", d.FailedCall(), left, d.Closed())
		}
		if failed := d.FailedCall(); failed == "" && err != nil || failed != "" && (!errors.Is(err, ErrLaunch) || !strings.Contains(err.Error(), failed)) {
			t.Errorf("%q failed: %v", failed, err)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	if err != nil || runs < 40 {
		t.Errorf("%d runs: %v", runs, err)
	}
}

func verifications(ctx context.Context) (err error) {
	d, err := Open("emu")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	a, err := Upload(ctx, d, FromSlice(2, 2, []float32{1, 2, 3, float32(math.Inf(1))}))
	if err != nil {
		return err
	}
	b, err := Upload(ctx, d, FromSlice(2, 2, []float32{1, 0, 0, 1}))
	if err != nil {
		return err
	}
	c, err := Mul(ctx, b, b, WithVerify(), WithRowBias(Vector[float32](1, 2)))
	if err != nil {
		return err
	}
	return Gemm(ctx, 1, a, b, 1, c, WithVerify(), WithColBias(Vector[float32](1, 2)))
}
