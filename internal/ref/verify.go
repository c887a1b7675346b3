package ref

import (
	"context"
	"fmt"

	"tilework/internal/gemm"
)

// DefaultVectors is how many random vectors a check multiplies by.
const DefaultVectors = 4

// VerifyOptions of a Verifier; the zero value takes the defaults.
type VerifyOptions struct {
	Seed     uint64   // of the random vectors
	Vectors  int      // 0 means DefaultVectors
	Accuracy Accuracy // the zero value means AccuracyOf the problem
}

// Verifier checks a product of any size against random vectors x of ±1: C·x must
// be α·A·(B·x) + β·C·x + bias·x (Freivalds, "Probabilistic machines can use less
// running time", 1977). It costs O(n²) operations a vector and O(n) memory; of operands
// with block scales it makes a copy that has them.
//
// Floating-point rows pass while the residual stays below a threshold that is
// statistical in the rounding errors; see freivalds.limit. What is not finite is
// checked apart:
//
//   - C must be non-finite in every row where op(A) or a row bias is, in every
//     column where op(B) or a column bias is, and in each row at least as often as
//     the old C was. Such columns are left out of x; such rows are not summed.
//   - Where C is not finite without such a reason, the first element of that row is
//     computed afresh: it must be a true overflow. The row is not summed.
//
// Integers are checked exactly, modulo 2^32. Their first vector is of ±1, so that no
// lone wrong element of a row is missed; the others are of random words, because
// 2^31 is its own negative and ±1 cannot tell two of them from none.
type Verifier struct {
	checker
	p *gemm.Problem
}

type checker interface {
	// expect computes what C·x is to be.
	expect(ctx context.Context) error
	check(ctx context.Context, c []byte) (VerifyReport, error)
}

// VerifyReport says what a check saw.
type VerifyReport struct {
	Seed    uint64 `json:"seed"`
	Vectors int    `json:"vectors"`
	// Unsummed is the number of rows that were only checked for what is not finite.
	Unsummed int `json:"unsummed"`
	// Worst is the largest residual in units of its threshold; Row, Residual and
	// Threshold are that row's. Integers have threshold 0, and Worst 0 or +Inf.
	Worst     float64 `json:"worst"`
	Row       int     `json:"row"`
	Residual  float64 `json:"residual"`
	Threshold float64 `json:"threshold"`
}

func (r VerifyReport) String() string {
	s := fmt.Sprintf("largest residual %.3g, %.2g of its threshold %.3g, in row %d (%d vectors, seed %d)",
		r.Residual, r.Worst, r.Threshold, r.Row, r.Vectors, r.Seed)
	if r.Unsummed > 0 {
		s += fmt.Sprintf("; %d rows not finite", r.Unsummed)
	}
	return s
}

// add is a row's residual, of which the report keeps the largest in units of its limit. The error,
// ErrVerify, is of one that is above.
func (r *VerifyReport) add(row int, residual, limit float64) error {
	worst := residual / limit
	if residual == 0 {
		worst = 0
	}
	if worst > r.Worst || row == 0 {
		r.Worst, r.Row, r.Residual, r.Threshold = worst, row, residual, limit
	}
	if worst > 1 {
		return fmt.Errorf("%w: row %d of C is off by %.3g, threshold %.3g (%d vectors, seed %d)",
			gemm.ErrVerify, row, residual, limit, r.Vectors, r.Seed)
	}
	return nil
}

// NewVerifier reads A, B, the bias and the old C, and so is called before the
// product runs; A and B must still stand, unchanged, when [Verifier.Check] is
// called. The errors are those of [gemm.Buffers.Check], the context's, and
// ErrUnsupported for an epilogue that does more than to add a bias.
func NewVerifier(ctx context.Context, p *gemm.Problem, buf gemm.Buffers, opt VerifyOptions) (*Verifier, error) {
	v, err := newVerifier(p, buf, opt)
	if err != nil {
		return nil, err
	}
	return v, v.expect(ctx)
}

// newVerifier is NewVerifier, with what is expected yet to be computed.
func newVerifier(p *gemm.Problem, buf gemm.Buffers, opt VerifyOptions) (*Verifier, error) {
	if err := buf.Check(p); err != nil {
		return nil, err
	}
	if err := verifiable(p); err != nil {
		return nil, err
	}
	if opt.Vectors <= 0 {
		opt.Vectors = DefaultVectors
	}
	opt.Accuracy = orDefault(opt.Accuracy, p)
	v := &Verifier{p: p}
	switch {
	case p.Empty(): // however many there are of the other
		v.checker = nothing{VerifyReport{Seed: opt.Seed, Vectors: opt.Vectors}}
	case p.ScaleType().Info().Integer:
		v.checker = newFreivalds[uint32](p, buf, opt)
	default:
		v.checker = newFreivalds[float64](p, buf, opt)
	}
	return v, nil
}

// verifiable refuses what vectors tell nothing of.
func verifiable(p *gemm.Problem) error {
	if !p.Epilogue.OnlyBias() {
		return fmt.Errorf("%w: verifying a product with epilogue %v", gemm.ErrUnsupported, p.Epilogue)
	}
	if p.Converts() && p.K >= gemm.WrapDepth {
		return fmt.Errorf("%w: verifying %v: from K = %d on its int32 sums may wrap, which random vectors cannot foretell of a result of %v",
			gemm.ErrUnsupported, p, gemm.WrapDepth, p.C.Type)
	}
	return nil
}

// nothing is the checker of a result without elements.
type nothing struct{ report VerifyReport }

func (nothing) expect(ctx context.Context) error { return ctx.Err() }

func (n nothing) check(ctx context.Context, _ []byte) (VerifyReport, error) {
	return n.report, ctx.Err()
}

// Check reads the new C, laid out as the problem's. The error wraps ErrVerify when
// C is not the product, and is the context's when that ends the check. It can be
// called again for another run of the same product.
func (v *Verifier) Check(ctx context.Context, c []byte) (VerifyReport, error) {
	if want := v.p.C.Bytes(); len(c) < want {
		return VerifyReport{}, fmt.Errorf("%w: C has %d bytes of memory, want %d", gemm.ErrShape, len(c), want)
	}
	return v.check(ctx, c)
}
