package dtype

import (
	"math"
	"testing"

	"tilework/internal/testkit/testrand"
)

// TestLoadStore compares Load and Store with At and Set.
func TestLoadStore(t *testing.T) {
	r := testrand.New(t)
	src := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 0.5, 1.5, 2.5, 1e9, -1e9, 1e300,
		1e-300}
	for range 1000 {
		src = append(src, r.NormFloat64()*math.Ldexp(1, r.IntN(80)-40))
	}
	for _, typ := range All() {
		// The last element is not stored and must not change.
		many, one := Bytes(make([]float64, len(src)+1)), Bytes(make([]float64, len(src)+1))
		typ.Store(many, src)
		for i, v := range src {
			typ.Set(one, i, v)
		}
		if string(many) != string(one) {
			t.Errorf("%v: Store and Set differ", typ)
		}
		got := make([]float64, len(src))
		typ.Load(got, many)
		for i, v := range got {
			if want := typ.At(one, i); math.Float64bits(v) != math.Float64bits(want) {
				t.Errorf("%v: Load returned %[3]v for element %[2]d, want %[4]v", typ, i, v, want)
			}
		}
	}
}
