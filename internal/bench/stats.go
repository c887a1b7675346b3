package bench

import "slices"

// Timing sums up the times of one product, in seconds. Percentiles are
// interpolated linearly between the two nearest order statistics.
type Timing struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
	Spread float64 `json:"spread"` // (P90 − P10) / Median
}

// maxSamples is the most times that a record keeps one by one, for tools that
// want to test for significance. Of more rounds, each sample is the median of an
// equal stretch of them, in the order in which they ran.
const maxSamples = 20

func summarize(times []float64) Timing {
	sorted := slices.Sorted(slices.Values(times))
	t := Timing{
		Median: quantile(sorted, 0.5),
		Min:    sorted[0],
		Max:    sorted[len(sorted)-1],
		P10:    quantile(sorted, 0.1),
		P90:    quantile(sorted, 0.9),
	}
	t.Spread = (t.P90 - t.P10) / t.Median
	return t
}

// quantile is the q-quantile of sorted values, at least one.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	// Written so that two equal values give that value, without rounding.
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func samples(times []float64) []float64 {
	n := min(len(times), maxSamples)
	out := make([]float64, n)
	for i := range out {
		stretch := times[i*len(times)/n : (i+1)*len(times)/n]
		out[i] = quantile(slices.Sorted(slices.Values(stretch)), 0.5)
	}
	return out
}
