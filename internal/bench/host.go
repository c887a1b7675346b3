package bench

import (
	"context"
	"slices"
	"time"

	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// hostSite is a site in the host's memory.
type hostSite struct {
	subjects []Subject
	problem  *gemm.Problem
	copies   []gemm.Buffers
	oldC     []byte
	order    *rotation
	now      func() time.Duration
}

func newHostSite(p *gemm.Problem, data *operands, subjects []Subject, o Options) (site, error) {
	_, n := hostSets(p, o)
	h := &hostSite{subjects: subjects, problem: p, oldC: slices.Clone(data.Buffers[gemm.C]), order: data.rotation(n),
		now: o.now}
	h.copies = append(h.copies, data.Buffers)
	for range n - 1 {
		var b gemm.Buffers
		for o, bytes := range data.Buffers {
			b[o] = clone(bytes)
		}
		h.copies = append(h.copies, b)
	}
	return h, nil
}

func clone(b []byte) []byte {
	c := aligned(len(b))
	copy(c, b)
	return c
}

func (h *hostSite) prepare(ctx context.Context, i int) (product, error) {
	multiply, err := h.subjects[i].Prepare(ctx, h.problem)
	if err != nil {
		return nil, err
	}
	if s, ok := h.subjects[i].(Packer); ok {
		for _, b := range h.copies {
			if err := s.PackB(ctx, b); err != nil {
				return nil, err
			}
		}
	}
	return func(_ context.Context, set int) error { return multiply(&h.copies[set]) }, nil
}

func (h *hostSite) result(ctx context.Context, run product) ([]byte, time.Duration, error) {
	copy(h.copies[0][gemm.C], h.oldC)
	start := h.now()
	err := run(ctx, 0)
	return h.copies[0][gemm.C], h.now() - start, err
}

func (h *hostSite) time(ctx context.Context, run product, n int) (time.Duration, error) {
	start := h.now()
	for range n {
		if err := run(ctx, h.order.next()); err != nil {
			return 0, err
		}
	}
	return h.now() - start, nil
}

// Stepwise is a [Subject] whose products copy their operands to a device and the result back.
type Stepwise interface {
	// Steps computes the most recently prepared product one step after the other, and returns the
	// duration of each step.
	Steps(b gemm.Buffers) (Steps, error)
}

// Steps holds the durations of a product's steps in seconds. Each step starts after the end of the
// previous one. A product that overlaps them takes less than their sum.
type Steps struct {
	Allocate float64 `json:"allocate"`
	Upload   float64 `json:"upload"`
	Compute  float64 `json:"compute"`
	Download float64 `json:"download"`
}

func (h *hostSite) steps(i int) (*Steps, error) {
	s, ok := h.subjects[i].(Stepwise)
	if !ok {
		return nil, nil
	}
	const times = 5
	var all [4][]float64
	for range times {
		t, err := s.Steps(h.copies[h.order.next()])
		if err != nil {
			return nil, err
		}
		for i, v := range [...]float64{t.Allocate, t.Upload, t.Compute, t.Download} {
			all[i] = append(all[i], v)
		}
	}
	median := func(i int) float64 { return summarize(all[i]).Median }
	return &Steps{Allocate: median(0), Upload: median(1), Compute: median(2), Download: median(3)}, nil
}

// breakdown implements site. It measures one product, as each of several is waited for.
func (h *hostSite) breakdown(ctx context.Context, i, _ int) ([]timeline.Breakdown, error) {
	s, ok := h.subjects[i].(BreakdownRunner)
	if !ok {
		return nil, nil
	}
	return s.RunBreakdown(ctx, h.copies[h.order.next()])
}

// batch limits the number of products for a clock that does not advance.
func (h *hostSite) batch() (time.Duration, int) { return 20 * time.Microsecond, 1 << 20 }
func (h *hostSite) sets() int                   { return len(h.copies) }
func (h *hostSite) close() error                { return nil }
