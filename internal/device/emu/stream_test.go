package emu

import (
	"context"
	"errors"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/ptx/build"
)

// twoStreams is a device with a word of 5 on it, and two streams beside its own.
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

// read is the word as a stream finds it.
func read(t *testing.T, s device.Stream, p device.Ptr) (byte, error) {
	t.Helper()
	b := make([]byte, 4)
	err := s.CopyOut(t.Context(), b, p, device.Whole(4))
	return b[0], err
}

// TestStreams: what streams do is in order where one waits for another, and only there.
func TestStreams(t *testing.T) {
	for _, waits := range []bool{true, false} {
		late := 0
		for seed := range uint64(50) {
			d, p, s := twoStreams(t, seed)
			k := load(t, d, func(k *build.Kernel, out build.Ptr) { out.Store(k.Add(out.Load(), 2)) })
			if err := s[0].Launch(t.Context(), k, on(p)); err != nil {
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
				t.Fatalf("read %d, %v", got, err)
			} else if got == 5 {
				late++
			}
			if err := errors.Join(s[0].Close(), s[1].Close()); err != nil {
				t.Fatal(err)
			}
			if got, err := read(t, d, p); err != nil || got != 7 {
				t.Errorf("after the streams are closed: read %d, %v", got, err)
			}
		}
		if waits == (late > 0) {
			t.Errorf("waiting: %v, and the word was old in %d runs", waits, late)
		}
	}
}

// TestStreamFaults: a kernel's fault comes out of the streams that wait for it and of its
// own, once, and not of others.
func TestStreamFaults(t *testing.T) {
	for seed := range uint64(20) {
		d, p, s := twoStreams(t, seed)
		bad := load(t, d, func(k *build.Kernel, out build.Ptr) { out.At(1).Store(7) })
		if err := s[0].Launch(t.Context(), bad, on(p)); err != nil {
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
			t.Errorf("a stream that does not wait: %d, %v", got, err)
		}
		if _, err := read(t, s[1], p); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("a stream that waits: %v", err)
		}
		if err := s[0].Sync(t.Context()); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("the stream itself: %v", err)
		}
		for i := range s {
			if err := s[i].Sync(t.Context()); err != nil {
				t.Errorf("once more: %v", err)
			}
		}
	}
}

// TestStreamCancel: a kernel that would never end ends with its own context, and is
// nobody else's error.
func TestStreamCancel(t *testing.T) {
	d, p, s := twoStreams(t, 1)
	endless := load(t, d, func(k *build.Kernel, out build.Ptr) {
		k.While(func() build.Reg { return k.Lt(out.Load(), 100) }, func() {})
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s[0].Launch(ctx, endless, on(p)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := s[0].Sync(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its own: %v", err)
	}
	if err := errors.Join(s[0].Sync(t.Context()), s[1].Sync(t.Context()), d.Sync(t.Context())); err != nil {
		t.Errorf("another's: %v", err)
	}
}
