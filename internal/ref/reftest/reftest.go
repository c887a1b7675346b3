// Package reftest generates random products and computes them in plain loops, for the tests of
// packages ref and verify.
package reftest

import (
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// Repeats returns n, a tenth of it with -short, since the race detector slows float loops down
// twentyfold, or 50·n in a long test.
func Repeats(n int) int { return testkit.Repeats(n, 50*n) }

// Types is a type of operands and a type of result.
type Types struct{ In, Out dtype.Type }

// AllTypes returns all pairs of types that a product can have.
func AllTypes() (all []Types) {
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			all = append(all, Types{in, out})
		}
	}
	return all
}

// Integer reports whether products of the types are computed in integers throughout.
func (ty Types) Integer() bool { return ty.In.Info().ScaleType(ty.Out).Info().Integer }

// Distributions returns distributions of random elements by name.
func Distributions(rng *rand.Rand) map[string]func() float64 {
	return map[string]func() float64{
		"uniform":  func() float64 { return rng.Float64()*2 - 1 },
		"positive": rng.Float64,
		"normal":   rng.NormFloat64,
		"wide":     func() float64 { return math.Ldexp(rng.Float64()*2-1, rng.IntN(18)-10) }, // finite in every type
	}
}

// Problem returns a product with random layouts and its matrices. fill generates every element,
// padding included.
func Problem(t testing.TB, rng *rand.Rand, ty Types, m, n, k int, alpha, beta float64,
	e gemm.Epilogue, fill func() float64) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	operand := func(ty dtype.Type, rows, cols int, trans bool) gemm.Layout {
		if trans {
			rows, cols = cols, rows
		}
		l := gemm.Dense(ty, rows, cols)
		l.LD += rng.IntN(3)
		l.Trans = trans
		return l
	}
	p, _, err := gemm.New(complex(alpha, 0), operand(ty.In, m, k, rng.IntN(2) == 0),
		operand(ty.In, k, n, rng.IntN(2) == 0), complex(beta, 0), operand(ty.Out, m, n, false), e)
	if err != nil {
		t.Fatal(err)
	}
	memory := func(ty dtype.Type, n int) []byte {
		b := make([]byte, ty.Bytes(n))
		for i := range n {
			ty.Set(b, i, fill())
		}
		return b
	}
	return &p, gemm.Buffers{
		gemm.A: memory(ty.In, p.A().Len()), gemm.B: memory(ty.In, p.B().Len()),
		gemm.C: memory(ty.Out, p.C().Len()), gemm.Bias: memory(ty.Out, p.BiasLen()),
	}
}

// Product returns the new C. It sums blocks of the given number of terms in the accumulator's type,
// and does the rest in the ScaleType.
func Product(p *gemm.Problem, buf gemm.Buffers, block int) []byte {
	switch t := p.Accum(); {
	case p.Converts():
		return productIn[int32, float32](p, buf, block)
	case t == dtype.F64:
		return productIn[float64, float64](p, buf, block)
	case t == dtype.F32:
		return productIn[float32, float32](p, buf, block)
	default:
		return productIn[int32, int32](p, buf, block)
	}
}

type number interface{ float32 | float64 | int32 }

func productIn[T, S number](p *gemm.Problem, buf gemm.Buffers, block int) []byte {
	c := append([]byte(nil), buf[gemm.C]...)
	var a, b []T
	if p.ReadsAB() {
		a, b = elements[T](*p.A(), buf[gemm.A]), elements[T](p.B().T(), buf[gemm.B])
	}
	for i := range p.M {
		for j := range p.N {
			var total T
			for first := 0; p.ReadsAB() && first < p.K; first += block {
				var part T
				for k := first; k < min(first+block, p.K); k++ {
					part += T(a[i*p.K+k] * b[j*p.K+k]) // without FMA
				}
				total += part
			}
			sum := S(S(total) * S(real(p.Alpha)))
			at := p.C().Index(i, j)
			if p.Beta != 0 {
				sum += S(real(p.Beta)) * S(p.Out().At(buf[gemm.C], at))
			}
			switch p.Epilogue.Bias {
			case gemm.BiasRow:
				sum += S(p.Out().At(buf[gemm.Bias], i))
			case gemm.BiasCol:
				sum += S(p.Out().At(buf[gemm.Bias], j))
			}
			p.Out().Set(c, at, p.Epilogue.Activation.Info().F(float64(sum)))
		}
	}
	return c
}

// elements returns the elements of a matrix in row-major order.
func elements[T number](l gemm.Layout, b []byte) []T {
	var all []T
	for i := range l.OpRows() {
		for j := range l.OpCols() {
			all = append(all, T(l.Type.At(b, l.Index(i, j))))
		}
	}
	return all
}
