package timeline

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/testkit/testrand"
)

// mark is an event at a given time.
type mark struct {
	device.Event
	at time.Duration
}

// TestBreakdown compares the breakdowns of random work with a count of the microseconds in which
// something runs.
func TestBreakdown(t *testing.T) {
	rng := testrand.New(t)
	for range 500 {
		const ticks = 100
		var line Timeline
		var computing, copying [ticks]bool
		var want Breakdown
		for range rng.IntN(8) {
			from := rng.IntN(ticks)
			to := from + rng.IntN(2*ticks-from) // it may end after the product by the GPU's clock
			kind := Kind(rng.IntN(int(kinds)))
			n := 0
			for i := from; i < min(to, ticks); i++ {
				if kind == Compute {
					computing[i] = true
				} else {
					copying[i] = true
				}
			}
			if kind != Compute {
				n = rng.IntN(100)
			}
			switch kind {
			case FromHost:
				want.FromHost += n
			case ToHost:
				want.ToHost += n
			case FromGPU:
				want.FromGPUs += n
			}
			at := func(tick int) device.Event { return mark{at: time.Duration(tick) * time.Microsecond} }
			line.spans = append(line.spans, span{kind, n, at(from), at(to)})
		}
		const tick = 1e-6
		for i := range ticks {
			want.Seconds += tick
			switch {
			case computing[i] && copying[i]:
				want.Compute, want.Overlapped = want.Compute+tick, want.Overlapped+tick
			case computing[i]:
				want.Compute += tick
			case copying[i]:
				want.Copies += tick
			default:
				want.Waiting += tick
			}
		}
		got, err := line.breakdown(ticks*time.Microsecond,
			func(e device.Event) (time.Duration, error) { return e.(mark).at, nil })
		if err != nil || !same(got, want) {
			t.Fatalf("%+v: got %+v, %v, want %+v", line.spans, got, err, want)
		}
		half := Breakdown{"", want.Seconds / 2, want.Compute / 2, want.Copies / 2, want.Overlapped / 2, want.Waiting / 2,
			want.FromHost / 2, want.ToHost / 2, want.FromGPUs / 2}
		if !same(got.Of(2), half) {
			t.Fatalf("half of %+v is %+v", got, got.Of(2))
		}
	}
}

// same compares breakdowns up to the rounding of times.
func same(a, b Breakdown) bool {
	for _, x := range [][2]float64{{a.Seconds, b.Seconds}, {a.Compute, b.Compute}, {a.Copies, b.Copies},
		{a.Overlapped, b.Overlapped}, {a.Waiting, b.Waiting}} {
		if math.Abs(x[0]-x[1]) > 1e-12 {
			return false
		}
	}
	return a.FromHost == b.FromHost && a.ToHost == b.ToHost && a.FromGPUs == b.FromGPUs
}

// copies copies some bytes to the first device, from there to the second, and back to the host.
func copies(t *testing.T, d [2]device.Device, lines [2]*Timeline, n int) error {
	var at [2]device.Ptr
	defer func() {
		for i, p := range at {
			_ = d[i].Free(p)
		}
	}()
	var err error
	for i := range at {
		if at[i], err = d[i].Alloc(n); err != nil {
			return err
		}
	}
	sent, got := bytes.Repeat([]byte{7}, n), make([]byte, n)
	if err := lines[0].Do(d[0], FromHost, n, func() error {
		return d[0].CopyIn(t.Context(), at[0], sent, device.Whole(n))
	}); err != nil {
		return err
	}
	if err := d[0].Sync(t.Context()); err != nil {
		return err
	}
	if err := lines[1].Do(d[1], FromGPU, n, func() error {
		return d[1].CopyPeer(at[1], d[0], at[0], device.WholePeer(n))
	}); err != nil {
		return err
	}
	if err := lines[1].Do(d[1], ToHost, n, func() error {
		return d[1].CopyOut(t.Context(), got, at[1], device.Whole(n))
	}); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		t.Error("the copied bytes differ")
	}
	return nil
}

// TestMeasure measures copies between two emulated GPUs, fails each call in turn, and checks that
// no event is left.
func TestMeasure(t *testing.T) {
	var broken [2]*faulty.Device
	var d [2]device.Device
	for i := range d {
		inner, err := emu.Open(emu.Options{})
		if err != nil {
			t.Fatal(err)
		}
		broken[i] = faulty.New(inner)
		d[i] = broken[i]
		t.Cleanup(func() {
			if err := d[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := copies(t, d, [2]*Timeline{}, 10); err != nil {
		t.Fatalf("without timelines: %v", err)
	}
	failure := errors.New("failure")
	for i, x := range broken {
		for call := 1; ; call++ {
			x.Fail(call, failure)
			all, err := Measure(t.Context(), d[:], func(lines []*Timeline) error {
				return copies(t, d, [2]*Timeline(lines), 1000)
			})
			failed := x.FailedCall()
			x.Fail(0, nil)
			for j, other := range broken {
				if left := other.Leaks(); len(left) > 0 {
					t.Errorf("%q of device %d failed: left on device %d: %v", failed, i, j, left)
				}
			}
			if failed != "" && failed[:4] != "Free" { // copies ignores errors of Free
				if !errors.Is(err, failure) {
					t.Errorf("%q of device %d failed: error %v", failed, i, err)
				}
				continue
			}
			if err != nil || len(all) != 2 {
				t.Fatalf("%v, %v", all, err)
			}
			for j, want := range []Breakdown{{FromHost: 1000}, {FromGPUs: 1000, ToHost: 1000}} {
				got := all[j]
				if sum := got.Compute + got.Copies + got.Waiting; math.Abs(sum-got.Seconds) > 1e-9 || got.Copies <= 0 ||
					got.Compute != 0 || got.FromHost != want.FromHost || got.ToHost != want.ToHost || got.FromGPUs != want.FromGPUs {
					t.Errorf("device %d: %+v", j, got)
				}
			}
			if failed == "" {
				break
			}
		}
	}
}
