package verify

import (
	"context"
	"errors"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Remote multiplies the matrices of a product, which are outside the host's memory, by vectors.
// It works in the order of the calls. Only methods that return results wait, so the host works
// while the product runs.
type Remote interface {
	// Expect enqueues the computation of the expected C·x from A, B and, if Beta is not 0, the old
	// C. The error is ErrUnsupported if the matrices cannot be multiplied by vectors.
	Expect(ctx context.Context, p Probe) error
	// Finite waits for Expect, and reports whether all elements that it depends on are finite.
	Finite(ctx context.Context) (bool, error)
	// CheckResiduals computes C·x for the current C, compares it with the expected C·x, and waits.
	// The result has the row with the largest ratio of its residual to its threshold, and the
	// largest Within of all rows. It is valid if finite is true.
	CheckResiduals(ctx context.Context, t Threshold) (worst RowResidual, finite bool, err error)
	// Old waits for C·x of the old C, and for ‖c‖₂ of its rows.
	Old(ctx context.Context) (sums [][]float64, norms []float64, err error)
	// Fetch copies the product's operands and the current C to the host.
	Fetch(ctx context.Context) (gemm.Buffers, error)
}

// Probe defines the expected C·x: Alpha·A·(B·x) + Beta·C·x + bias·x.
type Probe struct {
	Alpha, Beta float64
	// Vectors holds [NumVectors] vectors x in sequence, each of N float64 or of N words modulo
	// 2^32. Totals has the sum of each vector, by which a row bias is multiplied.
	Vectors []byte
	Totals  [NumVectors]float64
}

// RemoteVerifier is a [Verifier] for matrices outside the host's memory. It checks residuals
// on the device of the matrices. It fetches the matrices and checks them on the host if that is
// impossible, if an element is not finite, or if a residual exceeds its threshold.
type RemoteVerifier struct {
	remote   Remote
	p        *gemm.Problem
	opt      Options
	expected bool      // Expect succeeded, and the old C is finite
	host     *Verifier // nil until the matrices are fetched
}

// NewRemote returns a verifier. It must be called before the product runs. If Beta is not 0, it
// reads the matrices and waits. The errors are those of [New].
func NewRemote(ctx context.Context, p *gemm.Problem, r Remote, opt Options) (*RemoteVerifier, error) {
	if err := checkVerifiable(p); err != nil {
		return nil, err
	}
	opt.Accuracy = opt.Accuracy.OrDefault(p)
	v := &RemoteVerifier{remote: r, p: p, opt: opt}
	if p.Empty() || p.Beta == 0 {
		return v, nil
	}
	err := v.expect(ctx)
	if err == nil && v.expected {
		v.expected, err = r.Finite(ctx)
	}
	if err == nil && !v.expected {
		err = v.fetch(ctx)
	}
	return v, err
}

// expect enqueues the computation of the expected C·x.
func (v *RemoteVerifier) expect(ctx context.Context) error {
	probe := Probe{Alpha: real(v.p.Alpha), Beta: real(v.p.Beta)}
	if v.p.ScaleType().Info().Integer {
		draw[uint32](v.opt.Seed, v.p.N).fill(&probe)
	} else {
		draw[float64](v.opt.Seed, v.p.N).fill(&probe)
	}
	err := v.remote.Expect(ctx, probe)
	v.expected = err == nil
	if errors.Is(err, gemm.ErrUnsupported) {
		return nil
	}
	return err
}

// fill sets the vectors and totals of p.
func (x vectors[T]) fill(p *Probe) {
	for n, values := range x.rows() {
		var total T
		for _, v := range values {
			total += v
		}
		p.Totals[n] = float64(total)
	}
	switch all := any(x.all).(type) {
	case []float64:
		p.Vectors = dtype.Bytes(all)
	case []uint32:
		words := make([]int32, len(all)) // which have a dtype
		for i, v := range all {
			words[i] = int32(v)
		}
		p.Vectors = dtype.Bytes(words)
	}
}

// fetch copies the matrices to the host, where they will be checked.
func (v *RemoteVerifier) fetch(ctx context.Context) error {
	buf, err := v.remote.Fetch(ctx)
	if err != nil {
		return err
	}
	v.host, err = New(ctx, v.p, buf, v.opt)
	return err
}

// Check waits for the product and checks its C as [Verifier.Check] does.
func (v *RemoteVerifier) Check(ctx context.Context) (Report, error) {
	report := newReport(v.p, v.opt.Seed)
	if v.p.Empty() {
		return report, ctx.Err()
	}
	if v.p.Beta == 0 {
		if err := v.expect(ctx); err != nil {
			return report, err
		}
	}
	if v.expected {
		worst, finite, err := v.remote.CheckResiduals(ctx, newThreshold(v.p, v.opt.Accuracy))
		if err != nil {
			return report, err
		}
		if finite && (worst.ratio() <= 1 || report.Exact) {
			report.add(worst)
			return report, report.err(accepted(v.p, v.opt.Within), 0)
		}
	}
	buf, err := v.remote.Fetch(ctx)
	if err != nil {
		return report, err
	}
	if v.host == nil {
		if v.host, err = newVerifier(v.p, buf, v.opt); err != nil {
			return report, err
		}
		if v.p.Beta != 0 { // the old C was finite, and integers do not get here
			v.host.checker.(*freivalds[float64]).old = v.remote.Old
		}
		if err := v.host.expect(ctx); err != nil {
			return report, err
		}
	}
	return v.host.Check(ctx, buf[gemm.C])
}
