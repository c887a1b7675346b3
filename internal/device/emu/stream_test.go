package emu

import (
	"context"
	"errors"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/ptx/build"
)

// twoStreams returns a device with two additional streams and a device word that holds 5.
func twoStreams(t *testing.T, seed uint64) (d *Device, p device.Ptr, s [2]device.Stream) {
	t.Helper()
	d = open(t, Options{Seed: seed})
	p, err := d.Alloc(4)
	if err == nil {
		err = d.CopyIn(t.Context(), p, []byte{5, 0, 0, 0}, device.Whole(4))
	}
	for i := range s {
		if err == nil {
			s[i], err = d.NewStream()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, p, s
}

// read returns the word at p as a copy on stream s reads it.
func read(t *testing.T, s device.Stream, p device.Ptr) (byte, error) {
	t.Helper()
	b := make([]byte, 4)
	err := s.CopyOut(t.Context(), b, p, device.Whole(4))
	return b[0], err
}

// TestStreamOrder checks that the device orders the work of two streams only if one waits for the
// other.
func TestStreamOrder(t *testing.T) {
	for _, waits := range []bool{true, false} {
		stale := 0
		for seed := range uint64(50) {
			d, p, s := twoStreams(t, seed)
			k := load(t, d, func(k *build.Kernel, out build.Ptr) { out.Store(k.Add(out.Load(), 2)) })
			if err := s[0].Launch(t.Context(), k, singleThread(p)); err != nil {
				t.Fatal(err)
			}
			e, err := s[0].Record()
			if err == nil && waits {
				err = s[1].Wait(e)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := read(t, s[1], p); err != nil || got != 5 && got != 7 {
				t.Fatalf("read %d, error %v; want 5 or 7", got, err)
			} else if got == 5 {
				stale++
			}
			if err := errors.Join(s[0].Close(), s[1].Close()); err != nil {
				t.Fatal(err)
			}
			if got, err := read(t, d, p); err != nil || got != 7 {
				t.Errorf("after closing the streams: read %d, error %v; want 7", got, err)
			}
		}
		if waits == (stale > 0) {
			t.Errorf("with waits %v, %d of 50 runs read the old word", waits, stale)
		}
	}
}

// TestStreamFaults checks that a kernel fault is reported once, by its own stream and by the
// streams that wait for it, and by no other stream.
func TestStreamFaults(t *testing.T) {
	for seed := range uint64(20) {
		d, p, s := twoStreams(t, seed)
		bad := load(t, d, func(k *build.Kernel, out build.Ptr) { out.At(1).Store(7) })
		if err := s[0].Launch(t.Context(), bad, singleThread(p)); err != nil {
			t.Fatal(err)
		}
		e, err := s[0].Record()
		if err == nil {
			err = s[1].Wait(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, d, p); err != nil || got != 5 {
			t.Errorf("stream without a wait: read %d, error %v; want 5", got, err)
		}
		if _, err := read(t, s[1], p); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("stream that waits: got error %v, want %v", err, device.ErrLaunch)
		}
		if err := s[0].Sync(t.Context()); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("stream of the fault: got error %v, want %v", err, device.ErrLaunch)
		}
		for i := range s {
			if err := s[i].Sync(t.Context()); err != nil {
				t.Errorf("fault reported twice: %v", err)
			}
		}
	}
}

// TestStreamCancel checks that the context of an endless kernel aborts it and that other streams
// report no error.
func TestStreamCancel(t *testing.T) {
	d, p, s := twoStreams(t, 1)
	endless := load(t, d, func(k *build.Kernel, out build.Ptr) {
		k.While(func() build.Reg { return k.Lt(out.Load(), 100) }, func() { out.Store(7) })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s[0].Launch(ctx, endless, singleThread(p)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := s[0].Sync(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stream of the kernel: got error %v, want %v", err, context.DeadlineExceeded)
	}
	if err := errors.Join(s[0].Sync(t.Context()), s[1].Sync(t.Context()), d.Sync(t.Context())); err != nil {
		t.Errorf("Sync with another context: %v", err)
	}
}

// TestCrossedWaits lets streams of two devices wait for each other's device, while both need a
// third one first. Each stream must end.
func TestCrossedWaits(t *testing.T) {
	for seed := range uint64(50) {
		var devices [3]*Device
		for i := range devices {
			d, err := Open(Options{Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			devices[i] = d
		}
		record := func(s device.Stream) device.Event {
			e, err := s.Record()
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		wait := func(s device.Stream, e device.Event) {
			if err := s.Wait(e); err != nil {
				t.Fatal(err)
			}
		}
		var streams [3]device.Stream
		for i, d := range devices {
			s, err := d.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			streams[i] = s
		}
		var events [2]device.Event
		first := record(streams[2])
		for i := range events {
			wait(streams[i], first)
			events[i] = record(streams[i])
		}
		wait(devices[0], events[1])
		wait(devices[1], events[0])
		for _, d := range devices {
			if err := d.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
