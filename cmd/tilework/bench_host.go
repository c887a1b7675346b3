package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/peers"
)

// onProcessor measures on the processor.
func (f *benchFlags) onProcessor(_ context.Context, device dispatch.Device, problems []gemm.Problem, stderr io.Writer) (bencher, error) {
	request := dispatch.Request{Device: device, Threads: f.threads}
	picks, err := f.picks(device, problems, func(p *gemm.Problem, kernel string) (string, error) {
		r := request
		r.Problem, r.Kernel = *p, kernel
		plan, err := dispatch.New(r)
		if err != nil {
			return "", err
		}
		return plan.Kernel, nil
	})
	if err != nil {
		return bencher{}, err
	}
	var kernels []bench.Subject
	for _, k := range picks {
		request.Kernel = k.kernel
		kernels = append(kernels, &subject{k.name, request})
	}
	others, err := f.libraries(stderr)
	if err != nil {
		return bencher{}, err
	}
	options := f.options()
	options.Peak = newPeaks().rate
	return bencher{
		measure: func(ctx context.Context, p gemm.Problem) ([]bench.Record, error) {
			return bench.Measure(ctx, bench.Case{Problem: p, Device: f.device, Threads: f.threads}, kernels, others, options)
		},
		close: func() error { return nil },
	}, nil
}

// subject is one of the processor's kernels as bench sees it.
type subject struct {
	name    string
	request dispatch.Request
}

func (s *subject) Name() string { return s.name }

func (s *subject) Prepare(p *gemm.Problem) (func(gemm.Buffers) error, error) {
	request := s.request
	request.Problem = *p
	plan, err := dispatch.New(request)
	if err != nil {
		return nil, err
	}
	return func(b gemm.Buffers) error { return plan.Run(context.Background(), b) }, nil
}

func libraryNames() []string {
	var names []string
	for _, l := range peers.Libraries() {
		names = append(names, l.Name)
	}
	return names
}

// libraries opens the processor's libraries that --peers asks for.
func (f *benchFlags) libraries(stderr io.Writer) ([]bench.Subject, error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	var subjects []bench.Subject
	for _, name := range f.wanted(libraryNames()) {
		p, err := peers.Open(name, peers.Options{Path: paths[name], Threads: f.threads})
		switch {
		case err == nil:
			fmt.Fprintf(stderr, "peer %v\n", p)
			if caveat := p.Caveat(); caveat != "" {
				fmt.Fprintf(stderr, "  note: %s\n", caveat)
			}
			subjects = append(subjects, p)
		case f.peers == "all" && errors.Is(err, peers.ErrNotFound):
			fmt.Fprintf(stderr, "peer %s is not installed\n", name)
		default:
			return nil, fmt.Errorf("--peers: %w", err)
		}
	}
	return subjects, nil
}

// peaks remembers the measured peak of one core for each type.
type peaks map[dtype.Type]float64

func newPeaks() peaks { return peaks{} }

// rate is the peak of that many threads, 0 standing for all, as the same multiple
// of one core's.
func (p peaks) rate(in dtype.Type, _ string, threads int) float64 {
	one, known := p[in]
	if !known {
		one = cpu.Peak(in.Info().Accum)
		p[in] = one
	}
	return one * float64(cpu.Workers(threads))
}
