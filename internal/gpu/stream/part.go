package stream

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/program"
)

// Order describes the order of the sums; see [backend.Plan.Order].
func (pl *Plan) Order() string {
	o := pl.Schedule().order
	side := "rows"
	if !o.byRows {
		side = "columns"
	}
	text := pl.Plan.Order()
	if len(o.slices) > 1 {
		text += fmt.Sprintf(", %d %s in slices of %s of K", o.head, side, sizes(o.slices))
	}
	return text
}

// PartOf returns the plan of p, the part of the product whose C begins at (row, col), with the same
// kernel, tile and order of the sums.
func (pl *Plan) PartOf(p *gemm.Problem, row, col int) *Plan {
	o := pl.Schedule().order
	if o.byRows {
		o.head = min(max(o.head-row, 0), p.M)
	} else {
		o.head = min(max(o.head-col, 0), p.N)
	}
	part := &Plan{Plan: pl.Plan, on: pl.on, host: p, keepLayout: pl.keepLayout, rows: program.First(p.M),
		cols: program.First(p.N), sums: &o, Limit: pl.Limit}
	if o.head == 0 || len(o.slices) == 1 {
		o = part.once()
	}
	part.Plan = pl.Part(part.problem(part.whole()), 0, 0)
	return part
}
