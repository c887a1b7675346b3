package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/peers"
)

// onCPU returns a bencher of kernels and libraries on the CPU.
func (f *benchFlags) onCPU(ctx context.Context, device backend.DeviceName, problems []gemm.Problem,
	stderr io.Writer) (bencher, error) {
	request := dispatch.Request{Device: device, Threads: f.threads}
	picks, err := f.picks(device, problems, func(p *gemm.Problem, kernel string) (string, error) {
		r := request
		r.Problem, r.Kernel = *p, kernel
		plan, err := dispatch.New(ctx, r)
		if err != nil {
			return "", err
		}
		return plan.Kernel(), nil
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
	kernelsOf := func(*gemm.Problem) []bench.Subject { return kernels }
	if f.choice {
		request.Kernel = ""
		kernelsOf = func(p *gemm.Problem) []bench.Subject { return cpuCandidates(ctx, p, request) }
	}
	others, err := f.libraries(f.peerNames(libraryNames()), stderr, peersOnCPU)
	if err != nil {
		return bencher{}, err
	}
	options := f.options()
	options.Peak, options.Packs = newPeaks().rate, f.packed
	return bencher{
		subjects: func(p *gemm.Problem) []string { return namesOf(kernelsOf(p), others) }, options: options,
		newCase: func(p gemm.Problem) bench.Case {
			return bench.Case{Problem: p, Device: f.device, Threads: f.threads}
		},
		fits: func(p *gemm.Problem) error { return bench.Fits(p, options) },
		measure: func(ctx context.Context, c bench.Case) ([]bench.Record, error) {
			if c.Threads == 1 {
				defer pinThread()()
			}
			return bench.Measure(ctx, c, kernelsOf(&c.Problem), others, options)
		},
		close: func() error { return nil },
	}, nil
}

// namesOf returns the names of subjects in the order of their records.
func namesOf[S interface{ Name() string }](lists ...[]S) []string {
	var all []string
	for _, s := range slices.Concat(lists...) {
		all = append(all, s.Name())
	}
	return all
}

// subject is a CPU kernel to measure.
type subject struct {
	name    string
	request dispatch.Request
	plan    *dispatch.Plan // of the product that was prepared last
}

func (s *subject) Name() string { return s.name }

// PredictedSeconds implements [bench.TimePredictor].
func (s *subject) PredictedSeconds() float64 {
	if s.plan == nil {
		return 0
	}
	return s.plan.Predicted().Seconds()
}

// minCancelFlops is the number of operations from which a product can be cancelled. With fewer,
// even the textbook loop takes only about 0.4 s.
const minCancelFlops = 1e8

func (s *subject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	request := s.request
	request.Problem = *p
	plan, err := dispatch.New(ctx, request)
	if err != nil {
		return nil, err
	}
	s.plan = plan
	if p.Flops() < minCancelFlops {
		ctx = context.Background() // checking it for cancellation takes no time
	}
	return func(b *gemm.Buffers) error { return plan.Run(ctx, b) }, nil
}

func (s *subject) String() string {
	if s.plan == nil {
		return ""
	}
	return s.plan.Kernel() + ", " + s.plan.Detail()
}

func libraryNames() []string {
	var names []string
	for _, l := range peers.Libraries() {
		names = append(names, l.Name)
	}
	return names
}

// libraries opens CPU peers of --peers. Errors list the names of the groups.
func (f *benchFlags) libraries(peerNames []string, stderr io.Writer, groups ...int) ([]bench.Subject, error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	var subjects []bench.Subject
	for _, name := range peerNames {
		if newPeer := builtinPeers[name]; newPeer != nil {
			subjects = append(subjects, newPeer(f.threads))
			continue
		}
		if !slices.Contains(libraryNames(), name) {
			return nil, unknownPeer(name, groups...)
		}
		p, err := peers.Open(name, peers.Options{Path: paths[name], Threads: f.threads})
		switch {
		case err == nil:
			fmt.Fprintf(stderr, "peer %v\n", p)
			if caveat := p.Caveat(); caveat != "" {
				fmt.Fprintf(stderr, "  note: %s\n", caveat)
			}
			subjects = append(subjects, p)
		case f.mayLack(err):
			fmt.Fprintf(stderr, "peer %s is not installed\n", name)
		default:
			return nil, fmt.Errorf("--peers: %w", err)
		}
	}
	if len(subjects) > 0 && runtime.NumCPU() == 1 {
		fmt.Fprintln(stderr, "note: this process may use one core only, which Go's runtime needs too after each product "+
			"of a peer; allow a second core for timings of --threads 1")
	}
	return subjects, nil
}

// peaks caches the measured peak rate of one core for each element type, in GFLOP/s.
type peaks map[dtype.Type]float64

func newPeaks() peaks { return peaks{} }

// rate returns the peak rate of a number of threads, 0 for all cores: that of one core times the
// number of threads.
func (p peaks) rate(in dtype.Type, _ string, threads int) float64 {
	one, known := p[in]
	if !known {
		one = cpu.Peak(in)
		p[in] = one
	}
	return one * float64(cpu.Workers(threads))
}
