package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tilework/internal/gemm"
)

// product computes C of one set of operands.
type product func(ctx context.Context, set int) error

// run holds the state of one subject in a measurement.
type run struct {
	subject   named
	multiply  product
	batch     int
	precision Precision
	spent     time.Duration // total of its timings
	last      time.Duration // latest timing
	best      time.Duration // shortest timing of the current batch size
	medianOf  int           // timings whose median is kept as one entry of times
	times     []float64     // kept timings, in seconds per product
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

// begin prepares subject i, checks its first result, and warms it up.
func (m *measurement) begin(ctx context.Context, i int, r *run, check Check) error {
	var err error
	start := m.o.now()
	if r.multiply, err = m.site.prepare(ctx, i); err != nil {
		return err
	}
	r.record.Setup = (m.o.now() - start).Seconds()
	var c []byte
	var took time.Duration
	result := func() (err error) {
		c, took, err = m.site.result(ctx, r.multiply)
		return err
	}
	if m.o.count != nil {
		r.record.Counts, err = m.o.count(result)
	} else {
		err = result()
	}
	if err != nil {
		return err
	}
	if err := r.verify(ctx, c, check); err != nil {
		return err
	}
	if m.o.count != nil {
		r.record.Counts.Flops = int64(r.record.Flops())
		return nil
	}
	if r.record.Steps, err = m.site.steps(i); err != nil {
		return err
	}
	if took >= m.o.MaxTime {
		r.last, r.best = took, took
		return nil // one product takes all the time: no warm-up
	}
	return m.warmUp(ctx, r)
}

// verify checks a result and records its error ratio.
func (r *run) verify(ctx context.Context, c []byte, check Check) error {
	if _, ok := r.subject.(Unchecked); ok {
		return nil
	}
	var ratio float64
	var err error
	if s, ok := r.subject.(SelfChecked); ok {
		ratio, err = s.Check(ctx)
	} else {
		ratio, err = check(c, r.precision.Roundoff)
	}
	if err != nil {
		return fmt.Errorf("checking the result: %w", err)
	}
	if !(ratio <= 1) {
		return fmt.Errorf("%w: the largest error is %.3g times its bound", gemm.ErrVerify, ratio)
	}
	r.record.Verified, r.record.ErrorRatio = true, max(r.record.ErrorRatio, ratio)
	return nil
}

// verifyAgain checks a result of each subject after its timings, when its caches, threads and
// buffers are in the same state as during the timings. It skips slow subjects to save time.
func (m *measurement) verifyAgain(ctx context.Context, check Check) {
	for _, r := range m.runs {
		if r.err != nil || len(r.times) == 0 || r.best >= m.o.MaxTime/4 || ctx.Err() != nil {
			continue
		}
		c, _, err := m.site.result(ctx, r.multiply)
		if err == nil {
			err = r.verify(ctx, c, check)
		}
		if r.err = failure(ctx, err); r.err != nil {
			r.err = fmt.Errorf("after the timings: %w", r.err)
		}
	}
}

// warmUp runs a subject until its caches, threads and clock rate have settled, and doubles the
// number of products per timing until a timing is long enough.
func (m *measurement) warmUp(ctx context.Context, r *run) error {
	least, most := m.site.batch()
	for start := m.o.now(); ctx.Err() == nil; {
		took, err := m.timeBatch(ctx, r)
		if err != nil {
			return err
		}
		switch {
		case took < least && r.batch < most:
			r.batch, r.best = 2*r.batch, 0
		case m.o.now()-start >= m.o.Warmup, r.batch == most && m.o.now() == start: // the clock does not advance
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
	if r.best == 0 || r.last < r.best {
		r.best = r.last
	}
	return r.last, nil
}

// rounds times the subjects in rounds with one turn each. A subject with enough timings goes on
// until all have enough, so that each round compares all subjects. Only a subject that has used up
// its time stops earlier.
//
// A GPU that reached its power limit in one turn still runs slower in the next one. The order
// therefore rotates, and every second round is reversed, so that no subject always follows the same
// one.
func (m *measurement) rounds(ctx context.Context) {
	timings := m.timingsPerTurn()
	m.balance()
	for round := 0; ; round++ {
		done := true
		for i := range m.runs {
			r := m.runs[inTurn(round, i, len(m.runs))]
			if r.err != nil || m.outOfTime(r) {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if r.err = m.turn(ctx, r, timings); r.err == nil {
				done = done && m.enough(r)
			}
		}
		if done {
			return
		}
	}
}

// inTurn returns the index of the subject with the i-th turn of a round, out of n.
func inTurn(round, i, n int) int {
	first := round / 2
	if round%2 == 1 {
		return (first + n - 1 - i) % n
	}
	return (first + i) % n
}

// enough reports whether r has reached MinReps and MinTime, or has used up MaxTime.
func (m *measurement) enough(r *run) bool {
	return len(r.times) >= m.o.MinReps && r.spent >= m.o.MinTime || m.outOfTime(r)
}

func (m *measurement) outOfTime(r *run) bool { return len(r.times) > 0 && r.spent >= m.o.MaxTime }

// turn runs a subject for the lead and then times it. A product that takes more than ten times the
// lead needs none: its own start has the same effect.
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
		var times []float64
		for range r.medianOf {
			if ctx.Err() != nil && len(times) > 0 {
				break
			}
			start := m.o.now()
			took, err := m.timeBatch(ctx, r)
			if err != nil {
				return failure(ctx, err)
			}
			r.spent += max(m.o.now()-start, 1)
			times = append(times, took.Seconds()/float64(r.batch))
		}
		slices.Sort(times)
		r.times = append(r.times, quantile(times, 0.5))
	}
	return nil
}

// failure returns err, or nil if ctx has ended.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// timingsPerTurn returns the number of timings in each turn. It is the same for all subjects, so
// that their timings pair up: 1, or after a lead the number that takes the slowest subject a
// quarter of the lead.
func (m *measurement) timingsPerTurn() int { return int(max(m.o.Lead/4/m.slowest(), 1)) }

// slowest returns the longest of the subjects' best timings.
func (m *measurement) slowest() time.Duration {
	slowest := time.Duration(1)
	for _, r := range m.runs {
		slowest = max(slowest, r.best)
	}
	return slowest
}

// balance makes a fast subject take the median of several timings where a slow one takes one
// timing. Otherwise a slow subject, which may take a thousand times as long, would run for minutes
// until the fast one has reached MinTime.
func (m *measurement) balance() {
	const much = 8
	turn := min(m.slowest(), m.o.MinTime/time.Duration(m.o.MinReps))
	for _, r := range m.runs {
		r.medianOf = 1
		if r.best > 0 && turn/r.best >= much {
			r.medianOf = int(turn / r.best)
		}
	}
}

// records returns the records of the subjects that ran or failed, and the failures.
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
		case r.record.Counts != nil:
			records = append(records, m.common(r))
		}
	}
	return records, errs
}

func (m *measurement) failed(r *run) Record {
	rec := m.common(r)
	rec.Unsupported = errors.Is(r.err, gemm.ErrUnsupported)
	rec.Error, rec.Verified, rec.ErrorRatio, rec.Counts = oneLine(r.err.Error()), false, 0, nil
	return rec
}

func (m *measurement) measured(r *run) Record {
	rec := m.common(r)
	rec.Reps, rec.MedianOf, rec.Batch, rec.Interrupted = len(r.times), r.medianOf, r.batch, !m.enough(r)
	rec.Seconds, rec.Samples = summarize(r.times), samples(r.times)
	if !rec.onlyReads() {
		rec.GFLOPS = rec.Flops() / rec.Seconds.Median / 1e9
	}
	if m.o.Peak != nil && !rec.onlyReads() {
		rec.Peak = m.o.Peak(m.c.Problem.In(), rec.Precision, m.c.Threads)
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
	if l, ok := r.subject.(IntensityReporter); ok {
		rec.Intensity = l.Intensity()
	}
	if p, ok := r.subject.(Predictor); ok {
		rec.Predicted = p.Predicted()
	}
	if p, ok := r.subject.(TimePredictor); ok {
		rec.PredictedSeconds = p.PredictedSeconds()
	}
	return rec
}
