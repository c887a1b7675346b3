package peers

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Gemm computes one product; see Prepare.
func (p *Peer) Gemm(pr *gemm.Problem, b gemm.Buffers) error {
	run, err := p.Prepare(context.Background(), pr)
	if err != nil {
		return err
	}
	return run(b)
}

// Prepare returns what computes pr with the library, any number of times and
// concurrently. It takes the types of the library's row without an epilogue, and sizes
// that fit 32 bits; the rest is ErrUnsupported. What it returns checks the buffers'
// lengths and overlap, with the errors of [gemm.Buffers.Check], before the
// library sees them. A library cannot be interrupted.
func (p *Peer) Prepare(_ context.Context, pr *gemm.Problem) (func(gemm.Buffers) error, error) {
	err := p.Library.takes(pr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Library.Name, err)
	}
	problem := *pr
	run := func(gemm.Buffers) error { return nil }
	if pr.M > 0 && pr.N > 0 {
		if run, err = p.Library.product(p, pr); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Library.Name, err)
		}
	}
	return func(b gemm.Buffers) error {
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

// takes refuses what the library does not compute.
func (l *Library) takes(pr *gemm.Problem) error {
	if pr.Epilogue != (gemm.Epilogue{}) {
		return fmt.Errorf("%w: a bias or activation", gemm.ErrUnsupported)
	}
	for _, n := range []int{pr.M, pr.N, pr.K, pr.A.LD, pr.B.LD, pr.C.LD} {
		if n > math.MaxInt32 {
			return fmt.Errorf("%w: size %d (want at most %d)", gemm.ErrUnsupported, n, math.MaxInt32)
		}
	}
	if !slices.Contains(l.types, pr.A.Type) {
		return fmt.Errorf("%w: %v (want %v)", gemm.ErrUnsupported, pr, l.types)
	}
	if !common(pr) {
		return fmt.Errorf("%w: %v (want the usual type of result)", gemm.ErrUnsupported, pr)
	}
	if l.plain && (pr.K == 0 || pr.Alpha != 1 || pr.Beta != 0) {
		return fmt.Errorf("%w: anything but A·B", gemm.ErrUnsupported)
	}
	return nil
}

// common reports whether libraries have p's pair of types: not integer sums that are
// converted, and not float32 sums that are rounded to 16 bits.
func common(p *gemm.Problem) bool {
	return !p.Converts() && (p.A.Type != dtype.F32 || p.C.Type == dtype.F32)
}

// blas is the face of a BLAS.
var blas = &face{
	procs: []string{"sgemm_", "dgemm_"},
	types: []dtype.Type{dtype.F32, dtype.F64},
	product: func(p *Peer, pr *gemm.Problem) (func(gemm.Buffers) error, error) {
		proc, c := p.procs["sgemm_"], newCall(pr)
		if pr.A.Type == dtype.F64 {
			proc = p.procs["dgemm_"]
		}
		return func(b gemm.Buffers) error {
			c.run(proc, b)
			return nil
		}, nil
	},
}

// call holds the arguments of sgemm_ or dgemm_, which C reads through pointers.
//
// BLAS is column-major. A row-major matrix is, column-major, its transpose, so
// the call computes Cᵀ = op(B)ᵀ·op(A)ᵀ: M and N change places, and so do A and B,
// and neither is transposed unless its layout says so.
type call struct {
	n, m, k        int64
	ldb, lda, ldc  int64
	alpha, beta    [8]byte // in the matrices' type
	transB, transA byte    // 'N' or 'T'
}

func newCall(pr *gemm.Problem) *call {
	c := &call{
		n: int64(pr.N), m: int64(pr.M), k: int64(pr.K),
		ldb: int64(pr.B.LD), lda: int64(pr.A.LD), ldc: int64(pr.C.LD),
		transB: trans(pr.B), transA: trans(pr.A),
	}
	pr.C.Type.Set(c.alpha[:], 0, pr.Alpha)
	pr.C.Type.Set(c.beta[:], 0, pr.Beta)
	return c
}

func trans(l gemm.Layout) byte {
	if l.Trans {
		return 'T'
	}
	return 'N'
}

// run calls sgemm_ or dgemm_. The last two arguments are the lengths of the two
// strings, which Fortran passes behind the rest.
func (c *call) run(proc uintptr, b gemm.Buffers) {
	invoke(proc,
		uintptr(unsafe.Pointer(&c.transB)), uintptr(unsafe.Pointer(&c.transA)),
		uintptr(unsafe.Pointer(&c.n)), uintptr(unsafe.Pointer(&c.m)), uintptr(unsafe.Pointer(&c.k)),
		uintptr(unsafe.Pointer(&c.alpha)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b.B))), uintptr(unsafe.Pointer(&c.ldb)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b.A))), uintptr(unsafe.Pointer(&c.lda)),
		uintptr(unsafe.Pointer(&c.beta)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b.C))), uintptr(unsafe.Pointer(&c.ldc)),
		1, 1)
}
