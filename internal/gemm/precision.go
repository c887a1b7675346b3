package gemm

import (
	"fmt"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/names"
)

// Precision selects the arithmetic of a product. A precision other than Native is faster. Its
// results are less accurate or, with F32x3, as accurate but different. It is used only on request.
type Precision uint8

const (
	// Native is the element type's own arithmetic: float32 for float32 elements.
	Native Precision = iota
	// TF32 rounds float32 elements to 11 significant bits before the multiplication.
	TF32
	// Fast sums products of 8-bit floats in the accumulators of the tensor cores only, which have 14
	// bits on some GPUs, without promotion to float32.
	Fast
	// F32x3 splits each float32 into three bfloat16 terms whose sum it is exactly, and adds the six of
	// the nine products of terms that affect a float32 result. It is as accurate as float32 and runs
	// on the tensor cores.
	F32x3
)

// PrecisionInfo describes a precision.
type PrecisionInfo struct {
	Name string
	Doc  string       // one line for a reader of help text
	For  []dtype.Type // of A and B
	// Operand is the largest relative change of an element before it is multiplied.
	Operand float64
}

var precisions = [...]PrecisionInfo{
	Native: {Name: "native", Doc: "the element type's own arithmetic", For: dtype.All()},
	TF32: {Name: "tf32", Doc: "float32 rounded to 11 significant bits, on the tensor cores",
		For: []dtype.Type{dtype.F32}, Operand: 0x1p-11},
	Fast: {Name: "fast", Doc: "8-bit floats summed in the tensor cores' own, shorter accumulators",
		For: []dtype.Type{dtype.F8E4M3, dtype.F8E5M2}},
	F32x3: {Name: "f32x3", Doc: "float32 in three parts of bfloat16 each, as accurate as float32, on the tensor cores",
		For: []dtype.Type{dtype.F32}},
}

// Precisions returns all precisions.
func Precisions() []Precision {
	all := make([]Precision, len(precisions))
	for i := range all {
		all[i] = Precision(i)
	}
	return all
}

// Info returns the description of p.
func (p Precision) Info() *PrecisionInfo { return &precisions[p] }

func (p Precision) String() string { return precisions[p].Name }

// ParsePrecision returns the precision of a name; the empty name is Native. The error is
// ErrUnsupported.
func ParsePrecision(name string) (Precision, error) {
	if name == "" {
		return Native, nil
	}
	i, err := names.Find("precision", name, precisions[:], func(p *PrecisionInfo) string { return p.Name })
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return Precision(i), nil
}

// Check returns ErrUnsupported if elements of type t cannot be multiplied in precision p.
func (p Precision) Check(t dtype.Type) error {
	if int(p) >= len(precisions) {
		return fmt.Errorf("%w: no precision %d", ErrUnsupported, p)
	}
	if in := p.Info(); !slices.Contains(in.For, t) {
		return fmt.Errorf("%w: precision %v of %v matrices (it is for %s)", ErrUnsupported, p, t, either(in.For))
	}
	return nil
}

// Accuracy describes the arithmetic of a kernel as far as its rounding errors depend on it.
type Accuracy struct {
	// Roundoff bounds the relative change made by one rounding in the accumulator: its unit
	// roundoff, or more where it truncates.
	Roundoff float64
	// Operand bounds the relative change of an element of A or B before it is multiplied: 2^-11
	// where elements are rounded to tf32, usually 0.
	Operand float64
	// Truncates reports whether the accumulator truncates instead of rounding to nearest. The
	// errors then have a bias and grow with k, not with √k.
	Truncates bool
	// Terms and Bits describe a truncating accumulator. It aligns Terms products and the sum so
	// far at the largest summand, truncates each to Bits bits after the first bit of that summand,
	// and adds them at once. The sum is truncated to a float32, or to Bits bits after its first
	// bit if these are fewer.
	Terms, Bits int
	// Chunk is the number of terms after which a sum is promoted: added to a float32 sum, rounded
	// to nearest. 0 means never.
	Chunk int
	// Exact is the largest whole number up to which sums of whole numbers are exact; 0 means that
	// of the accumulator's type.
	Exact float64
	// FlushesToZero reports whether operands and sums below the normal range become zero.
	FlushesToZero bool
}

// Describe describes in a few words how sums of type accum are computed: "in float32, rounded to
// nearest".
func (a Accuracy) Describe(accum dtype.Type) string {
	s := fmt.Sprintf("in %v", accum)
	switch {
	case accum.Info().Integer:
		return s + ", exactly modulo 2^32"
	case !a.Truncates:
		s += ", rounded to nearest"
	case a.short():
		s = fmt.Sprintf("in %d bits, %d products at a time, truncated", a.Bits+1, a.Terms)
		if a.Chunk > 0 {
			s += fmt.Sprintf("; promoted to %v every %d of K", accum, a.Chunk)
		}
	default:
		s += fmt.Sprintf(", %d products at a time, truncated", a.Terms)
	}
	if a.Operand > 0 {
		s += fmt.Sprintf("; elements rounded to %d bits", int(math.Round(-math.Log2(a.Operand))))
	}
	if a.FlushesToZero {
		s += "; subnormal numbers count as zero"
	}
	return s
}

// short reports whether the accumulator has fewer bits than a float32.
func (a Accuracy) short() bool { return a.Truncates && a.Bits < 23 }

// Roundings returns the number of roundings of a.Roundoff that equal those of n operations in a
// row.
func (a Accuracy) Roundings(n float64) float64 {
	chunk := float64(a.Chunk)
	if chunk == 0 || n <= chunk {
		return n
	}
	return chunk + n/chunk*dtype.F32.Info().Roundoff/a.Roundoff
}

// OrDefault returns a, or [AccuracyOf] p if a is the zero value.
func (a Accuracy) OrDefault(p *Problem) Accuracy {
	if a == (Accuracy{}) {
		return AccuracyOf(p)
	}
	return a
}

// AccuracyOf returns the accuracy of an implementation that rounds each operation to
// nearest, in the type that p is summed in or, of integer sums, in its ScaleType.
func AccuracyOf(p *Problem) Accuracy {
	return Accuracy{Roundoff: p.ScaleType().Info().Roundoff, Operand: p.Precision.Info().Operand}
}
