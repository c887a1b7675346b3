package gemm

import (
	"fmt"
	"slices"
	"strings"

	"tilework/dtype"
)

// Precision is the arithmetic of a product where that is not the element type's own: it is
// faster, and its results are less accurate or, in F32x3, as accurate but others. Nobody
// gets it unasked.
type Precision uint8

const (
	// Native is the element type's own: float32 in, float32 arithmetic.
	Native Precision = iota
	// TF32 rounds elements of float32 to 11 significant bits before they are multiplied.
	TF32
	// Fast leaves the sums of products of 8-bit floats in the tensor cores' accumulators,
	// of 14 bits on some GPUs, and does not add them up in float32.
	Fast
	// F32x3 has each float32 be the sum of three bfloat16, exactly, and adds up those six
	// of the nine products of their parts that a float32 has room for: as accurate as
	// float32, but on the tensor cores.
	F32x3
)

// PrecisionInfo is a precision's row of the table.
type PrecisionInfo struct {
	Name string
	Doc  string       // one line for a reader of help text
	For  []dtype.Type // of A and B
	// Operand is the largest relative change of an element before it is multiplied.
	Operand float64
}

var precisions = [...]PrecisionInfo{
	Native: {Name: "native", Doc: "the element type's own arithmetic", For: dtype.All()},
	TF32:   {Name: "tf32", Doc: "float32 rounded to 11 significant bits, on the tensor cores", For: []dtype.Type{dtype.F32}, Operand: 0x1p-11},
	Fast:   {Name: "fast", Doc: "8-bit floats summed in the tensor cores' own, shorter accumulators", For: []dtype.Type{dtype.F8E4M3, dtype.F8E5M2}},
	F32x3:  {Name: "f32x3", Doc: "float32 in three parts of bfloat16 each, as accurate as float32, on the tensor cores", For: []dtype.Type{dtype.F32}},
}

// Precisions lists the precisions in the order of the table.
func Precisions() []Precision {
	all := make([]Precision, len(precisions))
	for i := range all {
		all[i] = Precision(i)
	}
	return all
}

// Info returns p's row of the table.
func (p Precision) Info() *PrecisionInfo { return &precisions[p] }

func (p Precision) String() string { return precisions[p].Name }

// ParsePrecision reads a precision's name; the empty one is Native. The error is
// ErrUnsupported.
func ParsePrecision(name string) (Precision, error) {
	var names []string
	for i := range precisions {
		if precisions[i].Name == name || name == "" {
			return Precision(i), nil
		}
		names = append(names, precisions[i].Name)
	}
	return 0, fmt.Errorf("%w: no precision %q (there are %s)", ErrUnsupported, name, strings.Join(names, ", "))
}

// Check refuses a precision that products of elements of type t do not have. The error is
// ErrUnsupported.
func (p Precision) Check(t dtype.Type) error {
	if int(p) >= len(precisions) {
		return fmt.Errorf("%w: no precision %d", ErrUnsupported, p)
	}
	if in := p.Info(); !slices.Contains(in.For, t) {
		return fmt.Errorf("%w: precision %v of %v matrices (it is for %s)", ErrUnsupported, p, t, either(in.For))
	}
	return nil
}

// Accuracy is how an implementation computes, as far as its errors depend on it.
type Accuracy struct {
	// Roundoff is the largest relative change that one rounding in the accumulator
	// makes: its unit roundoff, or twice that where it truncates.
	Roundoff float64
	// Operand is the largest relative change made to an element of A or B on the
	// way in: 0 when they are used as they are, 2^-11 when rounded to tf32.
	Operand float64
	// Truncates says that the accumulator cuts digits off, so that its errors point
	// the same way and grow with k, not with √k.
	Truncates bool
	// Chunk is after how many terms what was summed up so is added to a sum in the
	// accumulator's type, rounded to nearest; 0 is never.
	Chunk int
	// Exact is up to which whole number sums of whole numbers are exact; 0 stands for
	// what the accumulator's type says.
	Exact float64
	// FlushesToZero says that operands and sums below the normal range become zero.
	FlushesToZero bool
}

// Roundings is how many roundings of a.Roundoff come to those of n operations in a row.
func (a Accuracy) Roundings(n float64) float64 {
	chunk := float64(a.Chunk)
	if chunk == 0 || n <= chunk {
		return n
	}
	return chunk + n/chunk*dtype.F32.Info().Roundoff/a.Roundoff
}

// AccuracyOf returns the accuracy of an implementation that rounds each operation to
// nearest, in the type that p is summed in or, of integer sums, in its ScaleType.
func AccuracyOf(p *Problem) Accuracy {
	return Accuracy{Roundoff: p.ScaleType().Info().Roundoff, Operand: p.Precision.Info().Operand}
}
