package cpu

import (
	"time"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
)

// Peak measures the maximum speed of one core, in 10⁹ operations per second, for products of
// matrices of t with the default kernel. It runs multiply-adds on registers only, for some
// milliseconds. It returns 0 if there is no assembly kernel.
func Peak(t dtype.Type) float64 {
	c, err := choose("", "", t)
	if err != nil {
		return 0
	}
	switch k := c.kernel; {
	case k.naive:
		return 0
	case t.Info().Accum == dtype.F32:
		return peak(k.f32.Kernels, 50)
	case t.Info().Accum == dtype.F64:
		return peak(k.f64.Kernels, 50)
	default:
		return peak(k.i32.Kernels, 50)
	}
}

// peak returns the best of several measurements of about 100 µs each. Longer ones would be
// preempted more often.
func peak[T scalar](k asm.Kernels[T], measurements int) float64 {
	if k.Peak == nil {
		return 0
	}
	const operations = 20_000_000
	rounds := max(operations/k.PeakFlops, 1)
	best := time.Duration(1 << 62)
	for range measurements {
		start := time.Now()
		k.Peak(rounds)
		best = min(best, time.Since(start))
	}
	return float64(rounds*k.PeakFlops) / float64(best.Nanoseconds())
}
