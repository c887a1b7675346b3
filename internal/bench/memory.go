package bench

import (
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// Fits reports whether there is the memory to measure p on the host. The error is
// ErrOutOfMemory, and says what is needed and what there is.
func Fits(p *gemm.Problem, o Options) error {
	o = o.withDefaults()
	bytes, sets := hostSets(p, o)
	if o.Laid {
		bytes += float64(p.Bytes()[1])
	}
	need := bytes*float64(sets) + float64(p.Bytes()[2]) // which is kept as it was before
	if err := fit(p, need, o.Environment.Memory, "and this machine has %.1f GiB"); err != nil {
		return err
	}
	free, known := host.Available()
	if !known {
		return nil
	}
	return fit(p, need, int64(free), "and %.1f GiB of this machine's memory are free")
}

// FitsOn reports whether a device, and the host beside it, have the memory to measure p
// there. The error is ErrOutOfMemory.
func FitsOn(d device.Device, p *gemm.Problem, o Options) error {
	bytes, sets := deviceSets(p, o.withDefaults())
	if err := fit(p, bytes*float64(sets), d.Info().Memory, "and the device has %.1f GiB"); err != nil {
		return err
	}
	o.Cold = false // it is the device's memory that is rotated
	return Fits(p, o)
}

// hostSets is how many bytes a set of p's matrices takes on the host, and how many sets
// are rotated.
func hostSets(p *gemm.Problem, o Options) (bytes float64, sets int) {
	for _, n := range matrixBytes(p) {
		bytes += float64(n) + align // in floating point, which does not overflow
	}
	return bytes, copies(bytes, o.Cold, o.Environment.Cache)
}

// deviceSets is the same on a device.
func deviceSets(p *gemm.Problem, o Options) (bytes float64, sets int) {
	for _, n := range matrixBytes(p) {
		bytes += float64(n) + deviceAlign
	}
	return bytes, copies(bytes, o.Cold, o.Environment.GPUCache)
}

// fit refuses a measurement of p that takes so many bytes where a memory, if it is not 0,
// has less.
func fit(p *gemm.Problem, bytes float64, memory int64, there string) error {
	if memory <= 0 || bytes <= float64(memory) {
		return nil
	}
	return fmt.Errorf("%w: the matrices to measure %v take %.1f GiB, "+there, gemm.ErrOutOfMemory, p, bytes/(1<<30), float64(memory)/(1<<30))
}
