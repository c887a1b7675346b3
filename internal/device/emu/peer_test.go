package emu_test

import (
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
)

// TestPeers runs the suite of copies between devices with several orders of the streams.
func TestPeers(t *testing.T) {
	for seed := range uint64(20) {
		devicetest.TestPeers(t, func(t *testing.T) (pair [2]device.Device) {
			for i := range pair {
				d, err := emu.Open(emu.Options{Seed: seed + uint64(i)*1000})
				if err != nil {
					t.Fatal(err)
				}
				pair[i] = d
			}
			return pair
		})
	}
}

// TestCopied checks the count of bytes on the link between two devices.
func TestCopied(t *testing.T) {
	var d [3]*emu.Device
	var at [3]device.Ptr
	for i := range d {
		var err error
		if d[i], err = emu.Open(emu.Options{}); err != nil {
			t.Fatal(err)
		}
		if at[i], err = d[i].Alloc(100); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []device.PeerRows{device.WholePeer(100), {Count: 3, Width: 5, FromPitch: 20, ToPitch: 10}} {
		if err := d[0].CopyPeer(at[0], d[1], at[1], r); err != nil {
			t.Fatal(err)
		}
	}
	if err := d[2].CopyPeer(at[2], d[2], at[2]+50, device.WholePeer(7)); err != nil {
		t.Fatal(err)
	}
	want := [3][3]int64{0: {1: 115}, 2: {2: 7}}
	for to := range d {
		for from := range d {
			if got := d[to].Copied(d[from]); got != want[to][from] {
				t.Errorf("%d bytes copied from device %d to %d, want %d", got, from, to, want[to][from])
			}
		}
	}
}
