package tilework

import (
	"context"
	"fmt"
	"sync"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// Mul is the product A·B of an m×k and a k×n matrix, as a new m×n matrix of the
// same type. (Products of int8 and of 8-bit floats are matrices of another type: use [MulInto].)
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

// MulInto overwrites C, m×n, with the product A·B of an m×k and a k×n matrix. C
// has the type of A and B, or the type that their products are summed in:
// float32 for [Float16] and [BFloat16], int32 for int8 (whose sums wrap). Products of
// [Float8E4M3] and of [Float8E5M2] are float32, [BFloat16] or [Float16].
func MulInto[O, I Element](ctx context.Context, c Matrix[O], a, b Matrix[I], opts ...Option) error {
	return Gemm(ctx, 1, a, b, 0, c, opts...)
}

// Gemm computes C ← α·A·B + β·C for A of m×k, B of k×n and C of m×n; transposed
// operands are given as [Matrix.T]. α and β are rounded to the type that the
// product is summed in, and are whole numbers if that is int32. With β = 0 the
// old C is not read; with α = 0 neither A nor B is.
func Gemm[I, O Element](ctx context.Context, alpha float64, a, b Matrix[I], beta float64, c Matrix[O], opts ...Option) error {
	return run(ctx, alpha, a, factorOf(b), beta, c, opts)
}

// factor is the B of a product: a matrix, or one that was packed.
type factor struct {
	layout gemm.Layout
	bytes  []byte
	packed *dispatch.Packed
	err    error
}

func factorOf[T Element](b Matrix[T]) factor {
	return factor{layout: b.layout(), bytes: bytesOf(b), err: b.err}
}

func run[I, O Element](ctx context.Context, alpha float64, a Matrix[I], b factor, beta float64, c Matrix[O], opts []Option) error {
	k := calls.Get().(*call)
	k.config.configure(opts)
	err := plan(&k.product, &k.config, alpha, a, b, beta, c)
	if err == nil {
		err = k.product.Run(ctx, k.product.Buffers)
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
// from one i to the next; no C may overlap another or any A or B.
func GemmBatch[I, O Element](ctx context.Context, alpha float64, a, b []Matrix[I], beta float64, c []Matrix[O], opts ...Option) error {
	if len(a) != len(b) || len(a) != len(c) {
		return fmt.Errorf("%w: a batch of %d A, %d B and %d C", ErrShape, len(a), len(b), len(c))
	}
	batch := make([]dispatch.Product, len(a))
	for i := range a {
		var cfg config
		cfg.configure(opts)
		if err := plan(&batch[i], &cfg, alpha, a[i], factorOf(b[i]), beta, c[i]); err != nil {
			return fmt.Errorf("product %d of the batch: %w", i, err)
		}
	}
	return dispatch.RunBatch(ctx, batch)
}

// plan turns a call into a plan and the memory to run it on.
func plan[I, O Element](p *dispatch.Product, cfg *config, alpha float64, a Matrix[I], b factor, beta float64, c Matrix[O]) error {
	if err := firstErr(a.err, b.err, c.err, cfg.err, cfg.checkHost()); err != nil {
		return err
	}
	if err := cfg.checkBias(c.layout()); err != nil {
		return err
	}
	p.Request = cfg.request
	var swapped bool
	var err error
	p.Problem, swapped, err = gemm.New(alpha, a.layout(), b.layout, beta, c.layout(), cfg.Epilogue)
	if err == nil {
		p.Problem, err = p.Problem.In(cfg.precision)
	}
	if err == nil {
		err = cfg.checkExtras(&p.Problem, swapped)
	}
	if err != nil {
		return err
	}
	p.Buffers = gemm.Buffers{A: bytesOf(a), B: b.bytes, C: bytesOf(c), Bias: cfg.bias}
	if swapped {
		p.Buffers.A, p.Buffers.B = p.Buffers.B, p.Buffers.A
	}
	if cfg.extras != nil {
		for x := range gemm.Extra(gemm.Extras) {
			if swapped {
				p.Buffers.Extras[x.Transposed()] = cfg.extras[x].host
			} else {
				p.Buffers.Extras[x] = cfg.extras[x].host
			}
		}
	}
	switch {
	case swapped && b.packed != nil:
		return fmt.Errorf("%w: a transposed C for a packed B", ErrUnsupported)
	case cfg.tile != nil:
		if p.Tile, err = cfg.tile(c, swapped); err != nil {
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
