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
	"tilework/internal/gpu"
)

// TestResidentErrors checks the errors of invalid calls with device matrices. None of them may
// affect later calls.
func TestResidentErrors(t *testing.T) {
	substitute(t, 1<<20)
	ctx := t.Context()
	d, other, again := on(t, "emu"), on(t, "emu:t4"), on(t, "emu")
	a, b, c := upload(t, d, New[float64](3, 4)), upload(t, d, New[float64](4, 5)), upload(t, d, New[float64](3, 5))
	far, twice := upload(t, other, New[float64](4, 5)), upload(t, again, New[float64](4, 5))
	both := upload(t, d, New[float64](8, 8))
	short, none05 := upload(t, d, New[float64](1, 3)), upload(t, d, New[float64](0, 5))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	var none DeviceMatrix[float64]
	gemm := func(a, b, c DeviceMatrix[float64], opts ...Option) error { return Gemm(ctx, 1, a, b, 0, c, opts...) }
	second := func(_ any, err error) error { return err }
	for _, test := range []struct {
		name string
		err  error
		want error
		text string // substring of the message
	}{
		{"unknown name", second(Open("gup")), ErrNoDevice, `unknown device "gup"`},
		{"CPU", second(Open("cpu")), ErrUnsupported,
			"matrices that stay on device cpu (want gpu, gpu:N, gpu:N,N, gpu:all, emu"},
		{"empty name", second(Open("")), ErrUnsupported, "auto"},
		{"nil device", second(Upload(ctx, nil, New[float32](1, 1))), ErrNoDevice, "Open"},
		{"zero Device", (&Device{}).Sync(ctx), ErrNoDevice, "Open"},
		{"zero DeviceMatrix", gemm(none, b, c), ErrNoDevice, "A on no device"},
		{"zero C", gemm(a, b, none), ErrNoDevice, "C on no device"},
		{"download of a zero DeviceMatrix", second(none.T().Download(ctx)), ErrNoDevice, "the matrix on no device"},
		{"Mul of a zero DeviceMatrix", second(Mul(ctx, none, b)), ErrNoDevice, "A on no device"},
		{"inner sizes", gemm(a, b.T(), c), ErrShape, ": want a B of 4×4"},
		{"inner sizes, Mul", second(Mul(ctx, a, a)), ErrShape, ": want a B of 4×4"},
		{"C's size", gemm(a, b, both), ErrShape, "C is 8×8, want 3×5"},
		{"part too large", gemm(a.Sub(0, 0, 3, 5), b, c), ErrShape, "a 3×5 part from (0, 0) of a 3×4 matrix"},
		{"part of an invalid part", a.Sub(-1, 0, 3, 5).T().Sub(0, 0, 1, 1).Err(), ErrShape, "from (-1, 0)"},
		{"negative size", second(NewDeviceMatrix[float32](d, -1, 2)), ErrShape, "-1×2"},
		{"size overflow", second(NewDeviceMatrix[float32](d, math.MaxInt, 2)), ErrShape, "more elements than"},
		{"invalid host matrix", second(Upload(ctx, d, New[float32](-1, 2))), ErrShape, "-1×2"},
		{"upload of another size", Copy(ctx, a, New[float64](4, 3)), ErrShape,
			"a copy between 3×4 on the device and 4×3 on the host"},
		{"download of another size", Copy(ctx, New[float64](4, 3), a), ErrShape, "a copy between 3×4 on the device and 4×3"},
		{"C over A", gemm(both.Sub(2, 3, 3, 4), b, both.Sub(0, 0, 3, 5)), ErrOverlap, "C shares memory with A"},
		{"C over B", gemm(a, both.Sub(2, 2, 4, 5), both.Sub(0, 0, 3, 5)), ErrOverlap, "C shares memory with B"},
		{"C over the bias", gemm(a, b, both.Sub(0, 0, 3, 5), WithColBias(both.Sub(1, 3, 1, 5))), ErrOverlap, "the bias"},
		{"bias too short", gemm(a, b, c, WithColBias(short)), ErrShape,
			"the bias of length 3 for a result of 3×5, want 5"},
		{"C over a bias in a column", gemm(a, b, both.Sub(0, 0, 3, 5), WithColBias(both.Sub(2, 4, 5, 1))), ErrOverlap,
			"the bias"},
		{"bias without a row", gemm(a, b, c, WithColBias(none05)), ErrShape,
			"the bias of 0×5, want one row or one column of 5"},
		{"bias without a row, on the host", gemm(a, b, c, WithColBias(New[float64](0, 5))), ErrShape, "the bias of 0×5"},
		{"scale without a row", gemm(a, b, c, WithColScale(none05)), ErrShape, "the col-scale of 0×5"},
		{"bias of two columns", gemm(a, b, c, WithColBias(both.Sub(0, 6, 5, 2).T())), ErrShape,
			"the bias of 2×5, want one row or one column of 5"},
		{"zero bias", gemm(a, b, c, WithColBias(none)), ErrNoDevice, "the bias on no device"},
		{"bias of another type", gemm(a, b, c, WithRowBias(Vector(make([]float32, 3)...))), ErrUnsupported,
			"the bias of float32"},
		{"bias on another device", gemm(a, b, c, WithColBias(upload(t, other, New[float64](1, 5)))), ErrUnsupported,
			"the bias is on device emu:t4"},
		{"bias on a device, C on the host", Gemm(ctx, 1, New[float64](3, 4), New[float64](4, 3), 0, New[float64](3, 3),
			WithRowBias(short)), ErrUnsupported, "on device emu"},
		{"two devices", gemm(a, far, c), ErrUnsupported, "B is on device emu:t4 and C on emu: download one"},
		{"device opened twice", gemm(a, twice, c), ErrUnsupported, "B and C are on device emu opened twice"},
		{"another device", gemm(a, b, c, WithDevice("cpu")), ErrUnsupported, "device cpu for matrices on emu"},
		{"unknown device", gemm(a, b, c, WithDevice("gup")), ErrNoDevice, "gup"},
		{"unknown kernel", gemm(a, b, c, WithKernel("fast")), ErrUnsupported, `unknown GPU kernel "fast"`},
		{"unknown tile", gemm(a, b, c, WithKernel("tiled:17x")), ErrUnsupported, "17x"},
		{"verification of an activation", gemm(a, b, c, WithVerify(), WithReLU()), ErrUnsupported,
			"without that, or on the host"},
		{"precision", gemm(a, b, c, WithFastAccumulation()), ErrUnsupported, "precision fast of float64 matrices"},
		{"division", gemm(a, b, c, WithCopyOnEach()), ErrUnsupported, "whole on each is for a new matrix on a device"},
		{"option of products", second(NewDeviceMatrix[float32](d, 1, 1, WithReLU())), ErrUnsupported, "for a new matrix"},
		{"option of products", second(Upload(ctx, d, New[float32](1, 1), WithKernel("loop"))), ErrUnsupported,
			"for a new matrix"},
		{"cancelled", Gemm(cancelled, 1, a, b, 0, c), context.Canceled, ""},
		{"cancelled plan", second(PlanGemm(cancelled, a, b, c)), context.Canceled, ""},
		{"cancelled upload", second(Upload(cancelled, d, New[float64](3, 4))), context.Canceled, ""},
		{"cancelled download", second(a.Download(cancelled)), context.Canceled, ""},
		{"cancelled sync", d.Sync(cancelled), context.Canceled, ""},
		{"allocation too large", second(NewDeviceMatrix[float32](d, 1024, 1024)), ErrOutOfMemory,
			"a matrix of 1024×1024 float32: allocation of 4194304 bytes:"},
		{"upload too large", second(Upload(ctx, d, New[float32](512, 1024))), ErrOutOfMemory, "512×1024"},
	} {
		if !errors.Is(test.err, test.want) || !strings.Contains(fmt.Sprint(test.err), test.text) {
			t.Errorf("%s: %v, want %v with %q", test.name, test.err, test.want, test.text)
		}
	}
	// A valid product still succeeds.
	if err := gemm(a, b, c); err != nil {
		t.Error(err)
	}
	if got := none.String() + ", " + short.String() + ", " +
		far.String(); got != "0×0 float64 matrix on no device, 1×3 float64 matrix on emu, 4×5 float64 matrix on emu:t4" {
		t.Error(got)
	}
}

// TestOutOfDeviceMemory checks that a device without free memory returns ErrOutOfMemory with the
// number of bytes, and can allocate again after a Close.
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
	if len(all) != 4 || !errors.Is(err, ErrOutOfMemory) ||
		!strings.Contains(err.Error(), "262144 bytes: 1048576 of 1048576 bytes are in use") {
		t.Errorf("after %d matrices of 256 KiB in 1 MiB: %v, want ErrOutOfMemory after 4", len(all), err)
	}
	if _, err := Mul(t.Context(), all[0], all[1]); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("Mul without free memory: %v, want ErrOutOfMemory", err)
	}
	if err := all[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := NewDeviceMatrix[float32](d, 256, 256); err != nil {
		t.Errorf("allocation after a Close: %v", err)
	}
}

// chain calls all the functions for device matrices, downloads the result into to, and returns the
// errors.
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

// TestEveryCallOfAChainFails makes each device call of a chain fail in turn. If the call loses the
// device, all later calls fail too. The chain must return the error and leave nothing on the
// device.
func TestEveryCallOfAChainFails(t *testing.T) {
	for from, all := range map[error][]error{
		device.ErrOutOfMemory: {ErrOutOfMemory}, device.ErrLost: {ErrDeviceLost, ErrNoDevice}, device.ErrLaunch: {ErrLaunch},
	} {
		runs := 0
		err := faulty.FailEachCall(1000, from, func() (device.Device, error) { return emu.Open(emu.Options{}) },
			func(d *faulty.Device) {
				runs++
				restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return d, nil })
				to := New[float32](2, 2)
				err := chain(t.Context(), to)
				if left := d.Leaks(); len(left) > 0 || !d.Closed() {
					t.Errorf("%s failed: live resources %v, device closed: %v", d.FailedCall(), left, d.Closed())
				}
				switch {
				case d.FailedCall() == "" && (err != nil || !slices.Equal(to.Data(), []float32{187, 400, 400, 867})):
					t.Errorf("no call failed: got %v, error %v", to.Data(), err)
				case d.FailedCall() != "":
					for _, want := range all {
						if !errors.Is(err, want) || !strings.Contains(err.Error(), d.FailedCall()) {
							t.Errorf("%s failed with %v: got error %v, want %v", d.FailedCall(), from, err, want)
						}
					}
				}
				if err := restore(); err != nil {
					t.Error(err)
				}
			})
		if err != nil || runs < 20 {
			t.Errorf("%d runs, error %v", runs, err)
		}
	}
}

// TestLaterErrors checks that the next Sync returns the error of a call without a caller, here
// freeing an abandoned matrix. Only one Sync returns the error.
func TestLaterErrors(t *testing.T) {
	devices := substitute(t, 0)
	d := on(t, "emu")
	devices("emu").Fail(3, device.ErrLaunch) // the calls are an allocation, a copy and a free
	square(t, d)
	deadline := time.Now().Add(20 * time.Second)
	for devices("emu").FailedCall() == "" {
		if time.Now().After(deadline) {
			t.Fatal("the abandoned matrix is not freed")
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	var err error
	for err == nil && time.Now().Before(deadline) { // the cleanup may not have recorded the error yet
		err = d.Sync(t.Context())
	}
	if !errors.Is(err, ErrLaunch) {
		t.Errorf("got %v, want %v", err, ErrLaunch)
	}
	if err := d.Sync(t.Context()); err != nil {
		t.Errorf("second Sync: %v", err)
	}
}

// TestCompileTime checks that a plan includes the compile time of its kernel once it is compiled.
func TestCompileTime(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	a, b, c := square(t, d), square(t, d), square(t, d)
	before, err := PlanGemm(t.Context(), a, b, c)
	if err != nil || before.Compile != 0 || before.Device != "emu" || before.M != 2 || before.Kernel == "" {
		t.Errorf("before the product: plan %+v, error %v", before, err)
	}
	if err := Gemm(t.Context(), 1, a, b, 0, c); err != nil {
		t.Fatal(err)
	}
	after, err := PlanGemm(t.Context(), a, b, c)
	if err != nil || after.Compile <= 0 || !strings.Contains(after.String(), ", compiled in ") {
		t.Errorf("after the product: plan %v, error %v", after, err)
	}
	m := New[float32](2, 2)
	again, err := PlanGemm(t.Context(), m, m, m, WithDevice("emu")) // uses the same kernel source
	if err != nil || again.Compile != after.Compile {
		t.Errorf("host matrices: plan %v, error %v, want the compiled kernel", again, err)
	}
}

// TestEveryCallOfAVerificationFails makes each device call of two verified products fail in turn.
// One has a row bias. The other adds to C and has an infinite operand, so that verification
// downloads the matrices.
func TestEveryCallOfAVerificationFails(t *testing.T) {
	runs := 0
	err := faulty.FailEachCall(1000, device.ErrLaunch, func() (device.Device, error) { return emu.Open(emu.Options{}) },
		func(d *faulty.Device) {
			runs++
			restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return d, nil })
			err := verifications(t.Context())
			if left := d.Leaks(); len(left) > 0 || !d.Closed() {
				t.Errorf("%s failed: live resources %v, device closed: %v", d.FailedCall(), left, d.Closed())
			}
			if failed := d.FailedCall(); failed == "" && err != nil || failed != "" &&
				(!errors.Is(err, ErrLaunch) || !strings.Contains(err.Error(), failed)) {
				t.Errorf("%q failed: got error %v, want ErrLaunch", failed, err)
			}
			if err := restore(); err != nil {
				t.Error(err)
			}
		})
	if err != nil || runs < 40 {
		t.Errorf("%d runs, error %v", runs, err)
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
