package dispatch

import (
	"context"
	"fmt"
	"slices"

	"tilework/internal/cpu"
	"tilework/internal/gemm"
)

// Product is one product of a batch: a plan and the memory to run it on.
type Product struct {
	Plan
	Buffers gemm.Buffers
}

// wholeFlops is the work below which many products are computed faster side by side,
// each by one thread, than one by one by all of them.
const wholeFlops = 20e6

// RunBatch computes all products. The first error ends it; it names the product.
//
// Small products are given to the threads whole; the others follow one by one, each on
// all threads.
func RunBatch(ctx context.Context, batch []Product) error {
	if err := checkApart(batch); err != nil {
		return err
	}
	errs := make([]error, len(batch))
	run := func(i int) { errs[i] = batch[i].Run(ctx, batch[i].Buffers) }
	var small, large []int
	for i := range batch {
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
		if err := cpu.Share(ctx, len(small), threads, func(i int) {
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
		what       string
		layout     gemm.Layout
		mem        []byte
	}
	var all []extent
	for i := range batch {
		p := &batch[i]
		operands := []extent{
			{what: "C", layout: p.Problem.C, mem: p.Buffers.C},
			{what: "A", layout: p.Problem.A, mem: p.Buffers.A},
			{what: "B", layout: p.Problem.B, mem: p.Buffers.B},
			{what: "the bias", layout: gemm.Dense(p.Problem.C.Type, 1, p.Problem.BiasLen()), mem: p.Buffers.Bias},
		}
		for x := range gemm.Extra(gemm.Extras) {
			operands = append(operands, extent{what: "the " + x.String(), layout: p.Problem.Extra(x), mem: p.Buffers.Extras[x]})
		}
		for _, m := range operands {
			if m.start, m.end = gemm.Extent(m.layout, m.mem); m.end > m.start {
				m.product = i
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
			if (a.what == "C" || b.what == "C") && a.product != b.product && gemm.Overlap(a.layout, a.mem, b.layout, b.mem) {
				return fmt.Errorf("%w: %s of product %d shares memory with %s of product %d", gemm.ErrOverlap, a.what, a.product, b.what, b.product)
			}
		}
	}
	return nil
}
