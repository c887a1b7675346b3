package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Pipe leads stages of tiles from those who load them to those who multiply them. Each
// stage has an mbarrier that says it is full, which counts bytes, and one that says it is
// empty, which counts who has done with it.
type Pipeline struct {
	k           *build.Kernel
	stages      int
	full, empty build.Mbarriers
}

// NewPipe declares a pipe of so many stages.
func NewPipeline(k *build.Kernel, stages int) *Pipeline {
	return &Pipeline{k: k, stages: stages, full: k.Mbarriers("full", stages), empty: k.Mbarriers("empty", stages)}
}

// Init makes the mbarriers, for so many releases of a stage. One thread does; a
// [build.Kernel.MbarrierFence] and a barrier of all who use the pipe follow.
func (p *Pipeline) Init(releases int) {
	for s := range p.stages {
		p.full.Init(s, 1)
		p.empty.Init(s, releases)
	}
}

// Turn is a place in the pipe: a stage, and whether it has come round an odd number of
// times.
type PipelineState struct {
	*Pipeline
	stage, phase build.Reg
}

// Turn is the place of the first tile.
func (p *Pipeline) State() *PipelineState {
	return &PipelineState{p, p.k.Var("stage", ptx.U32, 0), p.k.Var("phase", ptx.U32, 0)}
}

// Stage is the number of the stage.
func (t *PipelineState) Stage() build.Reg { return t.stage }

// Full is the stage's mbarrier, which copies to it tell of their bytes.
func (t *PipelineState) Full() build.Ptr { return t.full.At(t.stage) }

// WaitEmpty waits until the stage can be loaded, and announces so many bytes.
func (t *PipelineState) WaitEmpty(bytes int) {
	t.empty.Wait(t.stage, t.k.Xor(t.phase, 1))
	t.full.ArriveExpectTx(t.stage, bytes)
}

// WaitFull waits until the stage's tiles are there.
func (t *PipelineState) WaitFull() { t.full.Wait(t.stage, t.phase) }

// Release has one thread say that it, and all it speaks for, are done with a stage's tiles.
func (t *PipelineState) Release(stage build.Reg) { t.empty.Arrive(stage) }

// ReleasePeer is Release to the block of that rank of the cluster.
func (t *PipelineState) ReleasePeer(stage, rank build.Reg) { t.empty.ArrivePeer(stage, rank) }

// Next goes on to the next stage.
func (t *PipelineState) Next() {
	k := t.k
	next := k.Add(t.stage, 1)
	round := k.Eq(next, t.stages)
	k.Set(t.phase, k.Select(round, k.Xor(t.phase, 1), t.phase))
	k.Set(t.stage, k.Select(round, 0, next))
}

// Skip goes on by n stages.
func (t *PipelineState) Skip(n build.Reg) {
	k := t.k
	at := k.Add(t.stage, n)
	k.Set(t.phase, k.Xor(t.phase, k.And(k.Div(at, t.stages), 1)))
	k.Set(t.stage, k.Rem(at, t.stages))
}
