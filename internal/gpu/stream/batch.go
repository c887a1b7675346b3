package stream

import (
	"context"
	"errors"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// hostBatch is a batch of matrices on the host, each in memory of its own.
type hostBatch struct {
	backend *Backend
	plan    *exec.Plan
	layouts [3]gemm.Layout // of A, B and C on the host
	// matrices are all of A, of B and of C; one where the products share it, or where it has
	// the rows of all groups.
	matrices [3][][]byte
	bias     []byte
	ends     []int32
}

// RunBatch computes p on matrices of the host, for each of the buffers, in one launch or,
// where the device lacks the memory for all, in several. All have the bias of the first. The
// errors are those of [Plan.Run], and ErrUnsupported where no kernel takes such a batch.
func (b *Backend) RunBatch(ctx context.Context, p *gemm.Problem, opt exec.Options, all []gemm.Buffers) error {
	if len(all) == 0 {
		return ctx.Err()
	}
	x := &hostBatch{backend: b, layouts: [3]gemm.Layout{p.A, p.B, p.C}, bias: all[0].Bias}
	for i := range all {
		for operand, m := range [][]byte{all[i].A, all[i].B, all[i].C} {
			x.matrices[operand] = append(x.matrices[operand], m)
		}
	}
	var strides [3]int
	for operand, list := range x.matrices {
		if operand != kernel.InC && same(list) {
			x.matrices[operand] = list[:1]
			continue
		}
		l := kernel.Padded(x.layouts[operand])
		strides[operand] = l.Rows * l.LD
	}
	q := exec.OnDevice(p, false)
	q, err := q.Strided(len(all), gemm.Batch{A: strides[kernel.InA], B: strides[kernel.InB], C: strides[kernel.InC]})
	if err != nil {
		return err
	}
	err = x.run(ctx, &q, opt)
	if n := len(all) / 2; n > 0 && errors.Is(err, device.ErrOutOfMemory) {
		if err := b.RunBatch(ctx, p, opt, all[:n]); err != nil {
			return err
		}
		return b.RunBatch(ctx, p, opt, all[n:])
	}
	return exec.Sentinel(err)
}

// RunGroups computes p, whose M counts the rows of all groups, on matrices of the host, with
// a B for each group, whose rows end where ends says. The errors are those of RunBatch.
func (b *Backend) RunGroups(ctx context.Context, p *gemm.Problem, opt exec.Options, m gemm.Buffers, bs [][]byte, ends []int32) error {
	x := &hostBatch{backend: b, layouts: [3]gemm.Layout{p.A, p.B, p.C}, matrices: [3][][]byte{{m.A}, bs, {m.C}}, bias: m.Bias, ends: ends}
	l := kernel.Padded(p.B)
	q := exec.OnDevice(p, false)
	q, err := q.Grouped(len(ends), l.Rows*l.LD)
	if err != nil {
		return err
	}
	return exec.Sentinel(x.run(ctx, &q, opt))
}

// same says that matrices are all in the same memory.
func same(list [][]byte) bool {
	for _, m := range list {
		if len(m) == 0 || &m[0] != &list[0][0] {
			return false
		}
	}
	return true
}

// run has p computed, which has the layouts and distances of the matrices on the device.
func (x *hostBatch) run(ctx context.Context, p *gemm.Problem, opt exec.Options) (err error) {
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
	d := x.backend.Device
	var m kernel.Memory
	defer func() {
		for _, at := range []device.Ptr{m.A, m.B, m.C, m.Bias, m.Ends} {
			err = device.Join(err, d.Free(at))
		}
	}()
	bytes := p.Bytes()
	for _, y := range []struct {
		to   *device.Ptr
		size int
	}{{&m.A, bytes[kernel.InA]}, {&m.B, bytes[kernel.InB]}, {&m.C, bytes[kernel.InC]}, {&m.Bias, p.BiasLen() * p.C.Type.Size()}, {&m.Ends, len(x.ends) * 4}} {
		if y.size > 0 {
			if *y.to, err = d.Alloc(y.size); err != nil {
				return err
			}
		}
	}
	for operand, at := range []device.Ptr{m.A, m.B, m.C} {
		if operand == kernel.InC && p.Beta == 0 || operand != kernel.InC && !p.ReadsAB() {
			continue
		}
		if err := x.upload(ctx, operand, at); err != nil {
			return err
		}
	}
	for _, y := range []struct {
		at   device.Ptr
		from []byte
	}{{m.Bias, x.bias}, {m.Ends, dtype.Bytes(x.ends)}} {
		if y.at != 0 {
			if err := d.CopyIn(ctx, y.at, y.from, device.Whole(len(y.from))); err != nil {
				return err
			}
		}
	}
	if err := x.plan.Enqueue(ctx, m); err != nil {
		return err
	}
	return x.download(ctx, m.C)
}

// gathered is how many bytes of small matrices go together in one copy.
const gathered = 4 << 20

// pieces calls f for the matrices of an operand, which begin at an address on the device, as
// many at a time as are worth a copy.
func (x *hostBatch) pieces(operand int, at device.Ptr, f func(list [][]byte, at device.Ptr) error) error {
	l := kernel.Padded(x.layouts[operand])
	size := l.Rows * l.LD * l.Type.Size()
	each := max(1, gathered/size)
	for list := x.matrices[operand]; len(list) > 0; {
		n := min(each, len(list))
		if err := f(list[:n], at); err != nil {
			return err
		}
		list, at = list[n:], at+device.Ptr(n*size)
	}
	return nil
}

func (x *hostBatch) upload(ctx context.Context, operand int, at device.Ptr) error {
	host := x.layouts[operand]
	there := kernel.Padded(host)
	return x.pieces(operand, at, func(list [][]byte, at device.Ptr) error {
		if len(list) == 1 {
			return x.backend.Device.CopyIn(ctx, at, list[0], exec.Rows(host, there))
		}
		together := make([]byte, stacked(there, len(list)))
		eachRow(list, host, there, func(row, place int, m []byte) { copy(together[place:], m[row:][:host.Cols*host.Type.Size()]) })
		return x.backend.Device.CopyIn(ctx, at, together, device.Whole(len(together)))
	})
}

func (x *hostBatch) download(ctx context.Context, at device.Ptr) error {
	host := x.layouts[kernel.InC]
	there := kernel.Padded(host)
	return x.pieces(kernel.InC, at, func(list [][]byte, at device.Ptr) error {
		if len(list) == 1 {
			return x.backend.Device.CopyOut(ctx, list[0], at, exec.Rows(host, there))
		}
		together := make([]byte, stacked(there, len(list)))
		if err := x.backend.Device.CopyOut(ctx, together, at, device.Whole(len(together))); err != nil {
			return err
		}
		eachRow(list, host, there, func(row, place int, m []byte) { copy(m[row:][:host.Cols*host.Type.Size()], together[place:]) })
		return nil
	})
}

// stacked is the bytes of n matrices, one behind the other; behind the last row is nothing.
func stacked(l gemm.Layout, n int) int { return (n-1)*l.Rows*l.LD*l.Type.Size() + l.Bytes() }

// eachRow calls f for each row of matrices: where it is in its own memory, and where in memory
// that has all of them.
func eachRow(list [][]byte, host, there gemm.Layout, f func(row, place int, m []byte)) {
	size := host.Type.Size()
	for n, m := range list {
		for i := range host.Rows {
			f(i*host.LD*size, (n*there.Rows+i)*there.LD*size, m)
		}
	}
}
