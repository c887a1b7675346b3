package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Ring leads the stages of operands' tiles through their turns: while one is multiplied
// the next ones are under way.
type Ring struct {
	k      *build.Kernel
	stages int
	tiles  []*Tiles
	fill   build.Reg // the stage that is copied to next
	use    build.Reg // the stage that is multiplied
	arrive []func()  // puts what comes through registers to the stage that was filled last
}

// NewRing is a ring of the stages of tiles, 2 or more.
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

// Fill is the pieces, to be written in this order, of what sends the next tiles on their
// way, to the stage that nobody reads any more since the last Next. Among instructions
// that leave a scheduler idle they cost nothing.
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

// Next goes on to the next stage: every thread has read what it needs of the one before,
// and every thread's copies to this one are there.
func (r *Ring) Next() {
	r.land()
	r.wait()
	r.advance(r.use)
}

// End waits for the copies that are still under way, which nobody needs: they must not
// arrive in shared memory that has become another block's.
func (r *Ring) End() { r.k.CopyWait(0) }

// Use is the stage to multiply.
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
