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
// running time", 1977). It costs O(n²) operations a vector and O(n) memory.
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
	c    operand
	late bool // what it expects is yet to be computed
}

type checker interface {
	expect(ctx context.Context) error
	check(ctx context.Context, c operand) (VerifyReport, error)
	// remote says where the matrices are, and whether C is the result already when expect is
	// called.
	remote(r Remote, late bool)
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

// NewVerifier reads A, B, the bias and the old C, and so is called before the
// product runs; A and B must still stand, unchanged, when [Verifier.Check] is
// called. The errors are those of [gemm.Buffers.Check], the context's, and
// ErrUnsupported for an epilogue that does more than to add a bias.
func NewVerifier(ctx context.Context, p *gemm.Problem, buf gemm.Buffers, opt VerifyOptions) (*Verifier, error) {
	if err := buf.Check(p); err != nil {
		return nil, err
	}
	v, err := newVerifier(p, operand{layout: p.A, data: buf.A}, operand{layout: p.B, data: buf.B}, operand{layout: p.C, data: buf.C}, buf.Bias, opt)
	if err != nil {
		return nil, err
	}
	return v, v.expect(ctx)
}

// NewRemoteVerifier is NewVerifier for matrices that are not in the host's memory; the
// bias is. [Verifier.CheckRemote] ends it, and reads A and B where the old C does not count,
// so that the host has its part while the product is computed. Of vectors there are
// [DefaultVectors].
func NewRemoteVerifier(ctx context.Context, p *gemm.Problem, r Remote, bias []byte, opt VerifyOptions) (*Verifier, error) {
	opt.Vectors = DefaultVectors
	v, err := newVerifier(p, operand{layout: p.A, far: r.FetchA}, operand{layout: p.B, far: r.FetchB}, operand{layout: p.C, far: r.FetchC}, bias, opt)
	if err != nil {
		return nil, err
	}
	v.late = p.Beta == 0
	v.remote(r, v.late)
	if v.late {
		return v, nil
	}
	return v, v.expect(ctx)
}

func newVerifier(p *gemm.Problem, a, b, c operand, bias []byte, opt VerifyOptions) (*Verifier, error) {
	if !p.Epilogue.OnlyBias() {
		return nil, fmt.Errorf("%w: verifying a product with epilogue %v", gemm.ErrUnsupported, p.Epilogue)
	}
	if opt.Vectors <= 0 {
		opt.Vectors = DefaultVectors
	}
	opt.Accuracy = orDefault(opt.Accuracy, p)
	v := &Verifier{c: c}
	switch {
	case p.M == 0 || p.N == 0: // however many there are of the other
		v.checker = nothing{VerifyReport{Seed: opt.Seed, Vectors: opt.Vectors}}
	case p.C.Type.Info().Integer:
		v.checker = newFreivalds[uint32](p, a, b, c, bias, opt)
	default:
		v.checker = newFreivalds[float64](p, a, b, c, bias, opt)
	}
	return v, nil
}

// nothing is the checker of a result without elements.
type nothing struct{ report VerifyReport }

func (nothing) remote(Remote, bool)              {}
func (nothing) expect(ctx context.Context) error { return ctx.Err() }

func (n nothing) check(ctx context.Context, _ operand) (VerifyReport, error) {
	return n.report, ctx.Err()
}

// Check reads the new C, laid out as the problem's. The error wraps ErrVerify when
// C is not the product, and is the context's when that ends the check. It can be
// called again for another run of the same product.
func (v *Verifier) Check(ctx context.Context, c []byte) (VerifyReport, error) {
	if len(c) < v.c.layout.Bytes() {
		return VerifyReport{}, fmt.Errorf("%w: C has %d bytes of memory, want %d", gemm.ErrShape, len(c), v.c.layout.Bytes())
	}
	return v.check(ctx, operand{layout: v.c.layout, data: c})
}

// CheckRemote is Check for the C of [NewRemoteVerifier].
func (v *Verifier) CheckRemote(ctx context.Context) (VerifyReport, error) {
	if v.late {
		if err := v.expect(ctx); err != nil {
			return VerifyReport{}, err
		}
		v.late = false
	}
	return v.check(ctx, v.c)
}
