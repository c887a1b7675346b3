package tilework

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/resident"
)

// Option adjusts one product. Of two that say different things the later wins.
type Option func(*config)

// config is what the options add up to.
type config struct {
	request   dispatch.Request // all but the problem
	precision Precision
	bias      []byte          // on the host, or
	biasOn    resident.Matrix // on a device
	biasOf    dtype.Type
	biasLen   int
	tile      func(c any, swapped bool) (func(i, j, rows, cols int), error)
	gemm.Epilogue
	err error // the first option that makes no sense
}

func (c *config) configure(opts []Option) {
	for _, o := range opts {
		o(c)
	}
}

func (c *config) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// WithDevice says where to compute: "auto" (the default), "cpu", "gpu", "gpu:N",
// "gpu:GPU-" and the beginning of a UUID, "emu" or "emu:MODEL". A device that is not
// there is ErrNoDevice, never another device.
//
// "auto" is the processor or the first GPU, whichever takes less time from the caller's
// memory back to it, by measurements that are made when they first matter, in less than
// a second or two, and kept for the next process in the user's cache directory, or where
// TILEWORK_CACHE says, unless that is "off". The two sum in different orders: name the
// device where the bits of a result must not depend on its size. [PlanGemm] tells what
// was chosen and why.
func WithDevice(name string) Option {
	return func(c *config) {
		d, err := dispatch.ParseDevice(name)
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrNoDevice, err))
		}
		c.request.Device = d
	}
}

// WithKernel names the kernel to use, one of [Kernels].
func WithKernel(name string) Option { return func(c *config) { c.request.Kernel = name } }

// Precision names the arithmetic of a product.
type Precision = gemm.Precision

// The precisions. All but Native are for GPUs, and all but F32x3 less accurate.
const (
	// Native is the arithmetic of the element type itself, and the default.
	Native = gemm.Native
	// TF32 rounds float32 to 11 significant bits before it is multiplied.
	TF32 = gemm.TF32
	// Fast sums products of 8-bit floats in the tensor cores' accumulators, which some
	// GPUs have 13 bits for.
	Fast = gemm.Fast
	// F32x3 multiplies float32 on Hopper's tensor cores, in three parts of bfloat16
	// each: as accurate as float32 arithmetic, in other bits, and faster where M, N and
	// K are in the thousands. A product of an infinity, or of a number of more than
	// 2^127.99, is an infinity or NaN where float32's is one; which of the two may differ
	// where finite numbers overflow.
	F32x3 = gemm.F32x3
)

// WithPrecision allows an arithmetic other than [Native].
func WithPrecision(p Precision) Option { return func(c *config) { c.precision = p } }

// WithThreads bounds the number of goroutines that compute at once, the caller's
// included. Without it the bound is GOMAXPROCS, which is also the most.
// 0 stands for that too; a negative number is ErrUnsupported.
func WithThreads(n int) Option {
	return func(c *config) {
		if err := dispatch.CheckThreads(n); err != nil {
			c.fail(err)
		}
		c.request.Threads = n
	}
}

// WithVerify checks the result by Freivalds' method, in O(n²) operations: C·x is
// compared with α·A·(B·x) + β·C·x for random vectors x of ±1, in float64, where the
// matrices are. What is found wrong is ErrVerify.
func WithVerify() Option { return func(c *config) { c.request.Verify = true } }

// WithProgress calls f now and then, from the goroutine that multiplies, with how
// much of the work is done, out of how much.
func WithProgress(f func(done, total int64)) Option {
	return func(c *config) { c.request.Progress = f }
}

// WithRowBias adds v[i] to every element of row i of the result. v has the
// result's type and one element a row.
func WithRowBias[T Element](v []T) Option {
	return func(c *config) { setBias(c, gemm.BiasRow, v) }
}

// WithColBias adds v[j] to every element of column j of the result. v has the
// result's type and one element a column.
func WithColBias[T Element](v []T) Option {
	return func(c *config) { setBias(c, gemm.BiasCol, v) }
}

func setBias[T Element](c *config, dim gemm.BiasDim, v []T) {
	c.Bias, c.bias, c.biasOf, c.biasLen = dim, dtype.Bytes(v), dtype.Of[T](), len(v)
	c.biasOn = resident.Matrix{}
}

// WithRowBiasOn is [WithRowBias] for [GemmOn] and [MulOn], with a vector that is on the
// device: a 1×m matrix, or the transpose of one.
func WithRowBiasOn[T Element](v DeviceMatrix[T]) Option {
	return func(c *config) { setBiasOn(c, gemm.BiasRow, v) }
}

// WithColBiasOn is [WithColBias] for [GemmOn] and [MulOn], with a vector that is on the
// device: a 1×n matrix, or the transpose of one.
func WithColBiasOn[T Element](v DeviceMatrix[T]) Option {
	return func(c *config) { setBiasOn(c, gemm.BiasCol, v) }
}

func setBiasOn[T Element](c *config, dim gemm.BiasDim, v DeviceMatrix[T]) {
	l := v.m.Layout
	switch err := firstErr(v.err, v.there("the bias")); {
	case err != nil:
		c.fail(err)
	case l.Rows != 1 && l.Len() > 0:
		c.fail(fmt.Errorf("%w: a bias of %d stored rows of %d: upload it as one row", ErrShape, l.Rows, l.Cols))
	}
	c.Bias, c.bias, c.biasOn, c.biasOf, c.biasLen = dim, nil, v.m, dtype.Of[T](), l.Cols
}

// checkHost refuses what matrices on the host cannot be multiplied with.
func (c *config) checkHost() error {
	if c.biasOn.Memory != nil {
		return fmt.Errorf("%w: a bias on device %v for matrices on the host", ErrUnsupported, c.biasOn.Memory.Device())
	}
	return nil
}

// checkOn refuses what matrices on a device cannot be multiplied with.
func (c *config) checkOn(d *resident.Device) error {
	switch asked := c.request.Device; {
	case asked.Kind != "" && asked.String() != d.String():
		return fmt.Errorf("%w: device %v for matrices that are on %v", ErrUnsupported, asked, d)
	case c.tile != nil:
		return fmt.Errorf("%w: a function of Go for each tile of matrices on device %v: only the processor runs it", ErrUnsupported, d)
	}
	return nil
}

// WithActivation applies a function to every element, after the bias and before
// the result is rounded: "relu", "gelu", "gelu-tanh" or "silu".
func WithActivation(name string) Option {
	return func(c *config) {
		a, err := gemm.ParseActivation(name)
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrUnsupported, err))
		}
		c.Activation = a
	}
}

// WithTileFunc has f called for every tile of the result as soon as its elements are final
// (bias, activation and rounding done) and while they are in the cache: with the tile, a
// view of C that f may change, and the row and the column at which it begins. The tiles
// are all of C, each element once; how large they are depends on the kernel and the number
// of threads. f is called by several goroutines at once, in any order.
//
// It is for the processor, where auto then computes: on a GPU, with matrices that are on
// one, or with another T than C's it is ErrUnsupported.
func WithTileFunc[T Element](f func(tile Matrix[T], row, col int)) Option {
	return func(c *config) {
		c.tile = func(of any, swapped bool) (func(i, j, rows, cols int), error) {
			whole, ok := of.(Matrix[T])
			switch {
			case !ok:
				return nil, fmt.Errorf("%w: a function for tiles of %v for a result of another type", ErrUnsupported, dtype.Of[T]())
			case swapped: // the transpose is what is computed
				return func(i, j, rows, cols int) { f(whole.Sub(j, i, cols, rows), j, i) }, nil
			}
			return func(i, j, rows, cols int) { f(whole.Sub(i, j, rows, cols), i, j) }, nil
		}
		if f == nil {
			c.tile = nil
		}
	}
}

// checkBias refuses a bias that does not fit the result.
func (c *config) checkBias(out gemm.Layout) error {
	if c.Bias == gemm.BiasNone {
		return nil
	}
	want := out.OpRows()
	if c.Bias == gemm.BiasCol {
		want = out.OpCols()
	}
	switch {
	case c.biasOf != out.Type:
		return fmt.Errorf("%w: a bias of %v for a result of %v", ErrUnsupported, c.biasOf, out.Type)
	case c.biasLen != want:
		return fmt.Errorf("%w: a bias of %d elements for a result of %d×%d, want %d", ErrShape, c.biasLen, out.OpRows(), out.OpCols(), want)
	}
	return nil
}

// Activations lists the names that [WithActivation] takes.
func Activations() []string {
	var names []string
	for _, a := range gemm.Activations() {
		names = append(names, a.String())
	}
	return slices.Clip(names)
}
