// Package dtype defines the element types of matrices. For each type it specifies size, conversion
// and rounding, and the accumulator and result types of products.
//
// The Go types are float64, float32, [Float16], [BFloat16], [Float8E4M3], [Float8E5M2], int8,
// uint8 and int32. [Type] identifies them at run time, and [Type.Info] returns their properties.
package dtype

import (
	"fmt"
	"math"
	"unsafe"

	"tilework/internal/names"
)

// Type identifies an element type at run time. The zero value is Invalid.
type Type uint8

// The element types, in the order of the table.
const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	F8E4M3
	F8E5M2
	I8
	U8
	I32
)

// Element is the set of Go types that a matrix may hold.
type Element interface {
	float64 | float32 | Float16 | BFloat16 | Float8E4M3 | Float8E5M2 | int8 | uint8 | int32
}

// Float is the set of Go types whose products can have the same type and are summed with at least
// the precision of float32.
type Float interface {
	float64 | float32 | Float16 | BFloat16
}

// Info holds the properties of an element type.
type Info struct {
	Name    string // name in NumPy or its extension ml_dtypes: "float32"
	Short   string // short name: "f32"
	Size    int    // bytes of an element
	Integer bool   // sums wrap around

	// Roundoff is the unit roundoff u. In the normal range, rounding to nearest changes a value
	// by at most u·|value| (Higham, Accuracy and Stability of Numerical Algorithms, section 2.1).
	// It is 0 for integers.
	Roundoff float64
	// Tiny is the smallest positive subnormal number. Below the normal range, rounding changes a
	// value by at most Tiny/2. It is 0 for integers.
	Tiny float64
	// Max is the largest finite value; Exact is the largest n such that every
	// integer in [-n, n], or in [0, n] for uint8, is representable.
	Max, Exact float64

	// Accum is the accumulator type of products of this type. Results lists the types that such a
	// product can have, the default first. A type without Results can hold products but cannot be
	// multiplied. See also [Info.ScaleType].
	Accum   Type
	Results []Type

	load  func(p unsafe.Pointer) float64
	store func(p unsafe.Pointer, v float64)

	loadAll  func(dst []float64, b []byte)
	storeAll func(b []byte, src []float64)
}

// table holds the properties of all types. Every other list of types is derived from it.
var table = [...]Info{
	F64: {
		Name: "float64", Short: "f64", Size: 8,
		Roundoff: 0x1p-53, Tiny: 0x1p-1074, Max: math.MaxFloat64, Exact: 1 << 53,
		Accum: F64, Results: []Type{F64},
		load: load[float64], store: store[float64],
		loadAll: loadAll[float64], storeAll: storeAll[float64],
	},
	F32: {
		Name: "float32", Short: "f32", Size: 4,
		Roundoff: 0x1p-24, Tiny: 0x1p-149, Max: math.MaxFloat32, Exact: 1 << 24,
		Accum: F32, Results: []Type{F32, BF16, F16},
		load: load[float32], store: store[float32],
		loadAll: loadAll[float32], storeAll: storeAll[float32],
	},
	F16: {
		Name: "float16", Short: "f16", Size: 2,
		Roundoff: 0x1p-11, Tiny: 0x1p-24, Max: 65504, Exact: 1 << 11,
		Accum: F32, Results: []Type{F16, F32},
		load: load[Float16], store: store[Float16],
		loadAll: loadAll[Float16], storeAll: storeAll[Float16],
	},
	BF16: {
		Name: "bfloat16", Short: "bf16", Size: 2,
		Roundoff: 0x1p-8, Tiny: 0x1p-133, Max: 0x1.fep127, Exact: 1 << 8,
		Accum: F32, Results: []Type{BF16, F32},
		load: load[BFloat16], store: store[BFloat16],
		loadAll: loadAll[BFloat16], storeAll: storeAll[BFloat16],
	},
	F8E4M3: {
		Name: "float8_e4m3fn", Short: "e4m3", Size: 1,
		Roundoff: 0x1p-4, Tiny: 0x1p-9, Max: 448, Exact: 1 << 4,
		Accum: F32, Results: []Type{F32, BF16, F16, F8E4M3},
		load: load[Float8E4M3], store: store[Float8E4M3],
		loadAll: loadAll[Float8E4M3], storeAll: storeAll[Float8E4M3],
	},
	F8E5M2: {
		Name: "float8_e5m2", Short: "e5m2", Size: 1,
		Roundoff: 0x1p-3, Tiny: 0x1p-16, Max: 57344, Exact: 1 << 3,
		Accum: F32, Results: []Type{F32, BF16, F16, F8E5M2},
		load: load[Float8E5M2], store: store[Float8E5M2],
		loadAll: loadAll[Float8E5M2], storeAll: storeAll[Float8E5M2],
	},
	I8: {
		Name: "int8", Short: "i8", Size: 1, Integer: true,
		Max: math.MaxInt8, Exact: math.MaxInt8,
		Accum: I32, Results: []Type{I32, F32, BF16, F16},
		load: load[int8], store: store[int8],
		loadAll: loadAll[int8], storeAll: storeAll[int8],
	},
	U8: {
		Name: "uint8", Short: "u8", Size: 1, Integer: true,
		Max: math.MaxUint8, Exact: math.MaxUint8,
		Accum: I32, Results: []Type{I32, F32, BF16, F16},
		load: load[uint8], store: store[uint8],
		loadAll: loadAll[uint8], storeAll: storeAll[uint8],
	},
	I32: {
		Name: "int32", Short: "i32", Size: 4, Integer: true,
		Max: math.MaxInt32, Exact: math.MaxInt32,
		Accum: I32,
		load:  load[int32], store: store[int32],
		loadAll: loadAll[int32], storeAll: storeAll[int32],
	},
}

// ScaleType returns the type of alpha, beta and the epilogue for products of this type with results
// of type out (the scale type of cuBLASLt). It is the accumulator type, with one exception: integer
// sums with a non-integer result are first converted to float32, to nearest with ties to even.
func (in *Info) ScaleType(out Type) Type {
	if table[in.Accum].Integer && out != in.Accum {
		return F32
	}
	return in.Accum
}

// Bytes returns the bytes of n elements.
func (in *Info) Bytes(n int) int { return n * in.Size }

// All returns all element types in the order of the table.
func All() []Type {
	all := make([]Type, 0, len(table)-1)
	for t := Invalid + 1; int(t) < len(table); t++ {
		all = append(all, t)
	}
	return all
}

// Signed returns int8 for uint8, and every other type itself. Matrices of uint8 are multiplied as
// int8, with elements that are less by 128.
func (t Type) Signed() Type {
	if t == U8 {
		return I8
	}
	return t
}

// Valid reports whether t is an element type.
func (t Type) Valid() bool { return t > Invalid && int(t) < len(table) }

// Info returns the properties of t. It panics unless t.Valid().
func (t Type) Info() *Info {
	if !t.Valid() {
		noSuchType(t)
	}
	return &table[t]
}

// noSuchType panics. It is separate from Info so that Info can be inlined.
//
//go:noinline
func noSuchType(t Type) { panic(fmt.Sprintf("dtype: no such type %d", uint8(t))) }

// Bits returns the bits of one element, or 0 for Invalid.
func (t Type) Bits() int { return 8 * table[t].Size }

// Size returns the bytes of one element, or 0 for Invalid.
func (t Type) Size() int { return table[t].Size }

// Bytes returns the bytes of n elements. It is 0 for Invalid.
func (t Type) Bytes(n int) int { return table[t].Bytes(n) }

// Elements returns the number of whole elements in n bytes. It panics for Invalid.
func (t Type) Elements(n int) int { return n / table[t].Size }

// String returns the name of the type, which Parse accepts.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return table[t].Name
}

// Parse returns the type with the given name or short name, such as "float32" or "f32".
func Parse(name string) (Type, error) {
	var known []string
	for _, t := range All() {
		if in := t.Info(); name == in.Name || name == in.Short {
			return t, nil
		}
		known = append(known, t.String())
	}
	return Invalid, names.Unknown("element type", name, known)
}

// Of returns the Type of the Go type T.
func Of[T Element]() Type {
	switch one := T(1); { // the compiler can evaluate these cases
	case unsafe.Sizeof(one) == 8:
		return F64
	case unsafe.Sizeof(one) == 4 && one/2 != 0:
		return F32
	case unsafe.Sizeof(one) == 4:
		return I32
	}
	switch any(*new(T)).(type) {
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case Float8E4M3:
		return F8E4M3
	case Float8E5M2:
		return F8E5M2
	case uint8:
		return U8
	default:
		return I8
	}
}
