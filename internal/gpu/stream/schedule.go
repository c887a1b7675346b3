package stream

import (
	"fmt"
	"slices"
	"strings"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// schedule lists the steps of a product of matrices in host memory. While the device computes a
// step, the operands of later steps are copied in and the results of earlier steps are copied out.
//
// A product is cut in two ways. The first slices of K need little of A and B, but C is complete
// only after the last slice. A panel of C needs the whole K. See [order].
type schedule struct {
	steps []step
	order order
	sizes [matrices][]int // bytes of the buffers that the parts of an operand share
	words string          // description
}

// order is the order in which the terms of C are summed. A head of C, some of its rows or columns,
// is summed slice by slice of K, and the rest with the whole K. The order depends on the product
// and the kind of device only: a lack of memory changes the panels, but no bit of the result.
type order struct {
	slices []span
	head   int // rows or columns of the head
	byRows bool
}

// step computes a part of C, or adds the terms of a slice of K to it.
type step struct {
	rows, cols, depth span
	// tiles are the parts of the operands in the buffers, which contain those that the step reads. The
	// tile of C stays until all of its steps are done.
	tiles   [matrices]part
	load    [matrices]part // parts copied in before the step; for C, its old values
	buffers [matrices]int  // indices of the buffers of the tiles
	begins  [matrices]bool // reports whether the step is the first one with its tile
	store   bool           // reports whether the step's part of C is copied out after it
	// concurrent reports whether the step may overlap the previous one, whose last blocks leave SMs
	// idle.
	concurrent bool
}

// matrices counts the operands that are copied in panels, the first of the list. The others are
// copied whole.
const matrices = gemm.Up + 1

// span is a range of rows, columns or terms.
type span struct{ from, to int }

func (s span) n() int { return s.to - s.from }

// part is a part of op(A), op(B) or C.
type part struct{ rows, cols span }

func (p part) empty() bool { return p.rows.n() == 0 || p.cols.n() == 0 }

// parts returns the parts of the operands that the step reads, and of C that it writes.
func (s *step) parts() [matrices]part {
	return [...]part{{s.rows, s.depth}, {s.depth, s.cols}, {s.rows, s.cols}, {s.rows, s.cols}, {s.depth, s.cols}}
}

// layout returns the layout of a part of a matrix that is stored by itself on the device.
func (pl *Plan) layout(l gemm.Layout, p part) gemm.Layout {
	if l.Trans {
		p.rows, p.cols = p.cols, p.rows
	}
	l.Rows, l.Cols = p.rows.n(), p.cols.n()
	if !pl.keepLayout {
		l = kernel.Padded(l)
	}
	return l
}

// problem returns the problem that a step computes. With several slices of K, the first step
// overwrites C with its sums, the others add theirs, and the last applies alpha and the epilogue;
// see sliceable.
func (pl *Plan) problem(s *step) gemm.Problem {
	p := *pl.host
	parts := s.parts()
	p.M, p.N, p.K = s.rows.n(), s.cols.n(), s.depth.n()
	first, last := s.depth.from == 0, s.depth.to == pl.host.K
	if !last {
		p.Alpha, p.Epilogue, p.Layouts[gemm.Residual] = 1, gemm.Epilogue{}, gemm.Layout{}
	}
	for o := range matrices {
		if p.Uses(o) {
			l := &p.Layouts[o]
			ld := pl.layout(*l, s.tiles[o]).LD
			*l = pl.layout(*l, parts[o])
			l.LD = ld
		}
	}
	if !first {
		p.Beta = p.Alpha
	}
	if sideA, sideB := pl.host.ScaleSides(); sideA > 0 {
		p.Layouts[gemm.ScaleA] = scalesOf(p.Layouts[gemm.ScaleA], kernel.CeilDiv(p.M, sideA),
			kernel.CeilDiv(p.K, gemm.ScaleBlock))
		p.Layouts[gemm.ScaleB] = scalesOf(p.Layouts[gemm.ScaleB], kernel.CeilDiv(p.K, gemm.ScaleBlock),
			kernel.CeilDiv(p.N, sideB))
	}
	return p
}

// scalesOf returns the layout of a rows×cols part of block scales.
func scalesOf(l gemm.Layout, rows, cols int) gemm.Layout {
	if l.Trans {
		rows, cols = cols, rows
	}
	l.Rows, l.Cols = rows, cols
	return l
}

// sliceable reports whether C can hold the sums between slices of K, and whether multiplying the
// sums of each slice by alpha gives the same bits as multiplying the total.
func sliceable(p *gemm.Problem) bool {
	if p.Out() != p.Accum() || p.Beta != 0 || p.Epilogue.Gated || p.BlockScaled() {
		return false
	}
	return p.Out().Info().Integer || isPowerOfTwo(real(p.Alpha))
}

// assignBuffers completes steps, whose parts, tiles and loads are set. It assigns the buffers of
// each operand to tiles in rotation. A tile that is already in a buffer is not loaded again.
func (pl *Plan) assignBuffers(o order, steps []step, buffers int, words string) *schedule {
	s := &schedule{steps: steps, order: o, words: words}
	p := pl.host
	var held [matrices][]part // tiles in the buffers
	var count [matrices]int   // tiles that have been assigned a buffer
	for x := range matrices {
		held[x], s.sizes[x] = make([]part, buffers), make([]int, buffers)
	}
	var used [matrices]bool
	for o := range matrices {
		factor := o == gemm.A || o == gemm.B || o == gemm.Up
		used[o] = p.Uses(o) && (p.ReadsAB() || !factor)
	}
	for i := range steps {
		st := &steps[i]
		st.load[gemm.Up] = st.load[gemm.B]
		for x, tile := range st.tiles {
			if !used[x] {
				st.load[x] = part{}
				continue
			}
			at := slices.Index(held[x][:min(count[x], buffers)], tile)
			if at < 0 {
				at, st.begins[x] = count[x]%buffers, true
				count[x]++
				held[x][at] = tile
				s.sizes[x][at] = max(s.sizes[x][at], pl.layout(p.Layouts[x], tile).Bytes())
			} else if st.load[x] == tile {
				st.load[x] = part{}
			}
			st.buffers[x] = at
		}
		if p.Beta != 0 && st.depth.from == 0 {
			st.load[gemm.C] = st.parts()[gemm.C]
		}
		if st.store = st.depth.to == p.K; st.store && used[gemm.Residual] {
			st.load[gemm.Residual] = st.parts()[gemm.Residual]
		}
	}
	return s
}

// Memory returns the bytes of device memory that the schedule needs.
func (s *schedule) Memory() (n int) {
	for _, sizes := range s.sizes {
		for _, size := range sizes {
			n += size
		}
	}
	return n
}

// vectors returns the layouts of the operands that are copied whole, before the first step.
func (pl *Plan) vectors() map[gemm.Operand]gemm.Layout {
	all := map[gemm.Operand]gemm.Layout{}
	for o := matrices; o < gemm.Operands; o++ {
		if l := pl.host.Layout(o); l.Bytes() > 0 {
			all[o] = l
		}
	}
	return all
}

// whole returns the step that computes the whole product.
func (pl *Plan) whole() *step {
	s := &step{rows: span{0, pl.host.M}, cols: span{0, pl.host.N}, depth: span{0, pl.host.K}}
	s.tiles = s.parts()
	s.load[gemm.A], s.load[gemm.B] = s.tiles[gemm.A], s.tiles[gemm.B]
	return s
}

// once returns the order that sums each element with the whole K.
func (pl *Plan) once() order {
	return order{slices: []span{{0, pl.host.K}}, head: pl.host.M, byRows: true}
}

// wholly returns the schedule with a single step.
func (pl *Plan) wholly() *schedule {
	return pl.assignBuffers(pl.once(), []step{*pl.whole()}, 1, "in one step")
}

// overlapped returns a schedule that keeps all matrices on the device: the head of C slice by
// slice, then its last slice and the rest of C panel by panel. A slice of one operand times the
// head of the other is computed about as fast as the slice is copied, for products of any size, and
// the copies of C out start early.
func (pl *Plan) overlapped(o order, panels []span) *schedule {
	whole, last := pl.whole(), len(o.slices)-1
	// add appends a step, which loads the new part of the operand along the head and, if other is
	// set, of the other one.
	var steps []step
	add := func(along, depth span, other bool, concurrent bool) {
		st := step{rows: along, cols: whole.cols, depth: depth, tiles: whole.tiles, concurrent: concurrent}
		mine, theirs := gemm.A, gemm.B
		if !o.byRows {
			st.rows, st.cols = whole.rows, along
			mine, theirs = gemm.B, gemm.A
		}
		parts := st.parts()
		st.load[mine] = parts[mine]
		if other {
			st.load[theirs] = parts[theirs]
		}
		steps = append(steps, st)
	}
	for _, k := range o.slices[:last] {
		add(span{0, o.head}, k, true, false)
	}
	for i, p := range panels {
		depth := o.of(p)
		add(p, depth[len(depth)-1], i == 0, i%2 == 1)
	}
	side := "rows"
	if !o.byRows {
		side = "columns"
	}
	words := fmt.Sprintf("panels of %s %s", sizes(panels), side)
	if last > 0 {
		words = fmt.Sprintf("%d %s in slices of %s of K, %s", o.head, side, sizes(o.slices), words)
	}
	return pl.assignBuffers(o, steps, 1, words)
}

// of returns the slices of K of a panel of C, which is part of the head or of the rest.
func (o order) of(panel span) []span {
	if panel.from < o.head {
		return o.slices
	}
	return []span{{0, o.slices[len(o.slices)-1].to}}
}

// cut cuts a side of C into spans of each elements. No span crosses the end of the head.
func (o order) cut(n, each int, rows bool) []span {
	if rows != o.byRows || o.head >= n {
		return cutSpan(span{0, n}, each)
	}
	return append(cutSpan(span{0, o.head}, each), cutSpan(span{o.head, n}, each)...)
}

// sizes lists the lengths of spans: "1024, 2×512".
func sizes(spans []span) string {
	var list []string
	for i := 0; i < len(spans); {
		n, same := spans[i].n(), 1
		for i+same < len(spans) && spans[i+same].n() == n {
			same++
		}
		if same > 1 {
			list = append(list, fmt.Sprintf("%d×%d", same, n))
		} else {
			list = append(list, fmt.Sprint(n))
		}
		i += same
	}
	return strings.Join(list, ", ")
}

// streamed returns a schedule for less memory: C tile by tile, with two buffers per operand, one
// for the kernel and one for the copies.
func (pl *Plan) streamed(o order, rows, cols int) *schedule {
	var steps []step
	for _, r := range o.cut(pl.host.M, rows, true) {
		for _, c := range o.cut(pl.host.N, cols, false) {
			along := r
			if !o.byRows {
				along = c
			}
			for _, k := range o.of(along) {
				st := step{rows: r, cols: c, depth: k}
				st.tiles = st.parts()
				st.load[gemm.A], st.load[gemm.B] = st.tiles[gemm.A], st.tiles[gemm.B]
				steps = append(steps, st)
			}
		}
	}
	words := fmt.Sprintf("streamed, C in tiles of %d×%d", rows, cols)
	if len(o.slices) > 1 {
		words += ", K in slices of " + sizes(o.slices)
	}
	return pl.assignBuffers(o, steps, 2, words)
}

// cutSpan cuts a span into spans of each elements. The last one may be shorter.
func cutSpan(s span, each int) []span {
	var all []span
	for at := s.from; at < s.to; at += each {
		all = append(all, span{at, min(at+each, s.to)})
	}
	return all
}

// Smaller returns a schedule that sums in the same order as s and needs less than n bytes of device
// memory, or nil if there is none.
func (pl *Plan) Smaller(s *schedule, n int) *schedule {
	p := pl.host
	unitRows, unitCols := pl.units()
	rows, cols := kernel.RoundUp(p.M, unitRows), kernel.RoundUp(p.N, unitCols)
	const most = 1 << 16 // steps; no host has memory for a product that needs more
	for {
		if kernel.CeilDiv(p.M, rows)*kernel.CeilDiv(p.N, cols) > most/len(s.order.slices) {
			return nil
		}
		if s := pl.streamed(s.order, rows, cols); s.Memory() < n {
			return s
		}
		switch {
		case rows <= unitRows && cols <= unitCols:
			return nil
		case rows >= cols && rows > unitRows || cols <= unitCols:
			rows = kernel.RoundUp(rows/2, unitRows)
		default:
			cols = kernel.RoundUp(cols/2, unitCols)
		}
	}
}

// units returns the units of the sides of panels: whole tiles of the kernel and whole vectors,
// because panels are adjacent on the device, or whole blocks that share a scale.
func (pl *Plan) units() (rows, cols int) {
	rows, cols = pl.Config.Tile.SizeInC()
	unit := kernel.MaxVectorBytes
	if pl.host.BlockScaled() {
		unit = gemm.ScaleBlock
	}
	for _, n := range []*int{&rows, &cols} {
		for *n%unit != 0 {
			*n *= 2
		}
	}
	return rows, cols
}
