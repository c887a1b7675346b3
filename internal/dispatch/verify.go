package dispatch

import (
	"context"
	"fmt"
	"time"

	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// Report says what a verification saw; see [ref.VerifyReport].
type Report = ref.VerifyReport

// coarse is the roundoff from which on what rounding does to a result hides what is wrong with it.
const coarse = 0x1p-7

// Verified is what the verification of the last Run saw, and nil if there was
// none.
func (pl *Plan) Verified() *Report { return pl.report }

// runVerified runs the product and checks the result. An epilogue that does more than to add a
// bias, or a function of the caller's, cannot be checked by random vectors, which also see
// little of a result in 8-bit floats: the product is then computed without its epilogue, in
// ScaleType, checked, and finished. Integer sums that are converted are checked before that,
// where the check is exact.
func (pl *Plan) runVerified(ctx context.Context, b gemm.Buffers) error {
	own := *pl // what is not verified stays where it is, which may be a stack
	defer func() { pl.took, pl.report = own.took, own.report }()
	return own.runVerifiedHere(ctx, b)
}

func (pl *Plan) runVerifiedHere(ctx context.Context, b gemm.Buffers) error {
	p := pl.Problem
	if p.M == 0 || p.N == 0 {
		p.Epilogue = gemm.Epilogue{} // of nothing
	}
	if pl.verifiesInPlace() {
		return pl.runChecked(ctx, &p, b, pl.compute)
	}
	if f := pl.Problem.Epilogue.Function; f != nil {
		return fmt.Errorf("%w: verifying a product with %v, which only the GPU computes", gemm.ErrUnsupported, f)
	}
	sums, took, err := pl.sumsChecked(ctx, &pl.Problem, b)
	if err != nil {
		return err
	}
	if p.Epilogue.Gated {
		report, other := pl.report, p.Other()
		up, more, err := pl.sumsChecked(ctx, &other, gemm.Buffers{gemm.A: b[gemm.A], gemm.B: b[gemm.Up]})
		if err != nil {
			return err
		}
		within := max(report.Within, pl.report.Within)
		if b[gemm.Up], took = up, took+more; report.Worst > pl.report.Worst {
			pl.report = report
		}
		pl.report.Within = within
	}
	start := time.Now()
	defer func() { pl.took = took + time.Since(start) }()
	if pl.gpu == nil {
		pl.cpu.Finish(sums, b)
		if pl.Tile != nil {
			pl.Tile(0, 0, p.M, p.N)
		}
		return nil
	}
	from, to, up := gemm.Dense(p.ScaleType(), p.M, p.N), p.Layouts[gemm.C], 0.0
	for i := range pl.Problem.M {
		if err := ctx.Err(); err != nil {
			return err
		}
		for j := range pl.Problem.N {
			if p.Epilogue.Gated {
				up = from.Type.At(b[gemm.Up], from.Index(i, j))
			}
			// Rounded to ScaleType first, as the kernels do.
			v := from.Type.Round(pl.Problem.Finish(&b, i, j, from.Type.At(sums, from.Index(i, j)), up))
			to.Type.Set(b[gemm.C], to.Index(i, j), v)
		}
	}
	return nil
}

// verifiesInPlace reports whether C itself is checked, and no sums are computed apart.
func (pl *Plan) verifiesInPlace() bool {
	p := &pl.Problem
	empty := p.M == 0 || p.N == 0
	return empty || p.Epilogue.OnlyBias() && pl.Tile == nil && p.Out().Info().Roundoff < coarse && !p.Converts()
}

// sumsChecked computes p without its epilogue, as the plan computes its own product, and checks
// it. It returns the result in ScaleType, and how long it took to compute.
func (pl *Plan) sumsChecked(ctx context.Context, p *gemm.Problem, b gemm.Buffers) (sums []byte, took time.Duration, err error) {
	linear, lb := withoutEpilogue(p, b)
	request := pl.Request
	request.Problem, request.Verify, request.Tile, request.Kernel, request.Device = linear, false, nil, pl.Kernel, pl.Device
	inner, err := New(request)
	if err != nil {
		return nil, 0, err
	}
	if err = pl.runChecked(ctx, &linear, lb, inner.compute); err == nil && p.Converts() {
		p.Convert(lb[gemm.C], b[gemm.C])
	}
	return lb[gemm.C], inner.took, err
}

func (pl *Plan) runChecked(ctx context.Context, p *gemm.Problem, b gemm.Buffers, run func(context.Context, *gemm.Buffers) error) error {
	// The seed differs from run to run, so that no wrong result passes for good;
	// the report and the error name it.
	v, err := ref.NewVerifier(ctx, p, b, ref.VerifyOptions{Seed: uint64(time.Now().UnixNano()), Accuracy: pl.accuracy(p), Within: pl.Within})
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

// accuracy is that of the plan's kernel.
func (pl *Plan) accuracy(p *gemm.Problem) gemm.Accuracy {
	if pl.gpu == nil {
		return pl.cpu.Kernel.Accuracy(p)
	}
	return pl.gpu.Kernel.Accuracy(p)
}

// withoutEpilogue returns p without its epilogue, with a dense C of its ScaleType in memory of
// its own, which holds p's old C. Of a p that converts its sums it returns these.
func withoutEpilogue(p *gemm.Problem, b gemm.Buffers) (gemm.Problem, gemm.Buffers) {
	linear := *p
	linear.Epilogue, linear.Layouts[gemm.Up], linear.Layouts[gemm.Residual] = gemm.Epilogue{}, gemm.Layout{}, gemm.Layout{}
	linear.Layouts[gemm.C] = gemm.Dense(p.ScaleType(), p.M, p.N)
	if p.Converts() {
		linear = p.Sums()
	}
	lb := gemm.Buffers{gemm.A: b[gemm.A], gemm.B: b[gemm.B], gemm.C: make([]byte, linear.C().Bytes())}
	lb[gemm.ScaleA], lb[gemm.ScaleB] = b[gemm.ScaleA], b[gemm.ScaleB]
	if linear.Beta != 0 {
		for i := range p.M {
			for j := range p.N {
				linear.Out().Set(lb[gemm.C], linear.C().Index(i, j), p.Out().At(b[gemm.C], p.C().Index(i, j)))
			}
		}
	}
	return linear, lb
}
