package stream

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
)

// blocking cuts a product into blocks of C, for a device that does not hold A, B and C at once. A
// block is a band of rows of A times a band of columns of B, both with the whole K.
type blocking struct {
	rows, cols int             // of a block
	held       [gemm.C + 1]int // bands of A and of B and blocks of C that the device holds
}

// side is the bands of A or of B during a walk over the blocks.
type side struct {
	bands []program.Span
	held  []int // bands on the device, the one loaded first in front
	most  int   // bands that the device holds
	left  []int // blocks of each band that are still to be computed
	gain  []int // of these, blocks whose other band is on the device
}

func newSide(bands []program.Span, most, others int) *side {
	s := &side{bands: bands, most: most, left: make([]int, len(bands)), gain: make([]int, len(bands))}
	for i := range s.left {
		s.left[i] = others
	}
	return s
}

// best returns the band whose load lets the most blocks be computed.
func (s *side) best() int {
	best := 0
	for i := range s.gain {
		if s.gain[i] > s.gain[best] || s.gain[i] == s.gain[best] && s.left[i] > s.left[best] {
			best = i
		}
	}
	return best
}

// hasRoom reports whether a load replaces no band that is still needed.
func (s *side) hasRoom() bool { return len(s.held) < s.most || s.left[s.held[0]] == 0 }

// walk visits every block of C once. It loads the bands one after the other, and visits all blocks
// of the bands on the device before it loads the next. The next band is the one that completes the
// most work per byte, so the walk begins in a corner of C and grows along both sides: few bytes
// arrive before all SMs are busy. Later it keeps the bands of one side and replaces those of the
// other. A band replaces the one of its side that was loaded first.
//
// visit is called with the row and the column of the block, and with whether the bands of A and of
// B were loaded for it.
func walk(a, b *side, visit func(row, col int, loadsA, loadsB bool)) {
	done := make([]bool, len(a.bands)*len(b.bands))
	at := func(s *side, mine, theirs int) *bool {
		if s == b {
			mine, theirs = theirs, mine
		}
		return &done[mine*len(b.bands)+theirs]
	}
	var loaded [2]bool
	load := func(s, other *side, band int) {
		change := func(band, by int) {
			for i := range other.gain {
				if !*at(s, band, i) {
					other.gain[i] += by
				}
			}
		}
		if len(s.held) == s.most {
			change(s.held[0], -1)
			s.held = s.held[1:]
		}
		s.held = append(s.held, band)
		change(band, 1)
		if s == a {
			loaded[0] = true
		} else {
			loaded[1] = true
		}
		for _, theirs := range other.held {
			if block := at(s, band, theirs); !*block {
				*block = true
				s.left[band]--
				s.gain[band]--
				other.left[theirs]--
				other.gain[theirs]--
				row, col := band, theirs
				if s == b {
					row, col = theirs, band
				}
				visit(row, col, loaded[0], loaded[1])
				loaded = [2]bool{}
			}
		}
	}
	rows, cols := a.bands[0].Len(), b.bands[0].Len()
	for {
		x, y := a.best(), b.best()
		switch gainA, gainB := a.gain[x]*cols*cols, b.gain[y]*rows*rows; {
		case gainA == 0 && gainB == 0:
			if a.left[x] == 0 {
				return
			}
			load(a, b, x)
		case gainB == 0, gainA > 0 && a.hasRoom() && !b.hasRoom(),
			gainA > gainB && a.hasRoom() == b.hasRoom():
			load(a, b, x)
		default:
			load(b, a, y)
		}
	}
}

// blocked returns a schedule of blocks of C. Operands that the kernel needs packed are packed when
// they arrive, once for all blocks of a band.
func (pl *Plan) blocked(o order, b blocking) *schedule {
	p := pl.host
	rows, cols := o.cut(pl.rows, b.rows, true), o.cut(pl.cols, b.cols, false)
	sideA, sideB := newSide(rows, b.held[gemm.A], len(cols)), newSide(cols, b.held[gemm.B], len(rows))
	packs := pl.packsOnArrival()
	steps := make([]step, 0, pl.steps(o, b.rows, b.cols))
	blocks := 0
	walk(sideA, sideB, func(i, j int, loadsA, loadsB bool) {
		along := rows[i]
		if !o.byRows {
			along = cols[j]
		}
		whole := step{rows: rows[i], cols: cols[j], depth: program.First(p.K)}
		for _, k := range o.of(along) {
			st := step{rows: rows[i], cols: cols[j], depth: k, tiles: whole.parts(),
				concurrent: blocks%2 == 1}
			if loadsA {
				st.load[gemm.A] = st.parts()[gemm.A]
			}
			if loadsB {
				st.load[gemm.B] = st.parts()[gemm.B]
			}
			steps = append(steps, st)
		}
		blocks++
	})
	held := [matrices]int{b.held[gemm.A], b.held[gemm.B], b.held[gemm.C], b.held[gemm.C], b.held[gemm.B]}
	words := fmt.Sprintf("blocks of C of %d×%d, with %d of %d bands of A and %d of %d bands of B at a time",
		b.rows, b.cols, b.held[gemm.A], len(rows), b.held[gemm.B], len(cols))
	if len(o.slices) > 1 {
		words += ", K in slices of " + sizes(o.slices)
	}
	s := pl.assignBuffers(o, steps, held, packs, words)
	s.ahead = true
	return s
}

const (
	// maxSteps is the number of steps that a schedule must not exceed. No host has memory for a
	// product that needs more.
	maxSteps = 1 << 18
	// maxSimulated bounds the steps of the candidates whose time is predicted by simulation, which
	// takes some microseconds for each step. These candidates are the fastest ones according to rough.
	maxSimulated = 1 << 15
)

// fit returns the fastest schedule of blocks in order o that fits into a number of bytes of device
// memory, or nil if there is none.
func (pl *Plan) fit(o order, memory int, r rates) (best *schedule, least program.Prediction) {
	unitRows, unitCols := pl.units()
	type candidate struct {
		blocking
		seconds float64
	}
	var all []candidate
	for _, rows := range halves(pl.rows.Len(), unitRows, pl.grain()) {
		for _, cols := range halves(pl.cols.Len(), unitCols, pl.grain()) {
			if pl.steps(o, rows, cols) > maxSteps {
				continue
			}
			for _, b := range pl.holdings(o, rows, cols, memory) {
				all = append(all, candidate{b, pl.rough(o, b, r)})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y candidate) int { return cmp.Compare(x.seconds, y.seconds) })
	count := 0
	for _, c := range all {
		if count > maxSimulated && best != nil {
			break
		}
		s := pl.blocked(o, c.blocking)
		count += len(s.steps)
		if s.Memory() > memory {
			continue
		}
		if e := pl.predict(s, r); best == nil || e.Total < least.Total {
			best, least = s, e
		}
	}
	return best, least
}

// rough estimates the time of a blocking in seconds. The copies in are, for each block, its share
// of a band of A or of B, whichever side is replaced more cheaply. They overlap with the kernels if
// another band of that side is on the device. The bands of the first block and the last block of C
// are copied while no kernel runs.
func (pl *Plan) rough(o order, b blocking, r rates) float64 {
	p := pl.host
	rows, cols := min(b.rows, pl.rows.Len()), min(b.cols, pl.cols.Len())
	blocks := float64(ints.CeilDiv(pl.rows.Len(), rows)) * float64(ints.CeilDiv(pl.cols.Len(), cols))
	parts := pl.block(rows, cols)
	bandA, bandB := pl.bytes(gemm.A, parts[gemm.A])/r.in, pl.bytes(gemm.B, parts[gemm.B])/r.in
	copied, replaced := blocks*bandB/float64(b.held[gemm.A]), b.held[gemm.B]
	if other := blocks * bandA / float64(b.held[gemm.B]); other < copied {
		copied, replaced = other, b.held[gemm.A]
	}
	shape := pl.Config.Tile
	tiles := float64(ints.CeilDiv(rows, shape.M)) * float64(ints.CeilDiv(cols, shape.N))
	waves := r.waves(tiles)
	if len(o.slices) > 1 { // each slice is a launch, and waits for the one before it
		waves = math.Ceil(waves) + drain
	}
	computed := blocks * waves * pl.wave(p.K, r)
	total := max(copied, computed)
	if replaced == 1 && blocks > 1 {
		total = copied + computed
	}
	return total + bandA + bandB + pl.bytes(gemm.C, parts[gemm.C])/r.out + blocks*r.step.Seconds()
}

// block returns the parts of the operands of a block of at most rows×cols.
func (pl *Plan) block(rows, cols int) [matrices]program.Rect {
	st := pl.whole()
	st.rows.To, st.cols.To = min(st.rows.From+rows, st.rows.To), min(st.cols.From+cols, st.cols.To)
	return st.parts()
}

// steps returns the number of steps of a schedule with blocks of rows×cols.
func (pl *Plan) steps(o order, rows, cols int) int {
	along, across := o.cut(pl.rows, rows, true), o.cut(pl.cols, cols, false)
	if !o.byRows {
		along, across = across, along
	}
	n := 0
	for _, band := range along {
		n += len(o.of(band)) * len(across)
	}
	return n
}

// halves returns n rounded up to units and its halves, down to grain. Halves below a unit are
// multiples of grain.
func halves(n, unit, grain int) (all []int) {
	for ; n > unit; n = ints.CeilDiv(n, 2) {
		all = append(all, ints.RoundUp(n, unit))
	}
	for ; n > grain; n = ints.CeilDiv(n, 2) {
		all = append(all, ints.RoundUp(n, grain))
	}
	return slices.Compact(append(all, grain))
}

// holdings returns the ways to divide memory among bands of A, bands of B and blocks of C.
func (pl *Plan) holdings(o order, rows, cols, memory int) (all []blocking) {
	p := pl.host
	parts := pl.block(rows, cols)
	size := func(x gemm.Operand) int {
		if !p.Uses(x) {
			return 0
		}
		return wholeRows(pl.held(x, parts[x]))
	}
	a, b, c := size(gemm.A), size(gemm.B)+size(gemm.Up), size(gemm.C)+size(gemm.Residual)
	mostA, mostB := len(o.cut(pl.rows, rows, true)), len(o.cut(pl.cols, cols, false))
	blocks := 3
	for blocks > 1 && blocks*c > memory/4 {
		blocks--
	}
	// The rest is exact only for blocks in which nothing else is on the device.
	rest := memory - blocks*c
	if pl.packsOnArrival() {
		for x := range gemm.C {
			rest -= pl.layout(p.Layouts[x], parts[x]).Bytes()
		}
	}
	add := func(nA, nB int) {
		nA, nB = min(nA, mostA), min(nB, mostB)
		x := blocking{rows, cols, [...]int{nA, nB, blocks}}
		if nA > 0 && nB > 0 && !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	square := rest / max(a+b, 1)
	nA := min(square, mostA)
	nB := min((rest-nA*a)/max(b, 1), mostB)
	add((rest-nB*b)/max(a, 1), nB)
	for _, ring := range []int{2, 1} {
		add(ring, (rest-ring*a)/max(b, 1))
		add((rest-ring*b)/max(a, 1), ring)
	}
	return all
}

// smallest returns the schedule in order o that needs the least memory.
func (pl *Plan) smallest(o order) *schedule {
	rows, cols := pl.grain(), pl.grain()
	for pl.steps(o, rows, cols) > maxSteps {
		if rows < cols {
			rows *= 2
		} else {
			cols *= 2
		}
	}
	return pl.blocked(o, blocking{rows, cols, [...]int{1, 1, 1}})
}
