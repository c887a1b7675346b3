package cpu

import (
	"time"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
)

// Peak measures how many 10⁹ operations a second one core can do at most in
// products summed in t, with the best instruction set that there is a kernel for:
// multiply-adds on registers alone. It takes some milliseconds, and is 0
// where there is no assembly kernel.
func Peak(t dtype.Type) float64 {
	for i := len(kernels) - 1; i >= 0; i-- {
		k := kernels[i]
		switch {
		case !k.Available():
		case t == dtype.F32 && k.f32 != nil:
			return peak(k.f32.Kernels)
		case t == dtype.F64 && k.f64 != nil:
			return peak(k.f64.Kernels)
		case t == dtype.I32 && k.i32 != nil:
			return peak(k.i32.Kernels)
		}
	}
	return 0
}

func peak[T scalar](k asm.Kernels[T]) float64 {
	if k.Peak == nil {
		return 0
	}
	const rounds = 20_000 // about 100 µs, below which a preemption shows less often
	best := time.Duration(1 << 62)
	for range 50 {
		start := time.Now()
		k.Peak(rounds)
		best = min(best, time.Since(start))
	}
	return float64(rounds*k.PeakFlops) / float64(best.Nanoseconds())
}
