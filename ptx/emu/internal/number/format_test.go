package number

import (
	"math"
	"testing"
)

// TestEncodeDecoded checks that Encode inverts Decode for each number of the formats of up to 16
// bits, and that Round changes none of them.
func TestEncodeDecoded(t *testing.T) {
	for typ, f := range formats {
		if f.Bits > 16 || f == UE4M3 {
			continue
		}
		for bits := range uint64(1) << f.Bits {
			v := f.Decode(bits)
			if v != v || f.Bits <= 8 && math.IsInf(v, 0) { // no conversion to 8 bits results in an infinity
				continue
			}
			if got := f.Encode(v); got != bits {
				t.Errorf("%v %#x is %v, which is encoded as %#x", typ, bits, v, got)
			}
			if got := f.Round(v, Up); got != v || math.Signbit(got) != math.Signbit(v) {
				t.Errorf("%v: %v is rounded to %v", typ, v, got)
			}
			if !math.IsInf(v, 0) && math.Abs(v) > f.Max {
				t.Errorf("%v: %v exceeds the maximum of %v", typ, v, f.Max)
			}
		}
	}
}
