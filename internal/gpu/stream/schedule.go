package stream

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/program"
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
	// packs reports whether the buffers hold operands as the kernel reads them. An operand that a
	// launch packs first arrives in another buffer, of raw bytes.
	packs   bool
	raw     [matrices]int
	ahead   bool   // reports whether copies in run ahead of the kernels that are enqueued
	scratch int    // bytes of scratch memory of a step
	vectors int    // bytes of the operands that are copied whole
	words   string // description
	// program is the program of the schedule on its device alone. Several devices that share loads
	// run another one.
	program *program.Program
}

// order is the order in which the terms of C are summed. A head of C, some of its rows or columns,
// is summed slice by slice of K, and the rest with the whole K. The order depends on the product
// and the kind of device only: a lack of memory changes the panels, but no bit of the result.
type order struct {
	slices []program.Span
	head   int // rows or columns of the head
	byRows bool
}

// step computes a part of C, or adds the terms of a slice of K to it.
type step struct {
	rows, cols, depth program.Span
	// tiles are the parts of the operands in the buffers, which contain those that the step reads. The
	// tile of C stays until all of its steps are done.
	tiles   [matrices]program.Rect
	load    [matrices]program.Rect // parts copied in before the step; for C, its old values
	buffers [matrices]int          // indices of the buffers of the tiles
	begins  [matrices]bool         // reports whether the step is the first one with its tile
	store   bool                   // reports whether the step's part of C is copied out after it
	// concurrent reports whether the step may overlap the previous one, whose last blocks leave SMs
	// idle.
	concurrent bool
}

// matrices counts the operands that are copied in panels, the first of the list. The others are
// copied whole.
const matrices = gemm.Up + 1

// parts returns the parts of the operands that the step reads, and of C that it writes.
func (s *step) parts() [matrices]program.Rect {
	a, b, c := s.rows.By(s.depth), s.depth.By(s.cols), s.rows.By(s.cols)
	return [...]program.Rect{gemm.A: a, gemm.B: b, gemm.C: c, gemm.Residual: c, gemm.Up: b}
}

// layout returns the layout of a part of a matrix that is stored by itself on the device.
func (pl *Plan) layout(l gemm.Layout, p program.Rect) gemm.Layout {
	if l.Trans {
		p.Rows, p.Cols = p.Cols, p.Rows
	}
	l.Rows, l.Cols = p.Rows.Len(), p.Cols.Len()
	if !pl.keepLayout {
		l = gemm.Padded(l)
	}
	return l
}

// packsOnArrival reports whether the schedule of blocks packs operands when they arrive. A gated
// product packs them for each of its two launches.
func (pl *Plan) packsOnArrival() bool {
	_, packed := pl.Packed()
	return packed.Any() && !pl.host.Epilogue.Gated
}

// held returns the layout of a band of A, B or Up on the device in the schedule of blocks: packed
// if the kernel needs it packed.
func (pl *Plan) held(x gemm.Operand, tile program.Rect) gemm.Layout {
	l := pl.layout(pl.host.Layouts[x], tile)
	if x != gemm.A && x != gemm.B && x != gemm.Up || !pl.packsOnArrival() {
		return l
	}
	st := pl.whole()
	if x == gemm.A {
		st.rows = tile.Rows
	} else {
		st.cols = tile.Cols
	}
	st.tiles = st.parts()
	packed, _ := pl.Part(pl.problem(st), 0, 0).Packed()
	return packed.Problem().Layouts[x]
}

// wholeRows returns the bytes of a matrix with the padding of its last row, which packing writes.
func wholeRows(l gemm.Layout) int { return l.Type.Bytes(l.Rows * l.LD) }

// problem returns the problem that a step computes. With several slices of K, the first step
// overwrites C with its sums, the others add theirs, and the last applies alpha and the epilogue;
// see sliceable.
func (pl *Plan) problem(s *step) gemm.Problem {
	p := *pl.host
	parts := s.parts()
	p.M, p.N, p.K = s.rows.Len(), s.cols.Len(), s.depth.Len()
	first, last := s.depth.From == 0, s.depth.To == pl.host.K
	if !last {
		p.Alpha, p.Epilogue, p.Layouts[gemm.Residual] = 1, p.Epilogue.Zeros(), gemm.Layout{}
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
		p.Layouts[gemm.ScaleA] = scalesOf(p.Layouts[gemm.ScaleA], ints.CeilDiv(p.M, sideA),
			ints.CeilDiv(p.K, gemm.ScaleBlock))
		p.Layouts[gemm.ScaleB] = scalesOf(p.Layouts[gemm.ScaleB], ints.CeilDiv(p.K, gemm.ScaleBlock),
			ints.CeilDiv(p.N, sideB))
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
// sums of each slice by alpha gives the same bits as multiplying the total: if alpha is a power of
// two with which no slice overflows. The slices depend on the number of rows, so sums of
// row-invariant products are not sliced unless they are exact.
func sliceable(p *gemm.Problem) bool {
	if p.Out() != p.Accum() || p.Beta != 0 || p.Epilogue.Gated || p.BlockScaled() {
		return false
	}
	alpha := real(p.Alpha)
	return p.Out().Info().Integer || isPowerOfTwo(alpha) && math.Abs(alpha) <= 1 && !p.Ordered()
}

// assignBuffers completes steps, whose parts, tiles and loads are set. The tiles of operand x take
// turns in count[x] buffers. A tile stays in its buffer until as many others have followed it.
func (pl *Plan) assignBuffers(o order, steps []step, count [matrices]int, packs bool, words string) *schedule {
	s := &schedule{steps: steps, order: o, packs: packs, words: words}
	p := pl.host
	var held [matrices][]program.Rect // tiles in the buffers
	var begun [matrices]int           // tiles that have been assigned a buffer
	var used [matrices]bool
	for x := range matrices {
		held[x], s.sizes[x] = make([]program.Rect, count[x]), make([]int, count[x])
		factor := x == gemm.A || x == gemm.B || x == gemm.Up
		used[x] = p.Uses(x) && (p.ReadsAB() || !factor)
	}
	measured := map[[3]int]bool{} // sizes of steps whose scratch memory is known
	type band struct {
		x          gemm.Operand
		rows, cols int
	}
	packed := map[band]gemm.Layout{}
	for i := range steps {
		st := &steps[i]
		st.load[gemm.Up] = st.load[gemm.B]
		for x, tile := range st.tiles {
			if !used[x] {
				st.load[x] = program.Rect{}
				continue
			}
			at := slices.Index(held[x][:min(begun[x], count[x])], tile)
			if at < 0 {
				at, st.begins[x] = begun[x]%count[x], true
				begun[x]++
				held[x][at] = tile
				l := pl.layout(p.Layouts[x], tile)
				bytes := l.Bytes()
				if packs {
					key := band{gemm.Operand(x), tile.Rows.Len(), tile.Cols.Len()}
					if _, known := packed[key]; !known {
						packed[key] = pl.held(key.x, tile)
					}
					if packed[key] != l {
						s.raw[x], bytes = max(s.raw[x], bytes), wholeRows(packed[key])
					}
				}
				s.sizes[x][at] = max(s.sizes[x][at], bytes)
			}
			st.buffers[x] = at
		}
		if p.Beta != 0 && st.depth.From == 0 {
			st.load[gemm.C] = st.parts()[gemm.C]
		}
		if st.store = st.depth.To == p.K; st.store && used[gemm.Residual] {
			st.load[gemm.Residual] = st.parts()[gemm.Residual]
		}
		if size := [...]int{st.rows.Len(), st.cols.Len(), st.depth.Len()}; !measured[size] {
			measured[size] = true
			s.scratch = max(s.scratch, pl.step(st, packs).ScratchBytes())
		}
	}
	// A part may need scratch memory although the whole product does not: its rows are shorter. The
	// memory belongs to a single stream.
	for i := range steps {
		steps[i].concurrent = steps[i].concurrent && s.scratch == 0
	}
	for _, l := range pl.vectors {
		s.vectors += l.Bytes()
	}
	x := noExchange
	if pl.rates().peer > 0 && pl.exchangeable(s) {
		x = predicted
	}
	s.program = write([]*Plan{pl}, []*schedule{s}, x)
	return s
}

// Memory returns the bytes of device memory that the schedule needs.
func (s *schedule) Memory() int {
	n := s.scratch + s.vectors
	for x, sizes := range s.sizes {
		n += s.raw[x]
		for _, size := range sizes {
			n += size
		}
	}
	return n
}

// bytes returns the bytes of a part of an operand on the host.
func (pl *Plan) bytes(x gemm.Operand, p program.Rect) float64 {
	return float64(p.Rows.Len()) * float64(p.Cols.Len()) * float64(pl.host.Layouts[x].Type.Bits()) / 8
}

// single returns the counts of buffers of a schedule that keeps all matrices on the device.
func single() (count [matrices]int) {
	for x := range count {
		count[x] = 1
	}
	return count
}

// vectors yields the layouts of the operands that are copied whole, before the first step.
func (pl *Plan) vectors(yield func(gemm.Operand, gemm.Layout) bool) {
	for o := matrices; o < gemm.Operands; o++ {
		if l := pl.host.Layout(o); l.Bytes() > 0 && !yield(o, l) {
			return
		}
	}
}

// whole returns the step that computes the whole area of the plan.
func (pl *Plan) whole() *step {
	s := &step{rows: pl.rows, cols: pl.cols, depth: program.First(pl.host.K)}
	s.tiles = s.parts()
	s.load[gemm.A], s.load[gemm.B] = s.tiles[gemm.A], s.tiles[gemm.B]
	return s
}

// once returns the order that sums each element with the whole K.
func (pl *Plan) once() order {
	return order{slices: []program.Span{program.First(pl.host.K)}, head: pl.host.M, byRows: true}
}

// wholly returns the schedule with a single step.
func (pl *Plan) wholly() *schedule {
	return pl.assignBuffers(pl.once(), []step{*pl.whole()}, single(), false, "in one step")
}

// overlapped returns a schedule that keeps all matrices on the device: the head of C slice by
// slice, then its last slice and the rest of C panel by panel. A slice of one operand times the
// head of the other is computed about as fast as the slice is copied, for products of any size, and
// the copies of C out start early.
func (pl *Plan) overlapped(o order, panels []program.Span) *schedule {
	whole, last := pl.whole(), len(o.slices)-1
	// add appends a step, which loads the new part of the operand along the head and, if other is
	// set, of the other one.
	var steps []step
	add := func(along, depth program.Span, other bool, concurrent bool) {
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
		add(program.First(o.head), k, true, false)
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
	return pl.assignBuffers(o, steps, single(), false, words)
}

// of returns the slices of K of a panel of C, which is part of the head or of the rest.
func (o order) of(panel program.Span) []program.Span {
	if panel.From < o.head {
		return o.slices
	}
	return []program.Span{program.First(o.slices[len(o.slices)-1].To)}
}

// cut cuts a part of a side of C into spans of each elements. No span crosses the end of the head.
func (o order) cut(s program.Span, each int, rows bool) []program.Span {
	if rows != o.byRows || o.head <= s.From || o.head >= s.To {
		return s.Cut(each)
	}
	return append(program.Range(s.From, o.head).Cut(each), program.Range(o.head, s.To).Cut(each)...)
}

// sizes lists the lengths of spans: "1024, 2×512".
func sizes(spans []program.Span) string {
	var list []string
	for i := 0; i < len(spans); {
		n, same := spans[i].Len(), 1
		for i+same < len(spans) && spans[i+same].Len() == n {
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

// Smaller returns the fastest schedule that sums in the same order as s and needs at most n bytes
// of device memory, or nil if there is none.
func (pl *Plan) Smaller(s *schedule, n int) *schedule {
	less, _ := pl.fit(s.order, n, pl.rates())
	return less
}

// units returns the units of the sides of panels: whole tiles of the kernel and multiples of grain.
func (pl *Plan) units() (rows, cols int) { return pl.Units(pl.grain()) }

// grain returns the number that the sides of panels and blocks are multiples of: a whole vector,
// because panels are adjacent on the device, or the side of a block that shares a scale.
func (pl *Plan) grain() int {
	if pl.host.BlockScaled() {
		return gemm.ScaleBlock
	}
	return kernel.MaxVectorBytes
}
