package number

import "math"

// Rounding is a rounding mode.
type Rounding uint8

const (
	Nearest  Rounding = iota // to nearest, ties to even
	ToZero                   // .rz
	Down                     // .rm
	Up                       // .rp
	AwayTies                 // .rna: to nearest, ties away from zero
)

// Roundings maps modifiers to rounding modes. Those of conversions to integers end in i.
var Roundings = map[string]Rounding{
	"rn": Nearest, "rz": ToZero, "rm": Down, "rp": Up, "rna": AwayTies,
	"rni": Nearest, "rzi": ToZero, "rmi": Down, "rpi": Up,
}

// Integral rounds x to an integer.
func (r Rounding) Integral(x float64) float64 {
	switch r {
	case ToZero:
		return math.Trunc(x)
	case Down:
		return math.Floor(x)
	case Up:
		return math.Ceil(x)
	case AwayTies:
		return math.Round(x)
	}
	return math.RoundToEven(x)
}

// Round rounds x to the format. x must be exact or rounded to odd; the result is then the same as
// that of rounding the exact value. An overflow results in an infinity or in the largest finite
// value, depending on the mode.
func (f *Format) Round(x float64, r Rounding) float64 {
	if x == 0 || x != x || math.IsInf(x, 0) {
		return x
	}
	_, exp := math.Frexp(x) // |x| in [2^(exp-1), 2^exp)
	ulp := max(exp-1, f.MinExp) - f.Precision + 1
	y := math.Ldexp(r.Integral(math.Ldexp(x, -ulp)), ulp)
	if math.Abs(y) > f.Max {
		if r == ToZero || r == Down && x > 0 || r == Up && x < 0 {
			return math.Copysign(f.Max, x)
		}
		return math.Inf(int(math.Copysign(1, x)))
	}
	if y == 0 {
		return math.Copysign(0, x)
	}
	return y
}

// Flush returns x, or a zero of the same sign if x is subnormal in the format.
func (f *Format) Flush(x float64) float64 {
	if math.Abs(x) < math.Ldexp(1, f.MinExp) {
		return math.Copysign(0, x)
	}
	return x
}
