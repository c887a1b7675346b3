package stream

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// On returns the plan of the same product on another device, with the same kernel, tile and order
// of the sums, so that the result has the same bits. The error is ErrUnsupported if the device
// cannot run the kernel.
func (pl *Plan) On(b *Backend) (*Plan, error) {
	other := *pl
	other.Steps, other.expected = nil, estimate{}
	other.sums = &pl.Schedule().order
	if b == pl.on {
		return &other, nil
	}
	planned, err := b.Backend.Plan(pl.host, exec.Options{
		Kernel: pl.Kernel.Name, Shape: pl.Config.Tile.String(), KeepLayout: pl.keepLayout,
	})
	if err != nil {
		return nil, err
	}
	if planned.Config.Tile != pl.Config.Tile {
		return nil, fmt.Errorf("%w: %s has no tile %v of kernel %s", gemm.ErrUnsupported, b.Device.Info().Name,
			pl.Config.Tile, pl.Kernel.Name)
	}
	if !pl.addsAlike(b) {
		return nil, fmt.Errorf("%w: tensor cores of %s add in other ways than those of %s", gemm.ErrUnsupported,
			b.Device.Info().Name, pl.on.Device.Info().Name)
	}
	other.Plan, other.on = planned, b
	return &other, nil
}

// addsAlike reports whether sums have the same bits on another device. Tensor cores of different
// architectures add in different ways.
func (pl *Plan) addsAlike(b *Backend) bool {
	mine, theirs := pl.on.Device.Info().Target.SM, b.Device.Info().Target.SM
	sums, _ := pl.Kernel.Order(pl.host, pl.Config.Tile, mine) // kernels without an order use no tensor cores
	return mine == theirs || sums.Terms <= 1
}

// Cut returns the row of C, or the column if C has more columns than rows, up to which a fraction
// of C extends, in whole tiles.
func (pl *Plan) Cut(fraction float64) int {
	rows, cols := pl.units()
	n, unit := pl.host.M, rows
	if !pl.dividesRows() {
		n, unit = pl.host.N, cols
	}
	return min(kernel.RoundUp(max(int(fraction*float64(n)+0.5), 1), unit), n)
}

func (pl *Plan) dividesRows() bool { return pl.host.M >= pl.host.N }

// Share returns the plan of the part of C between two results of Cut.
func (pl *Plan) Share(from, to int) *Plan {
	part := *pl
	part.Steps, part.expected = nil, estimate{}
	if pl.dividesRows() {
		part.rows = span{from, to}
	} else {
		part.cols = span{from, to}
	}
	return &part
}

// Area describes the part of C that the plan computes.
func (pl *Plan) Area() string {
	if pl.dividesRows() {
		return fmt.Sprintf("rows %d to %d", pl.rows.from, pl.rows.to-1)
	}
	return fmt.Sprintf("columns %d to %d", pl.cols.from, pl.cols.to-1)
}
