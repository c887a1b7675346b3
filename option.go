package tilework

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/call"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// Option adjusts one product. A later option overrides an earlier one that sets the same thing. A
// nil Option does nothing.
//
// Options that take an [Operand] accept a [Matrix] or, for a product on a device, a [DeviceMatrix]
// on that device. A product on a device uploads operands that are on the host.
type Option func(*config)

// config is the sum of the options of a product.
type config = call.Options

// apply applies opts to c.
func apply(c *config, opts []Option) {
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
}

// give sets operand o.
func give[T dtype.Element](c *config, o gemm.Operand, x Operand[T]) {
	to := c.Give(o)
	describe(x, o, &to.Layout, &to.Host, to)
}

// WithDevice selects the device of a product of matrices on the host: "auto" (the default), "cpu",
// "gpu", "gpu:N", "gpu:GPU-" and the start of a UUID, "emu" or "emu:MODEL". The command
// tilework devices lists them. "gpu:0,1", "gpu:all" and "emu:h200,h200" divide C among several
// GPUs, with the bits of one. A missing device is ErrNoDevice; no other device takes its place.
//
// "auto" selects the CPU or the first GPU, whichever is estimated to be faster from the host's
// memory back to it. The estimate is based on measurements, made when first needed in a fraction of
// a second and kept in the user's cache directory or in TILEWORK_CACHE, unless that is "off". The
// two sum in different orders: name the device where the bits of a result must not depend on its
// size.
// With [WithRowInvariance], "auto" selects the first GPU, or the CPU if there is none.
// [PlanGemm] reports the choice and its reason.
func WithDevice(name string) Option {
	d, err := backend.ParseDevice(name)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	return func(c *config) {
		c.Fail(err)
		c.Device = d
	}
}

// WithGPUMemory limits the bytes of GPU memory that a product of matrices on the host uses for
// them; the default is nine tenths of the GPU's memory. Matrices that need more are multiplied
// block by block, in the same order of sums, so the limit changes no bit of the result.
// [Plan.Detail] states the blocks and the bytes copied. 256 MiB suffice for matrices with sides of
// up to 50,000, but slow large products down. A product that needs more than the limit returns
// [ErrOutOfMemory] and leaves C as it was. If another program uses the memory, the blocks become
// smaller too. The CPU ignores the limit. A number that is not positive is ErrUnsupported.
func WithGPUMemory(bytes int) Option {
	return func(c *config) {
		if bytes <= 0 {
			c.Fail(fmt.Errorf("%w: a limit of %d bytes of GPU memory, want a positive number", ErrUnsupported, bytes))
		}
		c.GPUMemory = bytes
	}
}

// WithKernel selects the kernel by a name that the command tilework kernels lists. On a GPU the
// name may end with a tile: "tiled:16". "default" selects the choice that depends on neither
// [TuneGemm] nor repeated calls.
//
// Without WithKernel, the first calls of a product that is repeated on a GPU try up to six kernels
// with equal bits, and later calls use the fastest one, also in later processes through the cache
// described at [WithDevice]. No call waits for that.
func WithKernel(name string) Option { return func(c *config) { c.Kernel = name } }

// WithThreads bounds the number of goroutines that compute at once on the CPU, the caller included.
// The default and the maximum is GOMAXPROCS. 0 selects the default; a negative number is
// ErrUnsupported.
func WithThreads(n int) Option {
	return func(c *config) {
		c.Fail(dispatch.CheckThreads(n))
		c.Threads = n
	}
}

// WithVerify verifies the result by Freivalds' method, in O(n²) operations: C·x is compared with
// α·A·(B·x) + β·C·x for random vectors x of ±1, in float64, or modulo 2³² for integers, on the
// device that holds the matrices. The threshold follows from the rounding errors of the kernel. A
// wrong result is [ErrVerify], and so is one in which an error of 1 % of a row's norm, or of eight
// roundoffs of C's type if that is more, could go unnoticed: long sums with [WithFastAccumulation],
// or data with rounding errors of that size. [WithVerifyLimit] sets another limit.
//
// With matrices on a device the call waits for the product. An activation, a gated product, scales
// of rows and columns and a residual are ErrUnsupported there.
func WithVerify() Option { return func(c *config) { c.Verify = true } }

// WithVerifyLimit is [WithVerify] with another limit, relative to a row's norm: 0.05 accepts
// results in which errors of up to 5 % could go unnoticed. A number that is not positive is
// ErrUnsupported.
func WithVerifyLimit(within float64) Option {
	return func(c *config) {
		if !(within > 0) {
			c.Fail(fmt.Errorf("%w: verification within %v of a row's norm, want a positive number", ErrUnsupported, within))
		}
		c.Verify, c.Within = true, within
	}
}

// WithProgress calls f with the amount of work done and the total, at most ten times per second,
// and at last when all is done. f runs on the goroutine that called [Gemm]. The CPU and emulated
// GPUs call it, but not for products of matrices on a device, and not for equal products of a batch
// that an emulated GPU computes in one launch.
func WithProgress(f func(done, total int64)) Option {
	return func(c *config) { c.Progress = f }
}
