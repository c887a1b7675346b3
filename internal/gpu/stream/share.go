package stream

import (
	"fmt"

	"tilework/internal/ints"
	"tilework/internal/program"
)

// On returns the plan of the same product on another device; see [exec.Plan.On].
func (pl *Plan) On(b *Backend) (*Plan, error) {
	planned, err := pl.Plan.On(b.Backend)
	if err != nil {
		return nil, err
	}
	other := *pl
	other.Plan, other.on = planned, b
	other.Steps, other.expected = nil, program.Prediction{}
	other.sums = &pl.Schedule().order
	return &other, nil
}

// Cut returns the row or column of C up to which a fraction of C extends, in whole tiles.
func (pl *Plan) Cut(fraction float64) int {
	rows, cols := pl.units()
	n, unit := pl.host.M, rows
	if !pl.dividesRows() {
		n, unit = pl.host.N, cols
	}
	return min(ints.RoundUp(max(int(fraction*float64(n)+0.5), 1), unit), n)
}

// dividesRows reports whether C is divided by rows, which it is if it has no more columns. But if a
// head of C is summed slice by slice of K, C is divided across the head, unless it is narrow there:
// all parts then overlap copies and kernels as the whole product does, and need the same slices.
func (pl *Plan) dividesRows() bool {
	m, n := pl.host.M, pl.host.N
	o := pl.sums
	if o == nil {
		o = &pl.Schedule().order
	}
	if len(o.slices) == 1 {
		return m >= n
	}
	const narrow = 4
	if o.byRows {
		return m > narrow*n
	}
	return n <= narrow*m
}

// Share returns the plan of the part of C between two results of Cut, of one of a number of devices
// that run at the same time.
func (pl *Plan) Share(from, to, devices int) *Plan {
	part := *pl
	part.Steps, part.expected, part.devices = nil, program.Prediction{}, devices
	if pl.dividesRows() {
		part.rows = program.Range(from, to)
	} else {
		part.cols = program.Range(from, to)
	}
	return &part
}

// Area describes the part of C that the plan computes.
func (pl *Plan) Area() string {
	if pl.dividesRows() {
		return fmt.Sprintf("rows %d to %d", pl.rows.From, pl.rows.To-1)
	}
	return fmt.Sprintf("columns %d to %d", pl.cols.From, pl.cols.To-1)
}
