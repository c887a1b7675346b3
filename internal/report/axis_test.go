package report

import (
	"fmt"
	"slices"
	"strings"
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

// TestAddApart checks that a label is left out if it would overlap the next one, as the labels of
// an axis that is too short for two of them would.
func TestAddApart(t *testing.T) {
	for _, test := range []struct {
		at   []float64
		want string
	}{{[]float64{0, 100, 200}, "0.000 0.001 0.002"}, {[]float64{0, 20, 100}, "0.001 0.002"}, {[]float64{0, 1, 2}, "0.002"},
		{nil, ""}} {
		c := &canvas{}
		c.on()
		var labels []label
		for i, x := range test.at {
			labels = append(labels, label{at: point{x, 0}, text: fmt.Sprintf("0.00%d", i), align: alignMiddle})
		}
		c.addApart(labels)
		var got []string
		for _, e := range c.layers[0].elements {
			got = append(got, e.(label).text)
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("labels at %v: %q, want %q", test.at, text, test.want)
		}
	}
}
