package emu

import (
	"slices"

	"tilework/ptx"
	"tilework/ptx/emu/internal/dot"
	"tilework/ptx/emu/internal/number"
)

// groupWarps is the number of warps of a warpgroup.
const groupWarps = 4

// wgmma holds the operands of wgmma.mma_async: d = a·b or d += a·b. Each of the four warps computes
// 16 of the 64 rows.
type wgmma struct {
	matrixProduct
	fa, fd         *fragment
	pa, pd         []uint32
	scaleD         uint32 // slot of the predicate
	descA, descB   uint32 // slots; descA is 0 if A is in registers
	mnMajorA       bool
	mnMajorB       bool
	signA, signB   float64
	sums, operands []register // registers of D and A, which the operation uses until a wait
}

// warpgroup is the queue of operations that a warpgroup has started and not completed.
type warpgroup struct {
	ops   []*wgmmaOp // oldest first
	first int        // number of ops[0] among all operations of the warpgroup
}

// wgmmaOp is an operation that at least one warp of the warpgroup has executed.
type wgmmaOp struct {
	*wgmma
	id           uint64
	site         *Site
	addrA, addrB uint64            // descriptors
	warps        [groupWarps]*warp // warps that have executed the operation
	frame        [groupWarps]*frame
	accumulates  bool
	arrived      int
	async        *asyncOp
}

// warpMatrices is the state of a warp in its warpgroup.
type warpMatrices struct {
	begun     int   // number of operations
	commits   []int // value of begun at each commit
	completed int   // number of operations that a wait has completed
	using     []use // operations after the completed ones
	registerGuard
}

// use is an operation that a warp has executed.
type use struct {
	id    uint64
	frame *frame
	*wgmma
}

func decodeWgmma(d *decoder) execFunc {
	i := d.i
	d.f.matrices = true
	switch {
	case i.Has("fence"):
		return aligned(func(w *warp, in *inst) {
			w.matrices.fences++
		})
	case i.Has("commit_group"):
		return aligned(func(w *warp, in *inst) { w.matrices.commits = append(w.matrices.commits, w.matrices.begun) })
	case i.Has("wait_group"):
		n := int(d.constInt(0))
		return func(w *warp, in *inst) {
			if w.converge(in, full) {
				w.waitMatrices(in, n)
			}
		}
	}
	g := &wgmma{signA: 1, signB: 1}
	var types []ptx.Type
	for _, mod := range i.Mods {
		if t, ok := ptx.ParseType(mod); ok {
			types = append(types, t)
		}
	}
	g.d, g.a, g.b = elementOf(types[0]), elementOf(types[1]), elementOf(types[2])
	if g.a == nil || g.b == nil || g.d == nil {
		return nil
	}
	g.dot = dot.Product{A: number.Of(types[1]), B: number.Of(types[2]), Result: number.Of(types[0]), BitOp: i.Mod("op"),
		Saturate: i.Has("satfinite")}
	if g.a.bits == 8 {
		g.dot.Unit = dot.Short
	}
	g.m, g.n, g.k = shapeOf(i)
	before := len(d.in.writes)
	g.pd = d.vector(0)
	g.sums = slices.Clone(d.in.writes[before:])
	before = len(d.in.reads)
	if _, ok := i.Args[1].(*ptx.Vector); ok {
		g.pa = d.vector(1)
		g.fa = fragmentA(16, g.k, g.a.perRegister())
		g.operands = slices.Clone(d.in.reads[before:])
	} else {
		g.descA = d.source(1)
	}
	g.fd = newFragment(16, g.n, g.n/2, func(lane, n int) (int, int) {
		return lane/4 + 8*(n/2%2), 8*(n/4) + lane%4*2 + n%2
	})
	g.descB = d.source(2)
	for k, arg := range i.Args {
		switch i.Operand(k).Name {
		case "scale-d":
			g.scaleD = d.value(arg, ptx.Pred)
		case "scale-a":
			g.signA = float64(d.constInt(k))
		case "scale-b":
			g.signB = float64(d.constInt(k))
		case "trans-a":
			g.mnMajorA = d.constInt(k) == 1
		case "trans-b":
			g.mnMajorB = d.constInt(k) == 1
		}
	}
	d.in.x = g
	return aligned(g.begin)
}

// begin executes the operation for one warp. It starts when all four warps have executed it.
func (g *wgmma) begin(w *warp, in *inst) {
	b, state := w.block, &w.matrices
	number := w.index / groupWarps
	if number >= len(b.groups) {
		w.misuse(in, "warp %d is not in a complete warpgroup of %d warps", w.index, groupWarps)
		return
	}
	if !w.claimRegisters(in, g) {
		return
	}
	group := &b.groups[number]
	n := state.begun - group.first
	state.begun++
	var descA uint64
	if g.descA != 0 {
		descA = reg[uint64](w, g.descA)[0]
	}
	descB, adds := reg[uint64](w, g.descB)[0], *pred(w, g.scaleD)&1 != 0
	if n == len(group.ops) {
		b.cluster.operations++
		group.ops = append(group.ops, &wgmmaOp{wgmma: g, id: b.cluster.operations, site: in.site, addrA: descA, addrB: descB,
			accumulates: adds})
	}
	op := group.ops[n]
	if op.site != in.site || op.addrA != descA || op.addrB != descB || op.accumulates != adds {
		w.misuse(in, "the warps of the warpgroup differ: another warp executed %v with descriptors %#x and %#x, this one "+
			"has %#x and %#x", op.site, op.addrA, op.addrB, descA, descB)
		return
	}
	member := w.index % groupWarps
	op.warps[member], op.frame[member] = w, w.frame
	w.checkOpen(in, len(state.using))
	state.using = append(state.using, use{op.id, w.frame, g})
	if !op.checkOperands(w, in) {
		return
	}
	if op.arrived++; op.arrived < groupWarps {
		return
	}
	// Operations complete in order.
	op.async = &asyncOp{
		id: op.id, origin: w.origin(in), warp: w, uses: []*block{b},
		parts: []func(){func() { group.finish(b, op) }},
	}
	for _, other := range b.warps {
		other.wake(atWarpgroup)
	}
	b.cluster.startAsync(op.async)
}

// operandA returns the matrix A in shared memory.
func (op *wgmmaOp) operandA() *operand {
	return op.operand(op.addrA, op.m, op.a, op.mnMajorA)
}

func (op *wgmmaOp) operandB() *operand {
	return op.operand(op.addrB, op.n, op.b, op.mnMajorB)
}

func (op *wgmmaOp) operand(word uint64, rows int, e *elementType, across bool) *operand {
	size := max(e.bits/8, 1)
	return &operand{descriptor: unpackDescriptor(word), rows: rows, k: op.k * e.bits / 8 / size, size: size,
		mnMajor: across}
}

// checkOperands checks the bounds of the shared memory that a warp's part of the operation reads,
// and reports the access.
func (op *wgmmaOp) checkOperands(w *warp, in *inst) bool {
	spans := op.operandB().spans(0, op.n)
	if op.descA != 0 {
		row := w.index % groupWarps * 16
		spans = append(spans, op.operandA().spans(row, row+16)...)
	}
	if !w.checkSharedSpans(in, w.block, spans) {
		return false
	}
	if len(w.block.bulk) > 0 || w.tracks {
		w.emitBulk(&Bulk{Origin: w.origin(in), Kind: AsyncRead, Space: ptx.Shared, Rank: w.block.rank, Spans: spans,
			Copy: op.id})
	}
	return true
}

// finish computes op and the operations before it.
func (group *warpgroup) finish(b *block, op *wgmmaOp) {
	for len(group.ops) > 0 {
		next := group.ops[0]
		group.ops = group.ops[1:]
		group.first++
		next.compute(b)
		next.async.parts = nil
		if next == op {
			return
		}
	}
}

// compute computes the operation for all four warps.
func (op *wgmmaOp) compute(b *block) {
	memory := b.shared.bytes()
	cols := op.operandB().read(memory, op.b, op.signB)
	var rows []float64
	if op.descA != 0 {
		rows = op.operandA().read(memory, op.a, op.signA)
	}
	for n, w := range op.warps {
		base := w.base
		w.base = op.frame[n].base
		scratch, a := &w.worker.matrices, []float64(nil)
		if op.descA != 0 {
			a = rows[n*16*op.k:][:16*op.k]
		} else {
			a = w.gatherMatrix(&scratch[0], op.fa, op.a, op.pa)
			for i := range a {
				a[i] *= op.signA
			}
		}
		d := scratch[2].grow(16 * op.n)
		if clear(d); op.accumulates {
			w.gatherMatrix(&scratch[2], op.fd, op.d, op.pd)
		}
		op.dot.Multiply(w.accumulatesNearest(), a, cols, op.k, d)
		w.scatterMatrix(d, op.fd, op.d, op.pd)
		w.base = base
	}
}

// waitMatrices completes the operations of the warpgroup except those in the last n groups that the
// warp has committed.
func (w *warp) waitMatrices(in *inst, n int) {
	state := &w.matrices
	bound := 0
	if k := len(state.commits) - 1 - n; k >= 0 {
		bound = state.commits[k]
		state.commits = slices.Delete(state.commits, 0, k)
	}
	if bound <= state.completed {
		return
	}
	group := &w.block.groups[w.index/groupWarps]
	var finished []CopyLanes
	if last := bound - 1 - group.first; last >= 0 {
		op := group.ops[last]
		if op.async == nil { // other warps have not executed it
			w.uncount(in)
			w.suspend(in, atWarpgroup)
			w.pick()
			return
		}
		group.finish(w.block, op)
	}
	for _, u := range state.using[:bound-state.completed] {
		if u.frame.fn == w.block.run.entry {
			state.release(u.wgmma)
		}
		finished = append(finished, CopyLanes{u.id, full})
	}
	state.using = state.using[bound-state.completed:]
	state.completed = bound
	w.emitCopyDone(in, finished, false)
}
