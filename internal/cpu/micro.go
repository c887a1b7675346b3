package cpu

import (
	"tilework/dtype"
	"tilework/internal/cpu/asm"
)

// MicroKernels returns the micro-kernels for matrices of T that are selected by default: those of
// the fastest kernel that this CPU and [EnvISA] allow, or the portable ones.
func MicroKernels[T float32 | float64]() *asm.Kernels[T] {
	all := portable[T]()
	c, err := chooseCached("", dtype.Of[T]())
	if err != nil {
		return &all
	}
	switch to := any(&all).(type) {
	case *asm.Kernels[float32]:
		if mk := c.kernel.f32; mk != nil {
			*to = mk.Kernels
		}
	case *asm.Kernels[float64]:
		if mk := c.kernel.f64; mk != nil {
			*to = mk.Kernels
		}
	}
	return &all
}
