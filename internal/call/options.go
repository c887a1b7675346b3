package call

import (
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/split"
)

// Options is all that a caller gives for a product besides matrices A, B and C on the host.
type Options struct {
	Settings
	Progress     func(done, total int64) // see [dispatch.Request.Progress]
	Epilogue     gemm.Epilogue           // whose operands are given with Give
	Precision    gemm.Precision
	RowInvariant bool
	Division     split.By // of a new matrix on several GPUs or ranks
	// Tile returns the function for the tiles of a C of that layout and memory. swapped reports
	// whether the backend computes the transpose.
	Tile func(l gemm.Layout, memory []byte, swapped bool) (func(i, j, rows, cols int), error)

	// operands are zero if they are not given. A, B and C are given only if they are not a valid
	// matrix on the host.
	operands [gemm.Operands]Operand
	given    operandSet
	err      error // of the first invalid option

	alpha, beta complex128
}

// Settings are the options that name or bound something: those of a [dispatch.Request].
type Settings struct {
	Device             backend.DeviceName
	Kernel             string
	Threads, GPUMemory int
	Verify             bool
	Within             float64
}

// request sets the settings of r, which must be zero.
func (x *Options) request(r *dispatch.Request) {
	r.Device, r.Kernel, r.Threads, r.GPUMemory = x.Device, x.Kernel, x.Threads, x.GPUMemory
	r.Verify, r.Within, r.Progress = x.Verify, x.Within, x.Progress
}

// Request returns the request of a product whose problem is not known yet.
func (x *Options) Request() (r dispatch.Request) {
	if x.request(&r); x.RowInvariant {
		r.Problem.Invariance = gemm.InvariantRows
	}
	return r
}

// Give returns operand o, to be set. An operand that was given before is empty.
func (x *Options) Give(o gemm.Operand) *Operand {
	if x.given.has(o) {
		x.operands[o] = Operand{}
	}
	x.given |= 1 << o
	return &x.operands[o]
}

// Fail makes the product fail with err, unless it is nil or an earlier option has failed.
func (x *Options) Fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// Err returns the error of the first invalid option.
func (x *Options) Err() error { return x.err }

// OnlyDivision returns the division of a new matrix. The error is that of an invalid option, or
// ErrUnsupported for options of products.
func (x *Options) OnlyDivision() (split.By, error) {
	if x.err == nil && !(x.isPlain() && x.Settings == (Settings{})) {
		return 0, fmt.Errorf("%w: an option of products for a new matrix, want WithColumnDivision or WithCopyOnEach",
			gemm.ErrUnsupported)
	}
	return x.Division, x.err
}

// isPlain reports whether the options are settings alone, and the operands matrices on the host.
func (x *Options) isPlain() bool {
	return x.given == 0 && x.err == nil && x.Tile == nil && x.Progress == nil && !x.RowInvariant &&
		x.Precision == gemm.Native && x.Epilogue == (gemm.Epilogue{})
}

// reset clears the options. It clears only the operands that were given, as clearing all of them
// takes as long as a small product.
func (x *Options) reset() {
	for s := x.given; s != 0; s &= s - 1 {
		x.operands[s.first()].reset()
	}
	x.Settings, x.Progress, x.Epilogue, x.Precision, x.RowInvariant = Settings{}, nil, gemm.Epilogue{}, gemm.Native, false
	x.Division, x.Tile, x.given, x.err = split.Rows, nil, 0, nil
}
