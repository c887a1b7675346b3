package bench

import "slices"

// Timing summarizes the times of one product in seconds. Percentiles are interpolated linearly
// between the two nearest order statistics.
type Timing struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
	Spread float64 `json:"spread"` // (P90 − P10) / Median
}

// maxSamples is the largest number of times that a record keeps individually, for significance
// tests. With more rounds, each sample is the median of consecutive rounds, in order.
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

// quantile returns the q-quantile of at least one sorted value.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	// For two equal values, this form returns them without rounding.
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
