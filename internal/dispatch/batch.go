package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
)

// Product is a plan and the memory to run it on.
type Product struct {
	Plan
	Buffers gemm.Buffers
}

// Run computes the product; see [Plan.Run].
func (p *Product) Run(ctx context.Context) error { return p.Plan.Run(ctx, &p.Buffers) }

// Reset makes p zero, except for memory that [Plan.Decide] uses again.
func (p *Product) Reset() {
	plan := p.plan
	*p = Product{}
	if r, ok := plan.(backend.ReusablePlan); ok {
		r.Reset()
		p.plan = plan
	}
}

// maxSerialFlops is the work below which the products of a batch are faster side by side, each on
// one thread, than one after the other on all threads.
const maxSerialFlops = 20e6

// RunBatch computes all products. Equal products on a GPU are one launch. Of the others, small ones
// run side by side and the rest one after the other. RunBatch checks all products before it runs
// one. It stops at the first error, which contains the index of its product.
func RunBatch(ctx context.Context, batch []Product) error {
	if err := checkBatch(batch); err != nil {
		return err
	}
	sets, rest := equalProducts(batch)
	for _, s := range sets {
		switch handled, err := s.run(ctx, batch); {
		case err != nil:
			return err
		case !handled:
			rest = append(rest, s.members...)
		}
	}
	var small, large []int
	for _, i := range rest {
		if p := &batch[i]; p.canRunSerial() && p.Problem.Flops() < maxSerialFlops {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	if len(small) == 1 {
		small, large = nil, append(large, small...)
	}
	if len(small) > 0 {
		if err := runSideBySide(ctx, batch, small); err != nil {
			return err
		}
	}
	for _, i := range large {
		if err := batch[i].Run(ctx); err != nil {
			return ofBatch(i, err)
		}
	}
	return nil
}

// runSideBySide computes the products of a batch with the given indices, each on one goroutine. The
// first error cancels the others.
func runSideBySide(ctx context.Context, batch []Product, indices []int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var once sync.Once
	var first error
	err := cpu.ParallelFor(ctx, len(indices), batch[indices[0]].Request.Threads, func(n int) {
		i := indices[n]
		batch[i].serial = true
		err := batch[i].Run(ctx)
		batch[i].serial = false
		if err != nil {
			once.Do(func() { first = ofBatch(i, err) })
			cancel()
		}
	})
	if first != nil {
		return first
	}
	return err
}

// Division describes the division of a batch of equal products among devices, in words. It is empty
// for other batches, and where one device computes all.
func Division(batch []Product) string {
	sets, rest := equalProducts(batch)
	if len(sets) != 1 || len(rest) > 0 {
		return ""
	}
	d, ok := sets[0].BatchRunner.(backend.BatchDivider)
	if !ok {
		return ""
	}
	return d.Division(len(batch))
}

// canRunSerial reports whether the plan can run on one goroutine.
func (pl *Plan) canRunSerial() bool {
	_, ok := pl.plan.(backend.SerialRunner)
	return ok
}

// checkBatch returns the error of the first product whose buffers do not fit. It also refuses a
// batch in which C of a product shares memory with a matrix of another product.
func checkBatch(batch []Product) error {
	var all []gemm.Region
	for i := range batch {
		p := &batch[i]
		if err := p.check(&p.Buffers); err != nil {
			return ofBatch(i, err)
		}
		for o := range gemm.Operands {
			if p.Problem.Uses(o) {
				all = append(all, gemm.Region{ID: i*int(gemm.Operands) + int(o), Layout: p.Problem.Layout(o),
					Memory: unsafe.SliceData(p.Buffers[o]), Written: o == gemm.C})
			}
		}
	}
	name := func(id int) string {
		return fmt.Sprintf("%s of product %d", gemm.Operand(id%int(gemm.Operands)).Phrase(), id/int(gemm.Operands))
	}
	if first, second, found := gemm.FindOverlap(all); found {
		return fmt.Errorf("%w: %s shares memory with %s", gemm.ErrOverlap, name(first), name(second))
	}
	return nil
}

// ofBatch adds the index of a product to its error.
func ofBatch(i int, err error) error { return fmt.Errorf("product %d of the batch: %w", i, err) }

// productSet is a set of equal products that one plan can compute together.
type productSet struct {
	backend.BatchRunner // the plan of the first member
	kernel              string
	members             []int
}

// setKey is equal for products that can be computed together.
type setKey struct {
	problem gemm.Problem
	backend backend.Backend
	kernel  string
	bias    *byte
}

// equalProducts divides a batch into sets of products that backends can compute together, and the
// rest. Verified products belong to the rest.
func equalProducts(batch []Product) (sets []*productSet, rest []int) {
	found := map[setKey]*productSet{}
	for i := range batch {
		p := &batch[i]
		runner, ok := p.plan.(backend.BatchRunner)
		if !ok || p.Verify {
			rest = append(rest, i)
			continue
		}
		key := setKey{p.Problem, p.on.Backend, p.Request.Kernel, unsafe.SliceData(p.Buffers[gemm.Bias])}
		s := found[key] // nil for every product with a NaN factor, which equals no other
		if s == nil {
			s = &productSet{BatchRunner: runner, kernel: key.kernel}
			found[key] = s
			sets = append(sets, s)
		}
		s.members = append(s.members, i)
	}
	return sets, rest
}

// run computes the products. handled is false if there is only one, or if no kernel computes such a
// batch.
func (s *productSet) run(ctx context.Context, batch []Product) (handled bool, err error) {
	if len(s.members) == 1 {
		return false, nil
	}
	buffers := make([]gemm.Buffers, len(s.members))
	for n, i := range s.members {
		buffers[n] = batch[i].Buffers
	}
	err = s.RunBatch(ctx, s.kernel, buffers)
	if errors.Is(err, gemm.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%d products of the batch, the first of which is number %d: %w", len(s.members),
			s.members[0], err)
	}
	return true, err
}

// RunGroups computes a product with a B for each of several groups of rows; see
// [backend.GroupRunner]. The B of p is that of the first group, and all have its layout. handled is
// false if the backend cannot compute such groups together.
func RunGroups(ctx context.Context, p *Product, bs [][]byte, ends []int32) (handled bool, err error) {
	runner, ok := p.plan.(backend.GroupRunner)
	if !ok || p.Verify || p.Problem.A().Trans {
		return false, nil
	}
	for _, b := range bs {
		m := p.Buffers
		m[gemm.B] = b
		if err := p.check(&m); err != nil {
			return true, err
		}
	}
	err = runner.RunGroups(ctx, p.Request.Kernel, &p.Buffers, bs, ends)
	return !errors.Is(err, gemm.ErrUnsupported), err
}
