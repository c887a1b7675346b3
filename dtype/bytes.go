package dtype

import (
	"fmt"
	"math"
	"unsafe"
)

// Bytes returns the memory of s as bytes in the byte order of the machine. It does not copy.
func Bytes[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// View returns b as a slice of elements of type T. It does not copy. It ignores an incomplete last
// element and panics if b is not aligned for T.
func View[T Element](b []byte) []T {
	p := unsafe.Pointer(unsafe.SliceData(b))
	size := unsafe.Sizeof(*new(T))
	if uintptr(p)%size != 0 {
		panic(fmt.Sprintf("dtype: memory at %p is not aligned for %v", p, Of[T]()))
	}
	return unsafe.Slice((*T)(p), len(b)/int(size))
}

// ToFloat64 converts v to float64, which is exact for every element type.
func ToFloat64[T Element](v T) float64 {
	switch v := any(v).(type) {
	case float64:
		return v
	case float32:
		return float64(v)
	case Float16:
		return v.Float64()
	case BFloat16:
		return v.Float64()
	case Float8E4M3:
		return v.Float64()
	case Float8E5M2:
		return v.Float64()
	case int8:
		return float64(v)
	case uint8:
		return float64(v)
	default:
		return float64(any(v).(int32))
	}
}

// FromFloat64 converts v to T. It rounds once, to nearest with ties to even. Integer types saturate
// after rounding and convert NaN to 0.
func FromFloat64[T Element](v float64) T {
	var out T
	switch p := any(&out).(type) {
	case *float64:
		*p = v
	case *float32:
		*p = float32(v)
	case *Float16:
		*p = Float16From64(v)
	case *BFloat16:
		*p = BFloat16From64(v)
	case *Float8E4M3:
		*p = Float8E4M3From64(v)
	case *Float8E5M2:
		*p = Float8E5M2From64(v)
	case *int8:
		*p = int8(saturate(v, math.MinInt8, math.MaxInt8))
	case *uint8:
		*p = uint8(saturate(v, 0, math.MaxUint8))
	case *int32:
		*p = int32(saturate(v, math.MinInt32, math.MaxInt32))
	}
	return out
}

// saturate rounds v to an integer in [lo, hi].
func saturate(v, lo, hi float64) float64 {
	if v != v {
		return 0
	}
	return min(max(math.RoundToEven(v), lo), hi)
}

func load[T Element](p unsafe.Pointer) float64     { return ToFloat64(*(*T)(p)) }
func store[T Element](p unsafe.Pointer, v float64) { *(*T)(p) = FromFloat64[T](v) }

// At returns element i of b, which holds elements of type t.
func (t Type) At(b []byte, i int) float64 {
	in, size := t.Info(), t.Size()
	return in.load(unsafe.Pointer(&b[i*size : (i+1)*size][0]))
}

// Load reads the first len(dst) elements of b, which holds elements of type t.
func (t Type) Load(dst []float64, b []byte) {
	in := t.Info()
	in.loadAll(dst, b[:in.Bytes(len(dst))])
}

// loadAll converts the elements of b to float64. It selects the type once per slice, not per
// element.
func loadAll[T Element](dst []float64, b []byte) {
	switch s := any(View[T](b)).(type) {
	case []float64:
		copy(dst, s)
	case []float32:
		for i, v := range s {
			dst[i] = float64(v)
		}
	case []Float16:
		for i, v := range s {
			dst[i] = v.Float64()
		}
	case []BFloat16:
		for i, v := range s {
			dst[i] = v.Float64()
		}
	case []Float8E4M3:
		for i, v := range s {
			dst[i] = v.Float64()
		}
	case []Float8E5M2:
		for i, v := range s {
			dst[i] = v.Float64()
		}
	case []int8:
		for i, v := range s {
			dst[i] = float64(v)
		}
	case []uint8:
		for i, v := range s {
			dst[i] = float64(v)
		}
	case []int32:
		for i, v := range s {
			dst[i] = float64(v)
		}
	}
}

// Set converts v like [FromFloat64] and stores it as element i of b.
func (t Type) Set(b []byte, i int, v float64) {
	in, size := t.Info(), t.Size()
	in.store(unsafe.Pointer(&b[i*size : (i+1)*size][0]), v)
}

// Round converts v to t and back.
func (t Type) Round(v float64) float64 {
	var buf [8]byte
	in := t.Info()
	p := unsafe.Pointer(&buf)
	in.store(p, v)
	return in.load(p)
}

// storeAll converts src to T and stores it in b.
func storeAll[T Element](b []byte, src []float64) {
	dst := View[T](b)[:len(src)]
	for i, v := range src {
		dst[i] = FromFloat64[T](v)
	}
}

// Store converts src like [FromFloat64] and stores it as the first elements of b, which must be
// aligned for t. It is faster than [Type.Set] for many elements.
func (t Type) Store(b []byte, src []float64) { t.Info().storeAll(b, src) }
