package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/peers"
)

// onProcessor measures on the processor.
func (f *benchFlags) onProcessor(_ context.Context, device backend.Device, problems []gemm.Problem, stderr io.Writer) (bencher, error) {
	request := dispatch.Request{Device: device, Threads: f.threads}
	picks, err := f.picks(device, problems, func(p *gemm.Problem, kernel string) (string, error) {
		r := request
		r.Problem, r.Kernel = *p, kernel
		plan, err := dispatch.New(r)
		if err != nil {
			return "", err
		}
		return plan.Kernel, nil
	}, stderr)
	if err != nil {
		return bencher{}, err
	}
	var kernels []bench.Subject
	for _, k := range picks {
		request.Kernel = k.kernel
		kernels = append(kernels, &subject{name: k.name, request: request})
		if f.packed {
			kernels = append(kernels, &packedSubject{subject: subject{name: k.name, request: request}})
		}
	}
	others, err := f.libraries(stderr)
	if err != nil {
		return bencher{}, err
	}
	options := f.options()
	options.Peak, options.Packs = newPeaks().rate, f.packed
	return bencher{
		subjects: names(kernels, others), options: options,
		kase: func(p gemm.Problem) bench.Case {
			return bench.Case{Problem: p, Device: f.device, Threads: f.threads}
		},
		fits: func(p *gemm.Problem) error { return bench.Fits(p, options) },
		measure: func(ctx context.Context, c bench.Case) ([]bench.Record, error) {
			return bench.Measure(ctx, c, kernels, others, options)
		},
		close: func() error { return nil },
	}, nil
}

// names are those of subjects, in the order of their records.
func names[S interface{ Name() string }](lists ...[]S) []string {
	var all []string
	for _, s := range slices.Concat(lists...) {
		all = append(all, s.Name())
	}
	return all
}

// subject is one of the processor's kernels as bench sees it.
type subject struct {
	name    string
	request dispatch.Request
	plan    *dispatch.Plan // of the product that was prepared last
}

func (s *subject) Name() string { return s.name }

// slow is the number of operations from which on a product may take so long, with the
// textbook's loop, that somebody who interrupts it would wait.
const slow = 1e8

func (s *subject) Prepare(ctx context.Context, p *gemm.Problem) (func(gemm.Buffers) error, error) {
	request := s.request
	request.Problem = *p
	plan, err := dispatch.New(request)
	if err != nil {
		return nil, err
	}
	s.plan = plan
	if p.Flops() < slow {
		ctx = context.Background() // which costs nothing to ask
	}
	return func(b gemm.Buffers) error { return plan.Run(ctx, b) }, nil
}

func (s *subject) String() string {
	if s.plan == nil {
		return ""
	}
	return s.plan.Kernel + ", " + s.plan.Detail()
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
		if own := ownPeers[name]; own != nil {
			subjects = append(subjects, own(f.threads))
			continue
		}
		if known := append(libraryNames(), readPeer, plainPeer); !slices.Contains(known, name) {
			return nil, fmt.Errorf("--peers: unknown library %q%s (want one of %s)", name, meant(name, known), strings.Join(known, ", "))
		}
		p, err := peers.Open(name, peers.Options{Path: paths[name], Threads: f.threads})
		switch {
		case err == nil:
			fmt.Fprintf(stderr, "peer %v\n", p)
			if caveat := p.Caveat(); caveat != "" {
				fmt.Fprintf(stderr, "  note: %s\n", caveat)
			}
			subjects = append(subjects, p)
		case (f.peers == "all" || f.optional) && (errors.Is(err, peers.ErrNotFound) || errors.Is(err, gemm.ErrUnsupported)):
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
		one = cpu.Peak(in)
		p[in] = one
	}
	return one * float64(cpu.Workers(threads))
}
