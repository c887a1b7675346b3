package model

import (
	"fmt"
	"math"

	"tilework/internal/phrase"
)

// Bound is the resource that limits a kernel.
type Bound string

// The two bounds of the roofline model.
const (
	Compute Bound = "compute"
	Memory  Bound = "memory"
)

// Roof is the bound of the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009): no
// implementation with this number of operations and bytes is faster.
type Roof struct {
	Seconds   float64 // least time
	Bound     Bound   // resource that determines it
	Intensity float64 // operations per byte; +Inf if no byte is transferred
	Ridge     float64 // intensity at which the two bounds meet
	Attain    float64 // attainable operations per second at this intensity
}

// Roofline bounds the time of a kernel on m with ops operations at rate r and bytes transferred
// between the GPU and its memory.
func Roofline(m *Model, r Rate, ops, bytes float64) (Roof, error) {
	for _, q := range []struct {
		what  string
		value float64
	}{{"operations", ops}, {"bytes", bytes}} {
		if !(q.value >= 0) || math.IsInf(q.value, 1) {
			return Roof{}, fmt.Errorf("a kernel with %v %s: want a finite number of at least 0", q.value, q.what)
		}
	}
	peak, err := m.PeakRate(r)
	if err != nil {
		return Roof{}, err
	}
	roof := Roof{Bound: Memory, Ridge: peak / m.MemBandwidth}
	compute, memory := ops/peak, bytes/m.MemBandwidth
	if ops > 0 {
		roof.Intensity = ops / bytes
		roof.Attain = min(peak, roof.Intensity*m.MemBandwidth)
		if compute >= memory {
			roof.Bound = Compute
		}
	}
	roof.Seconds = max(compute, memory)
	return roof, nil
}

// Waves describes how a grid passes over a GPU in waves of as many blocks as the GPU holds. The
// last wave may be partial.
type Waves struct {
	Slots int `json:"slots"` // blocks that the GPU holds at once
	Count int `json:"count"` // waves, including the last one
	Last  int `json:"last"`  // blocks in the last wave
	// Efficiency is the fraction of the slots of all waves that have a block. It is 1 if the last
	// wave is full.
	Efficiency float64 `json:"efficiency"`
}

// Waves returns the waves of a grid on m. blocksPerSM is [Occupancy.Blocks].
func (m *Model) Waves(grid, blocksPerSM int) (Waves, error) {
	switch {
	case m.Generic():
		return Waves{}, m.errGeneric("number of SMs")
	case grid < 1:
		return Waves{}, fmt.Errorf("a grid of %s blocks: want at least 1", phrase.Commas(grid))
	case blocksPerSM < 1 || blocksPerSM > m.Arch.MaxBlocksPerSM:
		return Waves{}, fmt.Errorf("%s on an SM of %v: want 1 to %d", phrase.Count(blocksPerSM, "block"), m.Arch,
			m.Arch.MaxBlocksPerSM)
	}
	slots := m.SMs * blocksPerSM
	full, last := grid/slots, grid%slots
	if last == 0 {
		full, last = full-1, slots
	}
	n := full + 1
	return Waves{Slots: slots, Count: n, Last: last, Efficiency: float64(grid) / (float64(n) * float64(slots))}, nil
}
