package peers

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// Gemm computes one product; see Prepare.
func (p *Peer) Gemm(pr *gemm.Problem, b *gemm.Buffers) error {
	run, err := p.Prepare(context.Background(), pr)
	if err != nil {
		return err
	}
	return run(b)
}

// Prepare returns a function that computes pr with the library. The function may be called
// repeatedly and concurrently. Before each product it checks the lengths and the overlap of the
// buffers, with the errors of [gemm.Buffers.Check]. A running product cannot be interrupted.
//
// The error is ErrUnsupported for an epilogue, for sizes of more than 32 bits, and for types that
// the library does not support.
func (p *Peer) Prepare(_ context.Context, pr *gemm.Problem) (func(*gemm.Buffers) error, error) {
	err := p.Library.checkSupported(pr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Library.Name, err)
	}
	problem := *pr
	run := func(*gemm.Buffers) error { return nil }
	if pr.M > 0 && pr.N > 0 {
		if run, err = p.Library.product(p, pr); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Library.Name, err)
		}
	}
	return func(b *gemm.Buffers) error {
		if err := b.Check(&problem); err != nil {
			return err
		}
		if p.threadsPerCaller {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p.call(p.Library.setThreads, uintptr(p.threads.Load()))
		}
		return run(b)
	}, nil
}

// checkSupported returns ErrUnsupported if the library cannot compute pr.
func (l *Library) checkSupported(pr *gemm.Problem) error {
	if pr.Epilogue != (gemm.Epilogue{}) {
		return fmt.Errorf("%w: epilogue %v: want none", gemm.ErrUnsupported, pr.Epilogue)
	}
	for _, n := range []int{pr.M, pr.N, pr.K, pr.A().LD, pr.B().LD, pr.C().LD} {
		if n > math.MaxInt32 {
			return fmt.Errorf("%w: size %d: want at most %d", gemm.ErrUnsupported, n, math.MaxInt32)
		}
	}
	if !slices.Contains(l.types, pr.In()) {
		return fmt.Errorf("%w: %v: want A and B of one of the types %v", gemm.ErrUnsupported, pr, l.types)
	}
	if !hasUsualTypes(pr) {
		return fmt.Errorf("%w: %v: want a result of the accumulator type, or of A's type", gemm.ErrUnsupported, pr)
	}
	if l.onlyAB && (pr.K == 0 || pr.Alpha != 1 || pr.Beta != 0) {
		return fmt.Errorf("%w: α %v, β %v, K %d: want α 1, β 0 and K at least 1", gemm.ErrUnsupported, real(pr.Alpha),
			real(pr.Beta), pr.K)
	}
	return nil
}

// hasUsualTypes reports whether p has a combination of types that libraries support. They do not
// convert integer sums, and do not round float32 sums of float32 products to 16 bits.
func hasUsualTypes(p *gemm.Problem) bool {
	return !p.Converts() && (p.In() != dtype.F32 || p.Out() == dtype.F32)
}

// blas is the Fortran interface of a BLAS.
var blas = &api{
	procs: []string{"sgemm_", "dgemm_"},
	types: []dtype.Type{dtype.F32, dtype.F64},
	product: func(p *Peer, pr *gemm.Problem) (func(*gemm.Buffers) error, error) {
		proc, c := p.procs["sgemm_"], newCall(pr)
		if pr.In() == dtype.F64 {
			proc = p.procs["dgemm_"]
		}
		return func(b *gemm.Buffers) error {
			c.run(proc, b)
			return nil
		}, nil
	},
}

// call holds the arguments of sgemm_ or dgemm_, which C reads through pointers.
//
// BLAS is column-major. A row-major matrix is the transpose of the column-major matrix in the same
// memory, so the call computes Cᵀ = op(B)ᵀ·op(A)ᵀ. It exchanges M with N and A with B, and
// transposes a matrix only if its layout says so.
type call struct {
	n, m, k        int64
	ldb, lda, ldc  int64
	alpha, beta    [8]byte // in the type of the matrices
	transB, transA byte    // 'N' or 'T'
}

func newCall(pr *gemm.Problem) *call {
	c := &call{
		n: int64(pr.N), m: int64(pr.M), k: int64(pr.K),
		ldb: int64(pr.B().LD), lda: int64(pr.A().LD), ldc: int64(pr.C().LD),
		transB: trans(pr.Layouts[gemm.B]), transA: trans(pr.Layouts[gemm.A]),
	}
	pr.Out().Set(c.alpha[:], 0, real(pr.Alpha))
	pr.Out().Set(c.beta[:], 0, real(pr.Beta))
	return c
}

func trans(l gemm.Layout) byte {
	if l.Trans {
		return 'T'
	}
	return 'N'
}

// run calls sgemm_ or dgemm_. The last two arguments are the lengths of the two strings, which
// Fortran passes after all others.
func (c *call) run(proc uintptr, b *gemm.Buffers) {
	dl.Call(proc,
		uintptr(unsafe.Pointer(&c.transB)), uintptr(unsafe.Pointer(&c.transA)),
		uintptr(unsafe.Pointer(&c.n)), uintptr(unsafe.Pointer(&c.m)), uintptr(unsafe.Pointer(&c.k)),
		uintptr(unsafe.Pointer(&c.alpha)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b[gemm.B]))), uintptr(unsafe.Pointer(&c.ldb)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b[gemm.A]))), uintptr(unsafe.Pointer(&c.lda)),
		uintptr(unsafe.Pointer(&c.beta)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b[gemm.C]))), uintptr(unsafe.Pointer(&c.ldc)),
		1, 1)
}
