package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tilework/internal/gemm"
	"tilework/internal/verify"
)

// Report describes a verification; see [verify.Report].
type Report = verify.Report

// Verified returns the report on the verification of the last Run, or nil without verification.
func (pl *Plan) Verified() *Report { return pl.report }

// runVerified runs the product and checks the result. If C itself cannot be checked, because of the
// epilogue, the result type or a Tile function, it computes [verify.Linear] of the product, checks
// that and applies the epilogue.
func (pl *Plan) runVerified(ctx context.Context, b gemm.Buffers) error {
	p := pl.Problem
	if p.M == 0 || p.N == 0 {
		p.Epilogue = gemm.Epilogue{} // which has no elements to apply to
	}
	if pl.checksDirectly() {
		return pl.runChecked(ctx, &p, b, pl.compute)
	}
	if pl.Problem.Epilogue.Function != nil {
		return fmt.Errorf("%w: verifying a product with a device function, which only the GPU computes", gemm.ErrUnsupported)
	}
	all := b
	sums, took, err := pl.sumsChecked(ctx, false, b)
	if err != nil {
		return err
	}
	if p.Epilogue.Gated {
		report := pl.report
		up, more, err := pl.sumsChecked(ctx, true, gemm.Buffers{gemm.A: b[gemm.A], gemm.B: b[gemm.Up]})
		if err != nil {
			return err
		}
		b[gemm.Up], took = up, took+more
		report.Merge(*pl.report)
		pl.report = report
	}
	start := time.Now()
	defer func() { pl.took = took + time.Since(start) }()
	if !pl.plan.Finish(sums, b) {
		if p.Invariance != gemm.NotInvariant {
			// In its one order the product has the sums that were checked, and its bits do not depend on
			// the verification.
			return pl.compute(ctx, &all)
		}
		if err := pl.finish(ctx, sums, b); err != nil {
			return err
		}
	}
	if pl.Tile != nil {
		pl.Tile(0, 0, p.M, p.N)
	}
	return nil
}

// finish computes C element by element from α·op(A)·op(B) + β·C, which sums holds in ScaleType.
func (pl *Plan) finish(ctx context.Context, sums []byte, b gemm.Buffers) error {
	p := &pl.Problem
	from, to, up := gemm.Dense(p.ScaleType(), p.M, p.N), p.Layouts[gemm.C], 0.0
	for i := range p.M {
		if err := ctx.Err(); err != nil {
			return err
		}
		for j := range p.N {
			if p.Epilogue.Gated {
				up = from.Type.At(b[gemm.Up], from.Index(i, j))
			}
			// Kernels round to ScaleType first, too.
			v := from.Type.Round(p.Finish(&b, i, j, from.Type.At(sums, from.Index(i, j)), up))
			to.Type.Set(b[gemm.C], to.Index(i, j), v)
		}
	}
	return nil
}

// checksDirectly reports whether the verification checks C itself.
func (pl *Plan) checksDirectly() bool {
	p := &pl.Problem
	return p.M == 0 || p.N == 0 || pl.Tile == nil && verify.Direct(p)
}

// sumsChecked computes the product, or with up the other one of a gated product, without its
// epilogue, with the plan's device and kernel, and checks it. It returns the result in ScaleType
// and the time that the product took.
func (pl *Plan) sumsChecked(ctx context.Context, up bool, b gemm.Buffers) (sums []byte, took time.Duration, err error) {
	p := &pl.Problem
	if up {
		other := p.Other()
		p = &other
	}
	linear, lb := verify.Linear(p, b)
	inner, err := pl.planSums(up)
	if err != nil {
		return nil, 0, err
	}
	if err = pl.runChecked(ctx, &linear, lb, inner.compute); err == nil && p.Converts() {
		p.Convert(lb[gemm.C], b[gemm.C])
	}
	return lb[gemm.C], inner.took, err
}

// planSums plans the product of sumsChecked: for a part, as a part of the sums of the whole.
func (pl *Plan) planSums(up bool) (*Plan, error) {
	of := cmp.Or(pl.whole, pl)
	request := pl.Request
	request.Problem = of.Problem
	if up {
		request.Problem = of.Problem.Other()
	}
	request.Problem = verify.LinearProblem(&request.Problem)
	request.Verify, request.Tile, request.Kernel = false, nil, pl.Kernel()
	if pl.whole != nil {
		request.Choice = nil // of this process alone, or of another one
	}
	inner := &Plan{Request: request}
	err := inner.planOn(pl.on)
	if err == nil && pl.whole != nil {
		return inner.Part(pl.area)
	}
	return inner, err
}

// runChecked calls run, which computes p, and checks the result.
func (pl *Plan) runChecked(ctx context.Context, p *gemm.Problem, b gemm.Buffers,
	run func(context.Context, *gemm.Buffers) error) error {
	v, err := verify.New(ctx, p, b, verify.Options{Seed: verify.NewSeed(), Accuracy: pl.plan.Accuracy(p),
		Within: pl.Within})
	if err != nil {
		return err
	}
	if err := run(ctx, &b); err != nil {
		return err
	}
	report, err := v.Check(ctx, b[gemm.C])
	pl.report = &report
	return err
}
