package matio

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"strconv"

	"tilework/dtype"
)

// A number of a file reaches its type through float64. To be rounded once, a number that float64
// cannot hold is rounded to odd: truncated, with the last bit set. A second rounding, to a type at
// least two bits narrower, then has the same result as one rounding of the number, and an integer
// type sees a fraction (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
// algorithms using rounding to odd").

// toOdd rounds an integer to float64, to odd.
func toOdd(n uint64) float64 {
	if drop := bits.Len64(n) - 53; drop > 0 && n<<(64-drop) != 0 {
		n = n>>drop<<drop | 1<<drop
	}
	return float64(n)
}

// roundText returns the number from which t, which is not float64, rounds the decimal number text,
// given the nearest float64 v. That is v itself if text is exactly v, or if v is neither an integer
// nor halfway between two values of t.
func roundText(text []byte, v float64, t dtype.Type) float64 {
	// Values of t, and halves between them, have at most as many fraction bits as t has bits.
	word := math.Float64bits(v)
	if word<<(12+t.Bits()) != 0 || math.IsInf(v, 0) || v != v {
		return v
	}
	switch c := compareText(text, math.Abs(v)); {
	case c < 0:
		return math.Float64frombits(word - 1) // odd, as the last bits of v are zero
	case c > 0:
		return math.Float64frombits(word | 1)
	}
	return v
}

// compareText compares the magnitude of the decimal number text with v, which is not negative.
func compareText(text []byte, v float64) int {
	var buf [64]byte
	digits, exp := decimal(buf[:0], text)
	if scale := len(digits) - exp; len(digits) <= 15 && -22 <= scale && scale <= 22 { // exact in float64
		n := 0.
		for _, d := range digits {
			n = 10*n + float64(d-'0')
		}
		if scale < 0 {
			return cmp.Compare(math.FMA(n, math.Pow10(-scale), -v), 0)
		}
		return cmp.Compare(math.FMA(-v, math.Pow10(scale), n), 0)
	}
	exact, exactExp := decimal(nil, strconv.AppendFloat(nil, v, 'e', 766, 64)) // no float64 has more digits
	if len(digits) == 0 || len(exact) == 0 {
		return cmp.Compare(len(digits), len(exact))
	}
	return cmp.Or(cmp.Compare(exp, exactExp), bytes.Compare(digits, exact))
}

// decimal appends the digits of a decimal number to dst, without zeros at their start and end. The
// number is 0.digits × 10^exp.
func decimal(dst, text []byte) (digits []byte, exp int) {
	point := false
	for i, b := range text {
		switch {
		case b == '.':
			point = true
		case b|0x20 == 'e':
			exp += exponent(text[i+1:])
			return bytes.TrimRight(dst, "0"), exp
		case b < '0' || b > '9': // a sign
		case b == '0' && len(dst) == 0:
			if point {
				exp--
			}
		default:
			dst = append(dst, b)
			if !point {
				exp++
			}
		}
	}
	return bytes.TrimRight(dst, "0"), exp
}

// exponent parses the exponent of a number. It is limited to a size that no text makes up for.
func exponent(text []byte) int {
	const most = 1 << 20
	n, err := strconv.Atoi(string(text))
	if err != nil { // out of range
		n = most
		if text[0] == '-' {
			n = -most
		}
	}
	return max(-most, min(n, most))
}
