package tilework

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/resident"
	"tilework/ptx/build"
)

// Option adjusts one product. Of two that say different things the later wins.
type Option func(*config)

// config is what the options add up to.
type config struct {
	request   *dispatch.Request // whose problem is not theirs
	precision Precision
	bias      []byte          // on the host, or
	biasOn    resident.Matrix // on a device
	biasOf    dtype.Type
	biasLen   int
	extras    *[gemm.Operands]extra // what else is read, nil for nothing
	tile      func(c any, swapped bool) (func(i, j, rows, cols int), error)
	gemm.Epilogue
	err error // the first option that makes no sense
}

// configure has c say what opts do, as far as r can in r, which is of zeros.
func (c *config) configure(r *dispatch.Request, opts []Option) {
	c.request = r
	for _, o := range opts {
		o(c)
	}
}

func (c *config) fail(err error) {
	if c.err == nil && err != nil {
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
		d, err := backend.ParseDevice(name)
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
	// GPUs have 14 bits for.
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
// compared with α·A·(B·x) + β·C·x for random vectors x of ±1, in float64, or modulo 2³² for
// whole numbers, where the matrices are. The threshold follows from the rounding errors of the
// kernel that computed C. A wrong result is [ErrVerify], and so is one in which an error of 1 % of
// a row's norm, or of eight roundoffs of C's type if that is more, could go unnoticed: long sums in
// [Fast], or data whose rounding errors are that large. [WithVerifyWithin] accepts other limits.
func WithVerify() Option { return func(c *config) { c.request.Verify = true } }

// WithVerifyWithin is [WithVerify] with a limit on the errors that could go unnoticed: within is
// relative to a row's norm, 0.05 for 5 %. It must be positive.
func WithVerifyWithin(within float64) Option {
	return func(c *config) {
		if !(within > 0) {
			c.fail(fmt.Errorf("%w: verification within %v of a row's norm, want a positive number", ErrUnsupported, within))
		}
		c.request.Verify, c.request.Within = true, within
	}
}

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

// extra is an operand of an epilogue, or block scales, with the layout that it has on the host or the device.
type extra struct {
	host   []byte
	on     resident.Matrix
	layout gemm.Layout
	number float64 // in place of both, of an output scale
}

// WithRowScale multiplies row i of the product by v[i], before a bias is added. v has one
// element a row, of the type of α and β: float64 for float64, otherwise float32. The int32
// result of int8 has no scales: ErrUnsupported. The scale multiplies α·A·B + β·C.
//
// A quantised layer is an int8 product with a float result, its two factors' scales and a bias:
//
//	err := tilework.MulInto(ctx, y, q, w, // float32 ← int8·int8
//		tilework.WithRowScale(sx), tilework.WithColScale(sw), tilework.WithColBias(b))
func WithRowScale[T Element](v []T) Option { return withScale(gemm.RowScale, v) }

// WithColScale multiplies column j of the product by v[j]; see [WithRowScale].
func WithColScale[T Element](v []T) Option { return withScale(gemm.ColScale, v) }

func withScale[T Element](x gemm.Operand, v []T) Option {
	return func(c *config) {
		c.setExtra(x, extra{host: dtype.Bytes(v), layout: gemm.Dense(dtype.Of[T](), 1, len(v))})
	}
}

// WithRowScaleOn is [WithRowScale] for [GemmOn] and [MulOn], with a vector that is on the
// device: a 1×m matrix, or the transpose of one.
func WithRowScaleOn[T Element](v DeviceMatrix[T]) Option { return withScaleOn(gemm.RowScale, v) }

// WithColScaleOn is [WithColScale] for [GemmOn] and [MulOn], with a vector that is on the
// device: a 1×n matrix, or the transpose of one.
func WithColScaleOn[T Element](v DeviceMatrix[T]) Option { return withScaleOn(gemm.ColScale, v) }

func withScaleOn[T Element](x gemm.Operand, v DeviceMatrix[T]) Option {
	return func(c *config) {
		l := v.m.Layout
		l.Trans = false
		c.fail(firstErr(v.err, v.there("the "+x.String())))
		c.setExtra(x, extra{on: v.m, layout: l})
	}
}

// WithBlockScales has elements of A and B, which are 8-bit floats, stand for multiples of
// numbers that a block of them shares:
//
//	C = α·Σₖ (a[i, k/128]·op(A)[i, k]) · (b[k/128, j]·op(B)[k, j]) + β·C
//
// a is m×⌈k/128⌉, a scale for each row and 128 of K, or ⌈m/128⌉×⌈k/128⌉, one for each block of
// 128×128; b is ⌈k/128⌉×n or ⌈k/128⌉×⌈n/128⌉. (What is m elements high where m is 1 is both.)
// They lie as op(A) and op(B) do, whether A and B are transposed or not, and may be
// transposed themselves. The errors are ErrShape, and ErrUnsupported for other element types,
// for [Fast] and for a kernel that has no such arithmetic.
func WithBlockScales(a, b Matrix[float32]) Option {
	return func(c *config) {
		c.fail(firstErr(a.err, b.err))
		c.keep(gemm.ScaleA, extra{host: bytesOf(a), layout: a.layout()})
		c.keep(gemm.ScaleB, extra{host: bytesOf(b), layout: b.layout()})
	}
}

// WithBlockScalesOn is [WithBlockScales] for [GemmOn] and [MulOn], with matrices that are on
// the device.
func WithBlockScalesOn(a, b DeviceMatrix[float32]) Option {
	return func(c *config) {
		c.fail(firstErr(a.err, b.err, a.there("the "+gemm.ScaleA.String()), b.there("the "+gemm.ScaleB.String())))
		c.keep(gemm.ScaleA, extra{on: a.m, layout: a.m.Layout})
		c.keep(gemm.ScaleB, extra{on: b.m, layout: b.m.Layout})
	}
}

// WithResidual adds a matrix to the result, behind the activation: d is m×n, of C's type,
// shares no memory with C and is stored as C is, by rows or by columns. (β·C is added before
// the bias.)
func WithResidual[T Element](d Matrix[T]) Option {
	return func(c *config) {
		c.fail(d.err)
		c.setExtra(gemm.Residual, extra{host: bytesOf(d), layout: d.layout()})
	}
}

// WithResidualOn is [WithResidual] for [GemmOn] and [MulOn], with a matrix that is on the
// device.
func WithResidualOn[T Element](d DeviceMatrix[T]) Option {
	return func(c *config) {
		c.fail(firstErr(d.err, d.there("the residual")))
		c.setExtra(gemm.Residual, extra{on: d.m, layout: d.m.Layout})
	}
}

// WithGated makes a product gated: C ← act(α·A·B) ∘ (α·A·up), element by element, where up is
// k×n, of B's type and stored as B is, by rows or by columns. With [WithActivation] "silu" that
// is SwiGLU, B being what models call the gate; with "gelu" GeGLU. Weights that stand side by side
// in one matrix are two views of it ([Matrix.Sub]).
//
// A GPU with the wgmma kernel computes both products in one launch; any other kernel, and the
// processor, has memory for m×n sums of the second. There is no bias, no scale of rows or
// columns, no batch of groups and no transposed C for it, and β is 0: ErrUnsupported.
func WithGated[T Element](up Matrix[T]) Option {
	return func(c *config) {
		c.fail(up.err)
		c.setExtra(gemm.Up, extra{host: bytesOf(up), layout: up.layout()})
	}
}

// WithGatedOn is [WithGated] for [GemmOn] and [MulOn], with a matrix that is on the device.
func WithGatedOn[T Element](up DeviceMatrix[T]) Option {
	return func(c *config) {
		c.fail(firstErr(up.err, up.there("up")))
		c.setExtra(gemm.Up, extra{on: up.m, layout: up.m.Layout})
	}
}

// WithOutputScale multiplies the result by a number behind all else, as before it is
// rounded to a short type. The number is rounded to the type of α and β.
func WithOutputScale(factor float64) Option {
	return func(c *config) { c.setExtra(gemm.OutScale, extra{number: factor}) }
}

// WithOutputScaleOn is [WithOutputScale] for [GemmOn] and [MulOn], with a number that is on the
// device, a 1×1 matrix of the type of α and β: it may be the result of
// work that is still under way.
func WithOutputScaleOn[T Element](factor DeviceMatrix[T]) Option {
	return withScaleOn(gemm.OutScale, factor)
}

// DeviceFunc is a function of the caller's that GPU kernels compute of every element, behind
// all else that options say and before the result is rounded; see [NewDeviceFunc].
type DeviceFunc struct{ f *kernel.Function }

// DeviceElement is the argument of a [DeviceFunc]: an element's value in the type of α and β, its
// row and its column in the result, and the data of the product's
// [WithDeviceFunc].
type DeviceElement = kernel.Element

// NewDeviceFunc is a function that f writes, with the builder of tilework/ptx/build: it returns a
// value of the type of the element's. It is compiled into a kernel when a product first needs
// it, and once for all functions that write the same; what may differ from product to product
// belongs into the data.
//
//	f, err := tilework.NewDeviceFunc(func(k *build.Kernel, e tilework.DeviceElement) build.Reg {
//		return k.Mul(e.Value, e.Data.At(e.Col).Load())
//	})
//
// f must not write to memory or wait for other threads. What it writes is checked as
// every kernel is; the error is ErrUnsupported.
func NewDeviceFunc(f func(k *build.Kernel, e DeviceElement) build.Reg) (*DeviceFunc, error) {
	own, err := kernel.NewFunction(f)
	if err != nil {
		return nil, err
	}
	return &DeviceFunc{own}, nil
}

// WithDeviceFunc has a GPU apply f to every element; on the processor, for which there is
// [WithTileFunc], and with [WithVerify] it is ErrUnsupported. data are the numbers that f
// reads, of the type of α and β, none if it reads none.
func WithDeviceFunc[T Element](f *DeviceFunc, data []T) Option {
	return withFunc(f, extra{host: dtype.Bytes(data), layout: gemm.Dense(dtype.Of[T](), 1, len(data))})
}

// WithDeviceFuncOn is [WithDeviceFunc] for [GemmOn] and [MulOn], with data that are on the
// device in one stored row.
func WithDeviceFuncOn[T Element](f *DeviceFunc, data DeviceMatrix[T]) Option {
	l := data.m.Layout
	l.Trans = false
	o := withFunc(f, extra{on: data.m, layout: l})
	return func(c *config) {
		c.fail(firstErr(data.err, data.there("the data")))
		o(c)
	}
}

func withFunc(f *DeviceFunc, data extra) Option {
	return func(c *config) {
		if f == nil {
			c.fail(fmt.Errorf("%w: no function", ErrUnsupported))
			return
		}
		c.Function = f.f
		c.keep(gemm.FunctionData, data)
	}
}

// WithSaturation makes results that are too large for C's type its largest value, with
// their sign, instead of an infinity. NaN stays NaN. int32 results wrap: ErrUnsupported.
func WithSaturation() Option { return func(c *config) { c.Saturate = true } }

func (c *config) setExtra(x gemm.Operand, e extra) {
	*c.ReadFlag(x) = true
	c.keep(x, e)
}

func (c *config) keep(x gemm.Operand, e extra) {
	if c.extras == nil {
		c.extras = new([gemm.Operands]extra)
	}
	c.extras[x] = e
}

// checkExtras refuses operands of the epilogue that do not fit the product p of a result
// like out, and gives an output scale its bytes. Where New has swapped the matrices of p, p's
// operands are the transposed product's.
func (c *config) checkExtras(p *gemm.Problem, swapped bool) error {
	if c.extras == nil {
		return nil
	}
	if a, b := c.extras[gemm.ScaleA].layout, c.extras[gemm.ScaleB].layout; a.Type != dtype.Invalid {
		var err error
		if *p, err = p.Scaled(a, b, swapped); err != nil {
			return err
		}
	}
	for x := range gemm.Operands {
		if x == gemm.Bias || !c.Epilogue.Reads(x) {
			continue
		}
		e, to := &c.extras[x], x
		if swapped {
			to = x.Transposed()
		}
		if x == gemm.FunctionData {
			p.DataLen = e.layout.Cols
		}
		if x == gemm.Residual {
			l := e.layout
			if swapped {
				l = l.T()
			}
			var err error
			if *p, err = p.Plus(l); err != nil {
				return err
			}
			continue
		}
		if x == gemm.Up {
			var err error
			if *p, err = p.GatedBy(e.layout); err != nil {
				return err
			}
			continue
		}
		want := p.Layout(to)
		if x == gemm.OutScale && e.on.Memory == nil {
			e.host, e.layout = make([]byte, want.Bytes()), want
			want.Type.Set(e.host, 0, e.number)
		}
		switch l := e.layout; {
		case l.Type != want.Type:
			return fmt.Errorf("%w: a %v of %v for products of %v as %v, want %v", ErrUnsupported, x, l.Type, p.In(), p.Out(), want.Type)
		case l.Rows != 1 || l.Cols != want.Cols || l.Cols == 0 && x == gemm.FunctionData:
			return fmt.Errorf("%w: a %v of %d×%d elements in memory, want one row of %d", ErrShape, x, l.Rows, l.Cols, want.Cols)
		}
	}
	return nil
}

// checkHost refuses what matrices on the host cannot be multiplied with.
func (c *config) checkHost() error {
	if c.biasOn.Memory != nil {
		return fmt.Errorf("%w: a bias on device %v for matrices on the host", ErrUnsupported, c.biasOn.Memory.Device())
	}
	if c.extras == nil {
		return nil
	}
	for x, e := range c.extras {
		if e.on.Memory != nil {
			return fmt.Errorf("%w: a %v on device %v for matrices on the host", ErrUnsupported, gemm.Operand(x), e.on.Memory.Device())
		}
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

// WithActivation applies a function to every element, after the bias and before a residual
// is added: "relu", "gelu", "gelu-tanh" or "silu".
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
func (c *config) checkBias(out *gemm.Layout) error {
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
