package backend

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// Plan is a planned product. A plan may be run several times, but not by several goroutines at
// once. A type of plans embeds [BasePlan] and implements the other methods, and those of BasePlan
// that its plans have answers for.
type Plan interface {
	// Prepare makes the plan ready to run: it compiles the kernels. Run does the same if necessary.
	Prepare(ctx context.Context) error
	// PrepareTime returns the time that preparing took in this process, or 0 if it is not prepared.
	PrepareTime() time.Duration
	// CallTile makes Run call f once for each tile of C, rows×cols elements from (i, j) on, from the
	// goroutine that computed the tile. It returns false if Run cannot do that.
	CallTile(f func(i, j, rows, cols int)) bool
	// ReportProgress makes Run call f from time to time, from the caller's goroutine, with the
	// finished and the total amount of work. A plan that cannot do that ignores f.
	ReportProgress(f func(done, total int64))
	// Run computes the product. [gemm.Buffers.Check] must have accepted the buffers.
	Run(ctx context.Context, b *gemm.Buffers) error
	// RunSerial is Run on the goroutine of the caller alone, for a plan with Workers. Several
	// goroutines may call it at once. Many small products are faster side by side, each on one
	// goroutine, than one after the other.
	RunSerial(ctx context.Context, b *gemm.Buffers) error
	// RunBreakdown runs the plan and returns the time that each GPU computes, copies and waits, or nil
	// without running if the plan cannot measure that.
	RunBreakdown(ctx context.Context, b *gemm.Buffers) ([]timeline.Breakdown, error)
	// Reset makes the plan forget its product and the caller's functions. It returns the plan, which
	// cannot run any more, or nil if [Backend.Plan] would not use its memory again.
	Reset() Plan

	// CanRunBatch reports whether RunBatch and RunGroups compute some products together.
	CanRunBatch() bool
	// RunBatch computes the product for each of the buffers, all with the bias of the first. It uses
	// the given kernel or, if that is empty, one that suits the batch. The error wraps ErrUnsupported
	// if no kernel computes such a batch.
	RunBatch(ctx context.Context, kernel string, all []gemm.Buffers) error
	// RunGroups computes the product for groups of rows of A and C. Group g uses bs[g] and ends before
	// row ends[g]. The kernel and the error are as for RunBatch.
	RunGroups(ctx context.Context, kernel string, b *gemm.Buffers, bs [][]byte, ends []int32) error
	// Division describes the division of a batch of n products among devices, in words. It is empty
	// for a plan on one device.
	Division(n int) string

	// Order describes the order of the sums. Plans of equal products with equal orders compute equal
	// bits, also on other machines. It is empty if parts would have other bits.
	Order() string
	// Choice returns the kernel, with the tile on a GPU. Choices may depend on measurements of the
	// process, and another process that plans with this one has the same order on an equal device. It
	// is zero for plans that compute no parts.
	Choice() Choice
	// Part returns the plan of p, the part of the product whose C begins at (row, col), with the bits
	// that it has in the whole; see [gemm.Problem.Part]. Order must not be empty.
	Part(p *gemm.Problem, row, col int) (Plan, error)
	// Finish computes C from α·op(A)·op(B) + β·C, which sums holds in ScaleType without padding. It
	// returns false, and leaves C unchanged, if the plan applies its epilogue only in Run.
	Finish(sums []byte, b gemm.Buffers) bool

	// KernelName returns the name of the kernel.
	KernelName() string
	// Workers returns the number of goroutines that compute, or 0 if none does.
	Workers() int
	// Detail describes the kernel's parameters.
	Detail() string
	// Why returns the reason for the choice of the kernel.
	Why() string
	// Memory returns the number of bytes of host memory that Run allocates.
	Memory() int
	// Accuracy describes the rounding of the kernel when it computes p.
	Accuracy(p *gemm.Problem) gemm.Accuracy
	// Predicted returns the predicted time of a run on a number of goroutines, or 0 if it is not
	// known. Plans without Workers ignore the number.
	Predicted(threads int) time.Duration
	// Reasoning lists the candidates, one per line, with the reason for or against each. count is
	// their number; it is 0 if the caller chose the kernel.
	Reasoning() (count int, text string)
	// Program lists the copies and launches of a run, one per line. It is empty if they follow each
	// other in one stream.
	Program() string
}

// BasePlan is embedded in plans. Its methods are those of a plan that only runs, as a whole,
// without preparation, predictions and goroutines.
type BasePlan struct{}

func (BasePlan) Prepare(context.Context) error { return nil }

func (BasePlan) PrepareTime() time.Duration { return 0 }

func (BasePlan) CallTile(func(i, j, rows, cols int)) bool { return false }

func (BasePlan) ReportProgress(func(done, total int64)) {}

func (BasePlan) RunSerial(context.Context, *gemm.Buffers) error { return errCannot }

func (BasePlan) RunBreakdown(context.Context, *gemm.Buffers) ([]timeline.Breakdown, error) {
	return nil, nil
}

func (BasePlan) Reset() Plan { return nil }

func (BasePlan) CanRunBatch() bool { return false }

func (BasePlan) RunBatch(context.Context, string, []gemm.Buffers) error { return errCannot }

func (BasePlan) RunGroups(context.Context, string, *gemm.Buffers, [][]byte, []int32) error {
	return errCannot
}

func (BasePlan) Division(int) string { return "" }

func (BasePlan) Order() string { return "" }

func (BasePlan) Choice() Choice { return Choice{} }

func (BasePlan) Part(*gemm.Problem, int, int) (Plan, error) { return nil, errCannot }

func (BasePlan) Finish([]byte, gemm.Buffers) bool { return false }

func (BasePlan) Workers() int { return 0 }

func (BasePlan) Memory() int { return 0 }

func (BasePlan) Predicted(int) time.Duration { return 0 }

func (BasePlan) Reasoning() (count int, text string) { return 0, "" }

func (BasePlan) Program() string { return "" }

// errCannot is the error of abilities that the plan lacks.
var errCannot = fmt.Errorf("%w: the plan only runs as a whole", gemm.ErrUnsupported)
