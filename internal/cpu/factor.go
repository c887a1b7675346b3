package cpu

import (
	"context"
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// A micro-kernel multiplies the sums that it adds to C by alpha. If K is summed in parts, a part
// times alpha can overflow although the sum of all parts times alpha does not. A factor of at most
// 1 cannot overflow and may multiply parts. For any other α, algorithms sum with other factors, and
// multiply the finished sums in the cache:
//
//	C ← α·(A·B)                    if β = 0
//	C ← s·((α/s)·A·B + (β/s)·C)    otherwise, with the least power of two s ≥ |α|
//
// The divisions by s are exact. The sum loses bits where it is smaller than the normal numbers: an
// error of some |α|·t in C, where t is the smallest number. The rounding of products of elements of
// A and B to multiples of t has errors of that size too.

// multipliesParts reports whether alpha may multiply sums of parts of K.
func multipliesParts(p *gemm.Problem) bool {
	return math.Abs(real(p.Alpha)) <= 1 || p.ScaleType().Info().Integer // wrapping sums are exact
}

// powerAbove returns the least power of two that is at least |x|, for a finite x.
func powerAbove(x float64) float64 {
	fraction, exponent := math.Frexp(math.Abs(x))
	if fraction == 0.5 {
		exponent--
	}
	return math.Ldexp(1, exponent)
}

// partial describes sums of parts of K, with a factor that multiplies the finished sums.
type partial[T scalar] struct {
	deferred bool // whether there is such a factor
	factor   T
	memory   []T // has the factor, because kernels take its address, and one on the stack would escape
}

// deferAlpha prepares for sums of parts of K, unless whole is set: then all of K is one part. It
// replaces alpha and beta by those for the sums.
func (f *partial[T]) deferAlpha(p *gemm.Problem, whole bool, alpha, beta *T) {
	if whole || !p.ReadsAB() || multipliesParts(p) {
		return
	}
	f.deferred = true
	if *beta == 0 {
		f.factor, *alpha = *alpha, 1
		return
	}
	f.factor = T(powerAbove(float64(*alpha)))
	*alpha /= f.factor
	*beta /= f.factor
}

// bytes returns the size of the factor in a workspace, and bind puts it there.
func (f *partial[T]) bytes() int {
	if !f.deferred {
		return 0
	}
	return allocBytes[T](1)
}

func (f *partial[T]) bind(m *workspace) {
	if f.deferred {
		f.memory = alloc[T](m, 1)
		f.memory[0] = f.factor
	}
}

// finish multiplies rows×cols sums, if they were deferred.
func (f *partial[T]) finish(mk *microKernel[T], rows, cols int, c []T, ldc int) {
	switch {
	case !f.deferred:
	case mk.Scale != nil:
		mk.Scale(rows, cols, &c[0], ldc, &f.memory[0])
	default:
		strided[T]{c, ldc, 1}.scale(0, rows, cols, f.factor)
	}
}

// isApart reports whether α and β are factors of whole sums only: there is no s as above, because α
// or s is not finite or β/s is below the normal numbers.
func isApart(p *gemm.Problem) bool {
	if p.Beta == 0 || p.Out() != p.Accum() || !p.ReadsAB() || multipliesParts(p) {
		return false
	}
	alpha, t := real(p.Alpha), p.ScaleType().Info()
	if !(math.Abs(alpha) <= t.Max) {
		return true
	}
	s, normal := powerAbove(alpha), t.Tiny/(2*t.Roundoff)
	return s > t.Max || math.Abs(real(p.Beta))/s < normal
}

// multiplyApart computes sums apart from C, and then C.
func multiplyApart[T scalar](ctx context.Context, pl *Plan, mk *microKernel[T], b *gemm.Buffers) error {
	p := pl.Problem
	m := getWorkspace(allocBytes[T](p.M * p.N))
	defer m.put()
	sums := alloc[T](&m, p.M*p.N)
	with, q, to := *pl, p.Sums(), *b
	with.Problem, with.onTile, to[gemm.C] = &q, nil, dtype.Bytes(sums)
	if err := with.multiply(ctx, &to); err != nil {
		return err
	}
	var c target[T]
	c.prepare(pl, mk, b, false)
	for i := range p.M {
		c.add(i, 0, sums[i*p.N:][:p.N], alphaOf[T](p), T(real(p.Beta)))
	}
	c.finish(0, 0, p.M, p.N, nil)
	return nil
}
