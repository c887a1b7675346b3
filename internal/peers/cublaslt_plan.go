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

// Heuristics is how many algorithms a plan asks the library for.
const Heuristics = 8

// LtPlan is a product that cuBLASLt has algorithms for, the first of which is the one
// that it holds for the fastest. It is for one goroutine.
type LtPlan struct {
	library     *CuBLASLt
	arithmetic  Arithmetic
	desc        uintptr // cublasLtMatmulDesc_t
	a, b, c, d  uintptr // cublasLtMatrixLayout_t of our A, B, C and residual
	biased      bool    // whether the product has a bias
	scaled      bool    // whether it has block scales
	alpha, beta [8]byte // in the type that is summed in
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

// Attributes, by the enums of cublasLt.h: cublasLtMatmulDescAttributes_t,
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

// What has a scale of its own (cublasLtMatmulMatrixScale_t): 128 elements along K, or those of
// as many rows or columns.
var scaleModes = map[int]int32{1: 4, gemm.ScaleBlock: 5}

// What algorithms that split K may do with the parts' sums (cublasLtReductionScheme_t).
const (
	reduceInPlace   = 1 // add them in C
	reduceAsSummed  = 2 // add them in the type of the arithmetic
	reduceAsResults = 4 // add them in C's type
)

// reductions are those that leave a result within its bound: a sum whose parts were
// rounded to 16 bits is not.
func reductions(p *gemm.Problem) uint32 {
	if p.C.Type != p.Accum() {
		return reduceAsSummed
	}
	return reduceInPlace | reduceAsSummed | reduceAsResults
}

// Plan asks the library how p can be computed. The matrices have p's layouts on the
// GPU, each at a multiple of 256 bytes. The error is ErrUnsupported where the library
// has no algorithm, as for int8 and 8-bit floats unless A is plain and B transposed, and for
// e5m2 on both sides.
func (l *CuBLASLt) Plan(p *gemm.Problem, a Arithmetic) (*LtPlan, error) {
	if err := supported(p); err != nil {
		return nil, err
	}
	compute, err := a.computeType(p)
	if err != nil {
		return nil, err
	}
	pl := &LtPlan{library: l, arithmetic: a}
	sums := p.Accum()
	sums.Set(pl.alpha[:], 0, p.Alpha)
	sums.Set(pl.beta[:], 0, p.Beta)
	if p.Epilogue.Residual {
		sums.Set(pl.beta[:], 0, 1)
	}
	err = l.gpu.Foreign(func(uintptr) error {
		if err := l.call(ltDescCreate, uintptr(unsafe.Pointer(&pl.desc)), uintptr(compute), uintptr(dataTypes[sums])); err != nil {
			return err
		}
		return errors.Join(pl.describe(p), pl.ask(reductions(p)))
	})
	if err == nil && len(pl.algorithms) == 0 {
		err = fmt.Errorf("%w: none of its algorithms", gemm.ErrUnsupported)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cublaslt: %v: %w", p, err), pl.Close())
	}
	return pl, nil
}

// describe tells the library of the matrices. It takes them as column-major, and so
// each as its transpose: what it computes is Cᵀ = op(B)ᵀ·op(A)ᵀ, its A being our B.
func (pl *LtPlan) describe(p *gemm.Problem) error {
	l := pl.library
	for _, x := range []struct {
		attribute uintptr
		of        gemm.Layout
	}{{descTransA, p.B}, {descTransB, p.A}} {
		operation := int32(0) // CUBLAS_OP_N
		if x.of.Trans {
			operation = 1 // CUBLAS_OP_T
		}
		if err := l.call(ltDescSet, pl.desc, x.attribute, uintptr(unsafe.Pointer(&operation)), unsafe.Sizeof(operation)); err != nil {
			return err
		}
	}
	if err := pl.describeScales(p); err != nil {
		return err
	}
	if epilogue := epilogueOf(p); epilogue != 0 {
		if err := l.call(ltDescSet, pl.desc, descEpilogue, uintptr(unsafe.Pointer(&epilogue)), unsafe.Sizeof(epilogue)); err != nil {
			return err
		}
		pl.biased = p.Epilogue.Bias != gemm.BiasNone
	}
	for _, x := range []struct {
		layout *uintptr
		of     gemm.Layout
		stride int
	}{{&pl.a, p.A, p.Batch.A}, {&pl.b, p.B, p.Batch.B}, {&pl.c, p.C, p.Batch.C}, {&pl.d, p.Residual, 0}} {
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
		if err := l.call(ltLayoutSet, *x.layout, layoutBatchCount, uintptr(unsafe.Pointer(&count)), unsafe.Sizeof(count)); err != nil {
			return err
		}
		if err := l.call(ltLayoutSet, *x.layout, layoutBatchOffset, uintptr(unsafe.Pointer(&offset)), unsafe.Sizeof(offset)); err != nil {
			return err
		}
	}
	return nil
}

// describeScales tells the library of block scales. Its A is our B.
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
	return pl.pointScales(l.workspace, l.workspace) // or nothing is proposed
}

// pointScales tells the library where the block scales of our A and B are.
func (pl *LtPlan) pointScales(a, b device.Ptr) error {
	l := pl.library
	if err := l.call(ltDescSet, pl.desc, descScaleA, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b)); err != nil {
		return err
	}
	return l.call(ltDescSet, pl.desc, descScaleB, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
}

// ask fills in the algorithms, of those with one of these reductions if they split K.
func (pl *LtPlan) ask(reductions uint32) error {
	l := pl.library
	var preference uintptr
	if err := l.call(ltPreferenceCreate, uintptr(unsafe.Pointer(&preference))); err != nil {
		return err
	}
	most := uint64(workspaceBytes)
	var found [Heuristics]heuristicResult
	var n int32
	err := l.call(ltPreferenceSet, preference, preferenceMaxWorkspace, uintptr(unsafe.Pointer(&most)), unsafe.Sizeof(most))
	if err == nil {
		err = l.call(ltPreferenceSet, preference, preferenceReduction, uintptr(unsafe.Pointer(&reductions)), unsafe.Sizeof(reductions))
	}
	if err == nil {
		err = l.call(ltHeuristic, l.handle, pl.desc, pl.b, pl.a, pl.old(), pl.c, preference,
			Heuristics, uintptr(unsafe.Pointer(&found)), uintptr(unsafe.Pointer(&n)))
	}
	for _, h := range found[:max(0, min(n, Heuristics))] {
		if h.status == 0 {
			pl.algorithms = append(pl.algorithms, h)
		}
	}
	return errors.Join(err, l.call(ltPreferenceDestroy, preference))
}

// Close gives the descriptions back.
func (pl *LtPlan) Close() error {
	var errs []error
	for _, x := range []struct {
		destroy string
		handle  *uintptr
	}{{ltDescDestroy, &pl.desc}, {ltLayoutDestroy, &pl.a}, {ltLayoutDestroy, &pl.b}, {ltLayoutDestroy, &pl.c}, {ltLayoutDestroy, &pl.d}} {
		if *x.handle != 0 {
			errs = append(errs, pl.library.call(x.destroy, *x.handle))
			*x.handle = 0
		}
	}
	return errors.Join(errs...)
}

// Choose times the algorithms and keeps the fastest: time runs a product as often as
// it likes and says how many seconds one took. An algorithm that the library refuses
// to run is passed over.
func (pl *LtPlan) Choose(time func(run LtEnqueue) (float64, error)) error {
	best, least := -1, 0.0
	var refused error
	for i := range pl.algorithms {
		pl.chosen = i
		took, err := time(pl.Enqueue)
		if s := (*statusError)(nil); errors.As(err, &s) {
			refused = errors.Join(refused, err)
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
		return fmt.Errorf("%w: cublaslt runs none of its algorithms: %w", gemm.ErrUnsupported, refused)
	}
	pl.chosen = best
	return nil
}

// old is the layout of what β is multiplied with: C's, or the residual's, which the library
// takes in C's place.
func (pl *LtPlan) old() uintptr {
	if pl.d != 0 {
		return pl.d
	}
	return pl.c
}

// LtMemory is where a product's matrices are on the GPU, and its bias, its residual and its block
// scales if it has them.
type LtMemory struct{ A, B, C, Bias, Residual, ScaleA, ScaleB device.Ptr }

// LtEnqueue is [LtPlan.Enqueue].
type LtEnqueue func(ctx context.Context, m LtMemory) error

// Enqueue starts the product, and does not wait for its end.
func (pl *LtPlan) Enqueue(ctx context.Context, m LtMemory) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l, algorithm := pl.library, &pl.algorithms[pl.chosen]
	old := m.C
	if pl.d != 0 {
		old = m.Residual
	}
	return l.gpu.Foreign(func(stream uintptr) error {
		if pl.biased {
			if err := l.call(ltDescSet, pl.desc, descBias, uintptr(unsafe.Pointer(&m.Bias)), unsafe.Sizeof(m.Bias)); err != nil {
				return err
			}
		}
		if pl.scaled {
			if err := pl.pointScales(m.ScaleA, m.ScaleB); err != nil {
				return err
			}
		}
		return l.call(ltMatmul, l.handle, pl.desc,
			uintptr(unsafe.Pointer(&pl.alpha)), uintptr(m.B), pl.b, uintptr(m.A), pl.a,
			uintptr(unsafe.Pointer(&pl.beta)), uintptr(old), pl.old(), uintptr(m.C), pl.c,
			uintptr(unsafe.Pointer(&algorithm.algo)), uintptr(l.workspace), workspaceBytes, stream)
	})
}

// Algorithms is how many algorithms the library proposed.
func (pl *LtPlan) Algorithms() int { return len(pl.algorithms) }

// String tells what runs: "cuBLASLt 13.1.0, heuristic 2 of 8: algorithm 67, tile 20,
// stages 7, split 1, workspace 4 MiB", the numbers being those of cublasLt.h.
func (pl *LtPlan) String() string {
	algorithm := &pl.algorithms[pl.chosen]
	attribute := func(name uintptr) int32 {
		value, written := int32(-1), uintptr(0)
		// An attribute that this release does not tell stays -1.
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
