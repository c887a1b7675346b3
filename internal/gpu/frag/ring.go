package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Ring is a circular buffer of stages for the tiles of several operands, filled with cp.async. One
// stage is multiplied while the others are in flight.
type Ring struct {
	k      *build.Kernel
	stages int
	tiles  []*Tiles
	fill   build.Reg // the stage to copy to next
	use    build.Reg // the stage that is multiplied
	arrive []func()  // emit the stores of elements that pass through registers to the stage filled last
}

// NewRing returns a ring of the given number of stages, at least 2.
func NewRing(k *build.Kernel, stages int, tiles ...*Tiles) *Ring {
	return &Ring{k: k, stages: stages, tiles: tiles, fill: k.Var("fill", ptx.U32, 0), use: k.Var("use", ptx.U32, 0)}
}

// Start fills all stages but one and waits for the first.
func (r *Ring) Start() {
	for range r.stages - 1 {
		for _, piece := range r.Fill() {
			piece()
		}
		r.land()
	}
	r.wait()
}

// Fill returns functions that emit, in order, the copies of the next tiles to the stage that the
// last Next released. Between instructions that leave the scheduler idle they cost nothing.
func (r *Ring) Fill() []func() {
	var pieces []func()
	for _, t := range r.tiles {
		depart, arrive := t.copies(r.fill)
		pieces, r.arrive = append(pieces, depart...), append(r.arrive, arrive...)
	}
	return append(pieces, func() {
		r.k.CopyCommit()
		r.advance(r.fill)
	})
}

// Next advances to the next stage. It waits until every thread has read the previous stage, and
// until every thread's copies to the next one have arrived.
func (r *Ring) Next() {
	r.land()
	r.wait()
	r.advance(r.use)
}

// End waits for the copies still in flight. They must not arrive after the block has exited, when
// its shared memory may belong to another block.
func (r *Ring) End() { r.k.CopyWait(0) }

// Use returns the stage to multiply.
func (r *Ring) Use() build.Reg { return r.use }

func (r *Ring) land() {
	for _, piece := range r.arrive {
		piece()
	}
	r.arrive = nil
}

func (r *Ring) wait() {
	r.k.CopyWait(r.stages - 2)
	r.k.Barrier()
}

func (r *Ring) advance(stage build.Reg) {
	k := r.k
	next := k.Add(stage, 1)
	k.Set(stage, k.Select(k.Eq(next, r.stages), 0, next))
}
