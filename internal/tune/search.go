package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/phrase"
	"tilework/internal/sentinel"
)

// lab measures products on one device.
type lab interface {
	// about returns the name of the device, and the maximum number of threads there.
	about() (device string, threads int)
	// defaultChoice returns the choice for products without a tuned one, and approximately the time
	// of a product.
	defaultChoice(ctx context.Context, f tuned.Form) (backend.Choice, time.Duration, error)
	// candidates returns the choices to measure, the most promising first, and the number of
	// choices before any were excluded.
	candidates(ctx context.Context, f tuned.Form) (list []backend.Choice, considered int, err error)
	// variants returns modifications of the best candidate to measure. The list may be empty.
	variants(f tuned.Form, best backend.Choice) []backend.Choice
	// measure times choices, alternating with the default. It returns one record for each choice in
	// order, followed by the record of the default.
	measure(ctx context.Context, f tuned.Form, choices []backend.Choice, standard backend.Choice,
		e effort) ([]bench.Record, error)
}

// effort limits the timings of each choice.
type effort struct {
	minReps          int
	minTime, maxTime time.Duration
}

// options returns the options for package bench.
func (e effort) options(seed uint64) bench.Options {
	return bench.Options{
		MinReps: e.minReps, MinTime: e.minTime, MaxTime: e.maxTime,
		Warmup: min(e.minTime, 20*time.Millisecond), Seed: seed,
	}
}

const (
	// significance is the largest probability of keeping a choice that is not faster than the
	// default.
	significance = 0.01
	// screeningRuns is the number of runs of a candidate in the first step: one to check the
	// result, one to warm up, and three timings.
	screeningRuns = 5
)

// search finds the fastest choice for a product. If it returns both an outcome and an error, some
// candidates failed.
func search(ctx context.Context, l lab, f tuned.Form, o Options) (*Outcome, error) {
	standard, took, err := l.defaultChoice(ctx, f)
	if err != nil {
		return nil, err
	}
	x := &Outcome{Form: f, Default: standard, Best: standard}
	x.Device, x.Threads = l.about()
	list, considered, err := l.candidates(ctx, f)
	if err != nil {
		return nil, err
	}
	x.Considered = considered
	start := time.Now() // compiling the candidates does not count
	s := &screening{
		lab: l, form: f, standard: standard, took: max(took, 1), warn: o.Warn,
		measured: map[backend.Choice]Candidate{},
	}
	// The candidates, the variants and the decision take a third of the time each.
	left := func(share float64) time.Duration {
		return max(time.Duration(share*float64(o.Time))-time.Since(start), 0)
	}
	best, err := s.best(ctx, list, left(1./3))
	if err != nil && !survivable(ctx, err) {
		return nil, err
	}
	failed := err
	if best != nil {
		if more := l.variants(f, *best); len(more) > 0 {
			x.Considered += len(more)
			better, err := s.best(ctx, append([]backend.Choice{*best}, more...), left(2./3))
			if err != nil && !survivable(ctx, err) {
				return nil, err
			}
			failed = errors.Join(failed, err)
			if better != nil {
				best = better
			}
		}
	}
	x.Measured, x.Candidates = len(s.measured), s.sorted()
	if s.skipped > 0 {
		o.Warn(fmt.Sprintf("%v: no time for %s, want more time", f, phrase.Count(s.skipped, "candidate")))
	}
	if best == nil {
		x.Why = "no other candidate could be measured"
		return x, failed
	}
	// The decision needs at least 7 timings: with fewer, the sign test cannot reach significance
	// even if the candidate wins all. Take 20 if there is time.
	rest := max(left(1)/2, o.Time/10)
	records, err := l.measure(ctx, f, []backend.Choice{*best}, standard,
		effort{min(20, max(int(rest/s.took), 7)), rest, time.Hour})
	if err != nil && !survivable(ctx, err) {
		return nil, err
	}
	if failed = errors.Join(failed, err); len(records) < 2 || records[0].Error != "" || records[1].Error != "" {
		x.Why = "the second measurement failed"
		return x, failed
	}
	x.Best = *best
	x.decide(&records[0], &records[1])
	return x, failed
}

// survivable reports whether other candidates can still be measured after err.
func survivable(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, sentinel.ErrNoDevice)
}

// screening is the first step of a search: brief measurements of all candidates.
type screening struct {
	lab      lab
	form     tuned.Form
	standard backend.Choice // the default
	took     time.Duration  // time of a product with the default
	warn     func(string)

	measured map[backend.Choice]Candidate
	skipped  int // number of candidates that there was no time for
}

// best measures the choices of a list, alternating with the default, in approximately the time
// limit, and returns the fastest. It skips the default itself. It returns nil if there are no
// choices, or all fail.
func (s *screening) best(ctx context.Context, list []backend.Choice, limit time.Duration) (*backend.Choice, error) {
	const minChoices = 4 // measured even if they take longer than the limit
	var choices []backend.Choice
	for _, c := range list {
		if c != s.standard {
			choices = append(choices, c)
		}
	}
	if most := max(int(limit/(screeningRuns*s.took)), minChoices); len(choices) > most {
		s.skipped += len(choices) - most
		choices = choices[:most]
	}
	if len(choices) == 0 {
		return nil, nil
	}
	each := max(limit/time.Duration(2*(len(choices)+1)), 2*time.Millisecond)
	records, err := s.lab.measure(ctx, s.form, choices, s.standard,
		effort{screeningRuns - 2, each, max(3*each, 5*s.took)})
	for _, c := range choices {
		s.measured[c] = Candidate{Choice: c}
	}
	var found *backend.Choice
	fastest := 0.0
	for i := range min(len(records), len(choices)) {
		switch r := &records[i]; {
		case r.Error != "":
			s.warn(fmt.Sprintf("%v: %v: %s", s.form, choices[i], r.Error))
		case len(r.Versus) == 1:
			x := Candidate{choices[i], r.Seconds.Median, r.Versus[0].Speed}
			if s.measured[x.Choice] = x; x.Speed > fastest {
				found, fastest = &choices[i], x.Speed
			}
		}
	}
	return found, err
}

// sorted returns the candidates that did not fail, the fastest first.
func (s *screening) sorted() []Candidate {
	timed := slices.DeleteFunc(slices.Collect(maps.Values(s.measured)), func(x Candidate) bool { return x.Speed == 0 })
	slices.SortFunc(timed, func(x, y Candidate) int {
		return cmp.Or(cmp.Compare(y.Speed, x.Speed), cmp.Compare(x.String(), y.String()))
	})
	return timed
}

// decide decides whether to keep the best candidate, from the timings of the second step.
func (x *Outcome) decide(best, standard *bench.Record) {
	x.Before, x.After, x.Gain = standard.Seconds, best.Seconds, best.Versus[0]
	won, of := wins(best.Samples, standard.Samples)
	p := signTest(won, of)
	score := fmt.Sprintf("faster in %d of %d timings", won, of)
	switch {
	case p > significance:
		x.Why = fmt.Sprintf("%s, which may be chance (p = %.2g)", score, p)
	case x.Gain.Speed < backend.LeastGain:
		x.Why = fmt.Sprintf("%s, but by less than %.0f %%", score, 100*(backend.LeastGain-1))
	default:
		x.Kept, x.Why = true, fmt.Sprintf("%s (p = %.1g)", score, p)
	}
}

// wins counts the pairs of alternating timings, and those in which the first is shorter.
func wins(times, others []float64) (won, of int) {
	for i := range min(len(times), len(others)) {
		of++
		if times[i] < others[i] {
			won++
		}
	}
	return won, of
}

// signTest returns the probability that a choice with the speed of the default is faster in at
// least won pairs. The sign test makes no assumption about the distribution of times.
func signTest(won, of int) float64 {
	p := 0.0
	for k := won; k <= of; k++ {
		lnAll, _ := math.Lgamma(float64(of + 1))
		lnK, _ := math.Lgamma(float64(k + 1))
		lnRest, _ := math.Lgamma(float64(of - k + 1))
		p += math.Exp(lnAll - lnK - lnRest - float64(of)*math.Ln2)
	}
	return min(p, 1)
}
