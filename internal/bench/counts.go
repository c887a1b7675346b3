package bench

import (
	"context"
	"fmt"

	"tilework/internal/device"
)

// Counts is what an emulated device did for one product, in all its launches. A warp's
// access to memory is a request; sectors are the 32 bytes that global memory is moved in,
// and a wavefront is what the banks of shared memory give at once.
type Counts struct {
	Instructions int64 `json:"instructions"` // executed by warps
	// Flops is the operations of threads and of tensor cores; not those of integers
	// outside of tensor cores, which cannot be told from the reckoning of addresses.
	Flops int64 `json:"flops"`

	// LoadBytes and StoreBytes are what threads asked global memory for.
	LoadBytes  int64 `json:"load_bytes"`
	StoreBytes int64 `json:"store_bytes"`
	// Sectors are those of all requests, and IdealSectors the fewest that could hold
	// the bytes of each. Bulk copies, which no warp requests, are in neither.
	Sectors      int64 `json:"sectors"`
	IdealSectors int64 `json:"ideal_sectors"`
	// DistinctSectors are those that were accessed at all: what a cache that forgets
	// nothing would move.
	DistinctSectors int64 `json:"distinct_sectors"`

	SharedRequests int64 `json:"shared_requests"`
	// Wavefronts are those of all requests, and IdealWavefronts those without bank
	// conflicts.
	Wavefronts      int64 `json:"wavefronts"`
	IdealWavefronts int64 `json:"ideal_wavefronts"`

	Then *ThenCounts `json:"then,omitempty"`
}

// ThenCounts is what the same accesses would have taken on the first GPUs, which served
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

// Counter computes a product and says what that took.
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

// Intensity is the operations for each byte that threads loaded from global memory.
func (c *Counts) Intensity() float64 { return float64(c.Flops) / float64(max(c.LoadBytes, 1)) }

func (c *Counts) check() error {
	for _, x := range []struct {
		name string
		n    int64
	}{
		{"flops", c.Flops}, {"load_bytes", c.LoadBytes}, {"store_bytes", c.StoreBytes},
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
	}
	return nil
}
