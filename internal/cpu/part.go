package cpu

import (
	"fmt"
	"slices"

	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// Order implements [backend.Plan]. Methods that divide K by the shape of C, and direct ones
// with edge columns, sum in other orders for a part.
func (pl *Plan) Order() string {
	p := pl.Problem
	if !pl.divides(p) {
		return ""
	}
	order := "kernel " + pl.Kernel.Name
	if !pl.Kernel.naive {
		order += fmt.Sprintf(", KC %d, %v", pl.Kernel.tiles(p.Accum()).depth(), pl.method)
	}
	if p.Epilogue.Gated {
		up, err := pl.up()
		if err != nil || !up.divides(up.Problem) {
			return ""
		}
		order += fmt.Sprintf(", and %v", up.method)
	}
	return order
}

// Choice implements [backend.Plan].
func (pl *Plan) Choice() backend.Choice { return backend.Choice{Kernel: pl.Kernel.Name} }

// divides reports whether parts of p have the bits of the whole.
func (pl *Plan) divides(p *gemm.Problem) bool {
	switch w := pl.method; w.algorithm {
	case algoNaive, algoBlocked:
		return true
	case algoDirect, algoCopy, algoStream:
		return !w.swapAB && pl.Kernel.tiles(p.Accum()).edgeColumns(p) == 0
	}
	return false
}

// Part implements [backend.Plan].
func (pl *Plan) Part(p *gemm.Problem, _, _ int) (backend.Plan, error) {
	part := pl.part(p)
	return &part, nil
}

func (pl *Plan) part(p *gemm.Problem) Plan {
	part := Plan{Kernel: pl.Kernel, Threads: pl.Threads, method: pl.method, named: pl.named, limit: pl.limit,
		whole: pl.Problem}
	p = part.setProblem(p)
	if !pl.Kernel.naive && !slices.Contains(pl.Kernel.tiles(p.Accum()).methods(p), part.method) {
		part.method.algorithm = algoDirect // sums in the same order, and takes any number of rows and columns
	}
	return part
}

// up plans the other product of a gated one.
func (pl *Plan) up() (up Plan, err error) {
	other, o := pl.Problem.Other(), &backend.Options{Threads: pl.Threads}
	if pl.whole == nil {
		err = up.decideFor(pl.Kernel, &other, o)
		return up, err
	}
	whole := pl.whole.Other()
	if err = up.decideFor(pl.Kernel, &whole, o); err != nil {
		return up, err
	}
	return up.part(&other), nil
}
