package dtype

import (
	"fmt"
	"math"
	"unsafe"
)

// Bytes is the memory of s, in the machine's byte order, shared and not copied.
func Bytes[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// View is b as elements of type T, shared and not copied; a trailing part of an
// element is left off. It panics when b is not aligned for T.
func View[T Element](b []byte) []T {
	p := unsafe.Pointer(unsafe.SliceData(b))
	size := unsafe.Sizeof(*new(T))
	if uintptr(p)%size != 0 {
		panic(fmt.Sprintf("dtype: memory at %p is not aligned for %v", p, Of[T]()))
	}
	return unsafe.Slice((*T)(p), len(b)/int(size))
}

// ToFloat64 is v's value; every element type's values are float64 values.
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
	default:
		return float64(any(v).(int32))
	}
}

// FromFloat64 is v in type T: rounded once, to nearest with ties to even, for
// the floating types; for the integer types rounded likewise and then saturated,
// NaN becoming zero.
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
	case *int32:
		*p = int32(saturate(v, math.MinInt32, math.MaxInt32))
	}
	return out
}

func saturate(v, lo, hi float64) float64 {
	if v != v {
		return 0
	}
	return min(max(math.RoundToEven(v), lo), hi)
}

func load[T Element](p unsafe.Pointer) float64     { return ToFloat64(*(*T)(p)) }
func store[T Element](p unsafe.Pointer, v float64) { *(*T)(p) = FromFloat64[T](v) }

// At is element i of b, which holds elements of type t.
func (t Type) At(b []byte, i int) float64 {
	in := t.Info()
	return in.load(unsafe.Pointer(&b[i*in.Size : (i+1)*in.Size][0]))
}

// Load reads the first len(dst) elements of b, which holds elements of type t.
func (t Type) Load(dst []float64, b []byte) {
	in := t.Info()
	in.loadAll(dst, b[:len(dst)*in.Size])
}

// loadAll chooses the type once for the whole slice, not once an element.
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
	case []int32:
		for i, v := range s {
			dst[i] = float64(v)
		}
	}
}

// Set stores v, converted as by [FromFloat64], as element i of b.
func (t Type) Set(b []byte, i int, v float64) {
	in := t.Info()
	in.store(unsafe.Pointer(&b[i*in.Size : (i+1)*in.Size][0]), v)
}

// Round is v as t holds it: converted to t and back.
func (t Type) Round(v float64) float64 {
	var buf [8]byte
	in := t.Info()
	p := unsafe.Pointer(&buf)
	in.store(p, v)
	return in.load(p)
}

func storeAll[T Element](b []byte, src []float64) {
	dst := View[T](b)[:len(src)]
	for i, v := range src {
		dst[i] = FromFloat64[T](v)
	}
}

// Store stores src, converted as by [FromFloat64], as the first elements of b,
// which is aligned for t. It is [Type.Set] for many.
func (t Type) Store(b []byte, src []float64) { t.Info().storeAll(b, src) }
