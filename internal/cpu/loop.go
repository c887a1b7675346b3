package cpu

import (
	"context"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// loop is the single-threaded triple loop of every textbook: for each element of
// C, a sum along K. It reads B down its columns, which is what makes it slow: one
// element of every cache line, M·N·K times.
func loop(ctx context.Context, p *gemm.Problem, b gemm.Buffers) error {
	switch p.Accum() {
	case dtype.F32:
		return loopOf[float32](ctx, p, b)
	case dtype.F64:
		return loopOf[float64](ctx, p, b)
	default:
		return loopOf[int32](ctx, p, b)
	}
}

func loopOf[T scalar](ctx context.Context, p *gemm.Problem, b gemm.Buffers) error {
	opA, opB := operandA[T](p, b), operandB[T](p, b)
	alpha, beta := T(p.Alpha), T(p.Beta)
	finish := newFinisher[T](p, b)
	inPlace := p.C.Type == dtype.Of[T]()
	depth := p.K
	if !p.ReadsAB() {
		depth, alpha = 0, 0
	}
	sums := make([]T, p.N)
	for i := range p.M {
		if err := ctx.Err(); err != nil {
			return err
		}
		for j := range sums {
			sums[j] = T(alpha * dot(&opA, &opB, i, j, depth))
		}
		if inPlace && beta != 0 {
			for j, old := range dtype.View[T](b.C)[p.C.Index(i, 0):][:p.N] {
				sums[j] += T(beta * old)
			}
		}
		if finish != nil {
			finish.tile(sums, p.N, i, 0, 1, p.N)
		}
		if inPlace {
			copy(dtype.View[T](b.C)[p.C.Index(i, 0):], sums)
		}
	}
	return nil
}

// dot is the sum over p < depth of a's element (i, p) times b's element (j, p).
func dot[T scalar](a, b *operand[T], i, j, depth int) T {
	var sum T
	if a.widen != nil {
		for p := range depth {
			sum += T(a.at(i, p) * b.at(j, p))
		}
		return sum
	}
	x, y := a.index(i, 0), b.index(j, 0)
	dx, dy := a.index(0, 1), b.index(0, 1)
	for range depth {
		sum += T(a.data[x] * b.data[y])
		x += dx
		y += dy
	}
	return sum
}
