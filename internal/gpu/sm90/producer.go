package sm90

import (
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// A producer emits the TMA loads of the producer warpgroup, which one thread issues.
type producer struct {
	*writer
	state      *frag.PipelineState
	stageBytes int // bytes that arrive in a stage
	// a, b and up are the tiles of each term of an operand split, in the order in which they are
	// loaded. up is nil unless the kernel computes a gate.
	a, b, up []*frag.Boxes
}

// newProducer computes where the terms of the operands begin, and begins with the first stage.
func (w *writer) newProducer() *producer {
	shapeA, shapeB := operandShapes(w.Config)
	p := &producer{writer: w, stageBytes: shapeA.LoadedBytes() + shapeB.LoadedBytes()}
	p.a, p.b = w.termTiles(w.a, shapeA.KMajor, w.M), w.termTiles(w.b, shapeB.KMajor, w.N)
	if w.up != nil {
		p.up = w.termTiles(w.up, shapeB.KMajor, w.N)
	}
	p.state = w.pipe.State()
	return p
}

// load issues the loads of a term of the operands into the current stage, for the tile of C at
// (row, col) and the step that begins at element depth along K.
func (p *producer) load(term int, row, col, depth build.Reg) {
	s := p.Config.Tile
	fromA, fromB := kernel.SwapAB(s, row, col)
	left, right := kernel.SwapAB(s, gemm.A, gemm.B)
	p.a[term].Matrix(p.batchCoord(left)).Load(p.state.Stage(), p.state.Full(), fromA, depth, 0)
	p.b[term].Matrix(p.batchCoord(right)).Load(p.state.Stage(), p.state.Full(), fromB, depth, p.rank)
	if p.up != nil {
		p.up[term].Load(p.state.Stage(), p.state.Full(), fromB, depth, p.rank)
	}
}

// termTiles returns the tiles of each term of an operand, in the order in which they are loaded.
// The terms are concatenated along a row of memory. A row runs along K if the operand is K-major
// and otherwise along its other side, whose length is mn.
func (w *writer) termTiles(operand *frag.Boxes, kMajor bool, mn build.Reg) (all []*frag.Boxes) {
	k, length := w.Kernel, mn
	if kMajor {
		length = w.K
	}
	for _, term := range w.Terms {
		if term == 0 {
			all = append(all, operand)
			continue
		}
		termLen := k.Mul(k.CeilDiv(length, kernel.SplitRowUnit), kernel.SplitRowUnit)
		all = append(all, operand.Offset(k.Mul(termLen, term)))
	}
	return all
}
