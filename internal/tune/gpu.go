package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device/cuda"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/phrase"
	"tilework/internal/sentinel"
)

// gpuLab measures products of matrices in GPU memory. If the driver reports the size of the L2
// cache, it uses enough copies of the matrices to exceed the cache.
type gpuLab struct {
	backend     *exec.Backend
	options     Options
	environment bench.Environment
}

func newGPULab(b *exec.Backend, o Options) *gpuLab {
	l := &gpuLab{b, o, bench.Host()}
	l.environment.GPU = b.Device.Info().Name
	if d, ok := b.Device.(*cuda.GPU); ok {
		l.environment.GPUCache = int64(d.Details().L2)
	}
	return l
}

func (l *gpuLab) about() (string, int) { return l.backend.Device.Info().Name, 0 }

// keepLayout makes plans use the layouts that gpuLab.problem sets.
var keepLayout = exec.Options{KeepLayout: true}

// problem returns the product with the layouts of matrices copied from the host.
func (l *gpuLab) problem(f tuned.Form) (*gemm.Problem, error) {
	p, err := f.Problem()
	p.Layouts[gemm.A], p.Layouts[gemm.B], p.Layouts[gemm.C] = gemm.Padded(p.Layouts[gemm.A]),
		gemm.Padded(p.Layouts[gemm.B]), gemm.Padded(p.Layouts[gemm.C])
	return &p, err
}

// defaultChoice returns 0 for the time, which is negligible compared to compiling.
func (l *gpuLab) defaultChoice(_ context.Context, f tuned.Form) (backend.Choice, time.Duration, error) {
	p, err := l.problem(f)
	if err != nil {
		return backend.Choice{}, 0, err
	}
	plan, err := l.backend.Plan(p, keepLayout)
	if err != nil {
		return backend.Choice{}, 0, err
	}
	return backend.Choice{Kernel: plan.Kernel.Name, Tile: plan.Config.Tile.String()}, 0, nil
}

// candidates returns the candidates of [choose.Candidates] that compile.
func (l *gpuLab) candidates(ctx context.Context, f tuned.Form) ([]backend.Choice, int, error) {
	p, err := l.problem(f)
	if err != nil {
		return nil, 0, err
	}
	all := choose.Candidates(p, kernel.Align{}, l.backend.Info())
	if !l.options.Exhaustive {
		all = choose.Measurable(all)
	}
	list := accepted(all)
	l.options.Note(fmt.Sprintf("%v: measuring %d of %d candidates\n%s", f, len(list), len(all), choose.Reasoning(all)))
	list, err = l.compile(ctx, p, list)
	return list, len(all), err
}

// accepted returns the candidates that are not rejected.
func accepted(all []choose.Candidate) (list []backend.Choice) {
	for _, c := range all {
		if c.Rejected == nil {
			list = append(list, backend.Choice{Kernel: c.Kernel.Name, Tile: c.Config.Tile.String()})
		}
	}
	return list
}

// compile compiles candidates concurrently, and returns those that compile.
func (l *gpuLab) compile(ctx context.Context, p *gemm.Problem, list []backend.Choice) ([]backend.Choice, error) {
	start, plans, errs := time.Now(), make([]*exec.Plan, len(list)), make([]error, len(list))
	for i, c := range list {
		plans[i], errs[i] = l.plan(p, c)
	}
	for i, err := range exec.CompileAll(ctx, plans) {
		if err != nil {
			errs[i] = err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var good []backend.Choice
	for i, c := range list {
		switch {
		case errs[i] == nil:
			good = append(good, c)
		case errors.Is(errs[i], sentinel.ErrNoDevice):
			return nil, errs[i]
		default:
			l.options.Warn(fmt.Sprintf("%v does not compile: %v", c, errs[i]))
		}
	}
	l.options.Note(fmt.Sprintf("compiled %s in %v", phrase.Count(len(good), "kernel"),
		time.Since(start).Round(time.Millisecond)))
	return slices.Clip(good), nil
}

func (l *gpuLab) plan(p *gemm.Problem, c backend.Choice) (*exec.Plan, error) {
	opt := keepLayout
	opt.Kernel, opt.Tile = c.Kernel, c.Tile
	return l.backend.Plan(p, opt)
}

// variants returns nil: the candidates of a GPU already include all tiles.
func (l *gpuLab) variants(tuned.Form, backend.Choice) []backend.Choice { return nil }

func (l *gpuLab) measure(ctx context.Context, f tuned.Form, choices []backend.Choice, standard backend.Choice,
	e effort) ([]bench.Record, error) {
	p, err := l.problem(f)
	if err != nil {
		return nil, err
	}
	return l.time(ctx, p, choices, e.options(l.options.Seed), &gpuSubject{l, standard, standardName})
}

// time times choices, alternating with peers.
func (l *gpuLab) time(ctx context.Context, p *gemm.Problem, choices []backend.Choice, o bench.Options,
	peers ...bench.DeviceSubject) ([]bench.Record, error) {
	var subjects []bench.DeviceSubject
	for _, c := range choices {
		subjects = append(subjects, &gpuSubject{l, c, c.String()})
	}
	o.Cold, o.Environment = l.environment.GPUCache > 0, &l.environment
	c := bench.Case{Problem: *p, Device: l.options.Device.String()}
	return bench.MeasureOn(ctx, l.backend.Device, c, subjects, peers, o)
}

// gpuSubject is a choice to measure.
type gpuSubject struct {
	lab    *gpuLab
	choice backend.Choice
	name   string
}

func (s *gpuSubject) Name() string { return s.name }

func (s *gpuSubject) Prepare(ctx context.Context, p *gemm.Problem, _ bench.Try) (bench.Enqueue, error) {
	plan, err := s.lab.plan(p, s.choice)
	if err != nil {
		return nil, err
	}
	if err := plan.Compile(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m bench.Matrices) error {
		return plan.Enqueue(ctx, kernel.Memory(m))
	}, nil
}
