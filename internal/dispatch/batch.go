package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"tilework/internal/cpu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/stream"
)

// Product is one product of a batch: a plan and the memory to run it on.
type Product struct {
	Plan
	Buffers gemm.Buffers
}

// Run computes the product; see [Plan.Run].
func (p *Product) Run(ctx context.Context) error { return p.run(ctx, &p.Buffers) }

// wholeFlops is the work below which many products are computed faster side by side,
// each by one thread, than one by one by all of them.
const wholeFlops = 20e6

// RunBatch computes all products. The first error ends it; it names the product.
//
// Equal products on a GPU are one launch. Of the others small ones are given to the threads
// whole, and the rest follow one by one, each on all threads.
func RunBatch(ctx context.Context, batch []Product) error {
	if err := checkApart(batch); err != nil {
		return err
	}
	errs := make([]error, len(batch))
	run := func(i int) { errs[i] = batch[i].Run(ctx) }
	many, rest := onGPUs(batch)
	for _, t := range many {
		switch handled, err := t.run(ctx, batch); {
		case err != nil:
			return err
		case !handled:
			rest = append(rest, t.members...)
		}
	}
	var small, large []int
	for _, i := range rest {
		if p := &batch[i]; p.gpu == nil && p.Problem.Flops() < wholeFlops {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	if len(small) == 1 {
		small, large = nil, append(large, small...)
	}
	if len(small) > 0 {
		threads := batch[small[0]].Request.Threads
		if err := cpu.ParallelFor(ctx, len(small), threads, func(i int) {
			p := &batch[small[i]].cpu
			shared := p.Threads
			p.Threads = 1
			run(small[i])
			p.Threads = shared
		}); err != nil {
			return err
		}
	}
	for _, i := range large {
		if run(i); errs[i] != nil {
			break
		}
	}
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("product %d of the batch: %w", i, err)
		}
	}
	return nil
}

// checkApart refuses a batch in which a result shares memory with another
// result, or with what another product reads. It sorts all matrices by address
// and compares each with those that start before it ends.
func checkApart(batch []Product) error {
	type extent struct {
		start, end uintptr
		product    int
		operand    gemm.Operand
		layout     gemm.Layout
		mem        []byte
	}
	var all []extent
	for i := range batch {
		p := &batch[i]
		for o := range gemm.Operands {
			m := extent{product: i, operand: o, layout: p.Problem.Layout(o), mem: p.Buffers[o]}
			if m.start, m.end = gemm.Extent(m.layout, m.mem); m.end > m.start {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b extent) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	for i, a := range all {
		for _, b := range all[i+1:] {
			if b.start >= a.end {
				break
			}
			if (a.operand == gemm.C || b.operand == gemm.C) && a.product != b.product && gemm.Overlap(a.layout, a.mem, b.layout, b.mem) {
				return fmt.Errorf("%w: %s of product %d shares memory with %s of product %d", gemm.ErrOverlap, a.operand.Phrase(), a.product, b.operand.Phrase(), b.product)
			}
		}
	}
	return nil
}

// together are products of a batch that a GPU computes in one launch.
type together struct {
	alike
	members []int
}

// alike is what products have in common that are computed in one launch.
type alike struct {
	problem gemm.Problem
	backend *stream.Backend
	kernel  string
	bias    *byte
}

// onGPUs finds the products that GPUs compute together: equal ones, of which nothing else is
// asked.
func onGPUs(batch []Product) (all []*together, rest []int) {
	found := map[alike]*together{}
	for i := range batch {
		p := &batch[i]
		if p.gpu == nil || p.Verify {
			rest = append(rest, i)
			continue
		}
		key := alike{p.Problem, p.gpu.Backend(), p.Request.Kernel, unsafe.SliceData(p.Buffers[gemm.Bias])}
		if found[key] == nil {
			found[key] = &together{alike: key}
			all = append(all, found[key])
		}
		found[key].members = append(found[key].members, i)
	}
	return all, rest
}

// run computes the products; handled is false where no kernel computes such a batch, or where
// there is but one.
func (t *together) run(ctx context.Context, batch []Product) (handled bool, err error) {
	if len(t.members) == 1 {
		return false, nil
	}
	buffers := make([]gemm.Buffers, len(t.members))
	for n, i := range t.members {
		buffers[n] = batch[i].Buffers
		if err := batch[i].check(&buffers[n]); err != nil {
			return true, fmt.Errorf("product %d of the batch: %w", i, err)
		}
	}
	err = t.backend.RunBatch(ctx, &t.problem, GPUOptions(t.kernel), buffers)
	if errors.Is(err, gemm.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%d products of the batch, the first of which is number %d: %w", len(t.members), t.members[0], err)
	}
	return true, err
}

// RunGroups computes a product whose rows are in groups, each with a B of its own, in one
// launch, where the plan's GPU has a kernel for it; handled is false elsewhere. p's own B is the
// first group's, and has the layout of all.
func RunGroups(ctx context.Context, p *Product, bs [][]byte, ends []int32) (handled bool, err error) {
	if p.gpu == nil || p.Verify || p.Problem.A().Trans {
		return false, nil
	}
	for _, b := range bs {
		m := p.Buffers
		m[gemm.B] = b
		if err := p.check(&m); err != nil {
			return true, err
		}
	}
	err = p.gpu.Backend().RunGroups(ctx, &p.Problem, GPUOptions(p.Request.Kernel), p.Buffers, bs, ends)
	return !errors.Is(err, gemm.ErrUnsupported), err
}
