package tilework

import (
	"context"
	"fmt"

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
	p, buffers, err := plan(alpha, a, b, beta, c, opts)
	if err != nil {
		return err
	}
	return p.Run(ctx, buffers)
}

// GemmBatch computes C[i] ← α·A[i]·B[i] + β·C[i] for every i. The shapes may differ
// from one i to the next; no C may overlap another or any A or B.
func GemmBatch[I, O Element](ctx context.Context, alpha float64, a, b []Matrix[I], beta float64, c []Matrix[O], opts ...Option) error {
	if len(a) != len(b) || len(a) != len(c) {
		return fmt.Errorf("%w: a batch of %d A, %d B and %d C", ErrShape, len(a), len(b), len(c))
	}
	batch := make([]dispatch.Product, len(a))
	for i := range a {
		p, buffers, err := plan(alpha, a[i], b[i], beta, c[i], opts)
		if err != nil {
			return fmt.Errorf("product %d of the batch: %w", i, err)
		}
		batch[i] = dispatch.Product{Plan: p, Buffers: buffers}
	}
	return dispatch.RunBatch(ctx, batch)
}

// plan turns a call into a plan and the memory to run it on.
func plan[I, O Element](alpha float64, a, b Matrix[I], beta float64, c Matrix[O], opts []Option) (*dispatch.Plan, gemm.Buffers, error) {
	var buffers gemm.Buffers
	cfg := configure(opts)
	if err := firstErr(a.err, b.err, c.err, cfg.err, cfg.checkHost()); err != nil {
		return nil, buffers, err
	}
	if err := cfg.checkBias(c.layout()); err != nil {
		return nil, buffers, err
	}
	problem, swapped, err := gemm.New(alpha, a.layout(), b.layout(), beta, c.layout(), cfg.Epilogue)
	if err == nil {
		problem, err = problem.In(cfg.precision)
	}
	if err != nil {
		return nil, buffers, err
	}
	cfg.request.Problem = &problem
	p, err := dispatch.New(cfg.request)
	if err != nil {
		return nil, buffers, err
	}
	buffers = gemm.Buffers{A: bytesOf(a), B: bytesOf(b), C: bytesOf(c), Bias: cfg.bias}
	if swapped {
		buffers.A, buffers.B = buffers.B, buffers.A
	}
	return p, buffers, nil
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
