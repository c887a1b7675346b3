package tune

import (
	"context"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// cpuLab measures on the CPU. The same operands are used for every product, so they are in the
// caches if they fit.
type cpuLab struct {
	workers int
	options Options
}

func (l *cpuLab) about() (string, int) { return host.CPUName(), l.workers }

func (l *cpuLab) defaultChoice(ctx context.Context, f tuned.Form) (backend.Choice, time.Duration, error) {
	p, err := f.Problem()
	if err != nil {
		return backend.Choice{}, 0, err
	}
	plan, err := l.plan(ctx, &p, backend.Choice{})
	if err != nil {
		return backend.Choice{}, 0, err
	}
	took, err := l.took(ctx, plan)
	return backend.Choice{Kernel: plan.Kernel()}, took, err
}

// took returns the approximate time of a plan: the shorter of two runs with zero matrices.
func (l *cpuLab) took(ctx context.Context, plan *dispatch.Plan) (time.Duration, error) {
	p := plan.Problem
	if err := host.CheckMemory(p.A().Bytes()+p.B().Bytes()+p.C().Bytes(), "the matrices of "+p.String()); err != nil {
		return 0, err
	}
	b := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()),
		gemm.C: make([]byte, p.C().Bytes())}
	shortest := time.Duration(0)
	for i := range 2 {
		start := time.Now()
		if err := plan.Run(context.Background(), &b); err != nil {
			return 0, err
		}
		if took := time.Since(start); i == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest, nil
}

func (l *cpuLab) plan(ctx context.Context, p *gemm.Problem, c backend.Choice) (*dispatch.Plan, error) {
	return dispatch.New(ctx, dispatch.Request{
		Problem: *p, Device: backend.DeviceName{Kind: backend.CPU}, Threads: l.options.Threads, Choice: &c,
	})
}

func (l *cpuLab) candidates(_ context.Context, f tuned.Form) ([]backend.Choice, int, error) {
	p, err := f.Problem()
	if err != nil {
		return nil, 0, err
	}
	routes := cpu.Routes(&p, l.workers)
	list := choices(routes)
	if l.options.Exhaustive {
		for _, r := range routes {
			list = append(list, choices(cpu.Blockings(&p, r))...)
		}
	}
	return list, len(list), nil
}

func (l *cpuLab) variants(f tuned.Form, best backend.Choice) []backend.Choice {
	p, err := f.Problem()
	if err != nil || l.options.Exhaustive {
		return nil
	}
	return choices(cpu.Blockings(&p, backend.Choice{Kernel: best.Kernel, Config: best.Config}))
}

func choices(list []backend.Choice) []backend.Choice {
	all := make([]backend.Choice, len(list))
	for i, c := range list {
		all[i] = backend.Choice{Kernel: c.Kernel, Config: c.Config}
	}
	return all
}

func (l *cpuLab) measure(ctx context.Context, f tuned.Form, choices []backend.Choice, standard backend.Choice,
	e effort) ([]bench.Record, error) {
	p, err := f.Problem()
	if err != nil {
		return nil, err
	}
	var subjects []bench.Subject
	for _, c := range choices {
		subjects = append(subjects, &cpuSubject{l, c, c.String()})
	}
	o := e.options(l.options.Seed)
	o.Lead = -1
	if l.workers > 1 {
		// All threads belong to tilework's kernels, whose idle workers sleep after 0.1 ms, so a
		// short lead suffices. With it, only a fifth of the time of short products is measured.
		o.Lead = time.Millisecond
		o.MinTime /= 5
	}
	return bench.Measure(ctx, bench.Case{Problem: p, Device: "cpu", Threads: l.options.Threads}, subjects,
		[]bench.Subject{&cpuSubject{l, standard, standardName}}, o)
}

// standardName is the name of the default choice in a measurement.
const standardName = "default"

// cpuSubject is a choice to measure.
type cpuSubject struct {
	lab    *cpuLab
	choice backend.Choice
	name   string
}

func (s *cpuSubject) Name() string { return s.name }

func (s *cpuSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	plan, err := s.lab.plan(ctx, p, s.choice)
	if err != nil {
		return nil, err
	}
	return func(b *gemm.Buffers) error { return plan.Run(context.Background(), b) }, nil
}
