//go:build !amd64

package verify

// dots returns Σx·y for four y, and Σ(x·w)² or, without w, Σx².
func dots(x []float64, y [4][]float64, w []float64) [5]float64 { return dotsGo(x, y, w) }
