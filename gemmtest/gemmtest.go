// Package gemmtest is a conformance suite for GEMM implementations, such as a CPU backend, a single
// GPU kernel on an emulator, or an adapter for another library.
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
// [Checks] lists the checks. Cases are random but reproducible: [Run] logs TILEWORK_SEED, and
// setting the variable to the logged value repeats the run of that test. TILEWORK_CASES sets the
// number of cases. [Check] runs the suite without a testing.T.
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
	"tilework/internal/relay"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// Types that describe products.
type (
	// Problem describes C ← epilogue(α·op(A)·op(B) + β·C) without its data. Element (i, j) of op(A)
	// is element p.A().Index(i, j) of its buffer, which holds elements of type p.A().Type. The same
	// applies to B and C. C is never transposed. An implementation must not read A and B unless
	// p.ReadsAB() is true, and must not read C if Beta is 0.
	Problem = gemm.Problem
	// Buffers holds the bytes of A, B, C, the bias and the other epilogue operands. dtype.View
	// converts them to slices.
	Buffers = gemm.Buffers
	// Layout describes the positions of the elements of a matrix.
	Layout = gemm.Layout
	// Epilogue describes the operations on each element after the product. p.Finish defines
	// them. p.BiasLen returns the number of elements of the bias, and p.Layout the layout of each
	// operand.
	Epilogue = gemm.Epilogue
	// Accuracy describes the arithmetic of an implementation.
	Accuracy = gemm.Accuracy
)

// Directions of the bias of an Epilogue.
const (
	BiasNone = gemm.BiasNone
	BiasRow  = gemm.BiasRow
	BiasCol  = gemm.BiasCol
)

// ErrUnsupported is the error that an implementation must return, possibly wrapped, for a problem
// that it does not support.
var ErrUnsupported = gemm.ErrUnsupported

// ErrFailed is wrapped by the error of [Report.Err] if a case failed.
var ErrFailed = gemm.ErrVerify

// Pair is the element type of A and B and the element type of C.
type Pair struct{ In, Out dtype.Type }

// integer reports whether alpha, beta and the epilogue are computed in integers.
func (p Pair) integer() bool { return p.In.Info().ScaleType(p.Out).Info().Integer }

// signed returns the pair with int8 instead of uint8.
func (p Pair) signed() Pair { return Pair{p.In.Signed(), p.Out} }

// Pairs returns all pairs of element types that products can have.
func Pairs() []Pair {
	var all []Pair
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			all = append(all, Pair{in, out})
		}
	}
	return all
}

// Implementation describes the implementation under test and its declared limits. It must reject
// problems outside these limits with ErrUnsupported and leave C unchanged, which the suite checks
// as well. The report counts the cases that are skipped because of a limit.
type Implementation struct {
	Name string
	// Gemm computes p. All buffers in b have sufficient length.
	Gemm func(ctx context.Context, p *Problem, b Buffers) error
	// Batch, if not nil, computes the batch p. b holds the matrices of all its products. For a
	// grouped product, ends[i] is the first row after group i; otherwise ends is nil.
	Batch func(ctx context.Context, p *Problem, ends []int32, b Buffers) error

	// Types lists the supported pairs. nil supports all.
	Types []Pair
	// Supports reports whether a problem with supported types is supported. nil supports all.
	Supports func(p *Problem) bool
	// Tiles lists the sizes at which the blocking changes. The suite tests these sizes and their
	// neighbours more often than others.
	Tiles []int
	// Volume is the maximum M·N·K of a case. Slow implementations can reduce it. 0 selects 2^20.
	Volume int
	// Cases is the default for Options.Cases, for slow implementations.
	Cases int
	// Accuracy returns the arithmetic used for p. If it is nil, the suite assumes rounding to
	// nearest in the accumulator type.
	Accuracy func(p *Problem) Accuracy
	// Concurrent declares that Gemm is safe for concurrent use. Cases then run concurrently.
	Concurrent bool
	// Cancels declares that Gemm returns the context's error after a cancellation.
	Cancels bool
}

// supports reports whether p is within the declared limits.
func (impl *Implementation) supports(p *Problem) bool {
	for _, in := range []dtype.Type{p.In(), p.B().Type} {
		if !slices.Contains(impl.pairs(), Pair{in, p.Out()}) {
			return false
		}
	}
	return impl.Supports == nil || impl.Supports(p)
}

// volume returns the maximum M·N·K of a case.
func (impl *Implementation) volume() int { return cmp.Or(impl.Volume, defaultVolume) }

// pairs returns the supported pairs.
func (impl *Implementation) pairs() []Pair {
	if impl.Types == nil {
		return Pairs()
	}
	return impl.Types
}

// accuracy returns the declared or the default arithmetic for p.
func (impl *Implementation) accuracy(p *Problem) Accuracy {
	if impl.Accuracy == nil {
		return gemm.AccuracyOf(p)
	}
	return impl.Accuracy(p)
}

// Options configures a run. The zero value selects the defaults.
type Options struct {
	// Cases is the number of cases of the check "exact". Other checks run a fraction of it. 0
	// selects Implementation.Cases, or 2000.
	Cases int
	// Only, if not empty, selects a single check, which then runs all Cases.
	Only string
	Seed uint64
	// FewForms draws few forms of products, for implementations that compile code for each form. The
	// form of a product is everything but its sizes and its data. FewForms selects one result type for
	// each type of the operands, and one form for each of plain products, epilogues, block scales and
	// batches of these types. Each check has at least one case for each type.
	FewForms bool
	// Part and Parts divide the cases among several processes: a run includes every Parts-th case of
	// a check. Part, from 0 to Parts-1, selects the first one, which differs from check to check, so
	// that the first cases of all checks are divided as well. If Parts is 0, a run includes all cases.
	Part, Parts int
	// Progress, if set, is called after each case.
	Progress func(check string, done, total int)
	// Logf, if set, is called with each failure immediately.
	Logf func(format string, args ...any)
}

// Report is the outcome of a run.
type Report struct {
	Implementation string
	Seed           uint64
	Checks         []CheckReport
	// Stopped is the context's error if it ended the run early.
	Stopped error
}

// CheckReport is the outcome of one check.
type CheckReport struct {
	Name string `json:"check"`
	// Cases counts the cases run. Skipped counts the cases skipped because they are outside the
	// declared limits.
	Cases   int `json:"cases"`
	Skipped int `json:"skipped"`
	// Failures counts the failed cases. Lines describes the first few, with everything needed to
	// repeat them. A check ends after 10 failures.
	Failures int      `json:"failures"`
	Lines    []string `json:"lines,omitempty"`
	// Worst is the largest error relative to its bound. RMS is the largest RMS error of a product
	// relative to the RMS expected from rounding. Both are 0 if the check does not measure errors.
	Worst float64 `json:"worst"`
	RMS   float64 `json:"rms"`
	// ByType holds the errors for each pair of types, if the check measures errors.
	ByType []TypeErrors `json:"by_type,omitempty"`
}

// TypeErrors holds the errors of the results for one pair of types.
type TypeErrors struct {
	In    string `json:"in"`
	Out   string `json:"out"`
	Cases int    `json:"cases"`
	// Worst and RMS are defined as in [CheckReport]. BLAS is the largest error ratio as computed by
	// the test programs of the reference BLAS, relative to their threshold. It excludes sums with
	// more terms than those programs test.
	Worst float64 `json:"worst"`
	BLAS  float64 `json:"blas"`
	RMS   float64 `json:"rms"`
}

// record adds the errors of a result. It replaces infinities and NaNs, which JSON cannot represent,
// by the largest float64.
func (r *CheckReport) record(p *Problem, c ref.Comparison) {
	for _, v := range []*float64{&c.Ratio, &c.RMS, &c.BLAS} {
		if !(*v < math.MaxFloat64) {
			*v = math.MaxFloat64
		}
	}
	r.Worst, r.RMS = max(r.Worst, c.Ratio), max(r.RMS, c.RMS)
	e := r.byType(p.In().String(), p.Out().String())
	e.Cases++
	e.Worst, e.RMS = max(e.Worst, c.Ratio), max(e.RMS, c.RMS)
	if p.K <= ref.BLASMaxK {
		e.BLAS = max(e.BLAS, c.BLAS/ref.BLASLimit)
	}
}

// Add merges the report of another part of the same check into r.
func (r *CheckReport) Add(other CheckReport) {
	r.Cases, r.Skipped, r.Failures = r.Cases+other.Cases, r.Skipped+other.Skipped, r.Failures+other.Failures
	r.Lines = append(r.Lines, other.Lines[:min(len(other.Lines), max(0, maxLines-len(r.Lines)))]...)
	r.Worst, r.RMS = max(r.Worst, other.Worst), max(r.RMS, other.RMS)
	for _, e := range other.ByType {
		mine := r.byType(e.In, e.Out)
		mine.Cases += e.Cases
		mine.Worst, mine.BLAS, mine.RMS = max(mine.Worst, e.Worst), max(mine.BLAS, e.BLAS), max(mine.RMS, e.RMS)
	}
}

// byType returns the entry for a pair of types and adds one if necessary.
func (r *CheckReport) byType(in, out string) *TypeErrors {
	i := slices.IndexFunc(r.ByType, func(e TypeErrors) bool { return e.In == in && e.Out == out })
	if i < 0 {
		i = len(r.ByType)
		r.ByType = append(r.ByType, TypeErrors{In: in, Out: out})
	}
	return &r.ByType[i]
}

// Err returns nil if all cases passed. Otherwise it returns an error with the first failure, or the
// error that stopped the run.
func (r Report) Err() error {
	failed, first := 0, ""
	for _, c := range r.Checks {
		if failed += c.Failures; first == "" && c.Failures > 0 {
			first = c.Lines[0]
		}
	}
	if failed > 0 {
		return fmt.Errorf("%w: %s: %d cases failed; the first: %s", ErrFailed, r.Implementation, failed, first)
	}
	return r.Stopped
}

// random returns the generator of the nth object of a kind.
func (o *Options) random(kind string, n int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(kind))
	return rand.New(rand.NewPCG(o.Seed, h.Sum64()+uint64(n)))
}

// shifted returns the options for check i, with its first case in Part.
func (o Options) shifted(i int) Options {
	if o.Parts > 0 {
		o.Part = (o.Part + i) % o.Parts
	}
	return o
}

const (
	defaultCases  = 2000
	defaultVolume = 1 << 20
	maxLines      = 5  // of a CheckReport
	maxFailures   = 10 // after which a check ends
)

// Check runs the suite. If ctx ends, it returns the results so far.
func Check(ctx context.Context, impl Implementation, opt Options) Report {
	r := Report{Implementation: impl.Name, Seed: opt.Seed}
	for i := range checks {
		if opt.Only != "" && opt.Only != checks[i].Name {
			continue
		}
		r.Checks = append(r.Checks, checks[i].run(ctx, &impl, opt.shifted(i)))
		if r.Stopped = ctx.Err(); r.Stopped != nil {
			break
		}
	}
	return r
}

// Run runs the suite with one subtest per check. The seed depends on the name of the test and on
// TILEWORK_SEED, which is random by default. TILEWORK_CASES sets the number of exact cases; the
// default is impl.Cases, or 2000, and a tenth of that with -short.
func Run(t *testing.T, impl Implementation) {
	t.Helper()
	opt := Options{Cases: testkit.Short(cmp.Or(impl.Cases, defaultCases)), Seed: testrand.Seed(t)}
	if err := opt.environment(); err != nil {
		t.Fatal(err)
	}
	t.Logf("TILEWORK_CASES=%d", opt.Cases)
	for i := range checks {
		c := &checks[i]
		t.Run(c.Name, func(t *testing.T) {
			r := c.run(t.Context(), &impl, opt)
			for _, line := range r.Lines {
				t.Error(line)
			}
			if more := r.Failures - len(r.Lines); more > 0 {
				t.Errorf("and %d more failures", more)
			}
			t.Logf("%d cases, %d skipped as undeclared", r.Cases, r.Skipped)
			if r.Worst > 0 {
				t.Logf("largest error %.2g of its bound, RMS %.2g of the RMS expected from rounding", r.Worst, r.RMS)
			}
		})
	}
}

// environment sets the number of cases from TILEWORK_CASES.
func (o *Options) environment() error {
	if s := os.Getenv("TILEWORK_CASES"); s != "" {
		v, err := strconv.Atoi(s)
		if err != nil || v <= 0 {
			return fmt.Errorf("TILEWORK_CASES=%q: want a positive integer", s)
		}
		o.Cases = v
	}
	return nil
}

// run runs the cases of the check, concurrently if the implementation allows it: on a GPU, most of
// the time of a case is spent on compiling its kernel. The random numbers of a case depend only on
// the seed, the check and the case number, and results are reported in order, so the report does
// not depend on the concurrency.
func (c *check) run(ctx context.Context, impl *Implementation, opt Options) CheckReport {
	r := CheckReport{Name: c.Name}
	cases := cmp.Or(opt.Cases, impl.Cases, defaultCases)
	listed := max(1, int(float64(cases)*c.share))
	if opt.Only != "" {
		listed = cases
	}
	if opt.FewForms {
		listed = max(listed, len(opt.fewPairs(impl.pairs())))
	}
	parts := max(opt.Parts, 1)
	total := max(0, (listed-opt.Part+parts-1)/parts)
	if c.declared != nil && !c.declared(impl) {
		r.Skipped = total
		return r
	}
	turn := opt.random(c.Name+", first turn", 0).IntN(1 << 20)
	workers := 1
	if impl.Concurrent {
		workers = runtime.GOMAXPROCS(0)
	}
	for t := range inOrder(total, workers, func(nth int) *trial {
		n := opt.Part + nth*parts
		t := &trial{ctx: ctx, impl: impl, opt: &opt, n: n, turn: turn + n, rng: opt.random(c.Name, n)}
		if t.err = ctx.Err(); t.err == nil {
			t.err = c.trial(t)
		}
		return t
	}) {
		switch {
		case errors.Is(t.err, errSkipped):
			r.Skipped++
		case t.err != nil && ctx.Err() != nil: // the run was cancelled
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

// inOrder yields f(0), f(1), …, f(total-1) in order, while workers goroutines compute up to
// 2·workers results ahead. All goroutines have ended when the iteration ends. If f panics, so does
// the iteration.
func inOrder[T any](total, workers int, f func(n int) T) iter.Seq[T] {
	return func(yield func(T) bool) {
		results := make([]chan T, 2*workers)
		for n := range results {
			results[n] = make(chan T, 1)
		}
		room, left := make(chan struct{}, len(results)), make(chan struct{})
		var next atomic.Int64
		var all sync.WaitGroup
		var panics relay.Panics
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
					var result T
					panics.Catch(func() { result = f(n) })
					results[n%len(results)] <- result
				}
			})
		}
		for n := range total {
			result := <-results[n%len(results)]
			panics.Raise()
			<-room
			if !yield(result) {
				return
			}
		}
	}
}
