package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"tilework/internal/bench"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// densePeer is the name of the product without groups in --peers.
const densePeer = "dense"

// batched returns p as a strided batch of --batch products, or with its rows in the groups of
// --groups.
func (f *benchFlags) batched(p gemm.Problem) (gemm.Problem, error) {
	switch {
	case f.batch > 1:
		return p.Strided(f.batch, gemm.Batch{Stride: gemm.Strides{gemm.A: p.A().Len(), gemm.B: p.B().Len(),
			gemm.C: p.C().Len()}})
	case f.groups == "":
		return p, nil
	}
	rows, err := groupRows(f.groups, p.M)
	if err != nil {
		return p, fmt.Errorf("--groups: %w", err)
	}
	return p.Grouped(len(rows), p.B().Len())
}

// groupRows returns the number of rows of each group, which add up to m. The text is the number of
// groups of equal size, or a list of the groups' shares.
func groupRows(text string, m int) ([]int, error) {
	var shares []int
	total := 0
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 0 || n > 1<<20 {
			return nil, fmt.Errorf("%q: want a number of groups, or the share of each, such as 4,2,1,1", text)
		}
		shares, total = append(shares, n), total+n
	}
	if total == 0 {
		return nil, fmt.Errorf("%q: all shares are 0, want one or more above 0", text)
	}
	if len(shares) == 1 {
		shares = make([]int, total)
		for i := range shares {
			shares[i] = 1
		}
	}
	rows := make([]int, len(shares))
	before, given := 0, 0
	for i, share := range shares {
		before += share
		rows[i] = before*m/total - given
		given += rows[i]
	}
	return rows, nil
}

// deviceCase returns the case of p in GPU memory.
func (f *benchFlags) deviceCase(p gemm.Problem) bench.Case {
	c := bench.Case{Problem: p, Device: f.device}
	if p.Batch.Kind == gemm.Grouped {
		c.Groups, _ = groupRows(f.groups, p.M) // batched has checked the flag
	}
	return c
}

// denseSubject computes one product with as many operations as the products of all groups, with
// the kernel that tilework chooses for it. It multiplies by the B of the first group.
type denseSubject struct {
	gpu  *exec.Backend
	plan *exec.Plan
}

func (s *denseSubject) Name() string { return densePeer }

func (s *denseSubject) Prepare(ctx context.Context, p *gemm.Problem, _ bench.Try) (bench.Enqueue, error) {
	if p.Batch.Kind != gemm.Grouped {
		return nil, fmt.Errorf("%w: peer %s without --groups", gemm.ErrUnsupported, densePeer)
	}
	one, _ := p.Product(0)
	plan, err := gpu.PlanResident(s.gpu, &one, exec.Options{KeepLayout: true})
	if err != nil {
		return nil, err
	}
	s.plan = plan
	return func(ctx context.Context, m bench.Matrices) error {
		return plan.Enqueue(ctx, kernel.Memory{gemm.A: m[gemm.A], gemm.B: m[gemm.B], gemm.C: m[gemm.C],
			gemm.Bias: m[gemm.Bias]})
	}, plan.Compile(ctx)
}

func (s *denseSubject) String() string { return planText(s.plan) }
