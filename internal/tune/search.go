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

	"tilework/internal/bench"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
)

// lab is what products are measured on.
type lab interface {
	// about is the device's name, and the goroutines that may compute there.
	about() (device string, threads int)
	// standard is what computes the product unless something was tuned for it, and
	// about how long it takes.
	standard(ctx context.Context, f tuned.Form) (tuned.Choice, time.Duration, error)
	// candidates lists what may be faster, the most promising first, and of how many
	// ways in all.
	candidates(ctx context.Context, f tuned.Form) (list []tuned.Choice, considered int, err error)
	// variants lists what may be faster than the best of the candidates; it may be empty.
	variants(f tuned.Form, best tuned.Choice) []tuned.Choice
	// measure times choices in turns with the default. There is a record for each choice
	// in their order, and the default's behind them.
	measure(ctx context.Context, f tuned.Form, choices []tuned.Choice, standard tuned.Choice, e effort) ([]bench.Record, error)
}

// effort is how often each choice is timed at least, for how long at least, and after
// what time no more.
type effort struct {
	reps        int
	least, most time.Duration
}

// options are those of package bench.
func (e effort) options(seed uint64) bench.Options {
	return bench.Options{MinReps: e.reps, MinTime: e.least, MaxTime: e.most, Warmup: min(e.least, 20*time.Millisecond), Seed: seed}
}

const (
	// least is the gain that is worth keeping: less may be another layout of memory.
	least = 1.02
	// chance is how likely a choice that is as fast as the default may be kept.
	chance = 0.01
	// runs is how often a candidate runs when it is screened: to be checked, to get
	// warm, and to be timed.
	runs = 5
)

// search finds the fastest choice for a product.
func search(ctx context.Context, l lab, f tuned.Form, o Options) (*Outcome, error) {
	standard, took, err := l.standard(ctx, f)
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
	start := time.Now() // when all is compiled
	s := &screening{lab: l, form: f, standard: standard, took: max(took, 1), warn: o.Warn, ways: map[tuned.Choice]Way{}}
	// A third of the time for each of: candidates, variants, the decision.
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
			better, err := s.best(ctx, append([]tuned.Choice{*best}, more...), left(2./3))
			if err != nil && !survivable(ctx, err) {
				return nil, err
			}
			failed = errors.Join(failed, err)
			if better != nil {
				best = better
			}
		}
	}
	x.Measured, x.Ways = len(s.ways), s.sorted()
	if s.leftOut > 0 {
		o.Warn(fmt.Sprintf("%v: no time for %d candidates: allow more", f, s.leftOut))
	}
	if best == nil {
		x.Why = "there is nothing else to try"
		return x, failed
	}
	// Twenty timings to decide by, if there is time; with fewer than seven nothing is
	// sure, however long they take.
	rest := max(left(1)/2, o.Time/10)
	records, err := l.measure(ctx, f, []tuned.Choice{*best}, standard, effort{min(20, max(int(rest/s.took), 7)), rest, time.Hour})
	if err != nil && !survivable(ctx, err) {
		return nil, err
	}
	if failed = errors.Join(failed, err); len(records) < 2 || records[0].Error != "" || records[1].Error != "" {
		x.Why = "it could not be measured again"
		return x, failed
	}
	x.Best = *best
	x.decide(&records[0], &records[1])
	return x, failed
}

// survivable says that an error is a candidate's, after which the others can go on.
func survivable(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, gemm.ErrNoDevice)
}

// screening measures candidates briefly.
type screening struct {
	lab      lab
	form     tuned.Form
	standard tuned.Choice
	took     time.Duration // by the default
	warn     func(string)

	ways    map[tuned.Choice]Way // that were measured
	leftOut int
}

// best is the fastest of a list, in turns with the default, in about that time; nil if
// the list is empty. No candidate is timed that is the default itself.
func (s *screening) best(ctx context.Context, list []tuned.Choice, limit time.Duration) (*tuned.Choice, error) {
	const fewest = 4 // are measured, however long that takes
	var choices []tuned.Choice
	for _, c := range list {
		if c != s.standard {
			choices = append(choices, c)
		}
	}
	if most := max(int(limit/(runs*s.took)), fewest); len(choices) > most {
		s.leftOut += len(choices) - most
		choices = choices[:most]
	}
	if len(choices) == 0 {
		return nil, nil
	}
	each := max(limit/time.Duration(2*(len(choices)+1)), 2*time.Millisecond)
	records, err := s.lab.measure(ctx, s.form, choices, s.standard, effort{runs - 2, each, max(3*each, 5*s.took)})
	for _, c := range choices {
		s.ways[c] = Way{Choice: c}
	}
	var found *tuned.Choice
	fastest := 0.0
	for i := range min(len(records), len(choices)) {
		switch r := &records[i]; {
		case r.Error != "":
			s.warn(fmt.Sprintf("%v: %v: %s", s.form, choices[i], r.Error))
		case len(r.Versus) == 1:
			x := Way{choices[i], r.Seconds.Median, r.Versus[0].Speed}
			if s.ways[x.Choice] = x; x.Speed > fastest {
				found, fastest = &choices[i], x.Speed
			}
		}
	}
	return found, err
}

// sorted are the ways that were timed, the fastest first.
func (s *screening) sorted() []Way {
	timed := slices.DeleteFunc(slices.Collect(maps.Values(s.ways)), func(x Way) bool { return x.Speed == 0 })
	slices.SortFunc(timed, func(x, y Way) int {
		return cmp.Or(cmp.Compare(y.Speed, x.Speed), cmp.Compare(x.String(), y.String()))
	})
	return timed
}

// decide compares the best with the default, on timings that were taken for that alone.
func (x *Outcome) decide(best, standard *bench.Record) {
	x.Before, x.After, x.Gain = standard.Seconds, best.Seconds, best.Versus[0]
	won, of := wins(best.Samples, standard.Samples)
	p := byChance(won, of)
	often := fmt.Sprintf("faster in %d of %d timings", won, of)
	switch {
	case p > chance:
		x.Why = fmt.Sprintf("%s, which may be chance (p = %.2g)", often, p)
	case x.Gain.Speed < least:
		x.Why = fmt.Sprintf("%s, but by less than %.0f %%", often, 100*(least-1))
	default:
		x.Kept, x.Why = true, fmt.Sprintf("%s (p = %.1g)", often, p)
	}
}

// wins counts the pairs of timings, taken in turns, in which the first was shorter.
func wins(times, others []float64) (won, of int) {
	for i := range min(len(times), len(others)) {
		of++
		if times[i] < others[i] {
			won++
		}
	}
	return won, of
}

// byChance is the probability that what is no faster wins so many pairs of timings, or
// more: the sign test, which asks nothing of how times are distributed.
func byChance(won, of int) float64 {
	p := 0.0
	for k := won; k <= of; k++ {
		lnAll, _ := math.Lgamma(float64(of + 1))
		lnK, _ := math.Lgamma(float64(k + 1))
		lnRest, _ := math.Lgamma(float64(of - k + 1))
		p += math.Exp(lnAll - lnK - lnRest - float64(of)*math.Ln2)
	}
	return min(p, 1)
}
