package model

import (
	"fmt"
	"math"
)

// Bound says which of a GPU's two speeds a kernel waits for.
type Bound string

// The two bounds of the roofline model.
const (
	Compute Bound = "compute"
	Memory  Bound = "memory"
)

// Roof is what the roofline model (Williams, Waterman and Patterson, CACM 52(4),
// 2009) says of a kernel: no implementation that does so many operations and
// moves so many bytes is faster.
type Roof struct {
	Seconds   float64 // the least time
	Bound     Bound   // what that time is spent on
	Intensity float64 // operations a byte; +Inf when no byte is moved
	Ridge     float64 // the intensity at which the two bounds meet
	Attain    float64 // operations a second at this intensity
}

// Roofline bounds the time of a kernel on m that does so many operations at rate
// r and moves so many bytes between the GPU and its memory.
func Roofline(m *Model, r Rate, ops, bytes float64) (Roof, error) {
	for _, q := range []struct {
		what  string
		value float64
	}{{"operations", ops}, {"bytes", bytes}} {
		if !(q.value >= 0) || math.IsInf(q.value, 1) {
			return Roof{}, fmt.Errorf("a kernel with %v %s", q.value, q.what)
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

// Waves is how a grid passes over a GPU: as many blocks at a time as it holds,
// the last wave perhaps not full.
type Waves struct {
	Slots int `json:"slots"` // blocks that the GPU holds at once
	Count int `json:"count"` // waves, the last one included
	Last  int `json:"last"`  // blocks in the last wave
	// Efficiency is the share of the waves' slots that have a block, 1 when the
	// last wave is full: what a grid of equal blocks loses to its tail.
	Efficiency float64 `json:"efficiency"`
}

// Waves is how a grid of so many blocks passes over m, when each SM holds so
// many ([Occupancy.Blocks]).
func (m *Model) Waves(grid, blocksPerSM int) (Waves, error) {
	switch {
	case m.Generic():
		return Waves{}, m.errGeneric("number of SMs")
	case grid < 1:
		return Waves{}, fmt.Errorf("a grid has at least 1 block, got %s", Commas(grid))
	case blocksPerSM < 1 || blocksPerSM > m.Arch.MaxBlocksPerSM:
		return Waves{}, fmt.Errorf("%s on an SM of %v, want 1 to %d", Count(blocksPerSM, "block"), m.Arch, m.Arch.MaxBlocksPerSM)
	}
	slots := m.SMs * blocksPerSM
	full, last := grid/slots, grid%slots
	if last == 0 {
		full, last = full-1, slots
	}
	n := full + 1
	return Waves{Slots: slots, Count: n, Last: last, Efficiency: float64(grid) / (float64(n) * float64(slots))}, nil
}
