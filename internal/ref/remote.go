package ref

import (
	"context"
	"errors"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Remote is the matrices of a product that are not in the host's memory, but where they can be
// multiplied by vectors, and the sums compared. What it is asked for is done in order, and nobody
// waits but for what is handed back: the host has its part while the product is computed.
type Remote interface {
	// Expect asks for what C·x is to be, of A and B, and of C if the product adds to it, as they are
	// when what was asked for before is done. The error is ErrUnsupported where they cannot be
	// multiplied.
	Expect(ctx context.Context, q Question) error
	// Finite waits for what Expect asked for, and reports whether all that it is of is finite.
	Finite(ctx context.Context) (bool, error)
	// Judge computes C·x, for the current C, compares it with the expected sums, and waits. The
	// verdict is on all of C, if everything that it depends on is finite.
	Judge(ctx context.Context, l Limits) (v Verdict, finite bool, err error)
	// Old waits for C·x, of C as it was, and for ‖c‖₂ of its rows.
	Old(ctx context.Context) (sums [][]float64, norms []float64, err error)
	// Fetch waits for all that the product reads, and C, as they are now.
	Fetch(ctx context.Context) (gemm.Buffers, error)
}

// Question is what C·x is to be: Alpha·A·(B·x) + Beta·C·x, and a bias times x.
type Question struct {
	Alpha, Beta float64
	// Vectors are [Vectors] x, one after the other, of N float64 or words modulo 2^32, and
	// Totals what the values of each come to, by which the bias of a row is multiplied.
	Vectors []byte
	Totals  [Vectors]float64
}

// RemoteVerifier is a [Verifier] for matrices that are not in the host's memory. They are judged on
// their device. They are fetched and checked here if that is impossible, if something is not finite
// or if a residual exceeds its threshold.
type RemoteVerifier struct {
	remote Remote
	p      *gemm.Problem
	opt    VerifyOptions
	judges bool      // what C·x is to be was asked for, and is finite as far as that is known
	here   *Verifier // or else nil, until they are fetched
}

// NewRemoteVerifier is called before the product runs. If that adds to C, it reads all of them,
// and waits. Of vectors there are [Vectors]. The errors are those of [NewVerifier].
func NewRemoteVerifier(ctx context.Context, p *gemm.Problem, r Remote, opt VerifyOptions) (*RemoteVerifier, error) {
	if err := verifiable(p); err != nil {
		return nil, err
	}
	opt.Accuracy = orDefault(opt.Accuracy, p)
	v := &RemoteVerifier{remote: r, p: p, opt: opt}
	if p.Empty() || p.Beta == 0 {
		return v, nil
	}
	err := v.expect(ctx)
	if err == nil && v.judges {
		v.judges, err = r.Finite(ctx)
	}
	if err == nil && !v.judges {
		err = v.fetch(ctx)
	}
	return v, err
}

// expect asks for what C·x is to be.
func (v *RemoteVerifier) expect(ctx context.Context) error {
	q := Question{Alpha: v.p.ScaleType().Round(v.p.Alpha), Beta: v.p.ScaleType().Round(v.p.Beta)}
	if v.p.ScaleType().Info().Integer {
		draw[uint32](v.opt.Seed, v.p.N).ask(&q)
	} else {
		draw[float64](v.opt.Seed, v.p.N).ask(&q)
	}
	err := v.remote.Expect(ctx, q)
	v.judges = err == nil
	if errors.Is(err, gemm.ErrUnsupported) {
		return nil
	}
	return err
}

// ask puts the vectors into a question.
func (x vectors[T]) ask(q *Question) {
	for n, values := range x.rows() {
		var total T
		for _, v := range values {
			total += v
		}
		q.Totals[n] = float64(total)
	}
	switch all := any(x.all).(type) {
	case []float64:
		q.Vectors = dtype.Bytes(all)
	case []uint32:
		words := make([]int32, len(all)) // which package dtype knows
		for i, v := range all {
			words[i] = int32(v)
		}
		q.Vectors = dtype.Bytes(words)
	}
}

// fetch has the matrices checked here.
func (v *RemoteVerifier) fetch(ctx context.Context) error {
	buf, err := v.remote.Fetch(ctx)
	if err != nil {
		return err
	}
	v.here, err = NewVerifier(ctx, v.p, buf, v.opt)
	return err
}

// Check waits for the product and is [Verifier.Check] of its C.
func (v *RemoteVerifier) Check(ctx context.Context) (VerifyReport, error) {
	report := newReport(v.p, v.opt.Seed)
	if v.p.Empty() {
		return report, ctx.Err()
	}
	if v.p.Beta == 0 {
		if err := v.expect(ctx); err != nil {
			return report, err
		}
	}
	if v.judges {
		verdict, finite, err := v.remote.Judge(ctx, limits(v.p, v.opt.Accuracy))
		if err != nil {
			return report, err
		}
		if finite && (verdict.ratio() <= 1 || report.Exact) {
			report.add(verdict)
			return report, report.err(accepted(v.p, v.opt.Within), 0)
		}
	}
	buf, err := v.remote.Fetch(ctx)
	if err != nil {
		return report, err
	}
	if v.here == nil {
		if v.here, err = newVerifier(v.p, buf, v.opt); err != nil {
			return report, err
		}
		if v.p.Beta != 0 { // and C was finite: integers do not come here
			v.here.checker.(*freivalds[float64]).old = v.remote.Old
		}
		if err := v.here.expect(ctx); err != nil {
			return report, err
		}
	}
	return v.here.Check(ctx, buf[gemm.C])
}
