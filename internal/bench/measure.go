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
	// timed together, so that it returns when C is complete. ErrUnsupported means
	// that the subject does not do such products, which is no failure.
	//
	// A subject that is a fmt.Stringer tells with String more about itself, for the
	// record: its version, the kernels that it picked for the product.
	Prepare(p *gemm.Problem) (func(gemm.Buffers) error, error)
}

// Inexact is a subject that rounds A and B to a shorter type before it multiplies.
type Inexact interface{ Precision() Precision }

// Loading is a subject that knows how much it asks global memory for: the operations
// for each byte of A and B that its threads load in the product that was prepared last,
// 0 if that is not known.
type Loading interface{ Intensity() float64 }

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

	// Lead is how long a subject runs untimed whenever its turn comes. The threads of
	// a library spin for some time after a product, for OpenBLAS 26 ms, and take the
	// cores from whoever comes next. 0 is 40 ms where subjects with several threads
	// take turns, and nothing elsewhere; less than 0 is nothing.
	Lead time.Duration

	// Verify checks each subject's result before it is timed; nil is Sampled(8, Seed).
	Verify Verifier
	// Peak, if not nil, is the rate in 10⁹ operations a second that so many threads
	// could reach at most on operands of that type, in a [Precision] of that name;
	// 0 where it is not known.
	Peak func(in dtype.Type, precision string, threads int) float64
	// Environment, if not nil, stands in the records in place of Host's.
	Environment *Environment

	now   func() time.Duration // a monotonic clock; tests bring their own
	sense func() (device.Sensors, error)
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
		o.Verify = Sampled(8, o.Seed)
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
	if p.M < 1 || p.N < 1 || p.K < 1 {
		return nil, fmt.Errorf("%w: nothing to measure in %d×%d×%d", gemm.ErrShape, p.M, p.N, p.K)
	}
	data, err := newOperands(p, o.Seed, o.Environment.Memory)
	if err != nil {
		return nil, err
	}
	s, err := open(data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	check, err := o.Verify(p, data.Buffers)
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
	m.rounds(ctx)
	m.load = sensed()
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

// product computes C on a set of operands.
type product func(ctx context.Context, set int) error

// run is one subject's part in a measurement.
type run struct {
	subject   named
	multiply  product
	batch     int
	precision Precision
	spent     time.Duration // on its timings
	last      time.Duration // the latest timing
	times     []float64     // seconds of one product, in each timing
	record    Record
	err       error
}

type named interface{ Name() string }

func newRuns[S named](c Case, kernels, peers []S) ([]*run, error) {
	var runs []*run
	seen := map[string]bool{}
	for i, subjects := range [][]S{kernels, peers} {
		for _, s := range subjects {
			if seen[s.Name()] {
				return nil, fmt.Errorf("two subjects have the name %q", s.Name())
			}
			seen[s.Name()] = true
			r := &run{subject: s, batch: 1, record: newRecord(&c)}
			r.record.Subject, r.record.Peer = s.Name(), i == 1
			if x, ok := any(s).(Inexact); ok {
				r.precision = x.Precision()
				r.record.Precision = r.precision.Name
			}
			runs = append(runs, r)
		}
	}
	return runs, nil
}

type measurement struct {
	c    Case
	o    Options
	site site
	runs []*run
	load *Load
}

// begin prepares subject i, checks one result of it, and warms it up.
func (m *measurement) begin(ctx context.Context, i int, r *run, check Check) error {
	var err error
	start := m.o.now()
	if r.multiply, err = m.site.prepare(ctx, i); err != nil {
		return err
	}
	r.record.Setup = (m.o.now() - start).Seconds()
	c, took, err := m.site.result(ctx, r.multiply)
	if err != nil {
		return err
	}
	ratio, err := check(c, r.precision.Roundoff)
	if err != nil {
		return fmt.Errorf("checking the result: %w", err)
	}
	if !(ratio <= 1) {
		return fmt.Errorf("%w: the largest error is %.3g times what is allowed", gemm.ErrVerify, ratio)
	}
	r.record.Verified, r.record.ErrorRatio = true, ratio
	if r.record.Steps, err = m.site.steps(i); err != nil {
		return err
	}
	if took >= m.o.MaxTime {
		return nil // nothing that takes so long needs to be warm
	}
	return m.warmUp(ctx, r)
}

// warmUp runs a subject until its caches, threads and clock rate have settled, and
// finds how many products make a timing.
func (m *measurement) warmUp(ctx context.Context, r *run) error {
	least, most := m.site.batch()
	for start := m.o.now(); ctx.Err() == nil; {
		took, err := m.timeBatch(ctx, r)
		if err != nil {
			return err
		}
		switch {
		case took < least && r.batch < most:
			r.batch *= 2
		case m.o.now()-start >= m.o.Warmup, r.batch == most && m.o.now() == start: // the clock stands still
			return nil
		}
	}
	return nil
}

func (m *measurement) timeBatch(ctx context.Context, r *run) (time.Duration, error) {
	took, err := m.site.time(ctx, r.multiply, r.batch)
	if err != nil {
		return 0, err
	}
	r.last = max(took, 1)
	return r.last, nil
}

// rounds times the subjects in turns. All stay in until the last has enough, so
// that each round compares; only one that is out of time leaves before.
func (m *measurement) rounds(ctx context.Context) {
	timings := m.timingsPerTurn()
	for round := 0; ; round++ {
		done := true
		for i := range m.runs {
			r := m.runs[(i+round)%len(m.runs)]
			if r.err != nil || len(r.times) > 0 && r.spent >= m.o.MaxTime {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if r.err = m.turn(ctx, r, timings); r.err == nil {
				done = done && len(r.times) >= m.o.MinReps && r.spent >= m.o.MinTime
			}
		}
		if done {
			return
		}
	}
}

// turn lets a subject run for the lead, once at least, and then times it. A subject
// that takes much longer needs no lead: the start of its own product is one.
func (m *measurement) turn(ctx context.Context, r *run, timings int) error {
	for start := m.o.now(); r.last < 10*m.o.Lead && m.o.now()-start < m.o.Lead && ctx.Err() == nil; {
		if _, err := m.timeBatch(ctx, r); err != nil {
			return failure(ctx, err)
		}
	}
	for range timings {
		if ctx.Err() != nil {
			return nil
		}
		start := m.o.now()
		took, err := m.timeBatch(ctx, r)
		if err != nil {
			return failure(ctx, err)
		}
		r.spent += max(m.o.now()-start, 1)
		r.times = append(r.times, took.Seconds()/float64(r.batch))
	}
	return nil
}

// failure is err, unless that is an interruption's.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// timingsPerTurn is the same for all subjects, so that their timings pair up: one,
// or after a lead as many as take the slowest a quarter of its time.
func (m *measurement) timingsPerTurn() int {
	slowest := time.Duration(1)
	for _, r := range m.runs {
		slowest = max(slowest, r.last)
	}
	return int(max(m.o.Lead/4/slowest, 1))
}

// records are those of the subjects whose turn came, and their failures.
func (m *measurement) records() ([]Record, []error) {
	var records []Record
	var errs []error
	for _, r := range m.runs {
		switch {
		case r.err != nil:
			records = append(records, m.failed(r))
			if !errors.Is(r.err, gemm.ErrUnsupported) {
				errs = append(errs, fmt.Errorf("%s: %w", r.record.Subject, r.err))
			}
		case len(r.times) > 0:
			records = append(records, m.measured(r))
		}
	}
	return records, errs
}

func (m *measurement) failed(r *run) Record {
	rec := m.common(r)
	rec.Error, rec.Verified, rec.ErrorRatio = oneLine(r.err.Error()), false, 0
	return rec
}

func (m *measurement) measured(r *run) Record {
	rec := m.common(r)
	rec.Reps, rec.Batch = len(r.times), r.batch
	rec.Seconds, rec.Samples = summarize(r.times), samples(r.times)
	rec.GFLOPS = rec.flops() / rec.Seconds.Median / 1e9
	if m.o.Peak != nil {
		rec.Peak = m.o.Peak(m.c.Problem.A.Type, rec.Precision, m.c.Threads)
	}
	for _, peer := range m.runs {
		if peer.record.Peer && peer != r && peer.err == nil && len(peer.times) > 0 {
			rec.Versus = append(rec.Versus, versus(peer.record.Subject, r.times, peer.times))
		}
	}
	return rec
}

func (m *measurement) common(r *run) Record {
	rec := r.record
	rec.Environment, rec.Seed = *m.o.Environment, m.o.Seed
	rec.Cold, rec.Buffers, rec.Load = m.o.Cold, m.site.sets(), m.load
	if d, ok := r.subject.(fmt.Stringer); ok {
		rec.Detail = d.String()
	}
	if l, ok := r.subject.(Loading); ok {
		rec.Intensity = l.Intensity()
	}
	return rec
}
