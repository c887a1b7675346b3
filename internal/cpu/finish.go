package cpu

import (
	"tilework/dtype"
	"tilework/internal/gemm"
)

// finisher turns sums into what C is to hold: β·C where the micro-kernels could
// not add it, the epilogue, and the rounding to C's type. It works on a tile of
// C that was just computed and so is still in the cache.
type finisher[T scalar] struct {
	needed   bool // false: there is nothing to finish
	epilogue gemm.Epilogue
	act      func(float64) float64
	bias     []byte
	biasType dtype.Type

	// For a C of another type than the sums: its memory and the conversions.
	raw    []byte
	ld     int
	beta   T
	widen  func(dst []T, raw []byte, at int)
	narrow func(raw []byte, at int, src []T)
}

func newFinisher[T scalar](p *gemm.Problem, b gemm.Buffers) finisher[T] {
	converts := p.C.Type != dtype.Of[T]()
	if !converts && p.Epilogue == (gemm.Epilogue{}) {
		return finisher[T]{}
	}
	f := finisher[T]{
		needed:   true,
		epilogue: p.Epilogue, bias: b.Bias, biasType: p.C.Type,
		act: p.Epilogue.Activation.Info().F,
	}
	if converts {
		f.raw, f.ld, f.beta = b.C, p.C.LD, T(p.Beta)
		f.widen, f.narrow = widening[T](p.C.Type), narrowing[T](p.C.Type)
	}
	return f
}

// finishing is how many elements tile needs for C's old ones.
const finishing = 256

// tile finishes rows×cols sums at c, which belong at (i0, j0) of C. old is memory for
// some elements, [finishing] where C is converted.
func (f *finisher[T]) tile(c []T, ldc, i0, j0, rows, cols int, old []T) {
	for i := range rows {
		for j := 0; j < cols; j += finishing {
			sums := c[i*ldc+j:][:min(finishing, cols-j)]
			at := (i0+i)*f.ld + j0 + j // in raw
			if f.raw != nil && f.beta != 0 {
				f.widen(old[:len(sums)], f.raw, at)
				for x := range sums {
					sums[x] += f.beta * old[x]
				}
			}
			f.apply(sums, i0+i, j0+j)
			if f.raw != nil {
				f.narrow(f.raw, at, sums)
			}
		}
	}
}

// apply carries out the epilogue on consecutive elements of row i of C, from
// column j on.
func (f *finisher[T]) apply(sums []T, i, j int) {
	switch f.epilogue.Bias {
	case gemm.BiasRow:
		bias := T(f.biasType.At(f.bias, i))
		for x := range sums {
			sums[x] += bias
		}
	case gemm.BiasCol:
		for x := range sums {
			sums[x] += T(f.biasType.At(f.bias, j+x))
		}
	}
	if f.epilogue.Activation != gemm.ActNone {
		for x, v := range sums {
			sums[x] = T(f.act(float64(v)))
		}
	}
}

// The conversions, made once: to make a function of one costs memory.
var (
	toF16  = narrowWith(dtype.Float16From32)
	toBF16 = narrowWith(dtype.BFloat16From32)
)

// narrowing is the conversion from what was summed to an element type of C.
func narrowing[T scalar](to dtype.Type) (f func(raw []byte, at int, src []T)) {
	if to == dtype.F16 {
		f, _ = any(toF16).(func([]byte, int, []T))
	} else {
		f, _ = any(toBF16).(func([]byte, int, []T))
	}
	return f
}

func narrowWith[O dtype.Element](convert func(float32) O) func(raw []byte, at int, src []float32) {
	return func(raw []byte, at int, src []float32) {
		for i, v := range src {
			dtype.View[O](raw)[at+i] = convert(v)
		}
	}
}
