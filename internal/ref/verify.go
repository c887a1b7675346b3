package ref

import (
	"context"
	"fmt"

	"tilework/internal/gemm"
)

// VerifyOptions of a Verifier; the zero value takes the defaults.
type VerifyOptions struct {
	Seed     uint64   // of the random vectors
	Accuracy Accuracy // the zero value means AccuracyOf the problem
	// Within is the largest [VerifyReport.Within] with which a product is accepted. 0 means 1 %, or
	// eight roundoffs of C's type where that is more.
	Within float64
}

// Verifier checks a product of any size against random vectors x of ±1: C·x must
// be α·A·(B·x) + β·C·x + bias·x (Freivalds, "Probabilistic machines can use less
// running time", 1977). It costs O(n²) operations a vector and O(n) memory; of operands
// with block scales it makes a copy that has them.
//
// A floating-point row passes while the residual, a root mean square over the vectors, stays below
// a threshold that is statistical in the rounding errors of the kernel; see [Limits]. Data with
// larger errors than usual raise it; see [freivalds.explained]. The product is refused with
// ErrVerify, too, where errors of 1 % of a row's norm could pass; see [VerifyOptions.Within].
// Numbers that are not finite are checked apart:
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

// VerifyReport describes a check.
type VerifyReport struct {
	Seed    uint64 `json:"seed"`
	Vectors int    `json:"vectors"`
	// Exact reports whether sums were compared modulo 2^32 and not with a threshold.
	Exact bool `json:"exact"`
	// Unsummed is the number of rows that were only checked for what is not finite.
	Unsummed int `json:"unsummed"`
	// Worst is the largest residual in units of its threshold; Row, Residual and
	// Threshold are that row's. Integers have threshold 0, and Worst 0 or +Inf.
	Worst     float64 `json:"worst"`
	Row       int     `json:"row"`
	Residual  float64 `json:"residual"`
	Threshold float64 `json:"threshold"`
	// Within is the smallest error of one element that is certain to be found in any row, relative
	// to the norm of its row or, if that is larger, of the row's terms.
	Within float64 `json:"within"`
}

func newReport(p *gemm.Problem, seed uint64) VerifyReport {
	return VerifyReport{Seed: seed, Vectors: Vectors, Exact: p.ScaleType().Info().Integer}
}

func (r VerifyReport) String() string {
	s := "every sum equal modulo 2^32"
	if !r.Exact {
		s = fmt.Sprintf("largest residual %.2g of its threshold; an error above %s of a row's norm would have been found",
			r.Worst, percent(r.Within))
	}
	s += fmt.Sprintf(" (%d vectors, seed %d)", r.Vectors, r.Seed)
	if r.Unsummed > 0 {
		s += fmt.Sprintf("; %d rows not finite", r.Unsummed)
	}
	return s
}

// percent is a share in two digits: "0.3 %".
func percent(x float64) string { return fmt.Sprintf("%.2g %%", 100*x) }

// Verdict is the residual of a row, or of the row where it is the largest in units of its limit,
// and Within of that row, or of all rows.
type Verdict struct {
	Row             int
	Residual, Limit float64
	Within          float64
}

// ratio is the residual in units of its limit.
func (v Verdict) ratio() float64 {
	if v.Residual == 0 {
		return 0
	}
	return v.Residual / v.Limit
}

// add adds a verdict to the report, which keeps the largest residual in units of its limit.
func (r *VerifyReport) add(v Verdict) {
	if worst := v.ratio(); worst > r.Worst || v.Row == 0 {
		r.Worst, r.Row, r.Residual, r.Threshold = worst, v.Row, v.Residual, v.Limit
	}
	r.Within = max(r.Within, v.Within)
}

// raise raises the threshold of the worst row, and in proportion those of the others.
func (r *VerifyReport) raise(threshold float64) {
	if factor := threshold / r.Threshold; factor > 1 {
		worst := r.Worst / factor
		r.Within *= factor * (1 + worst) / (1 + r.Worst)
		r.Threshold, r.Worst = threshold, worst
	}
}

// err returns ErrVerify for a residual above its threshold, in a row of that norm, and for a check
// that is coarser than accepted.
func (r *VerifyReport) err(accepted, norm float64) error {
	switch {
	case r.Worst > 1 && r.Exact:
		return fmt.Errorf("%w: row %d of C is wrong (%d vectors, seed %d)", gemm.ErrVerify, r.Row, r.Vectors, r.Seed)
	case r.Worst > 1:
		return fmt.Errorf("%w: row %d of C is off by %s of its norm, %.3g times its threshold (%d vectors, seed %d)",
			gemm.ErrVerify, r.Row, percent(r.Residual/norm), r.Worst, r.Vectors, r.Seed)
	case r.Within > accepted:
		return fmt.Errorf("%w: the product cannot be verified to better than %s of a row's norm, want %s",
			gemm.ErrVerify, percent(r.Within), percent(accepted))
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
	opt.Accuracy = orDefault(opt.Accuracy, p)
	v := &Verifier{p: p}
	switch {
	case p.Empty(): // however many there are of the other
		v.checker = nothing{newReport(p, opt.Seed)}
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
			gemm.ErrUnsupported, p, gemm.WrapDepth, p.Out())
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
	if want := v.p.C().Bytes(); len(c) < want {
		return VerifyReport{}, fmt.Errorf("%w: C has %d bytes of memory, want %d", gemm.ErrShape, len(c), want)
	}
	return v.check(ctx, c)
}
