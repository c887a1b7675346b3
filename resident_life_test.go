package tilework

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// uses calls the functions for device matrices with the 2×2 matrices a, b and c, and returns their
// errors by name.
func uses(ctx context.Context, d *Device, a, b, c DeviceMatrix[float32]) map[string]error {
	second := func(_ any, err error) error { return err }
	return map[string]error{
		"Gemm":               Gemm(ctx, 1, a, b, 0, c),
		"Mul":                second(Mul(ctx, a, b)),
		"PlanGemm":           second(PlanGemm(ctx, a, b, c)),
		"Download":           second(a.T().Download(ctx)),
		"Copy to the host":   Copy(ctx, New[float32](2, 2), b),
		"Copy to the device": Copy(ctx, c.Sub(0, 0, 1, 1), New[float32](1, 1)),
	}
}

func square(t *testing.T, d *Device) DeviceMatrix[float32] {
	return upload(t, d, FromSlice(2, 2, []float32{1, 2, 3, 4}))
}

// TestUseAfterClose checks that every use of a closed matrix or device returns ErrClosed. Closing
// it again is not an error.
func TestUseAfterClose(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	a, b, c := square(t, d), square(t, d), square(t, d)
	for _, m := range []DeviceMatrix[float32]{a, b.T(), c.Sub(0, 0, 1, 2)} {
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for name, err := range uses(t.Context(), d, a, b, c) {
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "a matrix on emu") {
			t.Errorf("%s of closed matrices: %v, want ErrClosed", name, err)
		}
	}
	a, b, c = square(t, d), square(t, d), square(t, d)
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, err := range uses(t.Context(), d, a, b, c) {
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "device emu") {
			t.Errorf("%s on a closed device: %v, want ErrClosed", name, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Errorf("closing a matrix after its device: %v", err)
	}
	if err := d.Sync(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync of a closed device: %v, want ErrClosed", err)
	}
	if _, err := NewDeviceMatrix[float32](d, 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("NewDeviceMatrix on a closed device: %v, want ErrClosed", err)
	}
	if err := (DeviceMatrix[float32]{}).Close(); err != nil {
		t.Errorf("closing the zero DeviceMatrix: %v", err)
	}
}

// TestOpenAndClose checks that closing the last Device of a GPU closes the underlying device,
// unless products of host matrices use it too. The GPU can then be opened again.
func TestOpenAndClose(t *testing.T) {
	devices := substitute(t, 0)
	first, second := on(t, "emu"), on(t, "emu")
	a := square(t, second)
	inner := devices("emu")
	if err := first.Close(); err != nil || inner.Closed() {
		t.Errorf("underlying device closed: %v (error %v), but a second Device is open", inner.Closed(), err)
	}
	sameAs(t, "a matrix on the second Device", download(t, a), []float64{1, 2, 3, 4})
	if err := second.Close(); err != nil || !inner.Closed() {
		t.Errorf("underlying device closed: %v (error %v), want true", inner.Closed(), err)
	}
	third := on(t, "emu")
	if devices("emu") == inner {
		t.Error("Open returned the closed device")
	}
	inner = devices("emu")
	if _, err := Mul(t.Context(), New[float32](2, 2), New[float32](2, 2), WithDevice("emu")); err != nil {
		t.Fatal(err)
	}
	if err := third.Close(); err != nil || inner.Closed() {
		t.Errorf("underlying device closed: %v (error %v), but products of host matrices use it", inner.Closed(), err)
	}
}

// TestAbandoned checks that the memory of unreachable matrices is freed, and that a view keeps the
// memory of its matrix.
func TestAbandoned(t *testing.T) {
	devices := substitute(t, 0)
	d := on(t, "emu")
	kept := square(t, d).T()
	for range 10 {
		square(t, d)
	}
	deadline := time.Now().Add(20 * time.Second)
	for len(devices("emu").Leaks()) > 1 {
		if time.Now().After(deadline) {
			t.Fatalf("not freed: %v", devices("emu").Leaks())
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	sameAs(t, "the reachable view", download(t, kept), []float64{1, 3, 2, 4})
}

// TestResidentGoroutines runs chains of products in several goroutines on two devices. The
// goroutines share operands, and one goroutine closes a matrix while others multiply with it.
func TestResidentGoroutines(t *testing.T) {
	substitute(t, 0)
	var all sync.WaitGroup
	for _, name := range []string{"emu", "emu:t4"} {
		d := on(t, name)
		shared := upload(t, d, FromSlice(2, 2, []float32{0, 1, 1, 0}))
		contested := square(t, d)
		for g := range 4 {
			all.Go(func() {
				x := square(t, d)
				for range 5 {
					next, err := Mul(t.Context(), x, shared)
					if err != nil {
						t.Error(err)
						return
					}
					if err := x.Close(); err != nil {
						t.Error(err)
					}
					x = next
				}
				got, err := x.Download(t.Context())
				if err != nil || !slices.Equal(got.Data(), []float32{2, 1, 4, 3}) {
					t.Errorf("chain: got %v, error %v", got.Data(), err)
				}
				y, err := Mul(t.Context(), contested, shared)
				if err == nil {
					got, err = y.Download(t.Context())
				}
				if err != nil && !errors.Is(err, ErrClosed) || err == nil && !slices.Equal(got.Data(), []float32{2, 1, 4, 3}) {
					t.Errorf("with a concurrently closed matrix: got %v, error %v", got.Data(), err)
				}
				if g == 0 {
					if err := contested.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
}

// TestCloseDuringCalls checks that closing a device while goroutines use it lets calls in flight
// finish. Later calls return ErrClosed.
func TestCloseDuringCalls(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu")
	a, b := square(t, d), square(t, d)
	var all sync.WaitGroup
	started := make(chan struct{}, 4)
	for range 4 {
		all.Go(func() {
			for n := 0; ; n++ {
				c, err := Mul(t.Context(), a, b)
				if err == nil {
					_, err = c.Download(t.Context())
				}
				if err == nil {
					err = c.Close()
				}
				if n == 0 {
					started <- struct{}{}
				}
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 4 {
		<-started
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
}
