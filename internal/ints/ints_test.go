package ints

import (
	"math"
	"testing"
)

// TestCeilDiv checks quotients and multiples, also of zero and of the largest number.
func TestCeilDiv(t *testing.T) {
	for _, c := range []struct{ a, b, want int }{
		{0, 1, 0}, {0, 7, 0}, {1, 1, 1}, {1, 7, 1}, {6, 7, 1}, {7, 7, 1}, {8, 7, 2}, {14, 7, 2}, {15, 7, 3},
		{math.MaxInt, 1, math.MaxInt}, {math.MaxInt, 2, math.MaxInt/2 + 1}, {math.MaxInt, math.MaxInt, 1},
		{math.MaxInt - 1, math.MaxInt, 1}, {0, math.MaxInt, 0},
	} {
		if got := CeilDiv(c.a, c.b); got != c.want {
			t.Errorf("%d/%d: got %d, want %d", c.a, c.b, got, c.want)
		}
		if got := RoundUp(c.a, c.b); c.want <= math.MaxInt/c.b && got != c.want*c.b {
			t.Errorf("%d up to a multiple of %d: got %d, want %d", c.a, c.b, got, c.want*c.b)
		}
	}
}
