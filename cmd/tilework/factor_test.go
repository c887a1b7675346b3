package main

import (
	"testing"

	"tilework/dtype"
)

// TestFactorRoundedOnce parses factors that float64 rounds to a number halfway between two values
// of their type.
func TestFactorRoundedOnce(t *testing.T) {
	for _, c := range []struct {
		text string
		t    dtype.Type
		want float64
	}{
		{"1.00000005960464477539062500000000000001", dtype.F32, 1.00000011920928955078125},
		{"1.00000005960464477539062499999999999999", dtype.F32, 1},
		{"1.00000005960464477539062500000000000001", dtype.F64, 1.000000059604644775390625},
		{"0.1", dtype.F64, 0.1},
		{"0x1.8p1", dtype.F32, 3},
		{"3", dtype.I32, 3},
	} {
		var x factor
		if err := x.Set(c.text); err != nil {
			t.Fatal(err)
		}
		if got := c.t.Round(x.in(c.t)); got != c.want {
			t.Errorf("%s as %v is %v, want %v", c.text, c.t, got, c.want)
		}
	}
	var x factor
	if err := x.Set("1.0000000000000000000001"); err != nil || x.in(dtype.I32) == 1 {
		t.Errorf("1.0000000000000000000001 as int32 is %v, error %v; want no integer", x.in(dtype.I32), err)
	}
	if x := (factor{value: 1}); x.in(dtype.F32) != 1 {
		t.Errorf("the default 1 is %v", x.in(dtype.F32))
	}
	if err := x.Set("1e400"); err == nil {
		t.Error("1e400 is accepted")
	}
}
