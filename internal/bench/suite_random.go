package bench

import (
	"math"
	"math/rand/v2"
)

// The limits of the random suite.
const (
	maxGPUSize     = 16384
	maxGPUFlops    = 2e12    // 40 ms of float32 on an H200
	maxGPUElements = 1 << 28 // of A, B and C together: 2 GiB of float64
	maxCPUSize     = 4096
	minCPUFlops    = 1e3
	maxCPUFlops    = 2e10
)

// drawSamples draws d.Count samples. The first samples of two counts are equal.
func drawSamples(d Draw) []Sample {
	samples := make([]Sample, d.Count)
	for i := range samples {
		rng := rand.New(rand.NewPCG(d.Seed, uint64(i)))
		if d.CPU {
			samples[i] = drawForCPU(rng, i)
		} else {
			samples[i] = drawForGPU(rng)
		}
	}
	return samples
}

// drawForGPU draws a product for a GPU: M log-uniform up to 16384, and N and K from 8 on. N and K
// of half of the products are multiples of 8, as most sizes in programs are.
func drawForGPU(rng *rand.Rand) Sample {
	unit := 1
	if rng.IntN(2) == 0 {
		unit = 8
	}
	s := Sample{Why: "random"}
	for tooLarge := true; tooLarge; tooLarge = s.flops() > maxGPUFlops || s.elements() > maxGPUElements {
		s.Shape = Shape{logUniform(rng, 1, maxGPUSize), logUniform(rng, 8, maxGPUSize) / unit * unit,
			logUniform(rng, 8, maxGPUSize) / unit * unit}
	}
	s.drawLayout(rng)
	return s
}

// drawForCPU draws sample number i for a CPU: of every eight samples, six with log-uniform sizes up
// to 4096, one of a convolution and one of a tall matrix.
func drawForCPU(rng *rand.Rand, i int) Sample {
	var s Sample
	for ok := false; !ok; ok = s.flops() >= minCPUFlops && s.flops() <= maxCPUFlops {
		switch i % 8 {
		case 6:
			s = drawConvolution(rng)
		case 7:
			s = Sample{Why: "tall", Shape: Shape{logUniform(rng, 4096, 1<<20), logUniform(rng, 1, 64), logUniform(rng, 1, 64)}}
		default:
			s = Sample{Why: "random",
				Shape: Shape{logUniform(rng, 1, maxCPUSize), logUniform(rng, 1, maxCPUSize), logUniform(rng, 1, maxCPUSize)}}
		}
	}
	s.drawLayout(rng)
	return s
}

// drawConvolution draws the product that computes a convolution after im2col: a row for each
// pixel, a column for each channel, and K the elements of a filter.
func drawConvolution(rng *rand.Rand) Sample {
	pixels := [...]int{112, 56, 28, 14, 7}[rng.IntN(5)]
	channels, filter := 32<<rng.IntN(5), [...]int{1, 9, 25}[rng.IntN(3)]
	return Sample{Why: "convolution",
		Shape: Shape{pixels * pixels, channels << rng.IntN(2), channels * filter}}
}

// drawLayout draws the transposition of A and B and, in a quarter of the samples, the space between
// rows: half of it in multiples of 8 elements.
func (s *Sample) drawLayout(rng *rand.Rand) {
	s.TransA, s.TransB = rng.IntN(2) == 0, rng.IntN(2) == 0
	if rng.IntN(4) != 0 {
		return
	}
	unit := 1 + 7*rng.IntN(2)
	s.Pad[rng.IntN(len(s.Pad))] = unit // at least one of them
	for o := range s.Pad {
		s.Pad[o] += unit * rng.IntN(64/unit)
	}
}

// logUniform draws an integer from low to high, both included, with a uniform logarithm.
func logUniform(rng *rand.Rand, low, high int) int {
	l, h := math.Log(float64(low)), math.Log(float64(high)+1)
	return min(int(math.Exp(l+rng.Float64()*(h-l))), high)
}
