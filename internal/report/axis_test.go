package report

import (
	"slices"
	"testing"
)

// TestTicks checks the ticks of short ranges and of an axis whose values are all zero.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis   Axis
		values []float64
		want   []float64
	}{
		{Axis{}, []float64{0, 0}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{Axis{}, []float64{4, 10}, []float64{0, 2, 4, 6, 8, 10}},
		{Axis{Log: true, Binary: true}, []float64{64, 512}, []float64{64, 128, 256, 512}},
		{Axis{Log: true, Binary: true}, []float64{2100, 3500}, []float64{2000, 2500, 3000, 3500}},
		{Axis{Log: true, Binary: true}, []float64{5, 7}, []float64{5, 6, 7}},
		{Axis{Log: true}, []float64{0.1, 10}, []float64{0.1, 0.3, 1, 3, 10}},
		{Axis{Log: true}, []float64{0.105, 0.115}, []float64{0.105, 0.11, 0.115, 0.12}},
	} {
		s := c.axis.fit(c.values)
		got := s.ticks(6)
		near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
		if !slices.EqualFunc(got, c.want, near) {
			t.Errorf("%+v of %v: got ticks %v, want %v", c.axis, c.values, got, c.want)
		}
	}
}
