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

// runVerified runs the product and checks the result. What an epilogue does besides adding a
// bias, or a function of the caller's, cannot be checked by random vectors, and of a result in
// 8-bit floats they see little: the product before that is computed apart, in the type of the sums, checked, and then finished.
func (pl *Plan) runVerified(ctx context.Context, b gemm.Buffers) error {
	own := *pl // what is not verified stays where it is, which may be a stack
	defer func() { pl.took, pl.report = own.took, own.report }()
	return own.runVerifiedHere(ctx, b)
}

func (pl *Plan) runVerifiedHere(ctx context.Context, b gemm.Buffers) error {
	p := pl.Problem
	empty := p.M == 0 || p.N == 0
	if empty {
		p.Epilogue = gemm.Epilogue{} // of nothing
	}
	if empty || p.Epilogue.OnlyBias() && pl.Tile == nil && p.C.Type.Info().Roundoff < coarse {
		return pl.runChecked(ctx, &p, b, pl.compute)
	}
	if f := pl.Problem.Epilogue.Function; f != nil {
		return fmt.Errorf("%w: verifying a product with %v, which only the GPU computes", gemm.ErrUnsupported, f)
	}
	linear, lb, err := withoutEpilogue(&pl.Problem, b)
	if err != nil {
		return err
	}
	request := pl.Request
	request.Problem, request.Verify, request.Tile, request.Kernel, request.Device = linear, false, nil, pl.Kernel, pl.Device
	inner, err := New(request)
	if err != nil {
		return err
	}
	if err := pl.runChecked(ctx, &linear, lb, inner.compute); err != nil {
		return err
	}
	start := time.Now()
	defer func() { pl.took = inner.took + time.Since(start) }()
	if pl.gpu == nil {
		pl.cpu.Finish(lb.C, b)
		if pl.Tile != nil {
			pl.Tile(0, 0, p.M, p.N)
		}
		return nil
	}
	from, to := linear.C, pl.Problem.C
	for i := range pl.Problem.M {
		if err := ctx.Err(); err != nil {
			return err
		}
		for j := range pl.Problem.N {
			// Rounded to the type of the sums first, as the kernels do.
			v := from.Type.Round(pl.Problem.Finish(&b, i, j, from.Type.At(lb.C, from.Index(i, j))))
			to.Type.Set(b.C, to.Index(i, j), v)
		}
	}
	return nil
}

func (pl *Plan) runChecked(ctx context.Context, p *gemm.Problem, b gemm.Buffers, run func(context.Context, gemm.Buffers) error) error {
	// The seed differs from run to run, so that no wrong result passes for good;
	// the report and the error name it.
	v, err := ref.NewVerifier(ctx, p, b, ref.VerifyOptions{Seed: uint64(time.Now().UnixNano()), Accuracy: pl.accuracy(p)})
	if err != nil {
		return err
	}
	if err := run(ctx, b); err != nil {
		return err
	}
	report, err := v.Check(ctx, b.C)
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

// withoutEpilogue is p without its epilogue and with a dense C, of the type of the sums, in
// memory of its own that holds p's old C.
func withoutEpilogue(p *gemm.Problem, b gemm.Buffers) (gemm.Problem, gemm.Buffers, error) {
	linear, _, err := gemm.New(p.Alpha, p.A, p.B, p.Beta, gemm.Dense(p.Accum(), p.M, p.N), gemm.Epilogue{})
	if err != nil {
		return gemm.Problem{}, gemm.Buffers{}, err
	}
	linear.Precision, linear.ScaleA, linear.ScaleB = p.Precision, p.ScaleA, p.ScaleB
	lb := gemm.Buffers{A: b.A, B: b.B, C: make([]byte, linear.C.Bytes())}
	lb.Extras[gemm.ScaleA], lb.Extras[gemm.ScaleB] = b.Extras[gemm.ScaleA], b.Extras[gemm.ScaleB]
	if p.Beta != 0 {
		for i := range p.M {
			for j := range p.N {
				linear.C.Type.Set(lb.C, linear.C.Index(i, j), p.C.Type.At(b.C, p.C.Index(i, j)))
			}
		}
	}
	return linear, lb, nil
}
