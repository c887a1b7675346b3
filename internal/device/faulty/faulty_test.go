package faulty

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/emu"
)

func open() (device.Device, error) { return emu.Open(emu.Options{}) }

// TestFailEachCall checks that each call fails once, that no call fails in the last run, and that
// Leaks reports a resource that leaks after only one of the failures.
func TestFailEachCall(t *testing.T) {
	var failed, leaks []string
	err := FailEachCall(100, device.ErrLaunch, open, func(d *Device) {
		p, err := d.Alloc(100)
		if err == nil {
			if err = d.Sync(t.Context()); err == nil { // intended leak: no Free after a failed Sync
				err = d.Free(p)
			}
		}
		if (err == nil) != (d.FailedCall() == "") || err != nil && !errors.Is(err, device.ErrLaunch) {
			t.Errorf("got error %v, want one only if a call failed (failed call %q)", err, d.FailedCall())
		}
		failed = append(failed, d.FailedCall())
		leaks = append(leaks, d.Leaks()...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Alloc, call 1", "Sync, call 2", "Free, call 3", ""}; !slices.Equal(failed, want) {
		t.Errorf("failed calls are %q, want %q", failed, want)
	}
	if want := []string{"100 bytes"}; !slices.Equal(leaks, want) {
		t.Errorf("leaks are %q, want %q", leaks, want)
	}
}

func TestFailEachCallSkipsLateCalls(t *testing.T) {
	runs := 0
	err := FailEachCall(10, device.ErrLaunch, open, func(d *Device) {
		runs++
		for range 1000 {
			if d.Sync(t.Context()) != nil {
				return
			}
		}
	})
	if err != nil || runs < 15 || runs > 60 {
		t.Errorf("%d runs, error %v; want 15 to 60 runs", runs, err)
	}
}

// TestLostAndClosed checks that a lost device stays lost but accepts Free, and that calls on a
// closed device fail.
func TestLostAndClosed(t *testing.T) {
	inner, err := open()
	if err != nil {
		t.Fatal(err)
	}
	d := New(inner)
	p, err := d.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	d.Fail(1, device.ErrLost)
	for range 2 {
		if err := d.Sync(t.Context()); !errors.Is(err, device.ErrLost) {
			t.Errorf("Sync: got error %v, want %v", err, device.ErrLost)
		}
	}
	if err := d.Free(p); !errors.Is(err, device.ErrLost) || len(d.Leaks()) > 0 {
		t.Errorf("Free: got error %v and leaks %v, want %v and no leaks", err, d.Leaks(), device.ErrLost)
	}
	d.Fail(0, nil)
	if err := d.Close(); err != nil || !d.Closed() {
		t.Errorf("Close: error %v", err)
	}
	if _, err := d.Alloc(1); err == nil {
		t.Error("Alloc on a closed device succeeded, want an error")
	}
}

// TestHang checks that calls that wait for a device that hangs end with their context, that calls
// that only enqueue work succeed, and that the device recovers.
func TestHang(t *testing.T) {
	inner, err := open()
	if err != nil {
		t.Fatal(err)
	}
	d := New(inner)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d.Hang(2, cancel)
	if err := d.Sync(ctx); err != nil {
		t.Errorf("Sync before the hang: error %v", err)
	}
	for range 2 {
		if err := d.Sync(ctx); !errors.Is(err, context.Canceled) || d.FailedCall() != "Sync, wait 2" {
			t.Errorf("Sync: error %v, hangs in %q; want %v", err, d.FailedCall(), context.Canceled)
		}
	}
	if p, err := d.Alloc(1); err != nil || d.Free(p) != nil {
		t.Errorf("Alloc on a device that hangs: error %v", err)
	}
	if s.Close() == nil {
		t.Error("closing a stream of a device that hangs succeeded, want an error")
	}
	d.Fail(0, nil)
	if err := d.Close(); err != nil || d.FailedCall() != "" {
		t.Errorf("Close after the hang: error %v", err)
	}
}
