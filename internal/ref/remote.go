package ref

import (
	"context"
	"errors"
	"math/rand/v2"

	"tilework/internal/gemm"
)

// Remote is a matrix that is not in the host's memory, but where it can be multiplied by
// vectors.
type Remote interface {
	// Sweep multiplies op(matrix), of floating point, by vectors with one value for each
	// of its columns, in float64. For each of its rows size is Σ|x|·weight or, without
	// weights, Σx², and not finite where an element is not. After ErrUnsupported the
	// matrix is fetched instead.
	Sweep(ctx context.Context, vectors [][]float64, weights []float64) (out [][]float64, size []float64, err error)
	// Fetch copies some stored rows and columns, which come without room between them.
	Fetch(ctx context.Context, row, col, rows, cols int) ([]byte, error)
}

// operand is a matrix of a product that is verified: in memory, or remote.
type operand struct {
	layout gemm.Layout
	data   []byte // nil while it is only remote
	far    Remote
}

func (o *operand) at(i, j int) float64 { return o.layout.Type.At(o.data, o.layout.Index(i, j)) }

// fetch brings the matrix here, if it is not.
func (o *operand) fetch(ctx context.Context) error {
	return o.fetchPart(ctx, 0, 0, o.layout.Rows, o.layout.Cols)
}

// fetchPart brings a part of the matrix here, if it is not, and makes o that part.
func (o *operand) fetchPart(ctx context.Context, row, col, rows, cols int) (err error) {
	if o.far == nil || o.data != nil || o.layout.Len() == 0 {
		return nil
	}
	if o.data, err = o.far.Fetch(ctx, row, col, rows, cols); err == nil {
		o.layout.Rows, o.layout.Cols, o.layout.LD = rows, cols, cols
	}
	return err
}

// sampled is the rows and columns of what sample brings.
const sampled = 64

// sample brings a random part of the matrix here, if it is not, and makes o that part.
func (o *operand) sample(ctx context.Context, rng *rand.Rand) error {
	rows, cols := min(o.layout.Rows, sampled), min(o.layout.Cols, sampled)
	return o.fetchPart(ctx, rng.IntN(o.layout.Rows-rows+1), rng.IntN(o.layout.Cols-cols+1), rows, cols)
}

// remotely fills out and size where the matrix is, and reports whether it did. Whole
// numbers, which are checked modulo 2^32, and what is not finite, whose places are asked
// for, are summed here.
func (s *sweep[T]) remotely(ctx context.Context) (done bool, err error) {
	in, floats := any(s.in).([][]float64)
	if s.far == nil || s.data != nil {
		return false, nil
	}
	if floats {
		out, size, err := s.far.Sweep(ctx, in, s.weight)
		switch {
		case errors.Is(err, gemm.ErrUnsupported):
			return false, s.fetch(ctx)
		case err != nil:
			return false, err
		}
		if !anyNonfinite(size) {
			for n, sums := range any(s.out).([][]float64) {
				copy(sums, out[n])
			}
			copy(s.size, size)
			return true, nil
		}
	}
	return false, s.fetch(ctx)
}
