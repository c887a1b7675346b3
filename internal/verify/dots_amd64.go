package verify

import "golang.org/x/sys/cpu"

// hasAVX2 reports whether the CPU can run dotsAVX2.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// dotsAVX2 is [dotsGo] for n elements, a multiple of 8. A nil w means no weights.
//
//go:noescape
func dotsAVX2(x *float64, n int, y0, y1, y2, y3, w *float64, out *[5]float64)

// dots returns Σx·y for four y, and Σ(x·w)² or, without w, Σx².
func dots(x []float64, y [4][]float64, w []float64) (out [5]float64) {
	n := len(x) &^ 7
	if !hasAVX2 || n == 0 {
		return dotsGo(x, y, w)
	}
	var weights *float64
	if w != nil {
		weights = &w[:len(x)][0]
	}
	dotsAVX2(&x[0], n, &y[0][:len(x)][0], &y[1][:len(x)][0], &y[2][:len(x)][0], &y[3][:len(x)][0], weights, &out)
	if n < len(x) {
		for k := range y {
			y[k] = y[k][n:]
		}
		if w != nil {
			w = w[n:]
		}
		for k, v := range dotsGo(x[n:], y, w) {
			out[k] += v
		}
	}
	return out
}
