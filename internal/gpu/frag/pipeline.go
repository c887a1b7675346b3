package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Pipeline is a circular buffer of stages between producers, which load tiles with TMA, and
// consumers, which multiply them. Each stage has two mbarriers: full counts bytes that have
// arrived, and empty counts consumers that have released the stage.
type Pipeline struct {
	k           *build.Kernel
	stages      int
	full, empty build.Mbarriers
}

// NewPipeline declares the mbarriers of a pipeline with the given number of stages.
func NewPipeline(k *build.Kernel, stages int) *Pipeline {
	return &Pipeline{k: k, stages: stages, full: k.Mbarriers("full", stages), empty: k.Mbarriers("empty", stages)}
}

// Init initializes the mbarriers; a stage is empty after the given number of releases. One thread
// calls it. A [build.Kernel.MbarrierFence] and a barrier of all users must follow.
func (p *Pipeline) Init(releases int) {
	for s := range p.stages {
		p.full.Init(s, 1)
		p.empty.Init(s, releases)
	}
}

// PipelineState is a position in the pipeline: a stage and its phase, which flips each time the
// position wraps around.
type PipelineState struct {
	*Pipeline
	stage, phase build.Reg
}

// State returns the position of the first tile.
func (p *Pipeline) State() *PipelineState {
	return &PipelineState{p, p.k.Var("stage", ptx.U32, 0), p.k.Var("phase", ptx.U32, 0)}
}

// Stage returns the index of the stage.
func (t *PipelineState) Stage() build.Reg { return t.stage }

// Full returns the stage's full mbarrier, on which TMA loads to the stage complete.
func (t *PipelineState) Full() build.Ptr { return t.full.At(t.stage) }

// WaitEmpty waits until the stage can be loaded, and sets the number of bytes that full expects.
func (t *PipelineState) WaitEmpty(bytes build.Value) {
	t.empty.Wait(t.stage, t.k.Xor(t.phase, 1))
	t.full.ArriveExpectTx(t.stage, bytes)
}

// WaitAllEmpty waits until all stages are released. A block of a cluster must not exit before: the
// releases of other blocks would reach shared memory that it no longer has.
func (t *PipelineState) WaitAllEmpty() {
	t.k.For(0, t.stages, func(build.Reg) {
		t.empty.Wait(t.stage, t.k.Xor(t.phase, 1))
		t.Next()
	})
}

// WaitFull waits until the stage's tiles have arrived.
func (t *PipelineState) WaitFull() { t.full.Wait(t.stage, t.phase) }

// Release signals that the calling thread, and those on whose behalf it arrives, have finished with
// a stage.
func (t *PipelineState) Release(stage build.Reg) { t.empty.Arrive(stage) }

// ReleasePeer signals Release to the block with the given rank in the cluster.
func (t *PipelineState) ReleasePeer(stage, rank build.Reg) { t.empty.ArrivePeer(stage, rank) }

// Next advances to the next stage.
func (t *PipelineState) Next() {
	k := t.k
	next := k.Add(t.stage, 1)
	round := k.Eq(next, t.stages)
	k.Set(t.phase, k.Select(round, k.Xor(t.phase, 1), t.phase))
	k.Set(t.stage, k.Select(round, 0, next))
}

// Skip advances by n stages.
func (t *PipelineState) Skip(n build.Reg) {
	k := t.k
	at := k.Add(t.stage, n)
	k.Set(t.phase, k.Xor(t.phase, k.And(k.Div(at, t.stages), 1)))
	k.Set(t.stage, k.Rem(at, t.stages))
}
