package devicetest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"tilework/internal/device"
	"tilework/internal/testkit/testrand"
)

// Pair opens two devices of one implementation.
type Pair func(t *testing.T) [2]device.Device

// TestPeers checks copies between the devices of a pair and the order of their streams. open is
// called for each part; the test closes the devices.
func TestPeers(t *testing.T, open Pair) {
	opened := func(t *testing.T) [2]device.Device {
		t.Helper()
		d := open(t)
		t.Cleanup(func() {
			for _, x := range d {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		return d
	}
	t.Run("Rows", func(t *testing.T) { testPeerRows(t, opened(t)) })
	t.Run("Order", func(t *testing.T) { testPeerOrder(t, opened(t)) })
	t.Run("Errors", func(t *testing.T) { testPeerErrors(t, opened(t)) })
}

const peerBytes = 5000 // of the memory in the tests

// room allocates memory on a device and fills it.
func room(t *testing.T, d device.Device, with []byte) device.Ptr {
	t.Helper()
	p, err := d.Alloc(len(with))
	if err == nil {
		err = d.CopyIn(t.Context(), p, with, device.Whole(len(with)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Free(p); err != nil {
			t.Error(err)
		}
	})
	return p
}

// after makes a stream wait for the work enqueued so far on other streams.
func after(t *testing.T, s device.Stream, others ...device.Stream) {
	t.Helper()
	for _, o := range others {
		e, err := o.Record()
		if err == nil {
			err = s.Wait(e)
		}
		if err == nil {
			err = e.Free()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func newStream(t *testing.T, d device.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// testPeerRows copies rows with every kind of gap, between two devices and within one. The bytes
// between the rows must not change.
func testPeerRows(t *testing.T, d [2]device.Device) {
	rng := testrand.New(t)
	for _, r := range []device.PeerRows{
		device.WholePeer(1), device.WholePeer(777), {Count: 7, Width: 16, FromPitch: 16, ToPitch: 16},
		{Count: 5, Width: 30, FromPitch: 100, ToPitch: 33}, {Count: 5, Width: 30, FromPitch: 30, ToPitch: 64},
		{Count: 9, Width: 1, FromPitch: 3, ToPitch: 1}, {Count: 0, Width: 5}, {Count: 3}, {},
	} {
		for from := range d {
			source, target := noise(rng, peerBytes), noise(rng, peerBytes)
			const at = 24 // of the copy in both
			src, dst := room(t, d[from], source), room(t, d[0], target)
			after(t, d[0], d[from])
			if err := d[0].CopyPeer(dst+at, d[from], src+at, r); err != nil {
				t.Fatalf("%+v from device %d: %v", r, from, err)
			}
			got := make([]byte, peerBytes)
			if err := d[0].CopyOut(t.Context(), got, dst, device.Whole(peerBytes)); err != nil {
				t.Fatal(err)
			}
			for i := range r.Count {
				copy(target[at+i*r.ToPitch:][:r.Width], source[at+i*r.FromPitch:])
			}
			if !bytes.Equal(got, target) {
				t.Errorf("%+v from device %d: the bytes of the destination differ from those of the source, or others changed",
					r, from)
			}
		}
	}
}

// testPeerOrder passes numbers from device to device and back in streams that only events order.
// Each copy overwrites the source of an earlier one.
func testPeerOrder(t *testing.T, d [2]device.Device) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 600
	var at [2]device.Ptr
	var copies [2]device.Stream
	for i := range d {
		at[i] = room(t, d[i], make([]byte, n))
		copies[i] = newStream(t, d[i])
		after(t, copies[i], d[i])
	}
	for round := range 20 {
		sent, other := noise(rng, n), noise(rng, n)
		if err := copies[0].CopyIn(t.Context(), at[0], sent, device.Whole(n)); err != nil {
			t.Fatal(err)
		}
		after(t, copies[1], copies[0])
		if err := copies[1].CopyPeer(at[1], d[0], at[0], device.WholePeer(n)); err != nil {
			t.Fatal(err)
		}
		after(t, copies[0], copies[1]) // before the source is overwritten
		if err := copies[0].CopyIn(t.Context(), at[0], other, device.Whole(n)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if err := copies[1].CopyOut(t.Context(), got, at[1], device.Whole(n)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("round %d: the copy has bytes that were written after it", round)
		}
		after(t, copies[0], copies[1])
	}
	for i := range d {
		after(t, d[i], copies[:]...)
	}
}

// testPeerErrors checks that invalid copies are refused.
func testPeerErrors(t *testing.T, d [2]device.Device) {
	src, dst := room(t, d[1], make([]byte, peerBytes)), room(t, d[0], make([]byte, peerBytes))
	for name, err := range map[string]error{
		"negative size":    d[0].CopyPeer(dst, d[1], src, device.PeerRows{Count: -1, Width: 1}),
		"rows that meet":   d[0].CopyPeer(dst, d[1], src, device.PeerRows{Count: 2, Width: 8, FromPitch: 4, ToPitch: 8}),
		"no source device": d[0].CopyPeer(dst, nil, src, device.WholePeer(1)),
		"no event":         d[0].Wait(nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// A device may report memory that is not allocated when it copies.
	for name, err := range map[string]error{
		"source too short": d[0].CopyPeer(dst, d[1], src, device.WholePeer(peerBytes+1)),
		"target too short": d[0].CopyPeer(dst+1, d[1], src, device.WholePeer(peerBytes)),
	} {
		if err == nil {
			err = d[0].Sync(t.Context())
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
