package peers

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// Heuristics is the number of algorithms that a plan requests from the heuristic.
const Heuristics = 8

// LtPlan is a product with the algorithms of cuBLASLt for it, ordered by the library's estimate of
// their speed. It must not be used concurrently.
type LtPlan struct {
	library     *CuBLASLt
	arithmetic  Arithmetic
	desc        uintptr // cublasLtMatmulDesc_t
	a, b, c, d  uintptr // cublasLtMatrixLayout_t of A, B, C and the residual
	biased      bool    // the product has a bias
	scaled      bool    // the product has block scales
	alpha, beta [8]byte // in the accumulator type
	algorithms  []heuristicResult
	chosen      int
}

// heuristicResult is cublasLtMatmulHeuristicResult_t of cublasLt.h.
type heuristicResult struct {
	algo      [8]uint64
	workspace uintptr
	status    int32
	_         float32 // wavesCount
	_         [4]int32
}

// Attributes, from the enums of cublasLt.h: cublasLtMatmulDescAttributes_t,
// cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t and
// cublasLtMatmulAlgoConfigAttributes_t.
const (
	descTransA             = 3
	descTransB             = 4
	layoutBatchCount       = 5
	layoutBatchOffset      = 6
	descEpilogue           = 7
	descBias               = 8
	descScaleA             = 17
	descScaleB             = 18
	descScaleModeA         = 31
	descScaleModeB         = 32
	preferenceMaxWorkspace = 1
	preferenceReduction    = 3
	algoID                 = 0
	algoTile               = 1
	algoSplitK             = 2
	algoStages             = 6
)

// scaleModes holds the cublasLtMatmulMatrixScale_t for each block size: vectors of 128 elements
// along K, and blocks of 128×128 elements.
var scaleModes = map[int]int32{1: 4, gemm.ScaleBlock: 5}

// Reductions of split-K algorithms (cublasLtReductionScheme_t).
const (
	reduceInPlace = 1 // in C
	reduceCompute = 2 // in the accumulator type
	reduceOutput  = 4 // in C's type
)

// reductions returns the mask of reductions whose results stay within the error bound. Partial sums
// rounded to 16 bits would not.
func reductions(p *gemm.Problem) uint32 {
	if p.Out() != p.Accum() {
		return reduceCompute
	}
	return reduceInPlace | reduceCompute | reduceOutput
}

// Plan queries algorithms for p. The matrices must have p's layouts on the GPU and be aligned to
// 256 bytes. The error is ErrUnsupported if the library has no algorithm for p. It has none for
// int8 and 8-bit floats unless A is not transposed and B is, and none for e5m2 in both A and B.
func (l *CuBLASLt) Plan(p *gemm.Problem, a Arithmetic) (*LtPlan, error) {
	if err := checkSupported(p); err != nil {
		return nil, err
	}
	compute, err := a.computeType(p)
	if err != nil {
		return nil, err
	}
	pl := &LtPlan{library: l, arithmetic: a}
	sums := p.Accum()
	sums.Set(pl.alpha[:], 0, real(p.Alpha))
	sums.Set(pl.beta[:], 0, real(p.Beta))
	if p.Epilogue.Residual {
		sums.Set(pl.beta[:], 0, 1)
	}
	err = l.gpu.Foreign(func(uintptr) error {
		if err := l.call(ltDescCreate, uintptr(unsafe.Pointer(&pl.desc)), uintptr(compute),
			uintptr(dataTypes[sums])); err != nil {
			return err
		}
		return device.Join(pl.describe(p), pl.queryHeuristic(reductions(p)))
	})
	if err == nil && len(pl.algorithms) == 0 {
		err = fmt.Errorf("%w: the library has no algorithm", gemm.ErrUnsupported)
	}
	if err != nil {
		return nil, device.Join(fmt.Errorf("cublaslt: %v: %w", p, err), pl.Close())
	}
	return pl, nil
}

// describe sets the attributes and layouts of the matrices. The library takes them as column-major,
// that is as their transposes, and computes Cᵀ = op(B)ᵀ·op(A)ᵀ. Its A is our B.
func (pl *LtPlan) describe(p *gemm.Problem) error {
	l := pl.library
	for _, x := range []struct {
		attribute uintptr
		of        gemm.Layout
	}{{descTransA, p.Layouts[gemm.B]}, {descTransB, p.Layouts[gemm.A]}} {
		operation := int32(0) // CUBLAS_OP_N
		if x.of.Trans {
			operation = 1 // CUBLAS_OP_T
		}
		if err := l.call(ltDescSet, pl.desc, x.attribute, uintptr(unsafe.Pointer(&operation)),
			unsafe.Sizeof(operation)); err != nil {
			return err
		}
	}
	if err := pl.describeScales(p); err != nil {
		return err
	}
	if epilogue := epilogueOf(p); epilogue != 0 {
		if err := l.call(ltDescSet, pl.desc, descEpilogue, uintptr(unsafe.Pointer(&epilogue)),
			unsafe.Sizeof(epilogue)); err != nil {
			return err
		}
		pl.biased = p.Epilogue.Bias != gemm.BiasNone
	}
	for _, x := range []struct {
		layout *uintptr
		of     gemm.Layout
		stride int
	}{{&pl.a, p.Layouts[gemm.A], p.Batch.Stride[gemm.A]}, {&pl.b, p.Layouts[gemm.B], p.Batch.Stride[gemm.B]},
		{&pl.c, p.Layouts[gemm.C], p.Batch.Stride[gemm.C]}, {&pl.d, p.Layouts[gemm.Residual], 0}} {
		if x.of.Type == dtype.Invalid {
			continue // no residual
		}
		err := l.call(ltLayoutCreate, uintptr(unsafe.Pointer(x.layout)),
			uintptr(dataTypes[x.of.Type]), uintptr(x.of.Cols), uintptr(x.of.Rows), uintptr(x.of.LD))
		if err != nil {
			return err
		}
		if p.Batch.Kind == gemm.Single {
			continue
		}
		count, offset := int32(p.Batch.Count), int64(x.stride)
		if err := l.call(ltLayoutSet, *x.layout, layoutBatchCount, uintptr(unsafe.Pointer(&count)),
			unsafe.Sizeof(count)); err != nil {
			return err
		}
		if err := l.call(ltLayoutSet, *x.layout, layoutBatchOffset, uintptr(unsafe.Pointer(&offset)),
			unsafe.Sizeof(offset)); err != nil {
			return err
		}
	}
	return nil
}

// describeScales sets the modes of the block scales. The library's A is our B.
func (pl *LtPlan) describeScales(p *gemm.Problem) error {
	l := pl.library
	ours, theirs := p.ScaleSides()
	if pl.scaled = ours > 0; !pl.scaled {
		return nil
	}
	for _, x := range []struct {
		attribute uintptr
		side      int
	}{{descScaleModeA, theirs}, {descScaleModeB, ours}} {
		mode := scaleModes[x.side]
		if err := l.call(ltDescSet, pl.desc, x.attribute, uintptr(unsafe.Pointer(&mode)), unsafe.Sizeof(mode)); err != nil {
			return err
		}
	}
	return pl.setScales(l.workspace, l.workspace) // without pointers the heuristic proposes nothing
}

// setScales sets the addresses of the block scales of our A and B.
func (pl *LtPlan) setScales(a, b device.Ptr) error {
	l := pl.library
	if err := l.call(ltDescSet, pl.desc, descScaleA, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b)); err != nil {
		return err
	}
	return l.call(ltDescSet, pl.desc, descScaleB, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
}

// queryHeuristic sets pl.algorithms. Split-K algorithms are limited to the given reductions.
func (pl *LtPlan) queryHeuristic(reductions uint32) error {
	l := pl.library
	var preference uintptr
	if err := l.call(ltPreferenceCreate, uintptr(unsafe.Pointer(&preference))); err != nil {
		return err
	}
	maxWorkspace := uint64(workspaceBytes)
	var found [Heuristics]heuristicResult
	var n int32
	err := l.call(ltPreferenceSet, preference, preferenceMaxWorkspace, uintptr(unsafe.Pointer(&maxWorkspace)),
		unsafe.Sizeof(maxWorkspace))
	if err == nil {
		err = l.call(ltPreferenceSet, preference, preferenceReduction, uintptr(unsafe.Pointer(&reductions)),
			unsafe.Sizeof(reductions))
	}
	if err == nil {
		err = l.call(ltHeuristic, l.handle, pl.desc, pl.b, pl.a, pl.source(), pl.c, preference,
			Heuristics, uintptr(unsafe.Pointer(&found)), uintptr(unsafe.Pointer(&n)))
	}
	for _, h := range found[:max(0, min(n, Heuristics))] {
		if h.status == 0 {
			pl.algorithms = append(pl.algorithms, h)
		}
	}
	return device.Join(err, l.call(ltPreferenceDestroy, preference))
}

// Close destroys the library's descriptors.
func (pl *LtPlan) Close() error {
	var errs []error
	for _, x := range []struct {
		destroy string
		handle  *uintptr
	}{{ltDescDestroy, &pl.desc}, {ltLayoutDestroy, &pl.a}, {ltLayoutDestroy, &pl.b}, {ltLayoutDestroy, &pl.c},
		{ltLayoutDestroy, &pl.d}} {
		if *x.handle != 0 {
			errs = append(errs, pl.library.call(x.destroy, *x.handle))
			*x.handle = 0
		}
	}
	return device.Join(errs...)
}

// Choose times the algorithms and selects the fastest instead of the first. time must run the
// product, any number of times, and return the seconds per product. Algorithms that fail to run are
// skipped.
func (pl *LtPlan) Choose(time func(run LtEnqueue) (float64, error)) error {
	best, least := -1, 0.0
	var refused error
	for i := range pl.algorithms {
		pl.chosen = i
		took, err := time(pl.Enqueue)
		if s := (*statusError)(nil); errors.As(err, &s) {
			refused = device.Join(refused, err)
			continue
		}
		if err != nil {
			return err
		}
		if best < 0 || took < least {
			best, least = i, took
		}
	}
	if best < 0 {
		return fmt.Errorf("%w: cublaslt: every algorithm failed: %w", gemm.ErrUnsupported, refused)
	}
	pl.chosen = best
	return nil
}

// source returns the layout of the matrix that β scales: C's, or the residual's, which replaces C.
func (pl *LtPlan) source() uintptr {
	if pl.d != 0 {
		return pl.d
	}
	return pl.c
}

// LtMemory holds the device addresses of a product's matrices, and of its bias, residual and block
// scales if it has them.
type LtMemory struct{ A, B, C, Bias, Residual, ScaleA, ScaleB device.Ptr }

// LtEnqueue is the type of [LtPlan.Enqueue].
type LtEnqueue func(ctx context.Context, m LtMemory) error

// Enqueue enqueues the product and does not wait for it.
func (pl *LtPlan) Enqueue(ctx context.Context, m LtMemory) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l, algorithm := pl.library, &pl.algorithms[pl.chosen]
	source := m.C
	if pl.d != 0 {
		source = m.Residual
	}
	return l.gpu.Foreign(func(stream uintptr) error {
		if pl.biased {
			if err := l.call(ltDescSet, pl.desc, descBias, uintptr(unsafe.Pointer(&m.Bias)), unsafe.Sizeof(m.Bias)); err != nil {
				return err
			}
		}
		if pl.scaled {
			if err := pl.setScales(m.ScaleA, m.ScaleB); err != nil {
				return err
			}
		}
		return l.call(ltMatmul, l.handle, pl.desc,
			uintptr(unsafe.Pointer(&pl.alpha)), uintptr(m.B), pl.b, uintptr(m.A), pl.a,
			uintptr(unsafe.Pointer(&pl.beta)), uintptr(source), pl.source(), uintptr(m.C), pl.c,
			uintptr(unsafe.Pointer(&algorithm.algo)), uintptr(l.workspace), workspaceBytes, stream)
	})
}

// Algorithms returns the number of algorithms that the library proposed.
func (pl *LtPlan) Algorithms() int { return len(pl.algorithms) }

// String describes the selected algorithm, with the numbers of cublasLt.h: "cuBLASLt 13.1.0,
// heuristic 2 of 8: algorithm 67, tile 20, stages 7, split 1, workspace 4 MiB".
func (pl *LtPlan) String() string {
	algorithm := &pl.algorithms[pl.chosen]
	attribute := func(name uintptr) int32 {
		value, written := int32(-1), uintptr(0)
		// An attribute that this release does not support stays -1.
		_ = pl.library.call(ltAlgoGet, uintptr(unsafe.Pointer(&algorithm.algo)), name,
			uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), uintptr(unsafe.Pointer(&written)))
		return value
	}
	s := pl.library.String()
	if pl.arithmetic.Name != "" {
		s += " in " + pl.arithmetic.Name
	}
	return s + fmt.Sprintf(", heuristic %d of %d: algorithm %d, tile %d, stages %d, split %d, workspace %.3g MiB",
		pl.chosen+1, len(pl.algorithms), attribute(algoID), attribute(algoTile), attribute(algoStages), attribute(algoSplitK),
		float64(algorithm.workspace)/(1<<20))
}
