// Package backend defines the interfaces between dispatch, which decides where a product is
// computed, and the backends, which compute it: [Backend] and [Plan]. It also names devices
// ([DeviceName]).
//
// All plans have all methods of Plan. Those that only some plans implement are in [BasePlan], which
// plans embed. Two abilities of a backend itself are interfaces: [Packer] and [Tunable].
package backend

import (
	"context"

	"tilework/dtype"
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
	// Plan plans p, which must not change afterwards. reuse is nil or a result of [Plan.Reset], whose
	// memory the new plan may take. The error wraps ErrUnsupported or ErrNoDevice.
	Plan(p *gemm.Problem, o *Options, reuse Plan) (Plan, error)
	// String returns the name of the device: "gpu:1".
	String() string
}

// DefaultKernel stands for the default choice where the name of a kernel is requested: the choice
// that neither tuning nor repeated calls have changed.
const DefaultKernel = "default"

// LeastGain is the least speed, relative to the default choice, of a choice that replaces it. Less
// may come from another placement of the matrices in memory.
const LeastGain = 1.02

// Choice selects a kernel and its parameters. Empty fields are left to the backend.
type Choice struct {
	Kernel string `json:"kernel"`
	Tile   string `json:"shape,omitempty"` // in the syntax of the GPU kernel
	Config Config `json:"config,omitzero"` // of a CPU kernel
}

// Options configure a plan. The zero value leaves every choice to the backend.
type Options struct {
	Choice
	// SameBits makes the choice ErrUnsupported if it has other bits than the default one.
	SameBits bool
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
