package tilework

import (
	"context"
	"fmt"
	"math"
	"sync"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// Mul is the product A·B of an m×k and a k×n matrix, as a new m×n matrix of the
// same type. [MulInto] has results of other types, and products of int8 and 8-bit floats.
func Mul[T Float](ctx context.Context, a, b Matrix[T], opts ...Option) (Matrix[T], error) {
	if err := firstErr(a.err, b.err); err != nil {
		return Matrix[T]{}, err
	}
	c := New[T](a.rows, b.cols)
	if err := Gemm(ctx, 1, a, b, 0, c, opts...); err != nil {
		return Matrix[T]{}, err
	}
	return c, nil
}

// MulInto overwrites C, m×n, with the product A·B of an m×k and a k×n matrix. The types
// that C may have:
//
//	A, B                          sums      C
//	float64                       float64   float64
//	float32                       float32   float32, BFloat16, Float16
//	Float16                       float32   Float16, float32
//	BFloat16                      float32   BFloat16, float32
//	Float8E4M3 or Float8E5M2      float32   float32, BFloat16, Float16, as A and B
//	int8                          int32     int32, float32, BFloat16, Float16
//
// Sums in int32 are exact, but wrap beyond 32 bits. For a C of floats they are converted to
// float32, to nearest with ties to even. α, β and the options' epilogue then apply in
// float32. A C of 16 or 8 bits is rounded once, at the end.
func MulInto[O, I Element](ctx context.Context, c Matrix[O], a, b Matrix[I], opts ...Option) error {
	return Gemm(ctx, 1, a, b, 0, c, opts...)
}

// Gemm computes C ← α·A·B + β·C for A of m×k, B of k×n and C of m×n; transposed
// operands are given as [Matrix.T]. α and β are rounded to float64 for float64 matrices and else
// to float32; for an int32 C they must be whole numbers. With β = 0 the old C is not read; with
// α = 0 neither A nor B is. [MulInto] lists the types of C.
func Gemm[I, O Element](ctx context.Context, alpha float64, a, b Matrix[I], beta float64, c Matrix[O], opts ...Option) error {
	var by factor
	b.asFactor(&by)
	return run(ctx, alpha, &a, &by, beta, &c, opts)
}

// factor is the B of a product: a matrix, or one that was packed.
type factor struct {
	layout gemm.Layout
	bytes  []byte
	packed *dispatch.Packed
	err    error
}

func (m *Matrix[T]) asFactor(f *factor) {
	m.describe(&f.layout)
	f.bytes, f.err = dtype.Bytes(m.data), m.err
}

func run[I, O Element](ctx context.Context, alpha float64, a *Matrix[I], b *factor, beta float64, c *Matrix[O], opts []Option) error {
	k := calls.Get().(*call)
	k.config.configure(&k.product.Request, opts)
	err := plan(&k.product, &k.config, alpha, a, b, beta, c)
	if err == nil {
		err = k.product.Run(ctx)
	}
	*k = call{} // it refers to the caller's memory
	calls.Put(k)
	return err
}

// call is what one call needs, kept for the next one: what the options are given does not
// live on a stack.
type call struct {
	config  config
	product dispatch.Product
}

var calls = sync.Pool{New: func() any { return new(call) }}

// GemmBatch computes C[i] ← α·A[i]·B[i] + β·C[i] for every i. The shapes may differ
// from one i to the next; no C may overlap another or any A or B. On a GPU those that do not
// differ are one launch, unless they are verified.
func GemmBatch[I, O Element](ctx context.Context, alpha float64, a, b []Matrix[I], beta float64, c []Matrix[O], opts ...Option) error {
	if len(a) != len(b) || len(a) != len(c) {
		return fmt.Errorf("%w: a batch of %d A, %d B and %d C", ErrShape, len(a), len(b), len(c))
	}
	batch := make([]dispatch.Product, len(a))
	for i := range a {
		var cfg config
		cfg.configure(&batch[i].Request, opts)
		var by factor
		b[i].asFactor(&by)
		if err := plan(&batch[i], &cfg, alpha, &a[i], &by, beta, &c[i]); err != nil {
			return fmt.Errorf("product %d of the batch: %w", i, err)
		}
	}
	return dispatch.RunBatch(ctx, batch)
}

// GemmGrouped computes a product for each group of rows, as a mixture of experts does: group
// g has the next rows[g] rows of A, m×k, and C's same rows, m×n, become α·A·B[g] + β·C. A
// group may have no rows; rows behind the last one stay as they are. Biases are those of all
// of C. Groups that are not as many as B's matrices, or that have more rows than A, are
// ErrShape; so is an A or a B whose size does not fit, also of a group without rows.
func GemmGrouped[I, O Element](ctx context.Context, alpha float64, a Matrix[I], b []Matrix[I], rows []int, beta float64, c Matrix[O], opts ...Option) error {
	if len(b) != len(rows) {
		return fmt.Errorf("%w: %d groups of rows for %d B", ErrShape, len(rows), len(b))
	}
	if err := firstErr(a.err, c.err); err != nil {
		return err
	}
	ends, all := make([]int32, len(rows)), 0
	for g, n := range rows {
		if n < 0 || n > a.rows-all || n > math.MaxInt32-all {
			return fmt.Errorf("%w: group %d has %d rows behind %d others, of an A of %d", ErrShape, g, n, all, a.rows)
		}
		all += n
		ends[g] = int32(all)
	}
	if len(rows) == 0 {
		return ctx.Err()
	}
	if c.rows != a.rows {
		return fmt.Errorf("%w: C has %d rows and A %d", ErrShape, c.rows, a.rows)
	}
	whole := groupProduct[I, O]{alpha, a, beta, c, opts}
	var p dispatch.Product
	if err := whole.plan(&p, 0, all, b[0], nil); err != nil {
		return err
	}
	if bs, alike := sameLayout(b); alike && !c.trans {
		if handled, err := dispatch.RunGroups(ctx, &p, bs, ends); handled {
			return err
		}
	}
	batch := make([]dispatch.Product, len(rows))
	for g, n := range rows {
		if err := whole.plan(&batch[g], int(ends[g])-n, n, b[g], &p.Device); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
	}
	return dispatch.RunBatch(ctx, batch)
}

// groupProduct is what the products of groups are parts of.
type groupProduct[I, O Element] struct {
	alpha float64
	a     Matrix[I]
	beta  float64
	c     Matrix[O]
	opts  []Option
}

// plan plans the product of n rows from a first one on, on a device if that is given.
func (g *groupProduct[I, O]) plan(p *dispatch.Product, from, n int, b Matrix[I], on *backend.Device) error {
	var cfg config
	cfg.configure(&p.Request, g.opts)
	if cfg.tile != nil {
		return fmt.Errorf("%w: a function for the tiles of groups", ErrUnsupported)
	}
	if cfg.Gated {
		return fmt.Errorf("%w: gated products of groups, whose second B would be several", ErrUnsupported)
	}
	out := g.c.layout()
	if err := cfg.checkBias(&out); err != nil {
		return err
	}
	if size := out.Type.Size(); cfg.Bias == gemm.BiasRow {
		cfg.bias, cfg.biasLen = cfg.bias[from*size:][:n*size], n
	}
	if on != nil {
		cfg.request.Device = *on
	}
	a, c := g.a.Sub(from, 0, n, g.a.cols), g.c.Sub(from, 0, n, g.c.cols)
	var by factor
	b.asFactor(&by)
	return plan(p, &cfg, g.alpha, &a, &by, g.beta, &c)
}

// sameLayout is the memory of matrices, and whether they all lie in theirs alike.
func sameLayout[T Element](all []Matrix[T]) (memory [][]byte, alike bool) {
	for _, m := range all {
		if m.err != nil || m.layout() != all[0].layout() {
			return nil, false
		}
		memory = append(memory, bytesOf(m))
	}
	return memory, true
}

// plan turns a call into a plan and the memory to run it on.
func plan[I, O Element](p *dispatch.Product, cfg *config, alpha float64, a *Matrix[I], b *factor, beta float64, c *Matrix[O]) error {
	if err := firstErr(a.err, b.err, c.err, cfg.err, cfg.checkHost()); err != nil {
		return err
	}
	of := &p.Problem
	a.describe(&of.Layouts[gemm.A])
	c.describe(&of.Layouts[gemm.C])
	of.Layouts[gemm.B], of.Alpha, of.Beta, of.Epilogue = b.layout, alpha, beta, cfg.Epilogue
	if err := cfg.checkBias(&of.Layouts[gemm.C]); err != nil {
		return err
	}
	swapped, err := of.Complete()
	if err == nil && cfg.precision != Native {
		*of, err = of.WithPrecision(cfg.precision)
	}
	if err == nil {
		err = cfg.checkExtras(of, swapped)
	}
	if err != nil {
		return err
	}
	p.Buffers[gemm.A], p.Buffers[gemm.B], p.Buffers[gemm.C], p.Buffers[gemm.Bias] = dtype.Bytes(a.data), b.bytes, dtype.Bytes(c.data), cfg.bias
	if swapped {
		p.Buffers[gemm.A], p.Buffers[gemm.B] = p.Buffers[gemm.B], p.Buffers[gemm.A]
	}
	if cfg.extras != nil {
		for x := range gemm.Operands {
			if x <= gemm.C || x == gemm.Bias {
				continue
			}
			if swapped {
				p.Buffers[x.Transposed()] = cfg.extras[x].host
			} else {
				p.Buffers[x] = cfg.extras[x].host
			}
		}
	}
	switch {
	case swapped && b.packed != nil:
		return fmt.Errorf("%w: a transposed C for a packed B", ErrUnsupported)
	case cfg.tile != nil:
		if p.Tile, err = cfg.tile(*c, swapped); err != nil {
			return err
		}
	}
	p.Packed = b.packed
	return p.Decide()
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
