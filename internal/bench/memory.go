package bench

import (
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/sentinel"
)

// Fits returns ErrOutOfMemory if the host lacks the memory to measure p. The error states the
// required and the available amount.
func Fits(p *gemm.Problem, o Options) error {
	o = o.withDefaults()
	bytes, sets := hostSets(p, o)
	if o.Packs {
		bytes += float64(p.Bytes()[1])
	}
	need := bytes*float64(sets) + float64(p.Bytes()[2]) // a copy of the initial C
	if err := fit(p, need, o.Environment.Memory, "and this machine has %.1f GiB of memory"); err != nil {
		return err
	}
	free, known := host.Available()
	if !known {
		return nil
	}
	return fit(p, need, int64(free), "and this machine has %.1f GiB free")
}

// FitsOn returns ErrOutOfMemory if the device or the host lacks the memory to measure p on the
// device.
func FitsOn(d device.Device, p *gemm.Problem, o Options) error {
	bytes, sets := deviceSets(p, o.withDefaults())
	if err := fit(p, bytes*float64(sets), d.Info().Memory, "and the device has %.1f GiB of memory"); err != nil {
		return err
	}
	o.Cold = false // the host keeps one set; the device rotates through several
	return Fits(p, o)
}

// hostSets returns the size in bytes of one set of p's matrices on the host, and the number of
// sets.
func hostSets(p *gemm.Problem, o Options) (bytes float64, sets int) {
	for _, n := range p.Bytes() {
		bytes += float64(n) + align // a float64 does not overflow
	}
	return bytes, copies(bytes, o.Cold, o.Environment.Cache)
}

// deviceSets returns the size in bytes of one set of p's matrices on a device, and the number of
// sets.
func deviceSets(p *gemm.Problem, o Options) (bytes float64, sets int) {
	for _, n := range p.Bytes() {
		bytes += float64(n) + deviceAlign
	}
	return bytes, copies(bytes, o.Cold, o.Environment.GPUCache)
}

// fit returns ErrOutOfMemory if a measurement of p needs more bytes than memory. A memory of 0 is
// unknown. The format available describes the memory.
func fit(p *gemm.Problem, bytes float64, memory int64, available string) error {
	if memory <= 0 || bytes <= float64(memory) {
		return nil
	}
	return fmt.Errorf("%w: the matrices to measure %v need %.1f GiB, "+available, sentinel.ErrOutOfMemory, p,
		bytes/(1<<30), float64(memory)/(1<<30))
}
