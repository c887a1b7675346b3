package bench

import (
	"context"
	"fmt"

	"tilework/internal/device"
)

// Counts are the counters of one product on an emulated device, summed over its launches. All
// but Flops are those of [tilework/ptx/emu/check.Counts], which defines them.
type Counts struct {
	Instructions int64 `json:"instructions"` // executed by warps
	// Flops is the number of operations of the product, 2·M·N·K for each of a batch. They are
	// integer operations where A and B are integers. [CountOn] sets it.
	Flops int64 `json:"flops"`
	// Issued is the number of operations that threads and tensor cores execute for the
	// product: with those on zeros that fill tiles, and those that finish C.
	Issued int64 `json:"issued_flops"`

	// LoadBytes and StoreBytes are the bytes that threads and bulk copies load from and store
	// to global memory. A byte counts once for each thread that accesses it.
	LoadBytes  int64 `json:"load_bytes"`
	StoreBytes int64 `json:"store_bytes"`
	// Sectors is the number of sectors of 32 bytes that the requests to global memory move:
	// each request, of a warp or a bulk copy, each sector that it touches once. IdealSectors
	// is the fewest that could hold the bytes of each request.
	Sectors      int64 `json:"sectors"`
	IdealSectors int64 `json:"ideal_sectors"`
	// DistinctSectors is the number of different sectors that a launch accesses, summed over
	// the launches: the traffic of a cache that forgets nothing. It is at most Sectors.
	DistinctSectors int64 `json:"distinct_sectors"`

	// SharedRequests is the number of loads and stores of shared memory by warps, without
	// atomics. Wavefronts is the number of turns of the 32 banks that they take, and
	// IdealWavefronts the number without bank conflicts.
	SharedRequests  int64 `json:"shared_requests"`
	Wavefronts      int64 `json:"wavefronts"`
	IdealWavefronts int64 `json:"ideal_wavefronts"`

	Then *ThenCounts `json:"then,omitempty"`
}

// ThenCounts are those of the same accesses of warps on the first GPUs, which served
// half-warps: transactions of global memory, by the rule of compute capability 1.0, and
// wavefronts of the 16 banks that shared memory had.
type ThenCounts struct {
	HalfWarps       int64 `json:"half_warps"` // in requests of global memory
	Transactions    int64 `json:"transactions"`
	Wavefronts      int64 `json:"wavefronts"`
	IdealWavefronts int64 `json:"ideal_wavefronts"` // without bank conflicts
}

// PerHalfWarp is the transactions that a half-warp's access took, and whether there was one.
func (t *ThenCounts) PerHalfWarp() (transactions float64, known bool) {
	if t == nil || t.HalfWarps == 0 {
		return 0, false
	}
	return float64(t.Transactions) / float64(t.HalfWarps), true
}

// Counter computes a product and returns its counts, without Flops.
type Counter func(product func() error) (*Counts, error)

// CountOn is [MeasureOn] on a device that is emulated and has no times of its own: each
// subject computes one product, which is verified, and its record has what count says of
// it.
func CountOn(ctx context.Context, d device.Device, c Case, kernels, peers []DeviceSubject, count Counter, o Options) ([]Record, error) {
	o.count, o.Cold = count, false // nobody would notice
	return MeasureOn(ctx, d, c, kernels, peers, o)
}

// Conflicts is how many wavefronts bank conflicts added.
func (c *Counts) Conflicts() int64 { return c.Wavefronts - c.IdealWavefronts }

// Intensity returns the operations of the product for each byte loaded from global memory.
func (c *Counts) Intensity() float64 { return float64(c.Flops) / float64(max(c.LoadBytes, 1)) }

// check refuses counts that contradict each other, or the number of the product's operations.
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
			return fmt.Errorf("%d %s", x.n, x.name)
		}
	}
	switch {
	case c.Instructions < 1:
		return fmt.Errorf("%d instructions counted, want at least one", c.Instructions)
	case c.Then != nil && (c.Then.HalfWarps < 0 || c.Then.Transactions < c.Then.HalfWarps || c.Then.IdealWavefronts < 0 || c.Then.IdealWavefronts > c.Then.Wavefronts):
		return fmt.Errorf("less than the ideal was counted: %+v", *c.Then)
	case c.IdealSectors > c.Sectors || c.IdealWavefronts > c.Wavefronts:
		return fmt.Errorf("less than the ideal was counted: %+v", *c)
	case float64(c.Flops) != flops:
		return fmt.Errorf("counts of %d flops, want %.0f, the operations of the product (run bench --device emu again: an earlier version counted padding)", c.Flops, flops)
	case c.DistinctSectors > c.Sectors:
		return fmt.Errorf("counts of %d distinct sectors, want at most %d, all sectors (run bench --device emu again: an earlier version left bulk copies out)", c.DistinctSectors, c.Sectors)
	}
	return nil
}
