package sm90

import (
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A producer emits the TMA loads of the producer warpgroup, which one thread issues.
type producer struct {
	w     *writer
	state *frag.PipelineState
	fresh build.Reg // predicate: some stages have not been loaded yet
	// left and right are the parts of the operands that the current tile of C needs, and whole
	// reports whether they are whole tiles.
	left, right frag.Span
	whole       build.Reg
	// shareA and shareB are the block's shares in the loads of the left and the right operand.
	shareA, shareB frag.Share
	// a, b and up are the tiles of each term of an operand split, in the order in which they are
	// loaded. up is nil unless the kernel computes a gate.
	a, b, up []*frag.Boxes
}

// newProducer computes where the terms of the operands begin, and begins with the first stage.
func (w *writer) newProducer() *producer {
	shapeA, shapeB := operandShapes(w.Config)
	p := &producer{w: w}
	p.a, p.b = w.termTiles(w.a, shapeA.KMajor, w.M), w.termTiles(w.b, shapeB.KMajor, w.N)
	if w.up != nil {
		p.up = w.termTiles(w.up, shapeB.KMajor, w.N)
	}
	p.shareA, p.shareB = w.shares()
	p.state, p.fresh = w.pipe.State(), w.Var("fresh", ptx.Pred, true)
	return p
}

// begin computes which parts of the operands the tile of C at (row, col) needs.
func (p *producer) begin(row, col build.Reg) {
	s := p.w.Config.Tile
	fromA, fromB := kernel.SwapAB(s, row, col)
	endA, endB := kernel.SwapAB[build.Value](s, p.w.C.Rows, p.w.N)
	p.left, p.right = p.a[0].Span(fromA, endA), p.b[0].Span(fromB, endB)
	p.whole = p.w.And(p.left.IsWhole(), p.right.IsWhole())
}

// loadsWhole returns a predicate that reports whether the next loads are whole tiles. The first
// ones of each stage are, so that wgmma never reads uninitialised shared memory.
func (p *producer) loadsWhole() build.Reg { return p.w.Or(p.whole, p.fresh) }

// next advances to the next stage.
func (p *producer) next() {
	p.state.Next()
	p.w.Set(p.fresh, p.w.And(p.fresh, p.w.Ne(p.state.Stage(), 0)))
}

// stageBytes returns the number of bytes that arrive in the next stage.
func (p *producer) stageBytes(whole build.Reg) build.Reg {
	bytes := func(left, right frag.Span) build.Reg {
		n := p.w.Add(left.Bytes(), right.Bytes())
		if p.up != nil {
			n = p.w.Add(n, right.Bytes())
		}
		return n
	}
	return p.w.Select(whole, bytes(p.left.Whole(), p.right.Whole()), bytes(p.left, p.right))
}

// load issues the loads of a term of the operands to the current stage, for the step that begins at
// element depth along K. Those of whole tiles are unrolled.
func (p *producer) load(term int, whole, depth build.Reg) {
	p.w.If(whole, func() {
		p.loadSpans(term, p.left.Whole(), p.right.Whole(), depth)
	}).Else(func() {
		p.loadSpans(term, p.left, p.right, depth)
	})
}

// loadSpans issues the loads of parts of the operands.
func (p *producer) loadSpans(term int, left, right frag.Span, depth build.Reg) {
	stage, full := p.state.Stage(), p.state.Full()
	a, b := kernel.SwapAB(p.w.Config.Tile, gemm.A, gemm.B)
	p.a[term].Matrix(p.w.batchCoord(a)).Load(stage, full, left, depth, p.shareA)
	p.b[term].Matrix(p.w.batchCoord(b)).Load(stage, full, right, depth, p.shareB)
	if p.up != nil {
		p.up[term].Load(stage, full, right, depth, p.shareB)
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
