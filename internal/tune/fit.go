package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/fit"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/names"
	"tilework/internal/phrase"
)

// FitOptions control [Fit].
type FitOptions struct {
	Device backend.DeviceName // of kind GPU
	Time   time.Duration      // for which products are measured; 0 is 5 min
	From   string             // the model to begin with, of [choose.Models]; by default the GPU's
	Seed   uint64             // of the products and their operands
	// Progress, if not nil, is called after each product with the elapsed time and Time.
	Progress func(passed, all time.Duration)
	// Note, if not nil, is called with messages of one line.
	Note func(line string)

	products iter.Seq[*gemm.Problem] // nil selects those of fitProducts
	tries    int                     // see [fit.Options]; 0 is 3000
}

// Fitting is the result of [Fit].
type Fitting struct {
	*choose.Fitted
	GPU        *device.Info
	Candidates int      // number of measured candidates
	Source     []string // where the coefficients come from
}

// Keep stores the coefficients in a cache, for later processes on GPUs like this one.
func (f *Fitting) Keep(c *cache.Cache) error { return f.Fitted.Keep(c, f.GPU, f.Source...) }

// Text returns the coefficients as a file for package choose.
func (f *Fitting) Text() ([]byte, error) { return f.Fitted.Text(f.Source...) }

// Fit measures candidates of products drawn at random, half of them layers of networks, and fits
// the coefficients of the GPU to their times. It returns ErrNoDevice, ErrUnsupported for an
// emulated device, which has no times, and the error of ctx when that ends.
func Fit(ctx context.Context, o FitOptions) (_ *Fitting, err error) {
	if o.Time <= 0 {
		o.Time = 5 * time.Minute
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.products == nil {
		o.products = fitProducts(o.Seed)
	}
	if o.From != "" && !slices.Contains(choose.Models(), o.From) {
		return nil, names.Unknown("model", o.From, choose.Models())
	}
	b, release, err := gpu.Open(o.Device)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	info := b.Device.Info()
	if info.Emulated {
		return nil, fmt.Errorf("%w: fitting on device %v: an emulated GPU has no times (want gpu)", gemm.ErrUnsupported,
			o.Device)
	}
	o.From = cmp.Or(o.From, choose.ModelOf(info))
	l := newGPULab(b.Backend, Options{Device: o.Device, Seed: o.Seed, Warn: o.Note, Note: func(string) {}})
	all, err := l.timed(ctx, o)
	if err != nil {
		return nil, err
	}
	o.Note(fmt.Sprintf("measured %s; fitting", phrase.Count(len(all), "product")))
	fitted, err := choose.Fit(ctx, info, o.From, all, fit.Options{Penalty: choose.Penalty, Tries: cmp.Or(o.tries, 3000)})
	if err != nil {
		return nil, err
	}
	f := &Fitting{Fitted: fitted, GPU: info}
	for i := range all {
		f.Candidates += len(all[i].Cycles)
	}
	f.Source = []string{fmt.Sprintf("%s, %s, %s: fitted to %d candidates of %d products on %s by tilework fit.",
		info.Name, info.Driver, info.Target, f.Candidates, len(all), time.Now().Format(time.DateOnly))}
	return f, nil
}

// timed measures the candidates of products until the time of o has passed.
func (l *gpuLab) timed(ctx context.Context, o FitOptions) (all []choose.Timed, err error) {
	start := time.Now()
	for p := range o.products {
		passed := time.Since(start)
		if passed >= o.Time {
			break
		}
		if o.Progress != nil {
			o.Progress(passed, o.Time)
		}
		t, err := l.timeCandidates(ctx, p)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch {
		case errors.Is(err, gemm.ErrUnsupported), errors.Is(err, device.ErrOutOfMemory):
			continue // another GPU computes it
		case err != nil:
			return nil, fmt.Errorf("%v: %w", p, err)
		case len(t.Cycles) > 1:
			all = append(all, t)
			o.Note(t.String())
		}
	}
	return all, nil
}

// fitProducts ranges over the products to measure: one type after the other, random ones and layers
// of networks in turns.
func fitProducts(seed uint64) iter.Seq[*gemm.Problem] {
	const (
		count       = 1000    // samples of a type and suite, more than any GPU measures in minutes
		maxElements = 1 << 27 // of the matrices: preparing more takes longer than measuring them
	)
	return func(yield func(*gemm.Problem) bool) {
		var lists [][]gemm.Problem
		for _, suite := range []string{bench.RandomSuite, bench.ModelSuite} {
			for _, in := range []dtype.Type{dtype.BF16, dtype.F32, dtype.F8E4M3, dtype.F64, dtype.I8} {
				samples, err := bench.Suite(suite, bench.Draw{Seed: seed + uint64(len(lists)), Count: count, Type: in})
				if err != nil {
					continue // no network is served in the type
				}
				var list []gemm.Problem
				for _, s := range samples {
					p, err := s.Problem(in, in.Info().Results[0])
					if err == nil && p.M*p.K+p.K*p.N+p.M*p.N <= maxElements {
						list = append(list, p)
					}
				}
				lists = append(lists, list)
			}
		}
		for i := range count {
			for _, list := range lists {
				if i < len(list) && !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// timeCandidates measures the candidates of p that tuning would measure.
func (l *gpuLab) timeCandidates(ctx context.Context, p *gemm.Problem) (t choose.Timed, err error) {
	t = choose.Timed{Problem: *p, Cycles: map[string]float64{}}
	list, err := l.compile(ctx, p, accepted(choose.Measurable(choose.Candidates(p, kernel.Align{}, l.backend.Info()))))
	if err != nil || len(list) == 0 {
		return t, err
	}
	o := effort{minReps: 3, minTime: time.Millisecond, maxTime: 50 * time.Millisecond}.options(l.options.Seed)
	o.Verify = unverified
	records, err := l.time(ctx, p, list, o)
	if err != nil {
		return t, err
	}
	for i := range records {
		r := &records[i]
		if r.Timed() {
			clock, err := l.clock(r)
			if err != nil {
				return t, err
			}
			t.Cycles[list[i].String()] = r.Seconds.Median * clock
		}
	}
	return t, nil
}

// unverified is a [bench.Verifier] that accepts all results: a fit needs only times.
func unverified(context.Context, *gemm.Problem, gemm.Buffers) (bench.Check, error) {
	return func([]byte, float64) (float64, error) { return 0, nil }, nil
}

// clock returns the clock rate of a record in Hz: the measured one, or the highest one of the GPU.
func (l *gpuLab) clock(r *bench.Record) (float64, error) {
	mhz := 0.0
	if r.Load != nil {
		mhz = r.Load.SMClock.Median
	}
	if d, ok := l.backend.Device.(*cuda.GPU); ok && mhz == 0 {
		mhz = float64(d.Details().Clock)
	}
	if mhz == 0 {
		return 0, errors.New("the clock rate of the GPU is not known")
	}
	return mhz * 1e6, nil
}
