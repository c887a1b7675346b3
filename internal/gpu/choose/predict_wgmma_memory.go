package choose

import (
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/ints"
)

// operand is the left or the right operand of a tile, as TMA loads it.
type operand struct {
	name   gemm.Operand
	layout *gemm.Layout
	side   int // rows of A or columns of B of the matrix
	tile   int // those of a tile
	// shared is the number of blocks that load a tile together, and apart that of blocks of a
	// cluster with different tiles.
	shared, apart int
	// boxes is the number of rows of 128 bytes in the boxes of a tile.
	boxes  int
	kMajor bool
}

// setOperands sets the operands, lines and beyond.
func (t *wgmmaTile) setOperands() {
	s, q := t.s, &t.x.product
	a := operand{name: gemm.A, layout: q.A(), side: t.M, kMajor: !q.A().Trans}
	b := operand{name: gemm.B, layout: q.B(), side: t.Columns(), kMajor: q.B().Trans}
	left, right := kernel.SwapAB(s, &a, &b)
	left.tile, left.shared, left.apart = s.M, s.BlocksN(), s.BlocksM()
	right.tile, right.shared, right.apart = s.N, s.BlocksM(), s.BlocksN()
	for _, o := range []*operand{left, right} {
		if o.boxes = o.tile; !o.kMajor {
			o.boxes = max(o.boxes, sm90.WarpgroupRows)
		}
	}
	t.operands = [2]operand{*left, *right}
	for i := range t.operands {
		o := &t.operands[i]
		t.lines += float64(o.boxes) / float64(o.shared) * t.n.skew(o.layout)
		t.beyond = max(t.beyond, t.outside(o))
	}
}

// load returns the cycles in which the L2 cache delivers the operands of a step to the given number
// of SMs. It delivers more to each SM where few SMs load.
func (t *wgmmaTile) load(active float64) float64 {
	rate := t.costs.Machine.L2Rate * t.clock * (1 + t.n.Alone*(1-active/t.sms))
	return t.terms * (t.apart*frag.SwizzleBytes*t.lines/rate + t.beyond)
}

// skew returns how much longer the L2 cache takes to deliver a matrix's boxes because their rows
// span two of its lines.
func (n *wgmmaCosts) skew(l *gemm.Layout) float64 {
	switch ld := l.Type.Bytes(l.LD); {
	case l.Type.Bytes(l.Cols) <= frag.SwizzleBytes || l.Rows == 1 || ld%frag.SwizzleBytes == 0:
		return 1
	case ld%kernel.SectorBytes == 0:
		return n.Sectors
	}
	return n.Skewed
}

// outside returns how much longer a step takes because the last tile along a side has boxes with
// rows, or parts of rows, that the matrix does not have. Only the first loads of each stage include
// boxes that are entirely outside.
func (t *wgmmaTile) outside(o *operand) float64 {
	const free = 15                                 // rows that cost nothing
	width, whole := o.tile/o.shared, o.tile*o.apart // of a block's part
	missing := kernel.Tiles(o.side, whole)*whole - o.side
	rows := func(missing int) float64 {
		if !o.kMajor { // each row of K is in boxes of as many bytes as a step has
			return float64(kernel.Tiles(missing, t.s.K) * t.s.K) // fitted with one that lacks nothing
		}
		return float64(max(missing-free, 0))
	}
	box := t.s.K
	if o.kMajor {
		box = frag.BoxRows(width)
	}
	all, partial := rows(min(missing, width)), rows(missing%box)
	first := min(float64(t.s.Stages)/(float64(t.rounds)*t.steps), 1)
	outside := partial + first*(all-partial)
	tiles := kernel.Tiles(o.side, o.tile)
	if tiles > 1 && t.rounds == 1 { // the other SMs have as much work with whole tiles
		outside *= t.n.Few
	}
	return t.n.Outside * outside * float64(ints.CeilDiv(t.rounds, tiles)) / float64(t.rounds)
}

// tail returns how much longer the last step along K takes because its boxes extend beyond K, as
// TMA fills the rest of their rows with zeros.
func (t *wgmmaTile) tail() float64 {
	inside := t.K % t.s.K
	if inside == 0 || t.parts > 1 || t.s.ClusterK > 1 {
		return 0
	}
	rows := 0.0
	for i := range t.operands {
		o := &t.operands[i]
		r := float64(o.boxes) / float64(o.shared)
		if !o.kMajor { // whole rows are outside
			r *= 1 - float64(inside)/float64(t.s.K)
		}
		rows += r
	}
	return t.terms * t.n.Tail * rows
}

// memory returns the cycles in which memory delivers the operands once, delivers them again as far
// as the L2 cache does not keep them, and takes C or the partial sums.
func (t *wgmmaTile) memory() (reads, again, writes float64) {
	m := &t.costs.Machine
	cycles := func(bytes float64) float64 { return t.perSM(bytes, m.MemoryRate*t.n.Memory*t.clock) }
	packed := 0.0
	for o := range gemm.C {
		if t.x.packed[o] {
			packed += t.loadedBytes(o)
		}
	}
	once, repeated := -packed*max(1-packed/m.L2Bytes, 0), 0.0 // the L2 cache keeps packed operands
	for i := range t.operands {
		o := &t.operands[i]
		bytes, matrices := t.loadedBytes(o.name), 1
		if t.Batch.Stride[o.name] > 0 {
			matrices = max(t.Batch.Count, 1)
		}
		if o.name == gemm.B {
			bytes += float64(t.x.product.Layouts[gemm.Up].Bytes())
		}
		rows := float64(min(o.boxes, o.side)) / float64(o.shared)
		loaded := t.work * t.active * t.steps * t.terms * frag.SwizzleBytes * rows
		once += bytes
		repeated += max(1-m.L2Bytes*float64(matrices)/max(bytes, 1), 0) * max(loaded-bytes, 0)
	}
	return m.Ramp + t.pairing()*cycles(once), cycles(t.n.Missed * repeated), cycles(t.written())
}

// pairing returns how much longer memory takes to deliver the operands because SMs are idle. 64 or
// 128 blocks on an H200 get 4.5 TB/s, and 80 blocks 3.1. That fits two SMs of a TPC that get little
// more than their shares of memory's rate if both load, and blocks that each have a TPC of their
// own, limited by nothing but latency, as long as half of the SMs suffice.
func (t *wgmmaTile) pairing() float64 {
	round := func(blocks float64) float64 {
		if 2*blocks <= t.sms {
			return 1
		}
		return max(t.sms/(blocks*t.n.Paired), 1)
	}
	full := float64(t.rounds-1) * t.active
	return (full*round(t.active) + t.last*round(t.last)) / (full + t.last)
}

// loadedBytes returns the bytes of A or B as they are loaded.
func (t *wgmmaTile) loadedBytes(o gemm.Operand) float64 {
	l, count := &t.x.product.Layouts[o], 1
	if t.Batch.Stride[o] > 0 {
		count = t.Batch.Count
	}
	if t.x.packed[o] {
		return volume(count, l.Rows, l.Type.Bytes(l.LD))
	}
	return volume(count, l.Rows, l.Type.Bytes(l.Cols))
}

// written returns the bytes that memory takes. The partial sums are read soon, and some of them
// never reach memory. Where rows of C begin within sectors, memory completes those that a tile
// fills in part.
func (t *wgmmaTile) written() float64 {
	if t.parts > 1 {
		return t.n.Partials * t.partialSumBytes(t.parts)
	}
	l, count := t.C(), 1
	if t.Batch.Stride[gemm.C] > 0 {
		count = t.Batch.Count
	}
	bytes := volume(count, l.Rows, l.Type.Bytes(l.Cols))
	if t.s.ClusterK < 2 && l.Rows > 1 && l.Type.Bytes(l.LD)%kernel.SectorBytes != 0 {
		_, width := kernel.SwapAB(t.s, t.s.M, t.c.ColumnsOfC())
		parts := ints.CeilDiv(t.N, min(width, sm90.StoredColumns))
		bytes = t.n.Torn*bytes + t.n.Edge*volume(count, l.Rows, parts)
	}
	return bytes
}

// packLaunch is a launch that packs one or two operands.
type packLaunch struct{ transposes, batch bool }

// pack returns the cycles in which operands are packed. One launch packs two operands in the same
// way.
func (t *wgmmaTile) pack() (cycles float64) {
	var last packLaunch
	open := false // last can take another operand
	for _, o := range kernel.Packable {
		if !t.x.packed[o] {
			continue
		}
		from, to := &t.Layouts[o], &t.x.product.Layouts[o]
		l := packLaunch{transposes: from.Trans != to.Trans, batch: t.Batch.Stride[o] > 0}
		if open = open && l == last; !open {
			cycles += t.n.PackLaunch
		}
		open, last = !open && from.Type == to.Type && !l.batch, l
		cycles += t.packOperand(o, l)
	}
	return cycles
}

// packOperand returns the cycles in which threads move the elements of an operand, and memory
// delivers and takes it.
func (t *wgmmaTile) packOperand(o gemm.Operand, l packLaunch) float64 {
	from, to, matrices := &t.Layouts[o], &t.x.product.Layouts[o], 1.0
	if l.batch {
		matrices = float64(t.Batch.Count)
	}
	source, target := volume(from.Rows, from.Type.Bytes(from.Cols)), volume(to.Rows, to.Type.Bytes(to.LD))
	if l.transposes && t.Batch.Kind != gemm.Single {
		return t.perSM(matrices*(source+target), t.n.BatchRate)
	}
	memory := t.perSM(matrices*(source+target), t.costs.Machine.MemoryRate*t.n.Memory)
	switch {
	case l.transposes:
		whole := volume(ints.RoundUp(from.Rows, kernel.PackSide), ints.RoundUp(from.Cols, kernel.PackSide))
		return memory + t.perSM(matrices*whole, t.n.TransposeRate)
	case from.Type != to.Type: // an operand split
		return memory + t.perSM(matrices*target, t.n.CopyRate)
	}
	const warp = frag.Lanes * kernel.PackWords * kernel.WordBytes // bytes of a row that a warp copies
	whole := volume(from.Rows, ints.RoundUp(from.Type.Bytes(from.Cols), warp))
	return memory + t.perSM(matrices*whole, t.n.CopyRate)
}
