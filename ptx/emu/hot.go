package emu

import (
	"math"
	"unsafe"

	"tilework/ptx/emu/internal/number"
)

// The innermost loops of matrix products in portable Go. lanes_amd64.s contains AVX2 versions.

// fmaF32Go computes d = a·b + c with a single rounding.
func fmaF32Go(d, a, b, c *[lanes]float32) {
	for i := range d {
		s := float64(a[i])*float64(b[i]) + float64(c[i]) // the product is exact
		// The second rounding, to float32, can be wrong only where the first one may have created a
		// tie: where the dropped bits are 100…0, and in subnormal results, whose ties have other
		// bits. The test also finds NaNs, whose low bits are 0.
		if t := math.Float64bits(s); t&(1<<28-1) == 0 && (t&(1<<28) != 0 || t>>52&0x7ff < 1023-126 || s != s) {
			d[i] = canonical(float32(number.FMAOdd(float64(a[i]), float64(b[i]), float64(c[i]))))
			continue
		}
		d[i] = float32(s)
	}
}

// addGo computes d = a + b.
func addGo[T integer](d, a, b *[lanes]T) {
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

// gather loads for each lane the value of type M at offset a + shift of mem. It reports whether all
// offsets are less than span and multiples of M's size. It stops at the first offset that is not
// less than span.
func gather[M integer, R, A unsigned](d *[lanes]R, a *[lanes]A, shift, span uint64, mem unsafe.Pointer) bool {
	var all uint64
	for i := range d {
		o := uint64(a[i] + A(shift))
		if o >= span {
			return false
		}
		all |= o
		d[i] = R(*(*M)(unsafe.Add(mem, o)))
	}
	return all&(uint64(unsafe.Sizeof(M(0)))-1) == 0
}

// offsetsGo computes d = a + shift. It reports whether all sums are less than span, which is less
// than 1<<63, and have none of the given bits set.
func offsetsGo(d, a *[lanes]uint64, shift, span, bits uint64) bool {
	var all uint64
	less := true
	for i := range d {
		o := a[i] + shift
		d[i] = o
		all |= o
		less = less && o < span
	}
	return less && all&bits == 0
}
