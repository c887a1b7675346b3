// Package tune finds the kernel and the blocking that are fastest for a product on this
// machine, by measuring, and has later products use them.
//
// [Run] tunes one product after the other: it measures what may be faster than the
// default in turns with it, a little each, then the best of them against the default
// for longer, and keeps it if that is more than chance. What was measured in the first
// part, where the best of many is lucky too, does not count in the second.
//
// A processor and a GPU are a [lab] each; what is measured is measured by package bench.
package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
)

// Options say how to tune; the zero value tunes for the processor.
type Options struct {
	Device  backend.Device
	Threads int           // that may be used, on the processor; 0 is all
	Time    time.Duration // about how long a product is measured; 0 is 10 s
	Seed    uint64        // of the operands' values
	// Progress, if not nil, is called now and then from one goroutine with the time
	// that has passed and that all will take.
	Progress func(passed, all time.Duration)
	// Exhaustive measures all that the device can run, where otherwise the rules of
	// [gpu.Candidates] leave out what is predicted to be slow, and blocks on the
	// processor are only varied for the best of the routes.
	Exhaustive bool
	// Warn, if not nil, is told in a line what its user has to know: that another process
	// is waited for, or what could not be measured or kept. Note is told how it goes.
	Warn, Note func(line string)
}

// Outcome is what came of one product. Times are seconds of one product.
type Outcome struct {
	tuned.Form
	Device     string       `json:"device"`
	Threads    int          `json:"threads,omitempty"`
	Considered int          `json:"considered"` // ways to compute it,
	Measured   int          `json:"measured"`   // and of these
	Default    tuned.Choice `json:"default"`
	Best       tuned.Choice `json:"best"`
	Before     bench.Timing `json:"default_seconds"`
	After      bench.Timing `json:"best_seconds"`
	// Gain is how many times faster the best was than the default, round by round.
	Gain bench.Ratio `json:"gain"`
	Kept bool        `json:"kept"`
	Why  string      `json:"why"` // it is kept or not
	// Ways are those that were measured, briefly, in turns with the default, the fastest first.
	Ways []Way `json:"ways,omitempty"`
}

// Way is a way to compute the product, and how many times as fast as the default it was.
type Way struct {
	tuned.Choice
	Seconds float64 `json:"seconds"`
	Speed   float64 `json:"speed"`
}

// String is the outcome in a line.
func (x Outcome) String() string {
	kept := "not kept"
	if x.Kept {
		kept = "kept"
	}
	return fmt.Sprintf("%v: %v, %.2f × as fast as the default, %v, of %d measured: %s: %s", x.Form, x.Best, x.Gain.Speed, x.Default, x.Measured, kept, x.Why)
}

// Summary says how good the defaults are, in a line: on how many products they are
// within 5 % of the fastest that was found, and the geometric mean of what was gained.
func Summary(outcomes []Outcome) string {
	const close = 1.05
	near, logs := 0, 0.0
	for _, x := range outcomes {
		if x.Gain.Speed < close {
			near++
		}
		if x.Kept {
			logs += math.Log(x.Gain.Speed)
		}
	}
	return fmt.Sprintf("the default is within 5 %% of the fastest that was found on %d of %d; what was kept gains %.1f %% in the geometric mean of all",
		near, len(outcomes), 100*(math.Exp(logs/float64(max(len(outcomes), 1)))-1))
}

// Run tunes for one product after the other, and keeps each choice when it is found:
// one that is faster than the default by more than chance. What was kept for a product
// before goes when the default turns out to be as fast. While a product is measured no
// other process tunes.
//
// When ctx ends, the error is its own, with the outcomes until then. The others are
// ErrNoDevice, ErrUnsupported for an emulated device, which has no times, and ErrShape;
// a product that a kernel gets wrong is ErrVerify, and the others are tuned all the same.
func Run(ctx context.Context, forms []tuned.Form, o Options) (outcomes []Outcome, err error) {
	if o.Time <= 0 {
		o.Time = 10 * time.Second
	}
	for _, f := range []*func(string){&o.Warn, &o.Note} {
		if *f == nil {
			*f = func(string) {}
		}
	}
	if err := dispatch.CheckThreads(o.Threads); err != nil {
		return nil, err
	}
	for _, f := range forms {
		if min(f.M, f.N, f.K) < 1 {
			return nil, fmt.Errorf("%w: nothing to tune in %v", gemm.ErrShape, f)
		}
	}
	l, tuner, closeLab, err := open(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeLab()) }()
	clock := o.progress(len(forms))
	defer clock.stop()
	var failed error
	for i, f := range forms {
		clock.begin(i)
		x, err := one(ctx, l, tuner, f, o)
		if ctx.Err() != nil {
			return outcomes, errors.Join(failed, ctx.Err())
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%v: %w", f, err))
		}
		if x != nil {
			outcomes = append(outcomes, *x)
			o.Note(x.String())
		}
		if errors.Is(err, gemm.ErrNoDevice) {
			break
		}
	}
	return outcomes, failed
}

// open readies what o names.
func open(o Options) (l lab, t tuned.Tuner, closeLab func() error, err error) {
	if o.Device.IsGPU() {
		b, release, err := dispatch.OpenGPU(o.Device)
		if err != nil {
			return nil, t, nil, err
		}
		if b.Device.Info().Emulated {
			err := fmt.Errorf("%w: tuning on device %v: an emulated GPU has counts and no times of its own (want cpu, or gpu where there is one)", gemm.ErrUnsupported, o.Device)
			return nil, t, nil, errors.Join(err, release())
		}
		return newGPULab(b.Backend, o), tuned.GPUTuner(b.Backend), release, nil
	}
	if o.Device.Kind == "auto" {
		return nil, t, nil, fmt.Errorf("%w: tuning on device auto: name one (cpu, gpu, gpu:N)", gemm.ErrUnsupported)
	}
	return &processorLab{workers: cpu.Workers(o.Threads), options: o}, tuned.CPUTuner(), func() error { return nil }, nil
}

// one tunes for one product.
func one(ctx context.Context, l lab, tuner tuned.Tuner, f tuned.Form, o Options) (*Outcome, error) {
	unlock, err := tuner.Lock(ctx, func() { o.Warn("another process is tuning: waiting for it") })
	if err != nil {
		return nil, err
	}
	defer unlock()
	x, failed := search(ctx, l, f, o)
	if x == nil || ctx.Err() != nil {
		return nil, failed
	}
	if x.Kept {
		err = tuner.Keep(tuned.Tuned{
			Form: f, Choice: x.Best, Device: x.Device, Threads: x.Threads, Default: x.Default,
			Seconds: x.After.Median, Before: x.Before.Median, Gain: x.Gain.Speed, P10: x.Gain.P10, P90: x.Gain.P90,
			Date: time.Now().UTC().Truncate(time.Second),
		})
	} else {
		err = tuner.Drop(f)
	}
	if err != nil {
		o.Warn(fmt.Sprintf("%v: the choice holds for this process alone: %v", f, err))
	}
	return x, failed
}

// clock tells the progress.
type clock struct {
	begins chan int
	done   chan struct{}
}

// progress begins to tell the progress of n products.
func (o Options) progress(n int) *clock {
	c := &clock{make(chan int), make(chan struct{})}
	go func() {
		defer close(c.done)
		const pace = 200 * time.Millisecond
		tick := time.NewTicker(pace)
		defer tick.Stop()
		before, since := time.Duration(0), time.Now()
		for {
			select {
			case i, more := <-c.begins:
				if !more {
					return
				}
				before, since = time.Duration(i)*o.Time, time.Now()
			case <-tick.C:
			}
			if o.Progress != nil {
				o.Progress(before+min(time.Since(since), o.Time), time.Duration(n)*o.Time)
			}
		}
	}()
	return c
}

func (c *clock) begin(i int) { c.begins <- i }

// stop returns when Progress is not called any more.
func (c *clock) stop() {
	close(c.begins)
	<-c.done
}
