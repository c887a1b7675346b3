package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Pipe leads stages of tiles from those who load them to those who multiply them. Each
// stage has an mbarrier that says it is full, which counts bytes, and one that says it is
// empty, which counts who has done with it.
type Pipe struct {
	k           *build.Kernel
	stages      int
	full, empty build.Mbarriers
}

// NewPipe declares a pipe of so many stages.
func NewPipe(k *build.Kernel, stages int) *Pipe {
	return &Pipe{k: k, stages: stages, full: k.Mbarriers("full", stages), empty: k.Mbarriers("empty", stages)}
}

// Init makes the mbarriers, for so many releases of a stage. One thread does; a
// [build.Kernel.MbarrierFence] and a barrier of all who use the pipe follow.
func (p *Pipe) Init(releases int) {
	for s := range p.stages {
		p.full.Init(s, 1)
		p.empty.Init(s, releases)
	}
}

// Turn is a place in the pipe: a stage, and whether it has come round an odd number of
// times.
type Turn struct {
	*Pipe
	stage, phase build.Reg
}

// Turn is the place of the first tile.
func (p *Pipe) Turn() *Turn {
	return &Turn{p, p.k.Var("stage", ptx.U32, 0), p.k.Var("phase", ptx.U32, 0)}
}

// Stage is the number of the stage.
func (t *Turn) Stage() build.Reg { return t.stage }

// Full is the stage's mbarrier, which copies to it tell of their bytes.
func (t *Turn) Full() build.Ptr { return t.full.At(t.stage) }

// WaitEmpty waits until the stage can be loaded, and announces so many bytes.
func (t *Turn) WaitEmpty(bytes int) {
	t.empty.Wait(t.stage, t.k.Xor(t.phase, 1))
	t.full.ArriveExpectTx(t.stage, bytes)
}

// WaitFull waits until the stage's tiles are there.
func (t *Turn) WaitFull() { t.full.Wait(t.stage, t.phase) }

// Release has one thread say that it, and all it speaks for, are done with a stage's tiles.
func (t *Turn) Release(stage build.Reg) { t.empty.Arrive(stage) }

// ReleasePeer is Release to the block of that rank of the cluster.
func (t *Turn) ReleasePeer(stage, rank build.Reg) { t.empty.ArrivePeer(stage, rank) }

// Next goes on to the next stage.
func (t *Turn) Next() {
	k := t.k
	next := k.Add(t.stage, 1)
	round := k.Eq(next, t.stages)
	k.Set(t.phase, k.Select(round, k.Xor(t.phase, 1), t.phase))
	k.Set(t.stage, k.Select(round, 0, next))
}

// Skip goes on by n stages.
func (t *Turn) Skip(n build.Reg) {
	k := t.k
	at := k.Add(t.stage, n)
	k.Set(t.phase, k.Xor(t.phase, k.And(k.Div(at, t.stages), 1)))
	k.Set(t.stage, k.Rem(at, t.stages))
}
