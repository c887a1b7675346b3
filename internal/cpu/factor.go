package cpu

import (
	"math"
	"sync"
	"unsafe"

	"tilework/internal/gemm"
)

// A micro-kernel multiplies the sums that it adds to C by alpha. If K is summed in parts, a part
// times alpha can overflow although the sum of all parts times alpha does not. Algorithms then sum
// with a factor of 1 and multiply the finished sums. A factor of at most 1 cannot overflow, so it
// may multiply the parts, which saves the multiplication of the finished sums.

// multipliesParts reports whether alpha may multiply sums of parts of K.
func multipliesParts(p *gemm.Problem) bool {
	return math.Abs(real(p.Alpha)) <= 1 || p.ScaleType().Info().Integer // wrapping sums are exact
}

// partial describes sums of parts of K, with a factor that multiplies the finished sums.
type partial[T scalar] struct {
	deferred bool // whether finish multiplies by factor
	apart    bool // whether sums cannot be in C, whose old elements finish adds
	factor   T
	beta     T
}

// factors holds memory for factors whose address kernels take. A factor on the stack would escape.
var factors = sync.Pool{New: func() any { return new(float64) }}

// deferAlpha prepares for sums of parts of K, unless whole is set: then all of K is one part. It
// replaces alpha and beta by those for the sums.
func (f *partial[T]) deferAlpha(p *gemm.Problem, whole bool, alpha, beta *T) {
	if whole || !p.ReadsAB() || multipliesParts(p) {
		return
	}
	f.deferred, f.apart, f.factor, f.beta = true, *beta != 0, *alpha, *beta
	*alpha, *beta = 1, 0
}

// factors returns alpha and beta for a sum over all of K, given those for the sums of parts.
func (f *partial[T]) factors(alpha, beta T) (T, T) {
	if f.deferred {
		return f.factor, f.beta
	}
	return alpha, beta
}

// finish multiplies rows×cols sums, if they were deferred. Sums that are apart go to c, and others
// stay.
func (f *partial[T]) finish(mk *microKernel[T], rows, cols int, sums []T, lds int, c []T, ldc int) {
	switch {
	case !f.deferred:
	case f.apart:
		f.add(mk, rows, cols, sums, lds, c, ldc)
	case mk.Scale != nil:
		memory := factors.Get().(*float64)
		defer factors.Put(memory)
		factor := (*T)(unsafe.Pointer(memory))
		*factor = f.factor
		mk.Scale(rows, cols, &sums[0], lds, factor)
	default:
		for i := range rows {
			row := sums[i*lds:][:cols]
			for j, v := range row {
				row[j] = T(f.factor * v)
			}
		}
	}
}

// add computes factor·sums + β·C.
func (f *partial[T]) add(mk *microKernel[T], rows, cols int, sums []T, lds int, c []T, ldc int) {
	memory := factors.Get().(*float64)
	defer factors.Put(memory)
	factor := (*T)(unsafe.Pointer(memory))
	*factor = f.factor
	for i := range rows {
		from, to := sums[i*lds:][:cols], c[i*ldc:][:cols]
		if len(mk.Update) > 0 { // a product with one step of K
			mk.Update[0][0](factor, 1, 1, &from[0], lds, &to[0], ldc, cols, 1, f.beta)
			continue
		}
		for j, v := range from {
			to[j] = T(f.factor*v) + T(f.beta*to[j])
		}
	}
}
