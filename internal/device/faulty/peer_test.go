package faulty_test

import (
	"bytes"
	"errors"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
)

func pair(t *testing.T) (d [2]*faulty.Device) {
	t.Helper()
	for i := range d {
		inner, err := emu.Open(emu.Options{Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		d[i] = faulty.New(inner)
	}
	return d
}

// TestPeers runs the suite of copies between devices on wrapped devices.
func TestPeers(t *testing.T) {
	devicetest.TestPeers(t, func(t *testing.T) [2]device.Device {
		d := pair(t)
		return [2]device.Device{d[0], d[1]}
	})
}

// TestPeerFaults fails a copy between devices and a wait for an event of another device. A failed
// copy must not be forwarded.
func TestPeerFaults(t *testing.T) {
	d := pair(t)
	var at [2]device.Ptr
	for i := range d {
		p, err := d[i].Alloc(10)
		if err == nil {
			err = d[i].CopyIn(t.Context(), p, bytes.Repeat([]byte{byte(i)}, 10), device.Whole(10))
		}
		if err != nil {
			t.Fatal(err)
		}
		at[i] = p
	}
	e, err := d[1].Record()
	if err != nil {
		t.Fatal(err)
	}
	d[0].Fail(1, device.ErrLaunch)
	if err := d[0].CopyPeer(at[0], d[1], at[1], device.WholePeer(10)); !errors.Is(err, device.ErrLaunch) ||
		d[0].FailedCall() != "CopyPeer, call 1" {
		t.Errorf("copy: error %v, failed call %q", err, d[0].FailedCall())
	}
	got := make([]byte, 10)
	if err := d[0].CopyOut(t.Context(), got, at[0], device.Whole(10)); err != nil || got[0] != 0 {
		t.Errorf("the failed copy wrote %v, error %v", got, err)
	}
	d[0].Fail(1, device.ErrLost)
	for range 2 {
		if err := d[0].Wait(e); !errors.Is(err, device.ErrLost) {
			t.Errorf("wait: error %v, want %v", err, device.ErrLost)
		}
	}
}
