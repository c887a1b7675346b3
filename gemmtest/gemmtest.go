// Package gemmtest is a conformance suite for anything that multiplies matrices:
// a CPU backend, one GPU kernel on an emulator, a library behind an adapter.
//
// A test describes the implementation and runs the suite:
//
//	func TestConformance(t *testing.T) {
//		gemmtest.Run(t, gemmtest.Implementation{
//			Name:  "mine",
//			Gemm:  func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error { … },
//			Tiles: []int{8, 64},
//		})
//	}
//
// [Checks] lists what is checked. Cases are random and reproducible: a failure names
// its seed, and TILEWORK_SEED=… repeats it. TILEWORK_CASES=… sets how many there
// are. [Check] is the same without a testing.T.
package gemmtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// The vocabulary in which products are described.
type (
	// Problem is C ← epilogue(α·op(A)·op(B) + β·C) without its data. Element (i, j)
	// of op(A) is element p.A.Index(i, j) of its buffer, and so for B and C, whose
	// types are p.A.Type, p.B.Type and p.C.Type; C is never transposed. An
	// implementation must not read A and B unless p.ReadsAB(), nor C when Beta is 0.
	Problem = gemm.Problem
	// Buffers are the bytes of A, B, C, the bias and what else the epilogue reads. dtype.View reads them as slices.
	Buffers = gemm.Buffers
	// Layout says where the elements of a matrix are.
	Layout = gemm.Layout
	// Epilogue is what happens to each element; p.Finish defines it, p.BiasLen and p.Extra
	// say how long its operands are.
	Epilogue = gemm.Epilogue
	// Accuracy is the arithmetic that an implementation declares.
	Accuracy = ref.Accuracy
)

// What the bias of an Epilogue runs along.
const (
	BiasNone = gemm.BiasNone
	BiasRow  = gemm.BiasRow
	BiasCol  = gemm.BiasCol
)

// ErrUnsupported is what an implementation returns, wrapped or not, for a problem
// that it does not take.
var ErrUnsupported = gemm.ErrUnsupported

// ErrFailed is what [Report.Err] wraps.
var ErrFailed = gemm.ErrVerify

// Pair is the element type of A and B and that of C.
type Pair struct{ In, Out dtype.Type }

// integer reports whether alpha, beta and the epilogue of its products are integers.
func (p Pair) integer() bool { return p.In.Info().ScaleType(p.Out).Info().Integer }

// Pairs lists the pairs that dtype's table has.
func Pairs() []Pair {
	var all []Pair
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			all = append(all, Pair{in, out})
		}
	}
	return all
}

// Implementation is what is tested, with the limits that it declares. What lies
// outside them it must refuse with ErrUnsupported, leaving C alone: that is checked
// too. The cases left out for a limit are counted in the report.
type Implementation struct {
	Name string
	// Gemm computes p. It may be called with any context, and b is long enough.
	Gemm func(ctx context.Context, p *Problem, b Buffers) error
	// Batch, if not nil, computes p, which is a batch, on memory that has all of its
	// matrices; of groups, ends says of each which row is the first behind it.
	Batch func(ctx context.Context, p *Problem, ends []int32, b Buffers) error

	// Types are the pairs that it takes, nil for all.
	Types []Pair
	// Supports tells the problems that it takes from others of those types; nil
	// stands for all.
	Supports func(p *Problem) bool
	// Tiles are the sizes at which its blocking changes; sizes one below, at and one
	// above each are tried more often than others.
	Tiles []int
	// Volume is the largest M·N·K of a case, for implementations that are slow; 0
	// stands for 2^20.
	Volume int
	// Cases is Options.Cases where those do not say, for implementations that are slow.
	Cases int
	// Accuracy is how it computes p; nil stands for rounding to nearest in the type
	// that p is summed in.
	Accuracy func(p *Problem) Accuracy
	// Concurrent says that several goroutines may call Gemm at once, which cases then do.
	Concurrent bool
	// Cancels says that Gemm returns the context's error once that is cancelled.
	Cancels bool
}

func (impl *Implementation) takes(p *Problem) bool {
	if impl.Types != nil && !slices.Contains(impl.Types, Pair{p.A.Type, p.C.Type}) {
		return false
	}
	return impl.Supports == nil || impl.Supports(p)
}

func (impl *Implementation) accuracy(p *Problem) Accuracy {
	if impl.Accuracy == nil {
		return ref.AccuracyOf(p)
	}
	return impl.Accuracy(p)
}

// Options of a run; the zero value takes the defaults.
type Options struct {
	// Cases is the number of cases of the check "exact", 2000 when 0. Every other
	// check runs its share of that.
	Cases int
	// Only, if not empty, is the one check to run; Cases are then its own.
	Only string
	Seed uint64
	// Part of Parts is the part of the cases to run, counted from 0: of the same list, every
	// so manyth one, so that several processes run it together. 0 of 0 stands for all.
	Part, Parts int
	// Progress, if set, is called after each case.
	Progress func(check string, done, total int)
	// Logf, if set, is called with each failure as it is found.
	Logf func(format string, args ...any)
}

// Report is the outcome of a run.
type Report struct {
	Implementation string
	Seed           uint64
	Checks         []CheckReport
	// Stopped is the context's error if that ended the run early.
	Stopped error
}

// CheckReport is the outcome of one check.
type CheckReport struct {
	Name string `json:"check"`
	// Cases is how many were run, LeftOut how many more lay outside the declared limits.
	Cases   int `json:"cases"`
	LeftOut int `json:"left_out"`
	// Failures is how many cases failed; Lines describes the first few so that each
	// can be run again. A check ends after 10 failures.
	Failures int      `json:"failures"`
	Lines    []string `json:"lines,omitempty"`
	// Worst is the largest error in units of its bound, and Alarm the largest RMS in
	// units of what rounding comes to, where the check measures them.
	Worst float64 `json:"worst"`
	Alarm float64 `json:"alarm"`
	// ByType is the same for each pair of types, where the check measures errors.
	ByType []TypeErrors `json:"by_type,omitempty"`
}

// TypeErrors is how far the results of one pair of types were off.
type TypeErrors struct {
	In    string `json:"in"`
	Out   string `json:"out"`
	Cases int    `json:"cases"`
	// Worst and Alarm are those of [CheckReport]. BLAS is the largest ratio that the
	// reference BLAS's test programs compute, in units of what they let pass; sums of
	// more terms than theirs are left out.
	Worst float64 `json:"worst"`
	BLAS  float64 `json:"blas"`
	Alarm float64 `json:"alarm"`
}

// record notes how far a result was off: by a number in any case, as JSON has no others.
func (r *CheckReport) record(p *Problem, c ref.Comparison) {
	for _, v := range []*float64{&c.Ratio, &c.RMS, &c.BLAS} {
		if !(*v < math.MaxFloat64) {
			*v = math.MaxFloat64
		}
	}
	r.Worst, r.Alarm = max(r.Worst, c.Ratio), max(r.Alarm, c.RMS)
	e := r.byType(p.A.Type.String(), p.C.Type.String())
	e.Cases++
	e.Worst, e.Alarm = max(e.Worst, c.Ratio), max(e.Alarm, c.RMS)
	if p.K <= ref.BLASTerms {
		e.BLAS = max(e.BLAS, c.BLAS/ref.BLASLimit)
	}
}

// Add takes in another part of the same check.
func (r *CheckReport) Add(other CheckReport) {
	r.Cases, r.LeftOut, r.Failures = r.Cases+other.Cases, r.LeftOut+other.LeftOut, r.Failures+other.Failures
	r.Lines = append(r.Lines, other.Lines[:min(len(other.Lines), max(0, maxLines-len(r.Lines)))]...)
	r.Worst, r.Alarm = max(r.Worst, other.Worst), max(r.Alarm, other.Alarm)
	for _, e := range other.ByType {
		mine := r.byType(e.In, e.Out)
		mine.Cases += e.Cases
		mine.Worst, mine.BLAS, mine.Alarm = max(mine.Worst, e.Worst), max(mine.BLAS, e.BLAS), max(mine.Alarm, e.Alarm)
	}
}

// byType is the entry of a pair of types, which is made if there is none.
func (r *CheckReport) byType(in, out string) *TypeErrors {
	i := slices.IndexFunc(r.ByType, func(e TypeErrors) bool { return e.In == in && e.Out == out })
	if i < 0 {
		i = len(r.ByType)
		r.ByType = append(r.ByType, TypeErrors{In: in, Out: out})
	}
	return &r.ByType[i]
}

// Err is nil when every case passed, and otherwise the first failure or what
// stopped the run.
func (r Report) Err() error {
	failed, first := 0, ""
	for _, c := range r.Checks {
		if failed += c.Failures; first == "" && c.Failures > 0 {
			first = c.Lines[0]
		}
	}
	if failed > 0 {
		return fmt.Errorf("%w: %s: %d cases; the first: %s", ErrFailed, r.Implementation, failed, first)
	}
	return r.Stopped
}

const (
	defaultCases  = 2000
	defaultVolume = 1 << 20
	maxLines      = 5
	maxFailures   = 10
)

// Check runs the suite. It ends early, with what it has, when ctx is cancelled.
func Check(ctx context.Context, impl Implementation, opt Options) Report {
	r := Report{Implementation: impl.Name, Seed: opt.Seed}
	for i := range checks {
		if opt.Only != "" && opt.Only != checks[i].Name {
			continue
		}
		r.Checks = append(r.Checks, checks[i].run(ctx, &impl, opt))
		if r.Stopped = ctx.Err(); r.Stopped != nil {
			break
		}
	}
	return r
}

// Run runs the suite as a subtest for each check. The seed is random, or
// TILEWORK_SEED; there are 2000 exact cases, a tenth of that with -short, or
// TILEWORK_CASES.
func Run(t *testing.T, impl Implementation) {
	t.Helper()
	opt := Options{Cases: impl.Cases, Seed: rand.Uint64()}
	if opt.Cases == 0 {
		opt.Cases = defaultCases
		if testing.Short() {
			opt.Cases /= 10
		}
	}
	if err := opt.environment(); err != nil {
		t.Fatal(err)
	}
	t.Logf("TILEWORK_SEED=%d TILEWORK_CASES=%d", opt.Seed, opt.Cases)
	for i := range checks {
		c := &checks[i]
		t.Run(c.Name, func(t *testing.T) {
			r := c.run(t.Context(), &impl, opt)
			for _, line := range r.Lines {
				t.Error(line)
			}
			if more := r.Failures - len(r.Lines); more > 0 {
				t.Errorf("and %d more", more)
			}
			t.Logf("%d cases, %d left out as undeclared", r.Cases, r.LeftOut)
			if r.Worst > 0 {
				t.Logf("largest error %.2g of its bound, RMS %.2g of what rounding comes to", r.Worst, r.Alarm)
			}
		})
	}
}

// environment takes what the environment sets.
func (o *Options) environment() error {
	if s := os.Getenv("TILEWORK_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("TILEWORK_SEED=%q: want a whole number from 0", s)
		}
		o.Seed = v
	}
	if s := os.Getenv("TILEWORK_CASES"); s != "" {
		v, err := strconv.Atoi(s)
		if err != nil || v <= 0 {
			return fmt.Errorf("TILEWORK_CASES=%q: want a whole number from 1", s)
		}
		o.Cases = v
	}
	return nil
}

// run runs one check's cases, several at once where the implementation allows it: on a GPU
// most of a case's time is its kernel's compilation. Each case's random numbers depend on
// the seed, the check and the case's number alone, and the report takes the cases in their
// order, so that it is the same however many run at once.
func (c *check) run(ctx context.Context, impl *Implementation, opt Options) CheckReport {
	r := CheckReport{Name: c.Name}
	cases := cmp.Or(opt.Cases, impl.Cases, defaultCases)
	listed := max(1, int(float64(cases)*c.share))
	if opt.Only != "" {
		listed = cases
	}
	parts := max(opt.Parts, 1)
	total := max(0, (listed-opt.Part+parts-1)/parts)
	if c.declared != nil && !c.declared(impl) {
		r.LeftOut = total
		return r
	}
	name := fnv.New64a()
	name.Write([]byte(c.Name))
	workers := 1
	if impl.Concurrent {
		workers = runtime.GOMAXPROCS(0)
	}
	for t := range inOrder(total, workers, func(nth int) *trial {
		n := opt.Part + nth*parts
		t := &trial{ctx: ctx, impl: impl, n: n, rng: rand.New(rand.NewPCG(opt.Seed, name.Sum64()+uint64(n)))}
		if t.err = ctx.Err(); t.err == nil {
			t.err = c.trial(t)
		}
		return t
	}) {
		switch {
		case errors.Is(t.err, errLeftOut):
			r.LeftOut++
		case t.err != nil && ctx.Err() != nil: // it was the run that was cancelled
			return r
		case t.err != nil:
			r.Cases++
			line := fmt.Sprintf("%s, case %d of seed %d: %s: %v", c.Name, t.n, opt.Seed, t.what, t.err)
			if r.Failures++; len(r.Lines) < maxLines {
				r.Lines = append(r.Lines, line)
			}
			if opt.Logf != nil {
				opt.Logf("%s", line)
			}
		default:
			r.Cases++
		}
		for _, m := range t.measured {
			r.record(m.problem, m.comparison)
		}
		if opt.Progress != nil {
			opt.Progress(c.Name, t.n/parts+1, total)
		}
		if r.Failures >= maxFailures || ctx.Err() != nil {
			break
		}
	}
	return r
}

// inOrder gives f(0), f(1), … one after the other, while so many goroutines compute them, a
// few ahead. When the loop over it is left, they have ended.
func inOrder[T any](total, workers int, f func(n int) T) iter.Seq[T] {
	return func(yield func(T) bool) {
		results := make([]chan T, 2*workers)
		for n := range results {
			results[n] = make(chan T, 1)
		}
		room, left := make(chan struct{}, len(results)), make(chan struct{})
		var next atomic.Int64
		var all sync.WaitGroup
		defer all.Wait()
		defer close(left)
		for range workers {
			all.Go(func() {
				for {
					select {
					case room <- struct{}{}:
					case <-left:
						return
					}
					n := int(next.Add(1) - 1)
					if n >= total {
						return
					}
					results[n%len(results)] <- f(n)
				}
			})
		}
		for n := range total {
			result := <-results[n%len(results)]
			<-room
			if !yield(result) {
				return
			}
		}
	}
}
