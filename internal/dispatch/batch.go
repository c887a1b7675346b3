package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
)

// Job is a product, its plan and the memory to run it on.
type Job struct {
	Plan
	Buffers gemm.Buffers
}

// Run computes the product; see [Plan.Run].
func (p *Job) Run(ctx context.Context) error { return p.Plan.Run(ctx, &p.Buffers) }

// Reset makes p zero, except for memory that [Plan.Decide] uses again.
func (p *Job) Reset() {
	plan := p.plan
	*p = Job{}
	if plan != nil {
		p.plan = plan.Reset()
	}
}

// Member is a product of a batch: that of a plan with other memory for A, B and C. Many members may
// have the same plan, unless it verifies, is timed or calls a function for each tile.
type Member struct {
	Product *Job
	A, B, C []byte
}

// buffers sets b to the memory of the product.
func (m *Member) buffers(b *gemm.Buffers) {
	*b = m.Product.Buffers
	b[gemm.A], b[gemm.B], b[gemm.C] = m.A, m.B, m.C
}

// maxSerialFlops is the work below which the products of a batch are faster side by side, each on
// one thread, than one after the other on all threads. unknownRate is the number of operations in a
// nanosecond of a product whose time is not predicted, such as one by a kernel in Go.
const (
	maxSerialFlops = 20e6
	unknownRate    = 2
)

// isSmall reports whether the product is one of those that run side by side.
func (m *Member) isSmall() bool {
	return m.Product.plan.Workers() > 0 && m.Product.Problem.Flops() < maxSerialFlops
}

// RunBatch computes all products; see [RunMembers].
func RunBatch(ctx context.Context, batch []Job) error { return RunMembers(ctx, membersOf(batch)) }

// membersOf returns the products of plans with their own memory.
func membersOf(batch []Job) []Member {
	all := make([]Member, len(batch))
	for i := range batch {
		b := &batch[i].Buffers
		all[i] = Member{&batch[i], b[gemm.A], b[gemm.B], b[gemm.C]}
	}
	return all
}

// RunMembers computes all products. Equal products on a GPU are one launch. Of the others, small
// ones run side by side and the rest one after the other. RunMembers checks all products before it
// runs one. It stops at the first error, which contains the index of its product. It allocates no
// memory per product, if the plans are for the CPU and do not verify.
func RunMembers(ctx context.Context, batch []Member) error {
	if err := checkBatch(batch); err != nil {
		return err
	}
	done, err := runSets(ctx, batch)
	if err != nil {
		return err
	}
	s := smallProducts{batch: batch, done: done}
	small, work := s.count()
	if small > 1 {
		if err := s.run(ctx, work, cpu.ThreadsFor(work, batch[0].Product.Request.Threads)); err != nil {
			return err
		}
	}
	if small == len(batch) && small > 1 {
		return nil
	}
	var b gemm.Buffers
	for i := range batch {
		m := &batch[i]
		if done != nil && done[i] || small > 1 && m.isSmall() {
			continue
		}
		m.buffers(&b)
		if err := m.Product.Plan.Run(ctx, &b); err != nil {
			return ofBatch(i, err)
		}
	}
	return nil
}

// runSets computes the sets of equal products for which a backend has a launch. It returns which
// products are done, or nil if none is.
func runSets(ctx context.Context, batch []Member) (done []bool, err error) {
	for _, s := range equalProducts(batch) {
		handled, err := s.run(ctx, batch)
		if err != nil {
			return nil, err
		}
		if !handled {
			continue
		}
		if done == nil {
			done = make([]bool, len(batch))
		}
		for _, i := range s.members {
			done[i] = true
		}
	}
	return done, nil
}

// smallProducts are the small ones of the products that are not done, which run side by side.
type smallProducts struct {
	batch []Member
	done  []bool // nil if none is
	once  sync.Once
	first error
}

// all calls f with each small product from start to end until it returns an error. isNew reports
// whether the product has another plan than the one before.
func (s *smallProducts) all(start, end int, f func(i int, m *Member, isNew bool) error) error {
	var last *Job
	small := false
	for i := start; i < end; i++ {
		if s.done != nil && s.done[i] {
			continue
		}
		m := &s.batch[i]
		isNew := m.Product != last
		if isNew {
			last, small = m.Product, m.isSmall()
		}
		if small {
			if err := f(i, m, isNew); err != nil {
				return err
			}
		}
	}
	return nil
}

// count returns the number of small products, and the time that one thread takes for them.
func (s *smallProducts) count() (n int, work time.Duration) {
	var each time.Duration
	s.all(0, len(s.batch), func(_ int, m *Member, isNew bool) error {
		if isNew {
			each = m.Product.plan.Predicted(1)
			if each == 0 {
				each = time.Duration(m.Product.Problem.Flops() / unknownRate)
			}
		}
		n++
		work += each
		return nil
	})
	return n, work
}

// run computes the products, which take one thread the given time, each on one goroutine. The first
// error cancels the others.
func (s *smallProducts) run(ctx context.Context, work time.Duration, threads int) error {
	if threads == 1 {
		return s.runPart(ctx, 0, len(s.batch))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := cpu.ParallelParts(ctx, len(s.batch), work, threads, func(start, end int) {
		if err := s.runPart(ctx, start, end); err != nil {
			s.once.Do(func() { s.first = err })
			cancel()
		}
	})
	if s.first != nil {
		return s.first
	}
	return err
}

// memories holds buffers for [smallProducts.runPart]: those of a running product escape to the
// heap.
var memories = sync.Pool{New: func() any { return new(gemm.Buffers) }}

// runPart computes the products from start to end.
func (s *smallProducts) runPart(ctx context.Context, start, end int) error {
	b := memories.Get().(*gemm.Buffers)
	defer func() {
		*b = gemm.Buffers{}
		memories.Put(b)
	}()
	return s.all(start, end, func(i int, m *Member, isNew bool) error {
		if isNew {
			m.buffers(b)
		} else {
			b[gemm.A], b[gemm.B], b[gemm.C] = m.A, m.B, m.C
		}
		if err := m.Product.runSerial(ctx, b); err != nil {
			return ofBatch(i, err)
		}
		return nil
	})
}

// runSerial computes a small product of a batch, whose buffers were checked, on the calling
// goroutine.
func (pl *Plan) runSerial(ctx context.Context, b *gemm.Buffers) error {
	if !pl.Verify && !pl.Timed {
		return pl.plan.RunSerial(ctx, b)
	}
	pl.serial = true
	defer func() { pl.serial = false }()
	return pl.Run(ctx, b)
}

// Division describes the division of a batch of equal products among devices, in words. It is empty
// for other batches, and where one device computes all.
func Division(batch []Member) string {
	sets := equalProducts(batch)
	if len(sets) != 1 || len(sets[0].members) < len(batch) {
		return ""
	}
	return sets[0].plan.Division(len(batch))
}

// ranges holds slices for [checkBatch].
var ranges = sync.Pool{New: func() any { return new([]gemm.Range) }}

// checkBatch returns the error of the first product whose buffers do not fit. It also refuses a
// batch in which C of a product shares memory with a matrix of another product.
func checkBatch(batch []Member) error {
	list := ranges.Get().(*[]gemm.Range)
	defer ranges.Put(list)
	all := (*list)[:0]
	var b gemm.Buffers
	var last *Job
	var size [gemm.C + 1]int // of A, B and C, in bytes
	fits := true
	for i := range batch {
		m := &batch[i]
		if m.Product != last {
			last = m.Product
			m.buffers(&b)
			for o := range gemm.Operands {
				if p := &last.Problem; o <= gemm.C {
					size[o] = p.Layouts[o].Bytes()
				} else if p.Uses(o) {
					l := p.Layout(o)
					all = append(all, gemm.RangeOf(b[o], l.Bytes(), false))
				}
			}
			fits = fits && last.check(&b) == nil
		}
		fits = fits && len(m.A) >= size[gemm.A] && len(m.B) >= size[gemm.B] && len(m.C) >= size[gemm.C]
		all = append(all, gemm.RangeOf(m.A, size[gemm.A], false), gemm.RangeOf(m.B, size[gemm.B], false),
			gemm.RangeOf(m.C, size[gemm.C], true))
	}
	n := len(all)
	all = slices.Grow(all, n)
	*list = all
	if fits && gemm.Disjoint(all, all[n:2*n]) {
		return nil
	}
	for i := range batch {
		batch[i].buffers(&b)
		if err := batch[i].Product.check(&b); err != nil {
			return ofBatch(i, err)
		}
	}
	return checkOverlap(batch)
}

// checkOverlap refuses a batch in which C of a product shares memory with a matrix of another one.
func checkOverlap(batch []Member) error {
	var all []gemm.Region
	var b gemm.Buffers
	for i := range batch {
		p := &batch[i].Product.Problem
		batch[i].buffers(&b)
		for o := range gemm.Operands {
			if p.Uses(o) {
				all = append(all, gemm.Region{ID: i*int(gemm.Operands) + int(o), Layout: p.Layout(o),
					Memory: unsafe.SliceData(b[o]), Written: o == gemm.C})
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
	plan    backend.Plan // of the first member
	kernel  string
	members []int
}

// setKey is equal for products that can be computed together.
type setKey struct {
	problem gemm.Problem
	backend backend.Backend
	kernel  string
	bias    *byte
}

// equalProducts returns the sets of products that backends can compute together. Verified products
// are in none.
func equalProducts(batch []Member) (sets []*productSet) {
	var found map[setKey]*productSet
	for i := range batch {
		p := batch[i].Product
		if !p.plan.CanRunBatch() || p.Verify {
			continue
		}
		key := setKey{p.Problem, p.on.Backend, p.Request.Kernel, unsafe.SliceData(p.Buffers[gemm.Bias])}
		s := found[key] // nil for every product with a NaN factor, which equals no other
		if s == nil {
			if found == nil {
				found = map[setKey]*productSet{}
			}
			s = &productSet{plan: p.plan, kernel: key.kernel}
			found[key] = s
			sets = append(sets, s)
		}
		s.members = append(s.members, i)
	}
	return sets
}

// run computes the products. handled is false if there is only one, or if no kernel computes such a
// batch.
func (s *productSet) run(ctx context.Context, batch []Member) (handled bool, err error) {
	if len(s.members) == 1 {
		return false, nil
	}
	buffers := make([]gemm.Buffers, len(s.members))
	for n, i := range s.members {
		batch[i].buffers(&buffers[n])
	}
	err = s.plan.RunBatch(ctx, s.kernel, buffers)
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
// [backend.Plan]. The B of p is that of the first group, and all have its layout. handled is
// false if the backend cannot compute such groups together.
func RunGroups(ctx context.Context, p *Job, bs [][]byte, ends []int32) (handled bool, err error) {
	if !p.plan.CanRunBatch() || p.Verify || p.Problem.A().Trans {
		return false, nil
	}
	for _, b := range bs {
		m := p.Buffers
		m[gemm.B] = b
		if err := p.check(&m); err != nil {
			return true, err
		}
	}
	err = p.plan.RunGroups(ctx, p.Request.Kernel, &p.Buffers, bs, ends)
	return !errors.Is(err, gemm.ErrUnsupported), err
}
