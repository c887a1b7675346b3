package dispatch

import (
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// Order describes the order of the sums. Plans of equal products with equal orders compute equal
// bits, also on other machines, as a whole and in parts. It is empty if parts would have other bits
// than the whole.
func (pl *Plan) Order() string { return pl.plan.Order() }

// Choice returns the choice of the kernel, for the plan of an equal product in another process.
func (pl *Plan) Choice() backend.Choice {
	c := pl.plan.Choice()
	if c == (backend.Choice{}) {
		return pl.options.Choice
	}
	c.Config = pl.options.Config
	return c
}

// Part returns the plan of an area of C, with the bits of the whole. Its problem is
// [gemm.Problem.Part]. The error is ErrShape, or ErrUnsupported if Order is empty and the area is
// not all of C.
func (pl *Plan) Part(a gemm.Area) (*Plan, error) {
	part := &Plan{Request: pl.Request, on: pl.on, options: pl.options, reason: pl.reason, decision: pl.decision,
		place: pl.place, whole: pl, area: a}
	var err error
	if part.Problem, _, err = pl.Problem.Part(a, &gemm.Buffers{}); err != nil {
		return nil, err
	}
	switch {
	case part.Problem == pl.Problem:
		part.whole, part.plan = nil, pl.plan
		return part, nil
	case pl.Order() == "":
		return nil, pl.indivisible()
	}
	if part.plan, err = pl.plan.Part(&part.Problem, a.Row, a.Col); err != nil {
		return nil, err
	}
	return part, part.setCallbacks(part.plan, part.on)
}

// PartAs returns the plan of p, the part of the product whose C begins at (row, col), in layouts of
// its own. It has the bits of the whole. The error is ErrUnsupported if Order is empty and p is not
// all of C.
func (pl *Plan) PartAs(p *gemm.Problem, row, col int) (*Plan, error) {
	part := &Plan{Request: pl.Request, on: pl.on, options: pl.options, reason: pl.reason}
	part.Problem = *p
	var err error
	switch {
	case pl.Order() != "":
		part.plan, err = pl.plan.Part(&part.Problem, row, col)
	case p.M == pl.Problem.M && p.N == pl.Problem.N:
		part.plan, err = pl.on.Plan(&part.Problem, &part.options, nil)
	default:
		err = pl.indivisible()
	}
	return part, err
}

func (pl *Plan) indivisible() error {
	return fmt.Errorf("%w: a part of %v with kernel %s, %s: it would have other bits than the whole", gemm.ErrUnsupported,
		&pl.Problem, pl.Kernel(), pl.Detail())
}
