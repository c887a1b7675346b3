package stream

import (
	"context"
	"errors"
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/program"
)

// BatchPlan is the plan of a batch of matrices in host memory: the kernel and the tile with which
// all of its parts are computed, so that their bits depend neither on the part nor on the memory.
type BatchPlan struct {
	*exec.Plan
	on *Backend
}

// PlanBatch plans a batch of products p of the buffers. The error is ErrUnsupported if no kernel
// supports it.
func (b *Backend) PlanBatch(p *gemm.Problem, opt exec.Options, all []gemm.Buffers) (*BatchPlan, error) {
	x, err := b.hostBatch(p, all)
	return b.planBatch(&x.problem, opt, err)
}

// PlanGroups is PlanBatch for p in groups of rows, with a B for each of count groups.
func (b *Backend) PlanGroups(p *gemm.Problem, opt exec.Options, count int) (*BatchPlan, error) {
	q, err := grouped(p, count)
	return b.planBatch(&q, opt, err)
}

func (b *Backend) planBatch(q *gemm.Problem, opt exec.Options, err error) (*BatchPlan, error) {
	if err != nil {
		return nil, err
	}
	opt.KeepLayout = true
	pl, err := b.Backend.Plan(q, opt)
	return &BatchPlan{pl, b}, err
}

// On returns the plan on another device, with the same bits; see [exec.Plan.On].
func (pl *BatchPlan) On(b *Backend) (*BatchPlan, error) {
	other, err := pl.Plan.On(b.Backend)
	return &BatchPlan{other, b}, err
}

// options returns the options for parts of the batch.
func (pl *BatchPlan) options() exec.Options {
	return exec.Options{Kernel: pl.Kernel.Name, Tile: pl.Config.Tile.String()}
}

// hostBatch is a batch of matrices in host memory, each with its own memory.
type hostBatch struct {
	backend *Backend
	problem gemm.Problem // with the layouts and strides of the matrices on the device
	plan    *exec.Plan
	layouts gemm.Layouts // on the host
	// matrices holds all matrices A, B and C. A matrix that the products share, or that holds the rows
	// of all groups, occurs once.
	matrices [gemm.C + 1][][]byte
	bias     []byte
	ends     []int32
	memory   [gemm.Operands + 1]device.Ptr // of the operands on the device, and scratch memory
}

// hostBatch returns the batch of products p of the buffers.
func (b *Backend) hostBatch(p *gemm.Problem, all []gemm.Buffers) (_ *hostBatch, err error) {
	x := &hostBatch{backend: b, layouts: p.Layouts, bias: all[0][gemm.Bias]}
	for i := range all {
		for o := range gemm.C + 1 {
			x.matrices[o] = append(x.matrices[o], all[i][o])
		}
	}
	var batch gemm.Batch
	for o := range gemm.C + 1 {
		if list := x.matrices[o]; o != gemm.C && same(list) {
			x.matrices[o] = list[:1]
			continue
		}
		l := gemm.Padded(x.layouts[o])
		batch.Stride[o] = l.Rows * l.LD
	}
	q := exec.OnDevice(p, false)
	x.problem, err = q.Strided(len(all), batch)
	return x, err
}

// RunBatch computes p for each of the buffers, in one launch or in several if the device has too
// little memory for all, or limit bytes are too few. All products have the bias of the first. The
// errors are those of [Plan.Run], and ErrUnsupported if no kernel supports the batch.
func (b *Backend) RunBatch(ctx context.Context, p *gemm.Problem, opt exec.Options, limit int,
	all []gemm.Buffers) error {
	if len(all) == 0 {
		return ctx.Err()
	}
	pl, err := b.PlanBatch(p, opt, all)
	if err != nil {
		return err
	}
	return pl.Run(ctx, p, limit, all)
}

// Run computes p for each of the buffers, which are some of those of the plan; see
// [Backend.RunBatch].
func (pl *BatchPlan) Run(ctx context.Context, p *gemm.Problem, limit int, all []gemm.Buffers) error {
	for n := len(all); len(all) > 0; all = all[n:] {
		var x *hostBatch
		var err error
		n, err = program.Reserve(min(n, len(all)), func(n int) (err error) {
			if x, err = pl.on.hostBatch(p, all[:n]); err == nil {
				err = x.reserve(ctx, pl.options(), limit)
			}
			return err
		}, func(int) error { return x.free() }, func(n int) (int, bool) { return n / 2, n > 1 })
		switch {
		case err == nil:
			err = x.run(ctx)
		case errors.Is(err, device.ErrOutOfMemory): // of one product, which has several steps then
			var one *Plan
			if one, err = pl.on.Plan(p, pl.options()); err == nil {
				one.Limit = limit
				err = one.Run(ctx, all[0])
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RunGroups computes p for groups of rows, with a B for each group. p.M is the number of rows of
// all groups, and ends holds the row after each group. The errors are those of RunBatch, and
// ErrUnsupported if the matrices need more than limit bytes.
func (b *Backend) RunGroups(ctx context.Context, p *gemm.Problem, opt exec.Options, limit int, m gemm.Buffers,
	bs [][]byte, ends []int32) error {
	pl, err := b.PlanGroups(p, opt, len(ends))
	if err != nil {
		return err
	}
	return pl.RunGroups(ctx, p, limit, m, bs, ends)
}

// grouped returns p in groups of rows on the device.
func grouped(p *gemm.Problem, count int) (gemm.Problem, error) {
	l := gemm.Padded(p.Layouts[gemm.B])
	q := exec.OnDevice(p, false)
	return q.Grouped(count, l.Rows*l.LD)
}

// RunGroups computes groups of the plan, whose rows are those of p; see [Backend.RunGroups].
func (pl *BatchPlan) RunGroups(ctx context.Context, p *gemm.Problem, limit int, m gemm.Buffers, bs [][]byte,
	ends []int32) error {
	q, err := grouped(p, len(ends))
	if err != nil {
		return err
	}
	x := &hostBatch{backend: pl.on, problem: q, layouts: p.Layouts, bias: m[gemm.Bias], ends: ends,
		matrices: [...][][]byte{{m[gemm.A]}, bs, {m[gemm.C]}}}
	if err := x.reserve(ctx, pl.options(), limit); err != nil {
		if errors.Is(err, errLimit) {
			err = fmt.Errorf("%w: %w", gemm.ErrUnsupported, err)
		}
		return device.Join(err, x.free())
	}
	return x.run(ctx)
}

// errLimit reports that matrices need more memory than the limit allows.
var errLimit = fmt.Errorf("%w: the limit is too low for all products at once", device.ErrOutOfMemory)

// same reports whether all matrices are in the same memory.
func same(list [][]byte) bool {
	for _, m := range list {
		if len(m) == 0 || &m[0] != &list[0][0] {
			return false
		}
	}
	return true
}

// reserve plans and compiles the batch, and allocates its memory, in at most limit bytes unless
// limit is 0. The caller frees the memory, also after an error.
func (x *hostBatch) reserve(ctx context.Context, opt exec.Options, limit int) (err error) {
	p := &x.problem
	if err := ctx.Err(); err != nil || p.Empty() {
		return err
	}
	opt.KeepLayout = true
	if x.plan, err = x.backend.Backend.Plan(p, opt); err != nil {
		return err
	}
	if err := x.plan.Compile(ctx); err != nil {
		return err
	}
	sizes, total := p.Bytes(), x.plan.ScratchBytes()
	for _, n := range sizes {
		total += n
	}
	if limit > 0 && total > limit {
		return errLimit
	}
	for i, n := range append(sizes[:], x.plan.ScratchBytes()) {
		if n > 0 {
			if x.memory[i], err = x.backend.Device.Alloc(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// free frees the memory of the batch.
func (x *hostBatch) free() (err error) {
	for _, at := range x.memory {
		err = device.Join(err, x.backend.Device.Free(at))
	}
	return err
}

// run computes the batch in its memory, and frees the memory.
func (x *hostBatch) run(ctx context.Context) (err error) {
	p, d, m := &x.problem, x.backend.Device, kernel.Memory(x.memory[:gemm.Operands])
	if p.Empty() {
		return nil
	}
	defer func() { err = device.Join(err, x.free()) }()
	for o := range gemm.C + 1 {
		if o == gemm.C && p.Beta == 0 || o != gemm.C && !p.ReadsAB() {
			continue
		}
		if err := x.upload(ctx, o, m[o]); err != nil {
			return err
		}
	}
	for o, from := range map[gemm.Operand][]byte{gemm.Bias: x.bias, gemm.GroupEnds: dtype.Bytes(x.ends)} {
		if m[o] != 0 {
			// A part of a batch needs a part of a longer bias.
			if err := d.CopyIn(ctx, m[o], from, device.Whole(p.Bytes()[o])); err != nil {
				return err
			}
		}
	}
	if err := x.plan.In(d, x.memory[gemm.Operands]).Enqueue(ctx, m); err != nil {
		return err
	}
	return x.download(ctx, m[gemm.C])
}

// gathered is the number of bytes of small matrices that one copy transfers together.
const gathered = 4 << 20

// pieces calls f for the matrices of an operand, which begin at an address on the device, with as
// many matrices at a time as fit gathered bytes.
func (x *hostBatch) pieces(o gemm.Operand, at device.Ptr, f func(list [][]byte, at device.Ptr) error) error {
	l := gemm.Padded(x.layouts[o])
	size := l.Type.Bytes(l.Rows * l.LD)
	each := max(1, gathered/size)
	for list := x.matrices[o]; len(list) > 0; {
		n := min(each, len(list))
		if err := f(list[:n], at); err != nil {
			return err
		}
		list, at = list[n:], at+device.Ptr(n*size)
	}
	return nil
}

func (x *hostBatch) upload(ctx context.Context, o gemm.Operand, at device.Ptr) error {
	host := x.layouts[o]
	there := gemm.Padded(host)
	return x.pieces(o, at, func(list [][]byte, at device.Ptr) error {
		if len(list) == 1 {
			return x.backend.Device.CopyIn(ctx, at, list[0], exec.Rows(host, there))
		}
		together := make([]byte, stacked(there, len(list)))
		eachRow(list, host, there, func(row, place int,
			m []byte) {
			copy(together[place:], m[row:][:host.Type.Bytes(host.Cols)])
		})
		return x.backend.Device.CopyIn(ctx, at, together, device.Whole(len(together)))
	})
}

func (x *hostBatch) download(ctx context.Context, at device.Ptr) error {
	host := x.layouts[gemm.C]
	there := gemm.Padded(host)
	return x.pieces(gemm.C, at, func(list [][]byte, at device.Ptr) error {
		if len(list) == 1 {
			return x.backend.Device.CopyOut(ctx, list[0], at, exec.Rows(host, there))
		}
		together := make([]byte, stacked(there, len(list)))
		if err := x.backend.Device.CopyOut(ctx, together, at, device.Whole(len(together))); err != nil {
			return err
		}
		eachRow(list, host, there, func(row, place int, m []byte) {
			copy(m[row:][:host.Type.Bytes(host.Cols)],
				together[place:])
		})
		return nil
	})
}

// stacked returns the bytes of n contiguous matrices, without padding after the last row.
func stacked(l gemm.Layout, n int) int { return l.Type.Bytes((n-1)*l.Rows*l.LD) + l.Bytes() }

// eachRow calls f for each row of matrices, with its offset in its own memory and in the memory of
// all of them.
func eachRow(list [][]byte, host, there gemm.Layout, f func(row, place int, m []byte)) {
	t := host.Type
	for n, m := range list {
		for i := range host.Rows {
			f(t.Bytes(i*host.LD), t.Bytes((n*there.Rows+i)*there.LD), m)
		}
	}
}
