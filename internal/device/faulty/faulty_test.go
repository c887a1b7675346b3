package faulty

import (
	"errors"
	"slices"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/emu"
)

func open() (device.Device, error) { return emu.Open(emu.Options{}) }

// TestEveryCall: each call fails in its turn, the last run is whole, and what a user
// forgets to give back after one failure alone is found.
func TestEveryCall(t *testing.T) {
	var failed, leaks []string
	err := EveryCall(100, device.ErrLaunch, open, func(d *Device) {
		p, err := d.Alloc(100)
		if err == nil {
			if err = d.Sync(t.Context()); err == nil { // the planted fault: no Free after a failed Sync
				err = d.Free(p)
			}
		}
		if (err == nil) != (d.Failed() == "") || err != nil && !errors.Is(err, device.ErrLaunch) {
			t.Errorf("%q failed: %v", d.Failed(), err)
		}
		failed = append(failed, d.Failed())
		leaks = append(leaks, d.Left()...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Alloc, call 1", "Sync, call 2", "Free, call 3", ""}; !slices.Equal(failed, want) {
		t.Errorf("failed are %q, want %q", failed, want)
	}
	if want := []string{"100 bytes"}; !slices.Equal(leaks, want) {
		t.Errorf("left are %q, want %q", leaks, want)
	}
}

// TestRarer: from the call on that is named only some fail, and still one run is whole.
func TestRarer(t *testing.T) {
	runs := 0
	err := EveryCall(10, device.ErrLaunch, open, func(d *Device) {
		runs++
		for range 1000 {
			if d.Sync(t.Context()) != nil {
				return
			}
		}
	})
	if err != nil || runs < 15 || runs > 60 {
		t.Errorf("%d runs: %v", runs, err)
	}
}

// TestLost: a device that is lost stays so, and takes back what it gave; one that is
// closed answers nothing.
func TestLost(t *testing.T) {
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
			t.Errorf("Sync: %v", err)
		}
	}
	if err := d.Free(p); !errors.Is(err, device.ErrLost) || len(d.Left()) > 0 {
		t.Errorf("Free: %v, left are %v", err, d.Left())
	}
	d.Fail(0, nil)
	if err := d.Close(); err != nil || !d.Closed() {
		t.Errorf("Close: %v", err)
	}
	if _, err := d.Alloc(1); err == nil {
		t.Error("a closed device gives memory")
	}
}
