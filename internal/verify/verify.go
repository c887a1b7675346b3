// Package verify checks the result of a product in O(n²) operations by Freivalds' method: C·x must
// be α·A·(B·x) + β·C·x for random vectors x, which multiplies matrices by vectors only. The
// threshold for a row's residual follows from the arithmetic that the kernel declares.
//
// A [Verifier] checks matrices in the host's memory. A [RemoteVerifier] checks matrices on a
// device, for which package verify/gpu has the kernels.
package verify

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/gemm"
	"tilework/internal/phrase"
)

// Options configures a check; the zero value means the defaults.
type Options struct {
	Seed     uint64        // of the random vectors; see [NewSeed]
	Accuracy gemm.Accuracy // of the kernel; the zero value means [gemm.AccuracyOf] the problem
	// Within is the largest [Report.Within] at which a product is accepted. 0 means the larger one
	// of 1 % and eight roundoffs of C's type.
	Within float64
}

// NewSeed returns a seed for [Options]. It differs from run to run, so that no wrong result passes
// every time. Reports and errors contain the seed.
func NewSeed() uint64 { return uint64(time.Now().UnixNano()) }

// Verifier checks a product of any size against random vectors x of ±1: C·x must
// be α·A·(B·x) + β·C·x + bias·x (Freivalds, "Probabilistic machines can use less
// running time", 1977). It takes O(n²) operations per vector and O(n) memory. Operands
// with block scales are copied with the scales applied.
//
// A row's residual is a root mean square over the vectors. A floating-point row passes if the
// residual does not exceed a threshold, which is a statistical estimate of the kernel's rounding
// errors; see [Threshold]. Data with unusually large errors raise the threshold; see
// [freivalds.explained]. The check also returns ErrVerify if an error of 1 % of a row's norm could
// go undetected; see [Options.Within]. NaN and infinities are checked separately:
//
//   - C must be non-finite in every row in which op(A) or a row bias is, and in every column in
//     which op(B) or a column bias is. Each row needs at least as many non-finite elements as the
//     old C had. Such columns are left out of x, and such rows have no residual.
//   - Each non-finite element of C is recomputed, or a random sample if that takes more than 2^24
//     products. It must be the NaN or infinity that α·(A·B) + β·C + bias has, or a true overflow:
//     of C's type, or by itself of the sum of products, α times the finished sum, or β·C. If the
//     old C is only known by the norms of its rows, as on a device, a norm bounds its element. A
//     row that is non-finite for no operand has no residual.
//
// Integers are checked exactly, modulo 2^32. Their first vector is of ±1, so that a single wrong
// element of a row is always found. The others are random words: 2^31 is its own negative, so ±1
// cannot distinguish two errors of 2^31 from none.
type Verifier struct {
	checker
	p *gemm.Problem
}

type checker interface {
	// expect computes the expected C·x.
	expect(ctx context.Context) error
	check(ctx context.Context, c []byte) (Report, error)
}

// Report describes a check.
type Report struct {
	Seed    uint64 `json:"seed"`
	Vectors int    `json:"vectors"`
	// Exact reports whether C·x was compared exactly, modulo 2^32, and not with a threshold.
	Exact bool `json:"exact"`
	// Unsummed is the number of rows without a residual, which were only checked for NaN and
	// infinities.
	Unsummed int `json:"unsummed"`
	// Worst is the largest ratio of a residual to its threshold. Row, Residual and Threshold
	// describe that row. Integers have threshold 0, and Worst is 0 or +Inf.
	Worst     float64 `json:"worst"`
	Row       int     `json:"row"`
	Residual  float64 `json:"residual"`
	Threshold float64 `json:"threshold"`
	// Within is the smallest error of one element that is certain to be found in any row. It is
	// relative to the norm of the row or of the row's terms, whichever is larger.
	Within float64 `json:"within"`
}

func newReport(p *gemm.Problem, seed uint64) Report {
	return Report{Seed: seed, Vectors: NumVectors, Exact: p.ScaleType().Info().Integer}
}

func (r Report) String() string {
	s := "every sum equal modulo 2^32"
	if !r.Exact {
		s = fmt.Sprintf("largest residual %.2g of its threshold; an error above %s of a row's norm would have been found",
			r.Worst, percent(r.Within))
	}
	s += fmt.Sprintf(" (%s, seed %d)", phrase.Count(r.Vectors, "vector"), r.Seed)
	if r.Unsummed > 0 {
		s += fmt.Sprintf("; %d rows not finite", r.Unsummed)
	}
	return s
}

// percent formats a fraction with two digits: "0.3 %".
func percent(x float64) string { return fmt.Sprintf("%.2g %%", 100*x) }

// RowResidual is the residual of a row, its threshold, and the smallest error that is certain to be
// found in the row; see [Report].
type RowResidual struct {
	Row                 int
	Residual, Threshold float64
	Within              float64
}

// ratio returns the residual divided by its threshold.
func (r RowResidual) ratio() float64 {
	if r.Residual == 0 {
		return 0
	}
	return r.Residual / r.Threshold
}

// add adds a row to the report.
func (r *Report) add(row RowResidual) {
	if worst := row.ratio(); worst > r.Worst || row.Row == 0 {
		r.Worst, r.Row, r.Residual, r.Threshold = worst, row.Row, row.Residual, row.Threshold
	}
	r.Within = max(r.Within, row.Within)
}

// Merge adds the report on another product. r keeps the worse residual.
func (r *Report) Merge(other Report) {
	within := max(r.Within, other.Within)
	if other.Worst >= r.Worst {
		*r = other
	}
	r.Within = within
}

// raise raises the threshold of the worst row, and those of the other rows by the same factor.
func (r *Report) raise(threshold float64) {
	if factor := threshold / r.Threshold; factor > 1 {
		worst := r.Worst / factor
		r.Within *= factor * (1 + worst) / (1 + r.Worst)
		r.Threshold, r.Worst = threshold, worst
	}
}

// err returns ErrVerify if a residual exceeds its threshold or if Within exceeds accepted. norm is
// that of the worst row.
func (r *Report) err(accepted, norm float64) error {
	switch {
	case r.Worst > 1 && r.Exact:
		return fmt.Errorf("%w: row %d of C is wrong (%s, seed %d)", gemm.ErrVerify, r.Row,
			phrase.Count(r.Vectors, "vector"), r.Seed)
	case r.Worst > 1:
		return fmt.Errorf("%w: row %d of C is off by %s of its norm, %.3g times its threshold (%s, seed %d)",
			gemm.ErrVerify, r.Row, percent(r.Residual/norm), r.Worst, phrase.Count(r.Vectors, "vector"), r.Seed)
	case r.Within > accepted:
		return fmt.Errorf("%w: the product cannot be verified to better than %s of a row's norm, want %s",
			gemm.ErrVerify, percent(r.Within), percent(accepted))
	}
	return nil
}

// New reads A, B, the bias and the old C, so it must be called before the product runs. A and B
// must not change until [Verifier.Check] returns. The errors are those of [gemm.Buffers.Check], the
// context's, and ErrUnsupported for an epilogue other than a bias.
func New(ctx context.Context, p *gemm.Problem, buf gemm.Buffers, opt Options) (*Verifier, error) {
	v, err := newVerifier(p, buf, opt)
	if err != nil {
		return nil, err
	}
	return v, v.expect(ctx)
}

// newVerifier is [New] without the call of expect.
func newVerifier(p *gemm.Problem, buf gemm.Buffers, opt Options) (*Verifier, error) {
	if err := buf.Check(p); err != nil {
		return nil, err
	}
	if err := checkVerifiable(p); err != nil {
		return nil, err
	}
	opt.Accuracy = opt.Accuracy.OrDefault(p)
	v := &Verifier{p: p}
	switch {
	case p.Empty(): // the other size may be huge
		v.checker = nothing{newReport(p, opt.Seed)}
	case p.ScaleType().Info().Integer:
		v.checker = newFreivalds[uint32](p, buf, opt)
	default:
		v.checker = newFreivalds[float64](p, buf, opt)
	}
	return v, nil
}

// checkVerifiable returns ErrUnsupported for products that random vectors cannot check.
func checkVerifiable(p *gemm.Problem) error {
	if !p.Epilogue.OnlyBias() {
		return fmt.Errorf("%w: verifying a product with epilogue %v", gemm.ErrUnsupported, p.Epilogue)
	}
	when := ""
	switch {
	case !p.Converts():
		return nil
	case p.Epilogue.Zeros() != (gemm.Epilogue{}):
		when = "with zero points"
	case p.K >= p.WrapDepth():
		when = fmt.Sprintf("from K = %d on", p.WrapDepth())
	default:
		return nil
	}
	return fmt.Errorf("%w: verifying %v: %s its int32 sums may wrap, which random vectors cannot predict for a result of "+
		"%v", gemm.ErrUnsupported, p, when, p.Out())
}

// nothing checks a result without elements.
type nothing struct{ report Report }

func (nothing) expect(ctx context.Context) error { return ctx.Err() }

func (n nothing) check(ctx context.Context, _ []byte) (Report, error) {
	return n.report, ctx.Err()
}

// Check reads the new C in the layout of the problem. The error wraps ErrVerify if C is not the
// product, and is the context's if that ended the check. Check may be called again for another run
// of the same product.
func (v *Verifier) Check(ctx context.Context, c []byte) (Report, error) {
	if want := v.p.C().Bytes(); len(c) < want {
		return Report{}, fmt.Errorf("%w: C has %d bytes of memory, want %d", gemm.ErrShape, len(c), want)
	}
	return v.check(ctx, c)
}
