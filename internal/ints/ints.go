// Package ints has arithmetic of integers.
package ints

// CeilDiv returns a/b rounded up, for a ≥ 0 and b ≥ 1. It does not overflow.
func CeilDiv(a, b int) int {
	q := a / b
	if q*b < a {
		q++
	}
	return q
}

// RoundUp returns the smallest multiple of unit that is at least n ≥ 0.
func RoundUp(n, unit int) int { return CeilDiv(n, unit) * unit }
