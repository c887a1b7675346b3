package stream

import (
	"fmt"

	"tilework/internal/gpu/kernel"
)

// On returns the plan of the same product on another device; see [exec.Plan.On].
func (pl *Plan) On(b *Backend) (*Plan, error) {
	planned, err := pl.Plan.On(b.Backend)
	if err != nil {
		return nil, err
	}
	other := *pl
	other.Plan, other.on = planned, b
	other.Steps, other.expected = nil, estimate{}
	other.sums = &pl.Schedule().order
	return &other, nil
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
