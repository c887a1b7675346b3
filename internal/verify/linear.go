package verify

import "tilework/internal/gemm"

// coarse is the roundoff of a result type from which on rounding hides errors.
const coarse = 0x1p-7

// Direct reports whether random vectors can check the C of p itself. They cannot check an epilogue
// other than a bias, and detect little in a result of 8-bit floats. For such products, check
// [Linear] and apply the epilogue afterwards.
func Direct(p *gemm.Problem) bool {
	return p.Epilogue.OnlyBias() && p.Out().Info().Roundoff < coarse && !p.Converts()
}

// Linear returns p without its epilogue, except zero points. Its C is a dense matrix of p's
// ScaleType in new memory, with the values of the old C. If p converts integer sums, Linear returns
// the product of these sums, whose check is exact.
func Linear(p *gemm.Problem, b gemm.Buffers) (gemm.Problem, gemm.Buffers) {
	linear := LinearProblem(p)
	lb := gemm.Buffers{gemm.A: b[gemm.A], gemm.B: b[gemm.B], gemm.C: make([]byte, linear.C().Bytes())}
	lb[gemm.ScaleA], lb[gemm.ScaleB] = b[gemm.ScaleA], b[gemm.ScaleB]
	lb[gemm.RowZero], lb[gemm.ColZero] = b[gemm.RowZero], b[gemm.ColZero]
	if linear.Beta != 0 {
		for i := range p.M {
			for j := range p.N {
				linear.Out().Set(lb[gemm.C], linear.C().Index(i, j), p.Out().At(b[gemm.C], p.C().Index(i, j)))
			}
		}
	}
	return linear, lb
}

// LinearProblem returns the problem of [Linear].
func LinearProblem(p *gemm.Problem) gemm.Problem {
	if p.Converts() {
		return p.Sums()
	}
	linear := *p
	linear.Epilogue, linear.Layouts[gemm.Up] = p.Epilogue.Zeros(), gemm.Layout{}
	linear.Layouts[gemm.Residual] = gemm.Layout{}
	linear.Layouts[gemm.C] = gemm.Dense(p.ScaleType(), p.M, p.N)
	return linear
}
