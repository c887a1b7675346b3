package ref

import (
	"context"
	"errors"
	"math/rand/v2"

	"tilework/internal/gemm"
)

// Remote is the matrices of a product that are not in the host's memory, but where they can
// be multiplied by vectors. What is multiplied is asked for first and waited for later, so
// that the host need not hold up the product, nor one sum the other.
type Remote interface {
	// Vectors are what is multiplied by from now on, x: [DefaultVectors] of N values each.
	Vectors(ctx context.Context, x [][]float64) error
	// Product asks for op(A)·(op(B)·x). Its sizes are Σ|a|·‖b‖₂ over the rows b of op(B).
	Product(ctx context.Context) (Sums, error)
	// Result asks for C·x, of C as it is when what was asked for before is done. Its sizes
	// are ‖c‖₂.
	Result(ctx context.Context) (Sums, error)
	// FetchA, FetchB and FetchC copy some stored rows and columns of a matrix, which come
	// without room between them.
	FetchA(ctx context.Context, row, col, rows, cols int) ([]byte, error)
	FetchB(ctx context.Context, row, col, rows, cols int) ([]byte, error)
	FetchC(ctx context.Context, row, col, rows, cols int) ([]byte, error)
}

// Sums waits for what a [Remote] was asked for, in float64: for each vector a value for each
// of M rows, and the sizes of the rows. A size is not finite where an element is not that
// counts in it.
type Sums func(ctx context.Context) (out [][]float64, size []float64, err error)

// fetch is a method of [Remote].
type fetch func(ctx context.Context, row, col, rows, cols int) ([]byte, error)

// operand is a matrix of a product that is verified: in memory, or remote.
type operand struct {
	layout gemm.Layout
	data   []byte // nil while it is only remote
	far    fetch
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
	if o.data, err = o.far(ctx, row, col, rows, cols); err == nil {
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

// far is what a check has of matrices that are remote; of none the zero value. Of whole
// numbers, which are checked modulo 2^32, only parts or all are fetched.
type far struct {
	Remote
	sent            bool // the vectors, as they are
	product, result Sums // asked for and not yet waited for
}

// ask asks for the product, or for C as it is, unless they cannot be multiplied where they
// are.
func (f *far) ask(ctx context.Context, x any, sums *Sums, what func(Remote, context.Context) (Sums, error)) (err error) {
	vectors, floats := x.([][]float64)
	if f.Remote == nil || !floats {
		return nil
	}
	if !f.sent {
		if err := f.Vectors(ctx, vectors); err != nil {
			return err
		}
		f.sent = true
	}
	if *sums, err = what(f.Remote, ctx); errors.Is(err, gemm.ErrUnsupported) {
		*sums, err = nil, nil
	}
	return err
}

// take waits for what was asked for, and reports whether there was any: if something is not
// finite there is none, and the matrices are looked at here.
func take[T number](ctx context.Context, sums *Sums) (out [][]T, size []float64, ok bool, err error) {
	s := *sums
	if *sums = nil; s == nil {
		return nil, nil, false, nil
	}
	values, size, err := s(ctx)
	out, ok = any(values).([][]T)
	return out, size, ok && err == nil && !anyNonfinite(size), err
}
