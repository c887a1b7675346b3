// Package timeline measures how the GPUs of a product spend its time: computing, copying or
// waiting.
//
// The code that enqueues work wraps it in [Timeline.Do], which records an event before and after
// the work. [Measure] reads the events when the product is done. Events delay the streams a little
// and keep kernels from overlapping, so a measured product is not one to time.
package timeline

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"tilework/internal/device"
)

// Kind is a kind of work.
type Kind uint8

// The kinds of work: kernels, and copies by their source and destination.
const (
	Compute  Kind = iota
	FromHost      // from host memory to the GPU
	ToHost
	FromGPU // from the memory of another GPU, or within that of this GPU
	kinds
)

// Breakdown is the division of a product's time on one GPU. Times are in seconds. Compute, Copies
// and Waiting add up to Seconds.
type Breakdown struct {
	Device     string  `json:"device"`     // name of the GPU: "gpu:0"
	Seconds    float64 `json:"seconds"`    // of the product, by the host's clock
	Compute    float64 `json:"compute"`    // while kernels ran
	Copies     float64 `json:"copies"`     // while copies ran and no kernel did
	Overlapped float64 `json:"overlapped"` // while copies and kernels ran; a part of Compute
	Waiting    float64 `json:"waiting"`    // while neither ran

	FromHost int `json:"from_host_bytes"`
	ToHost   int `json:"to_host_bytes"`
	FromGPUs int `json:"from_gpus_bytes"`
}

// Of returns the breakdown of one of n equal products.
func (b Breakdown) Of(n int) Breakdown {
	for _, seconds := range []*float64{&b.Seconds, &b.Compute, &b.Copies, &b.Overlapped, &b.Waiting} {
		*seconds /= float64(n)
	}
	b.FromHost, b.ToHost, b.FromGPUs = b.FromHost/n, b.ToHost/n, b.FromGPUs/n
	return b
}

// Timeline records the work of a product on one device. A nil Timeline records nothing. Its methods
// are safe for concurrent use.
type Timeline struct {
	start device.Event

	mu    sync.Mutex
	spans []span
}

// span is a piece of work in a stream.
type span struct {
	kind     Kind
	bytes    int // copied
	from, to device.Event
}

// Do calls f, which enqueues work of one kind in a stream. bytes is the size of a copy.
func (t *Timeline) Do(s device.Stream, kind Kind, bytes int, f func() error) error {
	if t == nil {
		return f()
	}
	x := span{kind: kind, bytes: bytes}
	var err error
	if x.from, err = s.Record(); err != nil {
		return err
	}
	if err = f(); err == nil {
		x.to, err = s.Record()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, x)
	return err
}

// Measure calls run with a timeline for each device and returns the breakdowns of its time, without
// Breakdown.Device. The devices must be idle, and run must return when all its work is done.
func Measure(ctx context.Context, devices []device.Device, run func([]*Timeline) error) (all []Breakdown, err error) {
	lines := make([]*Timeline, len(devices))
	defer func() {
		for _, t := range lines {
			err = device.Join(err, t.free())
		}
	}()
	clock := time.Now() // before the first event, so that no work ends later than the product
	for i, d := range devices {
		lines[i] = &Timeline{}
		if lines[i].start, err = d.Record(); err != nil {
			return nil, err
		}
	}
	if err := run(lines); err != nil {
		return nil, err
	}
	took := time.Since(clock)
	for _, t := range lines {
		s, err := t.breakdown(took, func(e device.Event) (time.Duration, error) { return e.Since(ctx, t.start) })
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// breakdown divides the time of a product that is done. since returns the time of an event since
// the start.
func (t *Timeline) breakdown(took time.Duration,
	since func(device.Event) (time.Duration, error)) (s Breakdown, err error) {
	var computing, copying []interval
	var bytes [kinds]int
	for _, x := range t.spans {
		var i interval
		for _, end := range []struct {
			at    *time.Duration
			event device.Event
		}{{&i.from, x.from}, {&i.to, x.to}} {
			if *end.at, err = since(end.event); err != nil {
				return s, err
			}
			*end.at = min(max(*end.at, 0), took) // the clocks of host and GPU differ
		}
		bytes[x.kind] += x.bytes
		if x.kind == Compute {
			computing = append(computing, i)
		} else {
			copying = append(copying, i)
		}
	}
	busy := length(slices.Concat(computing, copying))
	compute, copies := length(computing), length(copying)
	return Breakdown{
		Seconds: took.Seconds(), Compute: compute.Seconds(), Copies: (busy - compute).Seconds(),
		Overlapped: (compute + copies - busy).Seconds(), Waiting: (took - busy).Seconds(),
		FromHost: bytes[FromHost], ToHost: bytes[ToHost], FromGPUs: bytes[FromGPU],
	}, nil
}

func (t *Timeline) free() error {
	if t == nil {
		return nil
	}
	events := []device.Event{t.start}
	for _, x := range t.spans {
		events = append(events, x.from, x.to)
	}
	var errs []error
	for _, e := range events {
		if e != nil {
			errs = append(errs, e.Free())
		}
	}
	return device.Join(errs...)
}

// interval is a part of a product's time.
type interval struct{ from, to time.Duration }

// length returns the length of the union of intervals, which it sorts.
func length(all []interval) (sum time.Duration) {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	end := time.Duration(0)
	for _, i := range all {
		sum += max(i.to-max(i.from, end), 0)
		end = max(end, i.to)
	}
	return sum
}
