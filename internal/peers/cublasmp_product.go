package peers

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// MpProduct is a product whose matrices are divided among the GPUs: A by rows, B and C by columns.
// That is the library's AllGather+GEMM, which gathers A while it multiplies.
type MpProduct struct {
	library *CuBLASMp
	problem gemm.Problem
	parts   []*mpPart // of the ranks
	// alone is the reason why the library multiplies only after it has gathered A, or nil.
	alone error
}

// mpPart is the part of a product that a rank computes.
type mpPart struct {
	rank     int
	operands [gemm.C + 1]mpOperand
	desc     uintptr // cublasMpMatmulDescriptor_t
	// work and host are the workspaces in GPU memory and in host memory.
	work               uintptr
	host               []byte
	workSize, hostSize uintptr
	registered         bool    // whether the other ranks can access work
	alpha, beta        [8]byte // in the type of the sums
}

// mpOperand is the part of a matrix in the memory of a GPU, without padding.
type mpOperand struct {
	desc   uintptr // cublasMpMatrixDescriptor_t
	at     device.Ptr
	offset int         // of the part in host memory
	rows   device.Rows // to copy
}

// mpTypes lists the types of the matrices.
var mpTypes = []dtype.Type{dtype.F64, dtype.F32, dtype.F16, dtype.BF16}

// mpVector is the number of bytes whose multiples the rows and columns of each part must be.
const mpVector = 16

// checkSupported returns ErrUnsupported if cuBLASMp cannot express p, or may not finish it. Its
// AllGather+GEMM requires parts of the same size. Version 0.10 did not return from a product of
// 97×33·33×61 in bfloat16 on two GPUs, with A transposed.
func (l *CuBLASMp) checkSupported(p *gemm.Problem) error {
	if !slices.Contains(mpTypes, p.In()) || !hasUsualTypes(p) || p.Epilogue != (gemm.Epilogue{}) ||
		p.Precision != gemm.Native || p.Batch.Kind != gemm.Single || p.K < 1 || p.Empty() {
		return fmt.Errorf("%w: cublasmp: %v: want one product of float matrices, without an epilogue", gemm.ErrUnsupported,
			p)
	}
	unit := p.In().Elements(mpVector)
	if side := unit * len(l.ranks); p.M%side != 0 || p.N%side != 0 || p.K%unit != 0 {
		return fmt.Errorf("%w: cublasmp: %v on %d GPUs: want M and N that are multiples of %d, and K of %d",
			gemm.ErrUnsupported, p, len(l.ranks), side, unit)
	}
	return nil
}

// Prepare divides the matrices of p among the GPUs and copies A and B there.
func (l *CuBLASMp) Prepare(ctx context.Context, p *gemm.Problem, b *gemm.Buffers) (_ *MpProduct, err error) {
	if err := l.checkSupported(p); err != nil {
		return nil, err
	}
	if err := b.Check(p); err != nil {
		return nil, err
	}
	x := &MpProduct{library: l, problem: *p}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cublasmp: %w", device.Join(err, x.Close()))
		}
	}()
	for i := range l.ranks {
		part := &mpPart{rank: i}
		p.Accum().Set(part.alpha[:], 0, real(p.Alpha))
		p.Accum().Set(part.beta[:], 0, real(p.Beta))
		x.parts = append(x.parts, part)
	}
	for _, step := range []func(r *mpRank, part *mpPart) error{x.allocate, x.describe, x.reserve} {
		if err := x.each(ctx, step); err != nil {
			return nil, err
		}
	}
	if err := x.register(ctx); err != nil {
		return nil, err
	}
	return x, device.Join(x.copyIn(ctx, gemm.A, b[gemm.A]), x.copyIn(ctx, gemm.B, b[gemm.B]))
}

// each calls f for all ranks at the same time.
func (x *MpProduct) each(ctx context.Context, f func(r *mpRank, part *mpPart) error) error {
	return x.library.each(ctx, func(r *mpRank, _ uintptr) error {
		return f(r, x.parts[slices.Index(x.library.ranks, r)])
	})
}

// byRows reports whether the stored rows of an operand are divided, or its stored columns.
func (x *MpProduct) byRows(o gemm.Operand) bool {
	l := x.problem.Layout(o)
	return o == gemm.A && !l.Trans || o == gemm.B && l.Trans
}

// block returns the size of the blocks of the stored rows and columns of an operand.
func (x *MpProduct) block(o gemm.Operand) (rows, cols int) {
	p, n := &x.problem, len(x.library.ranks)
	switch o {
	case gemm.A:
		rows, cols = p.M/n, p.K
	case gemm.B:
		rows, cols = p.K, p.N/n
	case gemm.C:
		rows, cols = p.M/n, p.N/n
	}
	if p.Layout(o).Trans {
		rows, cols = cols, rows
	}
	return rows, cols
}

// allocate allocates the memory of the operands of a rank.
func (x *MpProduct) allocate(r *mpRank, part *mpPart) (err error) {
	for o := range part.operands {
		op, l := gemm.Operand(o), x.problem.Layout(gemm.Operand(o))
		m := &part.operands[o]
		rows, cols := x.block(op)
		if x.byRows(op) {
			m.offset, m.rows.Count, m.rows.Width = l.Type.Bytes(part.rank*rows*l.LD), rows, l.Type.Bytes(l.Cols)
		} else {
			m.offset, m.rows.Count, m.rows.Width = l.Type.Bytes(part.rank*cols), l.Rows, l.Type.Bytes(cols)
		}
		m.rows.HostPitch, m.rows.DevicePitch = l.Type.Bytes(l.LD), m.rows.Width
		if m.at, err = r.gpu.Alloc(m.rows.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// Attributes of a matmul descriptor, of the type cublasMpMatmulDescriptorAttribute_t.
const (
	mpTransA = 0
	mpTransB = 1
)

// describe creates the descriptors of a rank.
//
// The library is column-major. A row-major matrix is the transpose of the column-major matrix in
// the same memory, so it computes Cᵀ = op(B)ᵀ·op(A)ᵀ, as [call] does: its A is B here, and its
// columns are rows.
func (x *MpProduct) describe(r *mpRank, part *mpPart) error {
	l, p := x.library, &x.problem
	for o := range part.operands {
		op, stored := gemm.Operand(o), p.Layout(gemm.Operand(o))
		m := &part.operands[o]
		grid := r.tall
		if x.byRows(op) {
			grid = r.wide
		}
		rows, cols := x.block(op)
		if err := l.call(mpMatrixCreate, uintptr(stored.Cols), uintptr(stored.Rows), uintptr(cols), uintptr(rows), 0, 0,
			uintptr(stored.Type.Elements(m.rows.DevicePitch)), uintptr(dataTypes[stored.Type]), grid,
			uintptr(unsafe.Pointer(&m.desc))); err != nil {
			return err
		}
	}
	err := l.call(mpDescCreate, uintptr(unsafe.Pointer(&part.desc)), uintptr(computeTypes[p.Accum()]))
	for _, t := range []struct {
		attribute uintptr
		operand   gemm.Operand
	}{{mpTransA, gemm.B}, {mpTransB, gemm.A}} {
		if err == nil {
			op := int32(0) // a cublasOperation_t
			if p.Layout(t.operand).Trans {
				op = 1
			}
			err = l.call(mpDescSet, part.desc, t.attribute, uintptr(unsafe.Pointer(&op)), unsafe.Sizeof(op))
		}
	}
	return err
}

// invoke calls mpBufferSize or mpMatmul, which differ in their last arguments. These must not be
// addresses on the stack.
func (x *MpProduct) invoke(name string, r *mpRank, part *mpPart, last ...uintptr) error {
	p := &x.problem
	a, b, c := &part.operands[gemm.A], &part.operands[gemm.B], &part.operands[gemm.C]
	old := *c // the matrix that β scales
	if p.Beta == 0 {
		old = mpOperand{}
	}
	return x.library.call(name, append([]uintptr{r.handle, part.desc, uintptr(p.N), uintptr(p.M), uintptr(p.K),
		uintptr(unsafe.Pointer(&part.alpha)), uintptr(b.at), 1, 1, b.desc, uintptr(a.at), 1, 1, a.desc,
		uintptr(unsafe.Pointer(&part.beta)), uintptr(old.at), 1, 1, old.desc, uintptr(c.at), 1, 1, c.desc}, last...)...)
}

// reserve allocates the workspaces of a rank.
func (x *MpProduct) reserve(r *mpRank, part *mpPart) error {
	if err := x.invoke(mpBufferSize, r, part, uintptr(unsafe.Pointer(&part.workSize)),
		uintptr(unsafe.Pointer(&part.hostSize))); err != nil {
		return err
	}
	part.host = make([]byte, max(part.hostSize, 1))
	return x.library.call(ncclMemAlloc, uintptr(unsafe.Pointer(&part.work)), max(part.workSize, 1))
}

// register makes the workspace of each rank accessible to the others. If no rank can, it keeps the
// reason.
func (x *MpProduct) register(ctx context.Context) error {
	err := x.each(ctx, func(r *mpRank, part *mpPart) error {
		err := x.library.call(mpRegister, r.tall, part.work, max(part.workSize, 1))
		part.registered = err == nil
		return err
	})
	some := slices.ContainsFunc(x.parts, func(part *mpPart) bool { return part.registered })
	if err != nil && (some || x.library.failed != nil) {
		return err
	}
	x.alone = err
	return nil
}

// String returns the versions, and that copies do not run beside kernels.
func (x *MpProduct) String() string {
	if x.alone == nil {
		return x.library.String()
	}
	return fmt.Sprintf("%v, gathers A before it multiplies: %v", x.library, x.alone)
}

// Run computes the product n times. It returns the time from the start of all GPUs until the last
// one has finished.
func (x *MpProduct) Run(ctx context.Context, n int) (time.Duration, error) {
	start := time.Now()
	err := x.each(ctx, func(r *mpRank, part *mpPart) error {
		for range n {
			if err := x.invoke(mpMatmul, r, part, part.work, part.workSize,
				uintptr(unsafe.Pointer(unsafe.SliceData(part.host))), part.hostSize); err != nil {
				return err
			}
		}
		return r.gpu.Sync(ctx)
	})
	if err != nil {
		return 0, fmt.Errorf("cublasmp: %w", err)
	}
	return time.Since(start), nil
}

// CopyIn copies C from host memory, where it has the layout of the problem.
func (x *MpProduct) CopyIn(ctx context.Context, c []byte) error { return x.copyIn(ctx, gemm.C, c) }

func (x *MpProduct) copyIn(ctx context.Context, o gemm.Operand, host []byte) error {
	for i, r := range x.library.ranks {
		m := &x.parts[i].operands[o]
		if err := r.gpu.CopyIn(ctx, m.at, host[m.offset:], m.rows); err != nil {
			return err
		}
	}
	return nil
}

// CopyOut copies C to host memory, where it has the layout of the problem.
func (x *MpProduct) CopyOut(ctx context.Context, c []byte) error {
	for i, r := range x.library.ranks {
		m := &x.parts[i].operands[gemm.C]
		if err := r.gpu.CopyOut(ctx, c[m.offset:], m.at, m.rows); err != nil {
			return err
		}
	}
	return nil
}

// Close frees the memory and the descriptors.
func (x *MpProduct) Close() error {
	l := x.library
	if l.failed != nil {
		return nil // the communicators have ended, and calls could wait forever
	}
	return x.each(context.Background(), func(r *mpRank, part *mpPart) error {
		var errs []error
		if part.registered {
			err := l.call(mpDeregister, r.tall, part.work)
			part.registered = err != nil
			errs = append(errs, err)
		}
		if part.work != 0 && !part.registered {
			errs = append(errs, l.call(ncclMemFree, part.work))
			part.work = 0
		}
		if part.desc != 0 {
			errs = append(errs, l.call(mpDescDestroy, part.desc))
			part.desc = 0
		}
		for o := range part.operands {
			m := &part.operands[o]
			if m.desc != 0 {
				errs = append(errs, l.call(mpMatrixDestroy, m.desc))
			}
			errs = append(errs, r.gpu.Free(m.at))
			*m = mpOperand{}
		}
		return device.Join(errs...)
	})
}
