package tilework

import (
	"context"
	"time"

	"tilework/dtype"
)

// Tuning is the result of [TuneGemm].
type Tuning struct {
	// Default and Best describe the kernel and parameters that [Gemm] uses for such a product
	// without tuning, and the fastest ones measured.
	Default, Best string
	// Gain is the speed of the best relative to the default, measured alternately.
	Gain float64
	// Kept reports whether later products use the best: it was faster by more than chance.
	Kept bool
	// Why is the reason for Kept.
	Why string
}

// TuneGemm measures for about the given time (0 is 10 s) which kernel and parameters compute [Gemm]
// of such operands fastest, and selects them for later products: products of the same shape, types
// and transposes, of matrices without gaps between their rows, with any factors and epilogue.
// [PlanGemm] then reports that. No element is read or written.
//
// The choice applies at once in this process to products without [WithKernel], and in later
// processes through the cache described at [WithDevice]. On a GPU it applies to all GPUs of its
// model. It may sum in another order and so produce other bits; equal calls have equal bits as long
// as nothing is tuned.
//
// The device is that of the operands, or for matrices on the host that of [WithDevice], "cpu" or
// "gpu". [WithThreads] is used too. The errors are ErrUnsupported for "auto", for an emulated GPU,
// which has no times, and for batches and packed matrices; ErrNoDevice, ErrShape, ErrVerify for a
// kernel with wrong results, and the context's.
func TuneGemm[T, U, R dtype.Element](ctx context.Context, a Operand[T], b Operand[U], c Operand[R], limit time.Duration,
	opts ...Option) (Tuning, error) {
	if err := checkContext(ctx); err != nil {
		return Tuning{}, err
	}
	k := newCall(1, a, b, 0, c, opts)
	x, err := k.Tune(ctx, limit)
	k.Release()
	if x == nil {
		return Tuning{}, err
	}
	return Tuning{Default: x.Default.String(), Best: x.Best.String(), Gain: x.Gain.Speed, Kept: x.Kept, Why: x.Why}, err
}
