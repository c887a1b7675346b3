package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// ResidentSubject is an implementation that multiplies matrices in the memory of a device of its
// own, which may be several GPUs. Like a [Subject], it may be a fmt.Stringer.
type ResidentSubject interface {
	Name() string
	// Prepare copies the operands to the device. ErrUnsupported means that the subject does not
	// support p, and is not reported as a failure.
	Prepare(ctx context.Context, p *gemm.Problem, b *gemm.Buffers) (ResidentProduct, error)
}

// ResidentProduct is a product of matrices on a device.
type ResidentProduct interface {
	// Run computes the product n times. It returns the time from the start of the first until all
	// devices have finished.
	Run(ctx context.Context, n int) (time.Duration, error)
	// CopyIn and CopyOut copy C from and to host memory, where it has the problem's layout.
	CopyIn(ctx context.Context, c []byte) error
	CopyOut(ctx context.Context, c []byte) error
	// RunBreakdown computes the product n times and returns the breakdown of the time of one on each
	// GPU, or nil if it has none.
	RunBreakdown(ctx context.Context, n int) ([]timeline.Breakdown, error)
	// Close frees the matrices.
	Close() error
}

// MeasureResident is [Measure] for matrices that stay on the devices of the subjects.
func MeasureResident(ctx context.Context, c Case, kernels, peers []ResidentSubject, o Options) ([]Record, error) {
	if o.Warmup == 0 {
		o.Warmup = 200 * time.Millisecond // a GPU's clock rate settles under load
	}
	o = o.withDefaults()
	runs, err := newRuns(c, kernels, peers)
	if err != nil {
		return nil, err
	}
	if err := Fits(&c.Problem, o); err != nil {
		return nil, err
	}
	return measureAt(ctx, c, runs, o, func(data *operands) (site, error) {
		return &residentSite{problem: &c.Problem, data: data, subjects: slices.Concat(kernels, peers),
			products: make([]ResidentProduct, len(runs))}, nil
	})
}

// residentSite is a site in the memory of the devices of the subjects.
type residentSite struct {
	problem  *gemm.Problem
	data     *operands
	subjects []ResidentSubject
	products []ResidentProduct // of the subjects; nil if a subject could not be prepared
	// counting is the product that was run last, and count the number of its runs; see time.
	counting ResidentProduct
	count    int
}

// prepare runs a product, because the first one may compile kernels. A result that takes as long
// would pass for a slow subject, which is not warmed up.
func (s *residentSite) prepare(ctx context.Context, i int) (product, error) {
	p, err := s.subjects[i].Prepare(ctx, s.problem, &s.data.Buffers)
	if err == nil {
		_, err = p.Run(ctx, 1)
	}
	if err != nil {
		return nil, err
	}
	s.products[i] = p
	return func(context.Context, int) error {
		s.counting = p
		s.count++
		return nil
	}, nil
}

// result calls run first to learn whose product it is.
func (s *residentSite) result(ctx context.Context, run product) ([]byte, time.Duration, error) {
	if err := run(ctx, 0); err != nil {
		return nil, 0, err
	}
	host := s.data.Buffers[gemm.C]
	if err := s.counting.CopyIn(ctx, host); err != nil {
		return nil, 0, err
	}
	took, err := s.time(ctx, run, 1)
	if err != nil {
		return nil, 0, err
	}
	got := make([]byte, len(host))
	return got, took, s.counting.CopyOut(ctx, got)
}

// time counts the products first, because a device may have a clock of its own.
func (s *residentSite) time(ctx context.Context, run product, n int) (time.Duration, error) {
	s.count = 0
	for range n {
		if err := run(ctx, 0); err != nil {
			return 0, err
		}
	}
	return s.counting.Run(ctx, s.count)
}

// batch returns a shortest timing that hides the wait for all GPUs at its end, and enough products
// for it.
func (s *residentSite) batch() (time.Duration, int) { return 20 * time.Millisecond, 2048 }
func (s *residentSite) sets() int                   { return 1 }

func (s *residentSite) steps(int) (*Steps, error) { return nil, nil }

func (s *residentSite) breakdown(ctx context.Context, i, n int) ([]timeline.Breakdown, error) {
	return s.products[i].RunBreakdown(ctx, n)
}

func (s *residentSite) close() error {
	var errs []error
	for _, p := range s.products {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}
