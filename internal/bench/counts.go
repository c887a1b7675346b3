package bench

import (
	"context"
	"fmt"

	"tilework/internal/device"
)

// Counts holds the counters of one product on an emulated device, summed over its launches. All but
// Flops are defined by [tilework/ptx/emu/check.Counts].
type Counts struct {
	Instructions int64 `json:"instructions"` // warp instructions
	// Flops is the number of operations of the problem: 2·M·N·K for each product of a batch. They
	// are integer operations if A and B are integers. [CountOn] sets it.
	Flops int64 `json:"flops"`
	// Issued is the number of operations that threads and tensor cores execute, including those on
	// zero padding of tiles and those of the epilogue.
	Issued int64 `json:"issued_flops"`

	// LoadBytes and StoreBytes are the bytes that threads and TMA copies load from and store to
	// global memory. A byte counts once for each thread that accesses it.
	LoadBytes  int64 `json:"load_bytes"`
	StoreBytes int64 `json:"store_bytes"`
	// Sectors is the number of 32-byte sectors that global memory requests transfer. Each request,
	// of a warp or a TMA copy, transfers each sector that it touches once. IdealSectors is the
	// least number of sectors that could hold the bytes of each request.
	Sectors      int64 `json:"sectors"`
	IdealSectors int64 `json:"ideal_sectors"`
	// DistinctSectors is the number of different sectors that a launch accesses, summed over the
	// launches: the memory traffic with an unlimited cache. It is at most Sectors.
	DistinctSectors int64 `json:"distinct_sectors"`

	// SharedRequests is the number of loads and stores of shared memory by warps, without atomics.
	// Wavefronts is the number of passes over the 32 banks that they need, and IdealWavefronts the
	// number without bank conflicts.
	SharedRequests  int64 `json:"shared_requests"`
	Wavefronts      int64 `json:"wavefronts"`
	IdealWavefronts int64 `json:"ideal_wavefronts"`

	Historic *HistoricCounts `json:"then,omitempty"`
}

// HistoricCounts holds the counters that the same accesses would have on the first CUDA GPUs, which
// served half-warps: global memory transactions by the rules of compute capability 1.0, and
// wavefronts of the 16 shared memory banks.
type HistoricCounts struct {
	HalfWarps       int64 `json:"half_warps"` // half-warps with global memory requests
	Transactions    int64 `json:"transactions"`
	Wavefronts      int64 `json:"wavefronts"`
	IdealWavefronts int64 `json:"ideal_wavefronts"` // without bank conflicts
}

// PerHalfWarp returns the mean number of transactions per half-warp, and whether there was any
// half-warp.
func (t *HistoricCounts) PerHalfWarp() (transactions float64, known bool) {
	if t == nil || t.HalfWarps == 0 {
		return 0, false
	}
	return float64(t.Transactions) / float64(t.HalfWarps), true
}

// Counter computes a product and returns its counts, without Flops.
type Counter func(product func() error) (*Counts, error)

// CountOn is [MeasureOn] for an emulated device, which has no meaningful times. Each subject
// computes one product, which is verified, and its record holds the result of count.
func CountOn(ctx context.Context, d device.Device, c Case, kernels, peers []DeviceSubject, count Counter,
	o Options) ([]Record, error) {
	o.count, o.Cold = count, false // no effect on the counters
	return MeasureOn(ctx, d, c, kernels, peers, o)
}

// Conflicts returns the number of wavefronts that bank conflicts added.
func (c *Counts) Conflicts() int64 { return c.Wavefronts - c.IdealWavefronts }

// Intensity returns the operations of the product for each byte loaded from global memory.
func (c *Counts) Intensity() float64 { return float64(c.Flops) / float64(max(c.LoadBytes, 1)) }

// check returns an error if the counts contradict each other or flops.
func (c *Counts) check(flops float64) error {
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"issued_flops", c.Issued}, {"load_bytes", c.LoadBytes}, {"store_bytes", c.StoreBytes},
		{"sectors", c.Sectors}, {"ideal_sectors", c.IdealSectors}, {"distinct_sectors", c.DistinctSectors},
		{"shared_requests", c.SharedRequests}, {"wavefronts", c.Wavefronts}, {"ideal_wavefronts", c.IdealWavefronts},
	} {
		if x.n < 0 {
			return fmt.Errorf("%s %d: want at least 0", x.name, x.n)
		}
	}
	switch {
	case c.Instructions < 1:
		return fmt.Errorf("instructions %d: want at least 1", c.Instructions)
	case c.Historic != nil && (c.Historic.HalfWarps < 0 || c.Historic.Transactions < c.Historic.HalfWarps ||
		c.Historic.IdealWavefronts < 0 || c.Historic.IdealWavefronts > c.Historic.Wavefronts):
		return fmt.Errorf("counts %+v are below the ideal", *c.Historic)
	case c.IdealSectors > c.Sectors || c.IdealWavefronts > c.Wavefronts:
		return fmt.Errorf("counts %+v are below the ideal", *c)
	case float64(c.Flops) != flops:
		return fmt.Errorf("flops %d: want %.0f, the operations of the product (an earlier version counted padding; run "+
			"bench --device emu again)", c.Flops, flops)
	case c.DistinctSectors > c.Sectors:
		return fmt.Errorf("distinct_sectors %d: want at most sectors, %d (an earlier version did not count TMA copies; run "+
			"bench --device emu again)", c.DistinctSectors, c.Sectors)
	}
	return nil
}
