package gpu

import (
	"fmt"
	"strings"

	"tilework/internal/gemm"
)

// schedule is the order in which a product of matrices on the host is computed: the
// steps follow each other on the device while what later ones need comes in and what
// earlier ones made goes out.
//
// Two cuts make steps. Slices of K need little of A and B to begin with, and all of C
// until the last of them; panels of C need all of K, and leave when they are done. Which
// slices there are decides in what order an element is summed up, and is a matter of the
// product and the kind of device alone: memory that is short changes panels, never bits.
type schedule struct {
	steps []step
	// sizes are the bytes of the buffers that parts of A, B and C take in turn, and of
	// those for the residual, which are C's companions.
	sizes [4][]int
	words string
}

// step computes a part of C, or adds the terms of a slice of K to it.
type step struct {
	rows, cols, depth span
	// tile is the part of C that stays on the device until all of its steps are done.
	tile    part
	buffers [3]int  // of A, B and C
	load    [3]bool // whether the part comes in before the step; of C, its old values
	store   bool    // whether the step's part of C goes out after it
	begins  bool    // whether the step is the first of its tile
	// beside says that the step is computed beside the one before it, whose last blocks
	// leave processors idle.
	beside bool
}

// span is a range of rows, columns or terms.
type span struct{ from, to int }

func (s span) n() int { return s.to - s.from }

// part is a part of op(A), op(B) or C.
type part struct{ rows, cols span }

// The operands, as indices.
const (
	inA = iota
	inB
	inC
	inD // the residual
)

// parts are the parts of A and B that the step reads, and of C that it writes.
func (s *step) parts() [3]part {
	return [3]part{{s.rows, s.depth}, {s.depth, s.cols}, {s.rows, s.cols}}
}

// layout is how a part of a matrix lies when it stands alone on the device.
func (pl *Plan) layout(l gemm.Layout, p part) gemm.Layout {
	if l.Trans {
		p.rows, p.cols = p.cols, p.rows
	}
	l.Rows, l.Cols = p.rows.n(), p.cols.n()
	if !pl.keepLayout {
		l = Padded(l)
	}
	return l
}

// problem is what a step computes. Of several slices of K the first overwrites C with
// its sums, the others add theirs, and the last does for the whole what is asked for; see
// sliceable.
func (pl *Plan) problem(s *step) gemm.Problem {
	p := *pl.host
	parts := s.parts()
	p.M, p.N, p.K = s.rows.n(), s.cols.n(), s.depth.n()
	p.A, p.B = pl.layout(p.A, parts[inA]), pl.layout(p.B, parts[inB])
	ld := pl.layout(p.C, s.tile).LD
	p.C = pl.layout(p.C, parts[inC])
	p.C.LD = ld
	first, last := s.depth.from == 0, s.depth.to == pl.host.K
	switch {
	case !last:
		p.Alpha, p.Epilogue, p.Residual = 1, gemm.Epilogue{}, gemm.Layout{}
	case p.Epilogue.Residual:
		ld := pl.layout(p.Residual, s.tile).LD
		p.Residual = pl.layout(p.Residual, parts[inC])
		p.Residual.LD = ld
	}
	if !first {
		p.Beta = p.Alpha
	}
	return p
}

// sliceable says that sums may rest in C between slices of K, and that multiplying each
// slice's sums by alpha is exact, or wraps, as multiplying all of them is.
func sliceable(p *gemm.Problem) bool {
	if p.C.Type != p.Accum() || p.Beta != 0 {
		return false
	}
	return p.C.Type.Info().Integer || isPowerOfTwo(p.Alpha)
}

// lay completes steps that have their rows, columns, depth and tile: it gives their parts
// the buffers, so many for each operand, in turn, and notes what comes in and goes out.
func (pl *Plan) lay(steps []step, buffers [3]int, words string) *schedule {
	s := &schedule{steps: steps, words: words}
	p := pl.host
	var held [3][]part // by the buffers
	var count [3]int   // of parts that have had one
	for x, n := range buffers {
		held[x], s.sizes[x] = make([]part, n), make([]int, n)
	}
	layouts := [3]gemm.Layout{p.A, p.B, p.C}
	for i := range steps {
		st := &steps[i]
		whole := st.parts()
		whole[inC] = st.tile
		for x, w := range whole {
			if x != inC && !p.ReadsAB() {
				continue
			}
			at := -1
			for j, h := range held[x][:min(count[x], buffers[x])] {
				if h == w {
					at = j
				}
			}
			fresh := at < 0
			if fresh {
				at = count[x] % buffers[x]
				count[x]++
				held[x][at] = w
				s.sizes[x][at] = max(s.sizes[x][at], pl.layout(layouts[x], w).Bytes())
			}
			st.buffers[x] = at
			if x == inC {
				st.begins = fresh
			} else {
				st.load[x] = fresh
			}
		}
		st.load[inC] = p.Beta != 0 && st.depth.from == 0
		st.store = st.depth.to == p.K
	}
	if p.Epilogue.Residual {
		s.sizes[inD] = make([]int, len(s.sizes[inC]))
		for i := range steps {
			at := steps[i].buffers[inC]
			s.sizes[inD][at] = max(s.sizes[inD][at], pl.layout(p.Residual, steps[i].tile).Bytes())
		}
	}
	return s
}

// memory is what the schedule takes on the device, in bytes.
func (s *schedule) memory() (n int) {
	for _, sizes := range s.sizes {
		for _, size := range sizes {
			n += size
		}
	}
	return n
}

func (pl *Plan) biasBytes() int { return pl.host.BiasLen() * pl.host.C.Type.Size() }

// scales are the layouts of the scales that the epilogue reads, which come as a whole.
func (pl *Plan) scales() map[gemm.Extra]gemm.Layout {
	all := map[gemm.Extra]gemm.Layout{}
	for x := range gemm.Extra(gemm.Extras) {
		if x != gemm.Residual && pl.host.Epilogue.Has(x) {
			all[x] = pl.host.Extra(x)
		}
	}
	return all
}

func (pl *Plan) all() part { return part{span{0, pl.host.M}, span{0, pl.host.N}} }

// whole is the one step of a product that is computed at once.
func (pl *Plan) whole() *step {
	all := pl.all()
	return &step{rows: all.rows, cols: all.cols, depth: span{0, pl.host.K}, tile: all}
}

func (pl *Plan) wholly() *schedule {
	return pl.lay([]step{*pl.whole()}, [3]int{1, 1, 1}, "in one step")
}

// overlapped is a schedule that has all matrices on the device in the end: slices of all
// of C, and the last of them panel by panel.
func (pl *Plan) overlapped(slices, panels []span, byRows bool) *schedule {
	all := pl.all()
	last := len(slices) - 1
	var steps []step
	for _, k := range slices[:last] {
		steps = append(steps, step{rows: all.rows, cols: all.cols, depth: k, tile: all})
	}
	for i, p := range panels {
		st := step{rows: all.rows, cols: all.cols, depth: slices[last], tile: all, beside: i%2 == 1}
		if byRows {
			st.rows = p
		} else {
			st.cols = p
		}
		steps = append(steps, st)
	}
	buffers := [3]int{last + len(panels), last + 1, 1}
	side := "rows"
	if !byRows {
		side = "columns"
		buffers[inA], buffers[inB] = buffers[inB], buffers[inA]
	}
	words := fmt.Sprintf("panels of %s %s", sizes(panels), side)
	if last > 0 {
		words = fmt.Sprintf("slices of %s of K, then %s", sizes(slices[:last]), words)
	}
	return pl.lay(steps, buffers, words)
}

// sizes lists how long spans are: "1024, 2×512".
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

// streamed is a schedule for less memory: C tile by tile, with two buffers for each
// operand, one for what is computed with and one for what comes in or goes out.
func (pl *Plan) streamed(slices []span, rows, cols int) *schedule {
	var steps []step
	for _, r := range cutSpan(pl.host.M, rows) {
		for _, c := range cutSpan(pl.host.N, cols) {
			for _, k := range slices {
				steps = append(steps, step{rows: r, cols: c, depth: k, tile: part{r, c}})
			}
		}
	}
	words := fmt.Sprintf("streamed, C in tiles of %d×%d", rows, cols)
	if len(slices) > 1 {
		words += ", K in slices of " + sizes(slices)
	}
	return pl.lay(steps, [3]int{2, 2, 2}, words)
}

// cutSpan cuts n into spans of so many, the last perhaps smaller.
func cutSpan(n, each int) []span {
	var all []span
	for at := 0; at < n; at += each {
		all = append(all, span{at, min(at+each, n)})
	}
	return all
}

// slices are the cuts of K of the schedule's sums.
func (s *schedule) slices() []span {
	var all []span
	for _, st := range s.steps {
		if len(all) == 0 || st.depth.from == all[len(all)-1].to {
			all = append(all, st.depth)
		}
	}
	return all
}

// smaller is a schedule with the same slices of K that takes less memory than n bytes,
// nil if there is none.
func (pl *Plan) smaller(s *schedule, n int) *schedule {
	p, slices := pl.host, s.slices()
	unitRows, unitCols := pl.units()
	rows, cols := roundUp(p.M, unitRows), roundUp(p.N, unitCols)
	const most = 1 << 16 // steps; what takes more is beyond the memory of any host
	for {
		if ceilDiv(p.M, rows)*ceilDiv(p.N, cols) > most/len(slices) {
			return nil
		}
		if s := pl.streamed(slices, rows, cols); s.memory() < n {
			return s
		}
		switch {
		case rows <= unitRows && cols <= unitCols:
			return nil
		case rows >= cols && rows > unitRows || cols <= unitCols:
			rows = roundUp(rows/2, unitRows)
		default:
			cols = roundUp(cols/2, unitCols)
		}
	}
}

// units are what the sides of panels are multiples of: whole tiles of the kernel, and
// whole vectors, as panels of C stand side by side.
func (pl *Plan) units() (rows, cols int) {
	rows, cols = pl.Config.Shape.M, pl.Config.Shape.N
	for cols%maxVector != 0 {
		cols *= 2
	}
	return rows, cols
}

func roundUp(n, unit int) int { return ceilDiv(n, unit) * unit }
