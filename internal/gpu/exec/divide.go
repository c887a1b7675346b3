package exec

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/model"
	"tilework/internal/split"
)

// ordered reports whether the order of the sums depends on the kernel, the tile and the lengths of
// the rows alone. Otherwise it depends on the vectors that the kernel loads, too.
func (pl *Plan) ordered() bool {
	_, ok := pl.Kernel.Order(&pl.device, pl.Config.Tile, pl.backend.Info().Target.SM)
	return ok
}

// Units returns the rows and columns of C at whose multiples tiles begin, and that are multiples of
// grain, a power of two.
func (pl *Plan) Units(grain int) (rows, cols int) {
	rows, cols = pl.Config.Tile.SizeInC()
	for _, n := range []*int{&rows, &cols} {
		for *n%grain != 0 {
			*n *= 2
		}
	}
	return rows, cols
}

// TilesAtOnce returns the number of tiles that the GPU computes at once, with one block per SM.
func (pl *Plan) TilesAtOnce() int {
	t := pl.Config.Tile
	return max(pl.backend.Info().SMs/(max(t.SplitK, 1)*t.BlocksK()), 1)
}

// Grain returns the number of rows and columns of C at whose multiples it may be cut, so that the
// parts have the bits of the whole.
func (pl *Plan) Grain() int {
	switch {
	case pl.device.BlockScaled():
		return gemm.ScaleBlock
	case !pl.ordered():
		return split.Align
	}
	return 1
}

// Order describes the order of the sums. Plans of equal products with equal orders compute equal
// bits. Only tensor cores of the same architecture add alike.
func (pl *Plan) Order() string {
	return fmt.Sprintf("kernel %s, tile %v on %v", pl.Kernel.Name, pl.Config.Tile, pl.backend.Info().Target)
}

// Seconds predicts the time of the plan on its GPU.
func (pl *Plan) Seconds() float64 {
	clock := 1.5e9 // a usual one, for unknown GPUs
	if m, err := model.Lookup(pl.backend.Info().Name); err == nil && !m.Generic() {
		clock = m.ClockHz
	}
	return pl.Cycles / clock
}
