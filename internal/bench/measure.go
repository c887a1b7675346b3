package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// Subject is something that multiplies.
type Subject interface {
	Name() string
	// Prepare does once what a caller who multiplies many times would do once. The
	// function that it returns computes p on the buffers that it is given; they are
	// timed together, so that it returns when C is complete; one that takes long may
	// return when ctx ends, with its error. ErrUnsupported means that the subject does
	// not do such products, which is no failure.
	//
	// A subject that is a fmt.Stringer tells with String more about itself, for the
	// record: its version, the kernels that it picked for the product.
	Prepare(ctx context.Context, p *gemm.Problem) (func(gemm.Buffers) error, error)
}

// Inexact is a subject that rounds A and B to a shorter type before it multiplies.
type Inexact interface{ Precision() Precision }

// Loading is a subject that knows how much it asks global memory for: the operations
// for each byte of A and B that its threads load in the product that was prepared last,
// 0 if that is not known.
type Loading interface{ Intensity() float64 }

// Laying is a [Subject] that lays out B once, as a caller would who multiplies by it many
// times: Lay is called after Prepare with each set of operands, and the function that
// Prepare returned is then called with no others.
type Laying interface {
	Subject
	Lay(ctx context.Context, b gemm.Buffers) error
}

// Different is a [Subject] that computes something else, to show how long that takes: its C is
// not checked.
type Different interface {
	Subject
	ComputesElse()
}

// Precision is the arithmetic of an [Inexact] subject; the zero value is that of the
// element type.
type Precision struct {
	Name     string  // "tf32"
	Roundoff float64 // the most that an element of A or B changes, relative to it
}

// Case is what is measured. The last three say how the subjects were set up by
// whoever made them; Measure writes them down.
type Case struct {
	Problem   gemm.Problem
	Device    string
	Threads   int
	Transfers bool
	// Groups are the rows of each group, where the problem is of such.
	Groups []int
}

// ends are the rows behind each group.
func (c *Case) ends() []int32 {
	var ends []int32
	end := 0
	for _, rows := range c.Groups {
		end += rows
		ends = append(ends, int32(end))
	}
	return ends
}

// Options says how to measure; the zero value is a good start.
type Options struct {
	MinReps int           // timings of each subject, at least; 0 is 7
	MinTime time.Duration // in which it is timed, at least; 0 is 200 ms
	MaxTime time.Duration // after which it is not timed any more; 0 is 10 s
	Warmup  time.Duration // in which it runs before it is timed; 0 is 20 ms, and 200 ms on a device
	Seed    uint64        // of the operands' values

	// Cold has every product read its operands from memory, as in a program that
	// did something else before; otherwise they are those of the product before.
	Cold bool

	// Laid says that there are subjects that are [Laying], and need memory for as many B.
	Laid bool

	// Lead is how long a subject runs untimed whenever its turn comes. The threads of
	// a library spin for some time after a product, for OpenBLAS 26 ms, and take the
	// cores from whoever comes next. 0 is 40 ms where subjects with several threads
	// take turns, and nothing elsewhere; less than 0 is nothing.
	Lead time.Duration

	// Verify checks each subject's result, before it is timed and after; nil is all of a small one, and
	// Sampled(8, Seed) of others.
	Verify Verifier
	// Peak, if not nil, is the rate in 10⁹ operations a second that so many threads
	// could reach at most on operands of that type, in a [Precision] of that name;
	// 0 where it is not known.
	Peak func(in dtype.Type, precision string, threads int) float64
	// Environment, if not nil, stands in the records in place of Host's.
	Environment *Environment

	now   func() time.Duration // a monotonic clock; tests bring their own
	sense func() (device.Sensors, error)
	count Counter // in place of times
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
		o.Verify = thorough(o.Seed)
	}
	if o.Environment == nil {
		e := Host()
		o.Environment = &e
	}
	if o.now == nil {
		start := time.Now()
		o.now = func() time.Duration { return time.Since(start) }
	}
	return o
}

// Measure times kernels and peers on one case, in rounds in which each has its turn
// and another begins each time, and compares each with every peer. The rounds end
// when each subject has had MinReps and MinTime, or has used up MaxTime.
//
// A result of each is checked before its timings, and, unless it takes a good part of
// MaxTime, another after them.
//
// There is a record for each subject, in the order given, kernels first. One that
// failed has its error in its record and no times; the error that Measure returns
// joins those, ErrUnsupported left out. A wrong result is gemm.ErrVerify. When ctx
// is done, Measure returns its error and records of what was timed until then.
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

// measureAt measures on the site that open makes, of operands that it may keep.
func measureAt(ctx context.Context, c Case, runs []*run, o Options, open func(*operands) (site, error)) (records []Record, err error) {
	p := &c.Problem
	if p.K < 1 || p.Empty() {
		return nil, fmt.Errorf("%w: nothing to measure in %d×%d×%d", gemm.ErrShape, p.M, p.N, p.K)
	}
	data := newOperands(&c, o.Seed)
	s, err := open(data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	check, err := ofBatch(o.Verify, o.Seed)(p, data.Buffers)
	if err != nil {
		return nil, fmt.Errorf("preparing the check of %v: %w", p, err)
	}
	m := &measurement{c: c, o: o, site: s, runs: runs}
	for i, r := range runs {
		if ctx.Err() == nil {
			r.err = m.begin(ctx, i, r, check)
		}
		if ctx.Err() != nil {
			r.err = nil // interrupted, and no failure of its own
		}
	}
	runtime.GC() // now, and not in the middle of somebody's timing
	sensed := o.watch(ctx)
	if o.count == nil {
		m.rounds(ctx)
	}
	m.load = sensed()
	m.verifyAgain(ctx, check)
	records, errs := m.records()
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return records, errors.Join(errs...)
}

// site is where a measurement happens: it has the subjects, in the order of the runs,
// and the operands, and it keeps the time.
type site interface {
	// prepare readies subject i.
	prepare(ctx context.Context, i int) (product, error)
	// result computes a product on the operands as they were at first. It returns C's
	// memory, and about how long the product took.
	result(ctx context.Context, run product) (c []byte, took time.Duration, err error)
	// time is how long n products take, each on the next of the sets of operands.
	time(ctx context.Context, run product, n int) (time.Duration, error)
	// batch is the shortest time that is measured, so that the clock's own cost and
	// steps do not show, and how many products are put into one timing at most.
	batch() (least time.Duration, most int)
	// steps times the steps of what subject i was prepared for; nil where it has none.
	steps(i int) (*Steps, error)
	sets() int
	close() error
}
