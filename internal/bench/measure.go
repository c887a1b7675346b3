package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// Subject is an implementation of matrix multiplication. If it is a fmt.Stringer, String returns
// details for the record, such as its version or the kernels it selected.
type Subject interface {
	Name() string
	// Prepare does the work that is needed once for many products like p. The function it returns
	// computes p on its buffers and returns when C is complete. A slow one may return ctx's error
	// when ctx ends. ErrUnsupported means that the subject does not support p, and is not reported
	// as a failure.
	Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error)
}

// Inexact is a [Subject] that rounds A and B to a shorter type before it multiplies them.
type Inexact interface{ Precision() Precision }

// IntensityReporter is a [Subject] that knows its global memory traffic. Intensity returns the
// operations per byte of A and B that the threads load in the most recently prepared product, or 0
// if that is not known.
type IntensityReporter interface{ Intensity() float64 }

// Predictor is a [Subject] whose time is predicted. Predicted returns the time of the most recently
// prepared product in clock cycles of the device, or 0 if it is not known.
type Predictor interface{ Predicted() float64 }

// TimePredictor is a [Subject] whose time is predicted in seconds, as [Predictor] does in clock
// cycles.
type TimePredictor interface{ PredictedSeconds() float64 }

// Packer is a [Subject] that packs B once and multiplies by it many times. After Prepare, PackB is
// called with each set of operands. The function that Prepare returned is then called with these
// sets only.
type Packer interface {
	Subject
	PackB(ctx context.Context, b gemm.Buffers) error
}

// Unchecked is a [Subject] that does not compute the problem, and is timed for comparison only. Its
// C is not checked.
type Unchecked interface {
	Subject
	Unchecked()
}

// SelfChecked is a subject whose matrices are out of reach of the measurement. Check computes the
// most recently prepared product, and returns the largest error of C divided by its bound.
type SelfChecked interface {
	Check(ctx context.Context) (ratio float64, err error)
}

// Precision describes how an [Inexact] subject rounds A and B. The zero value means no rounding.
type Precision struct {
	Name     string  // "tf32"
	Roundoff float64 // largest relative change of an element of A or B
}

// Case describes the problem to measure. Device, Threads and Transfers describe how the caller set
// up the subjects; Measure copies them into the records.
type Case struct {
	Problem   gemm.Problem
	Device    string
	Threads   int
	Transfers bool
	// Groups holds the number of rows of each group if the problem is grouped.
	Groups []int
}

// ends returns the end row of each group, exclusive.
func (c *Case) ends() []int32 {
	var ends []int32
	end := 0
	for _, rows := range c.Groups {
		end += rows
		ends = append(ends, int32(end))
	}
	return ends
}

// Options configures a measurement. The zero value is ready to use.
type Options struct {
	MinReps int           // least number of timings of each subject; 0 means 7
	MinTime time.Duration // least total time of its timings; 0 means 200 ms
	MaxTime time.Duration // total time after which its timings end; 0 means 10 s
	Warmup  time.Duration // duration of untimed runs; 0 means 20 ms, or 200 ms on a device
	Seed    uint64        // of the random operands

	// Cold makes each product read its operands from memory. Otherwise consecutive products use the
	// same operands, which may be in a cache.
	Cold bool

	// Sustained is the time for which each subject runs alone after the rounds, to measure its
	// sustained speed and its energy per product, and that of short bursts before. 0 means that they
	// are not measured. Only a device has a sensor for energy.
	Sustained time.Duration

	// Packs reports that some subjects are a [Packer] and need memory for a packed copy of each B.
	Packs bool

	// Lead is the duration of untimed runs at the start of each turn. It lets the threads of the
	// previous subject go idle: those of OpenBLAS spin for 26 ms after a product and keep the cores
	// busy. 0 means 40 ms if multithreaded subjects take turns on the host, 200 µs if subjects take
	// turns on a device, and no lead otherwise. A negative value means no lead.
	Lead time.Duration

	// Verify checks the results of each subject before and after its timings. nil checks all of C
	// for small problems, and 8 rows and 8 columns of C for others.
	Verify Verifier
	// Peak, if not nil, returns the peak rate in GFLOP/s for the given number of threads and
	// operands of type in that are rounded to the named [Precision]. It returns 0 if the peak is
	// not known.
	Peak func(in dtype.Type, precision string, threads int) float64
	// Environment, if not nil, replaces the result of Host in the records.
	Environment *Environment

	now     func() time.Duration // monotonic clock; tests replace it
	hostNow func() time.Duration // the same for the time to enqueue work on a device
	sleep   func(ctx context.Context, d time.Duration) error
	sense   func() (device.Sensors, error)
	count   Counter // if not nil, counts instead of timing
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.MinTime, 200*time.Millisecond)
	set(&o.MaxTime, 10*time.Second)
	set(&o.Warmup, 20*time.Millisecond)
	if o.MinReps == 0 {
		o.MinReps = 7
	}
	if o.Verify == nil {
		o.Verify = defaultVerifier(o.Seed)
	}
	if o.Environment == nil {
		e := Host()
		o.Environment = &e
	}
	if o.sleep == nil {
		o.sleep = sleep
	}
	start := time.Now()
	for _, now := range []*func() time.Duration{&o.now, &o.hostNow} {
		if *now == nil {
			*now = func() time.Duration { return time.Since(start) }
		}
	}
	return o
}

// Measure times kernels and peers on one case and compares each subject with every peer. In each
// round every subject has one turn; the order changes from round to round. The rounds end when each
// subject has reached MinReps and MinTime, or has used up MaxTime.
//
// One result of each subject is checked before its timings. Another one is checked after them,
// unless the subject takes more than a quarter of MaxTime per product.
//
// The result has one record per subject, in the given order, kernels first. The record of a failed
// subject holds its error and no times. The returned error joins these errors, except
// ErrUnsupported. A wrong result is a gemm.ErrVerify. When ctx ends, Measure returns its error and
// the records of the timings so far.
func Measure(ctx context.Context, c Case, kernels, peers []Subject, o Options) ([]Record, error) {
	o = o.withDefaults()
	runs, err := newRuns(c, kernels, peers)
	if err != nil {
		return nil, err
	}
	if err := Fits(&c.Problem, o); err != nil {
		return nil, err
	}
	if o.Lead == 0 && c.Threads != 1 && len(runs) > 1 {
		o.Lead = 40 * time.Millisecond
	}
	return measureAt(ctx, c, runs, o, func(data *operands) (site, error) {
		return newHostSite(&c.Problem, data, slices.Concat(kernels, peers), o)
	})
}

// measureAt runs a measurement on the site that open creates. The site may keep the operands.
func measureAt(ctx context.Context, c Case, runs []*run, o Options,
	open func(*operands) (site, error)) (records []Record, err error) {
	p := &c.Problem
	if p.K < 1 || p.Empty() {
		return nil, fmt.Errorf("%w: %d×%d×%d has no operations to measure", gemm.ErrShape, p.M, p.N, p.K)
	}
	if o.Sustained > 0 {
		if _, err := o.joules(); err != nil {
			return nil, err
		}
	}
	data := newOperands(&c, o.Seed)
	s, err := open(data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	check, err := batchVerifier(o.Verify, o.Seed)(ctx, p, data.Buffers)
	if err != nil {
		return nil, fmt.Errorf("preparing the check of %v: %w", p, err)
	}
	m := &measurement{c: c, o: o, site: s, runs: runs}
	for i, r := range runs {
		if ctx.Err() == nil {
			r.err = m.begin(ctx, i, r, check)
		}
		if ctx.Err() != nil {
			r.err = nil // an interruption, not a failure of the subject
		}
	}
	collectGarbage()
	sensed := o.watch(ctx)
	if o.count == nil {
		m.rounds(ctx)
		m.breakdowns(ctx)
		m.alone(ctx)
	}
	m.load = sensed()
	m.verifyAgain(ctx, check)
	records, errs := m.records()
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return records, errors.Join(errs...)
}

// collectGarbage runs a garbage collection if the next one is near, so that none starts during the
// timings. A collection takes longer than many measurements.
func collectGarbage() {
	sizes := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sizes)
	live, goal, used := sizes[0].Value.Uint64(), sizes[1].Value.Uint64(), sizes[2].Value.Uint64()
	if used > live/2+goal/2 {
		runtime.GC()
	}
}

// site is the memory and the clock of a measurement. It holds the operands and the subjects, which
// have the same indices as the runs.
type site interface {
	// prepare prepares subject i.
	prepare(ctx context.Context, i int) (product, error)
	// result computes a product on the initial operands. It returns C's memory, and about how long
	// the product took.
	result(ctx context.Context, run product) (c []byte, took time.Duration, err error)
	// time returns the duration of n products, which rotate through the sets of operands.
	time(ctx context.Context, run product, n int) (time.Duration, error)
	// batch returns the shortest timing that hides the cost and the resolution of the clock, and
	// the largest number of products per timing.
	batch() (least time.Duration, most int)
	// steps times the steps of the product that subject i prepared. It returns nil if subject i has
	// no steps.
	steps(i int) (*Steps, error)
	// breakdown computes up to n times the product that subject i prepared, as in time, and returns
	// the breakdown of one as [BreakdownRunner] does.
	breakdown(ctx context.Context, i, n int) ([]timeline.Breakdown, error)
	// sets returns the number of sets of operands.
	sets() int
	close() error
}
