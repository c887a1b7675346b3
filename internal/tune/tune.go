// Package tune measures which kernel and blocking are fastest for a product on this machine,
// and stores the result for later products.
//
// [Run] tunes one product after another, in two steps. First it measures all candidates
// briefly, alternating with the default. Then it measures the best of them against the default
// for longer, and keeps it if it is significantly faster. The second step does not use the
// timings of the first: the best of many candidates is partly best by chance.
//
// The interface [lab] has one implementation for the CPU and one for GPUs. Package bench does
// the measurements.
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
	"tilework/internal/gpu"
	"tilework/internal/sentinel"
)

// Options control tuning. The zero value tunes for the CPU.
type Options struct {
	Device  backend.DeviceName
	Threads int           // maximum number of threads on the CPU; 0 is all cores
	Time    time.Duration // approximate time to measure a product; 0 is 10 s
	Seed    uint64        // seed of the operands' values
	// Progress, if not nil, is called repeatedly from one goroutine with the elapsed time and
	// the expected total.
	Progress func(passed, all time.Duration)
	// Exhaustive measures every candidate that the device can run. Otherwise the rules of
	// [choose.Candidates] exclude those predicted to be slow, and on the CPU only the best
	// candidate is measured with other block sizes.
	Exhaustive bool
	// Warn, if not nil, is called with warnings of one line: another process holds the lock, or
	// something could not be measured or kept. Note, if not nil, is called with progress messages.
	Warn, Note func(line string)
}

// Outcome is the result of tuning for one product. Times are in seconds per product.
type Outcome struct {
	tuned.Form
	Device     string         `json:"device"`
	Threads    int            `json:"threads,omitempty"`
	Considered int            `json:"considered"` // number of candidates
	Measured   int            `json:"measured"`   // number of measured candidates
	Default    backend.Choice `json:"default"`
	Best       backend.Choice `json:"best"`
	Before     bench.Timing   `json:"default_seconds"`
	After      bench.Timing   `json:"best_seconds"`
	// Gain is the speedup of Best over Default, computed round by round.
	Gain bench.Ratio `json:"gain"`
	Kept bool        `json:"kept"`
	Why  string      `json:"why"` // why Best is kept or not
	// Candidates are the brief measurements of the first step, the fastest first.
	Candidates []Candidate `json:"ways,omitempty"`
}

// Candidate is a measured way to compute a product.
type Candidate struct {
	backend.Choice
	Seconds float64 `json:"seconds"`
	Speed   float64 `json:"speed"` // the time of the default divided by that of the candidate
}

// String formats the outcome in one line.
func (x Outcome) String() string {
	kept := "not kept"
	if x.Kept {
		kept = "kept"
	}
	return fmt.Sprintf("%v: the best of %d measured is %v, %.2f × as fast as the default, %v: %s, %s",
		x.Form, x.Measured, x.Best, x.Gain.Speed, x.Default, kept, x.Why)
}

// Summary describes the quality of the defaults in one line: the number of products for which the
// default is within 5 % of the best measured choice, and the geometric mean of the kept speedups.
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
	return fmt.Sprintf("the default is within 5 %% of the best for %d of %d products; the kept choices gain %.1f %% "+
		"on average (geometric mean over all products)",
		near, len(outcomes), 100*(math.Exp(logs/float64(max(len(outcomes), 1)))-1))
}

// Run tunes for one product after another. For each, it stores the best choice if that is
// significantly faster than the default, and removes a previously stored choice otherwise. It holds
// the lock of the cache while it measures a product, so that no other process tunes.
//
// If ctx ends, Run returns the error of ctx and the outcomes so far. It returns ErrNoDevice,
// ErrShape, and ErrUnsupported for an emulated device, which has no times. If a kernel returns a
// wrong result, Run continues with the other products and returns ErrVerify.
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
		x, err := tuneForm(ctx, l, tuner, f, o)
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
		if errors.Is(err, sentinel.ErrNoDevice) {
			break
		}
	}
	return outcomes, failed
}

// open opens the device in o.
func open(o Options) (l lab, t tuned.Tuner, closeLab func() error, err error) {
	if o.Device.IsGPU() {
		b, release, err := gpu.Open(o.Device)
		if err != nil {
			return nil, t, nil, err
		}
		if b.Device.Info().Emulated {
			err := fmt.Errorf("%w: tuning on device %v: an emulated GPU has no times (want cpu or gpu)",
				gemm.ErrUnsupported, o.Device)
			return nil, t, nil, errors.Join(err, release())
		}
		return newGPULab(b.Backend, o), tuned.For(gpu.TuningKey(b.Backend)), release, nil
	}
	if o.Device.Kind == backend.Auto {
		return nil, t, nil, fmt.Errorf("%w: tuning on device auto: want a certain device (cpu, gpu, gpu:N)",
			gemm.ErrUnsupported)
	}
	l = &cpuLab{workers: cpu.Workers(o.Threads), options: o}
	return l, tuned.For(cpu.Backend{}.TuningKey()), func() error { return nil }, nil
}

// tuneForm tunes for one product, and stores or removes its choice.
func tuneForm(ctx context.Context, l lab, tuner tuned.Tuner, f tuned.Form, o Options) (*Outcome, error) {
	unlock, err := tuner.Lock(ctx, func() { o.Warn("waiting for another process that is tuning") })
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
		o.Warn(fmt.Sprintf("%v: the choice could not be stored, only this process uses it: %v", f, err))
	}
	return x, failed
}

// clock calls Options.Progress repeatedly from a goroutine.
type clock struct {
	begins chan int
	done   chan struct{}
}

// progress starts a clock for n products.
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

// begin reports that product i is next.
func (c *clock) begin(i int) { c.begins <- i }

// stop stops the clock. Progress is not called after it returns.
func (c *clock) stop() {
	close(c.begins)
	<-c.done
}
