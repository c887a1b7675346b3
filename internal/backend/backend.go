// Package backend defines the interfaces between dispatch, which decides where a product is
// computed, and the backends, which compute it: [Backend] and [Plan]. It also names devices
// ([Device]).
//
// Abilities that only some backends have are optional interfaces: [Packer], [ReusablePlan],
// [TileCaller], [ProgressReporter], [SerialRunner], [BatchRunner], [BatchDivider], [GroupRunner],
// [EpilogueApplier], [Divisible], [TimePredictor], [BreakdownRunner], [Explainer] and [Tunable].
// Dispatch checks for each in one place.
package backend

import (
	"context"
	"time"

	"tilework/dtype"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// Backend plans products on one device. Backends are comparable: two are equal if they plan on the
// same device. Their methods may be called from several goroutines at once.
type Backend interface {
	// Kernels lists the kernels, slowest first. It does not open the device.
	Kernels() []Kernel
	// Open makes the device ready for use. It is idempotent, and Plan calls it if necessary. The
	// error wraps ErrNoDevice.
	Open() error
	// Plan plans p, which must not change afterwards. reuse is nil or a plan that is no longer used,
	// and that has been reset if it is a [ReusablePlan]; the new plan may take its memory. The error
	// wraps ErrUnsupported or ErrNoDevice.
	Plan(p *gemm.Problem, o *Options, reuse Plan) (Plan, error)
	// String returns the name of the device: "gpu:1".
	String() string
}

// Plan is a planned product. A plan may be run several times, but not by several goroutines at
// once.
type Plan interface {
	// Prepare makes the plan ready to run: it compiles the kernels. Run does the same if necessary.
	Prepare(ctx context.Context) error
	// PrepareTime returns the time that preparing took in this process, or 0 if it is not prepared.
	PrepareTime() time.Duration
	// Run computes the product. [gemm.Buffers.Check] must have accepted the buffers.
	Run(ctx context.Context, b *gemm.Buffers) error

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
}

// Choice selects a kernel and its parameters. Empty fields are left to the backend.
type Choice struct {
	Kernel string `json:"kernel"`
	Tile   string `json:"shape,omitempty"` // in the syntax of the GPU kernel
	Config Config `json:"config,omitzero"` // of a CPU kernel
}

// Options configure a plan. The zero value leaves every choice to the backend.
type Options struct {
	Choice
	// Threads is the maximum number of goroutines. 0 is GOMAXPROCS, which is also the upper limit.
	Threads int
	// GPUMemory is the maximum number of bytes of GPU memory that a product of matrices in host memory
	// uses. 0 sets no limit.
	GPUMemory int
	// RowInvariant makes [Packer] pack for row-invariant products.
	RowInvariant bool
	// Packed is B if it is already packed, for a backend that implements [Packer]. The plan uses the
	// kernel that B was packed for, and Run ignores the B of its buffers.
	Packed Packed
}

// Kernel describes a kernel.
type Kernel struct {
	Name string
	// Kind is the kind of device that the kernel is for. Kernels for GPUs run on the emulator, too.
	Kind      Kind
	Adds      string // the improvement over the kernel before it, in one line
	Needs     string // the required instruction sets or GPU architecture; empty if none
	SM        int    // the lowest GPU architecture: 75 is sm_75
	Available bool   // whether this machine, or its emulator, can run the kernel
	Types     []dtype.Type
	// Precisions lists the precisions that the kernel supports besides Native, for some type.
	Precisions []gemm.Precision
	Tiles      []int // tile and block sizes
	// Supports returns an error that wraps ErrUnsupported if the kernel cannot compute p on any
	// device.
	Supports func(p *gemm.Problem) error
	// Accuracy describes the rounding of the kernel when it computes p.
	Accuracy func(p *gemm.Problem) gemm.Accuracy
}

// Packed is a B that a backend has packed.
type Packed interface {
	// Layout returns the layout of the original matrix.
	Layout() gemm.Layout
	// Bytes returns the size of the packed matrix.
	Bytes() int
}

// Packer is a Backend that can multiply by a packed B.
type Packer interface {
	// Pack packs the matrix of layout l at b, which is not used afterwards, for products planned with
	// o. The error wraps ErrUnsupported or ErrOutOfMemory, or is the context's.
	Pack(ctx context.Context, l gemm.Layout, b []byte, o *Options) (Packed, error)
}

// ReusablePlan is a Plan whose memory [Backend.Plan] can use again, so that planning allocates
// nothing.
type ReusablePlan interface {
	// Reset makes the plan forget its product and the caller's functions. It cannot run afterwards.
	Reset()
}

// TileCaller is a Plan that can call a function for each finished tile of C.
type TileCaller interface {
	// CallTile sets the function. Run calls it once for each tile, rows×cols elements from (i, j) on,
	// from the goroutine that computed the tile.
	CallTile(f func(i, j, rows, cols int))
}

// ProgressReporter is a Plan that reports its progress.
type ProgressReporter interface {
	// ReportProgress sets the function that Run calls from time to time, from the caller's goroutine,
	// with the finished and the total amount of work.
	ReportProgress(f func(done, total int64))
}

// SerialRunner is a Plan that can run on one goroutine. Many small products are faster side by
// side, each on one goroutine, than one after the other.
type SerialRunner interface {
	// RunSerial is Run on the goroutine of the caller alone. Several goroutines may call it at once.
	RunSerial(ctx context.Context, b *gemm.Buffers) error
	// PredictedSerial returns the predicted time of RunSerial, or 0 if it is not known.
	PredictedSerial() time.Duration
}

// BatchRunner is a Plan that can compute its product for several buffers at once.
type BatchRunner interface {
	// RunBatch computes the product for each of the buffers, all with the bias of the first. It uses
	// the given kernel or, if that is empty, one that suits the batch. The error wraps ErrUnsupported
	// if no kernel computes such a batch.
	RunBatch(ctx context.Context, kernel string, all []gemm.Buffers) error
}

// BatchDivider is a [BatchRunner] that divides a batch among devices.
type BatchDivider interface {
	// Division describes the division of n products, in words.
	Division(n int) string
}

// GroupRunner is a Plan that can compute its product with a B for each of several groups of rows.
type GroupRunner interface {
	// RunGroups computes the product for groups of rows of A and C. Group g uses bs[g] and ends before
	// row ends[g]. The kernel and the error are as for RunBatch.
	RunGroups(ctx context.Context, kernel string, b *gemm.Buffers, bs [][]byte, ends []int32) error
}

// EpilogueApplier is a Plan that can apply its epilogue separately.
type EpilogueApplier interface {
	// Finish computes C from α·op(A)·op(B) + β·C, which sums holds in ScaleType without padding.
	Finish(sums []byte, b gemm.Buffers)
}

// Divisible is a Plan whose product can be computed in parts, each with the bits that it has in the
// whole.
type Divisible interface {
	// Order describes the order of the sums. Plans of equal products with equal orders compute equal
	// bits, also on other machines. It is empty if parts would have other bits.
	Order() string
	// Choice returns the kernel, with the tile on a GPU. Choices may depend on measurements of the
	// process, and another process that plans with this one has the same order on an equal device.
	Choice() Choice
	// Part returns the plan of p, the part of the product whose C begins at (row, col); see
	// [gemm.Problem.Part]. Order must not be empty.
	Part(p *gemm.Problem, row, col int) (Plan, error)
}

// TimePredictor is a Plan whose time is predicted.
type TimePredictor interface {
	// Predicted returns the predicted time of a run, or 0 if it is not known.
	Predicted() time.Duration
}

// BreakdownRunner is a Plan that can measure the time that its GPUs compute, copy and wait.
type BreakdownRunner interface {
	// RunBreakdown runs the plan and returns the breakdown of the time on each GPU.
	RunBreakdown(ctx context.Context, b *gemm.Buffers) ([]timeline.Breakdown, error)
}

// Explainer is a Plan that explains how it was chosen and how it runs.
type Explainer interface {
	// Reasoning lists the candidates, one per line, with the reason for or against each. count is
	// their number; it is 0 if the caller chose the kernel.
	Reasoning() (count int, text string)
	// Program lists the copies and launches of a run, one per line. It is empty if they follow each
	// other in one stream.
	Program() string
}

// Tunable is a Backend whose choices can be tuned.
type Tunable interface {
	// TuningKey returns the key of the choices tuned for the device, or nil if there are none. The key
	// of a device does not change.
	TuningKey() *TuningKey
	// IsTuned reports whether choices, which are measured with dense matrices, hold for a matrix of
	// layout l.
	IsTuned(l gemm.Layout) bool
}

// TuningKey identifies the conditions under which a tuned choice holds.
type TuningKey struct {
	Device string // the device's model
	Build  string // the kernels, and a GPU's driver
}
