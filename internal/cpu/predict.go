package cpu

import (
	"math"
	"math/bits"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// model predicts the time of one product on one thread, in nanoseconds. It follows the loops of the
// algorithms and adds up the time of the FMA units and the time in which the caches and memory
// deliver lines. The two overlap in part.
type model struct {
	*costs
	elem            float64 // bytes of an element
	lanes           float64 // elements of a vector
	mr, nr          float64
	in              dtype.Type // of A and B
	m, n, k         float64
	a, b, c         float64 // bytes of the matrices
	all             float64 // of all three
	storing         float64 // time of storing a vector of C
	transA, alongKB bool    // whether rows of op(A) and columns of op(B) are stored across K and along K
	widened         float64 // elements that algorithms without tiles widen
	pagesA, pagesB  float64 // pages that a step of K of A or a row of B advances
	conflictA       bool    // whether rows of A evict each other; see conflictStride
	conflictB       bool
}

// predict returns the time of p by method w, or 0 if the costs of the micro-kernel are not known.
func (mk *microKernel[T]) predict(p *gemm.Problem, w method) float64 {
	if mk.costs == nil {
		return 0
	}
	if w.swapAB && w.isDirect() {
		q := transposed(p)
		x := mk.modelOf(&q)
		w.swapAB = false
		return mk.predictDirect(&x, &q, w) + x.swap + x.transposing(x.m, x.n) + x.far(2*x.c/lineBytes, x.all+x.c)
	}
	x := mk.modelOf(p)
	switch w.algorithm {
	case algoAxpy:
		return mk.predictAxpy(&x, w)
	case algoDot:
		return mk.predictDot(&x, w)
	case algoBlocked:
		return mk.predictBlocked(&x, p, w)
	case algoSplitK:
		piece := pieceOf(p, pieceDepth(p))
		pieces := float64(p.K) / float64(piece.K)
		return pieces*(mk.predict(&piece, mk.method(&piece))+x.swap) + x.swap
	default:
		return mk.predictDirect(&x, p, w)
	}
}

const lineBytes = cacheLine

func (mk *microKernel[T]) modelOf(p *gemm.Problem) model {
	size := float64(dtype.Of[T]().Size())
	x := model{costs: mk.costs(), elem: size, lanes: float64(mk.lanes()), mr: float64(mk.MR), nr: float64(mk.NR),
		in: p.In(), m: float64(p.M), n: float64(p.N), k: float64(p.K),
		transA: !alongK(p.Layouts[gemm.A]), alongKB: alongK(p.B().T()),
		conflictA: hasSetConflicts(p.Layouts[gemm.A]), conflictB: hasSetConflicts(p.Layouts[gemm.B])}
	x.a, x.b, x.c = touched(p.Layouts[gemm.A]), touched(p.Layouts[gemm.B]), touched(p.Layouts[gemm.C])
	x.all = x.a + x.b + x.c
	if x.storing = x.store; !startLines[T](p.C().LD) {
		x.storing *= 1 + x.torn*min(x.lanes*size/lineBytes, 1)
	}
	if p.In() != p.Accum() {
		x.widened = x.m*x.k + x.k*x.n
	}
	x.pagesA, x.pagesB = min(float64(p.A().LD)*size/pageBytes, 1), min(float64(p.B().LD)*size/pageBytes, 1)
	return x
}

// touched returns the bytes of the lines that hold the elements of a matrix.
func touched(l gemm.Layout) float64 {
	row := float64(l.Type.Bytes(l.Cols))
	if l.LD != l.Cols { // a row begins and ends within lines
		const part = 0.9 // of a line that is not used
		row = min(row+part*lineBytes, float64(l.Type.Bytes(l.LD)))
	}
	return row * float64(l.Rows)
}

// transposing returns the time of transposing m rows of the transposed C, eight elements of each at
// a time.
func (x *model) transposing(m, n float64) float64 {
	rest := math.Mod(n, 8)
	return m * (x.transpose*(n-rest) + x.element*rest)
}

// scattered returns the time to read lines of a matrix of the given size for the first time, in a
// short run for each step of a tile of h rows. The runs of k steps are at different places, on
// different pages if pages is 1. Beyond a few places hardware does not prefetch, and in a large
// matrix it does not hold the addresses of the pages. It then runs ahead by fewer steps the more
// rows a tile has. The tiles themselves prefetch the fetched part of the lines.
func (x *model) scattered(lines, k, steps, h, pages, bytes, fetched float64) float64 {
	missing := max(1-x.fetched*fetched, 0) * pages * beyond(k*pages, x.streams) * beyond(bytes, x.reach)
	return x.far(lines, x.all) + x.wait*steps*h*missing
}

// far returns the time to read lines of data that are read again after bytes of other data.
func (x *model) far(lines, bytes float64) float64 {
	return lines * (beyond(bytes, x.l1)*x.fromL2 + beyond(bytes, x.l2)*x.fromL3 + beyond(bytes, x.l3)*x.fromMemory)
}

// beyond returns the part of lines that a cache of the given size no longer holds after bytes of
// other data. A cache loses lines before it is full, and keeps some afterwards.
func beyond(bytes, size float64) float64 {
	const first, last = 0.6, 1.4
	return min(max((bytes/size-first)/(last-first), 0), 1)
}

// step returns the time of a step of K in a tile of h rows and v vectors.
func (x *model) step(h, v float64) float64 {
	return max(h*v*x.fma, (h+v)*x.load, x.latency)
}

// overlap combines the times of units that work side by side.
func (x *model) overlap(compute, memory float64) float64 {
	return max(compute, memory) + x.exposed*min(compute, memory)
}

// directLoops describes the loops of [direct]: passes blocks of k steps, each with panels of
// columns, each with tiles of h rows.
type directLoops struct {
	method
	passes, k, panels, tiles, h float64
	panel, lines                float64 // bytes of a panel of B in a pass, and lines of all panels
	ofA                         bool    // whether A is in strips
}

// predictDirect follows [direct].
func (mk *microKernel[T]) predictDirect(x *model, p *gemm.Problem, w method) float64 {
	if w.algorithm == algoRows {
		return mk.predictRows(x, p, w)
	}
	l := directLoops{method: w, tiles: math.Ceil(x.m / float64(len(mk.Direct))), panels: math.Ceil(x.n / x.nr)}
	l.h = x.m / l.tiles
	depth := float64(mk.kc)
	if w.algorithm == algoStrips {
		depth, l.ofA = float64(depthOfStrips(min(p.M, p.N))), stripsOfA(p)
	}
	l.passes = math.Ceil(x.k / depth)
	l.k = x.k / l.passes
	columns := min(x.n, x.nr)
	l.panel, l.lines = l.k*columns*x.elem, x.k*l.panels*(columns*x.elem/lineBytes+x.ragged)
	if x.conflictB && w.algorithm == algoDirect && !w.packsB {
		l.panel = l.k * pageBytes
	}

	edge := float64(mk.edgeColumns(p))
	calls := l.passes * l.panels * l.tiles
	if mk.usesColumns(p, w) {
		calls = l.passes * l.panels * math.Ceil(l.tiles/max(min(l.tiles, columnSteps/l.k), 1))
	}
	start, compute := x.direct, x.multiplyDirect(&l, edge)+mk.predictEdge(x, w.algorithm, edge)+x.call*calls
	if mk.usesNarrow(p, w) {
		compute = x.m*(x.k*max(x.load, x.fma)+x.storing) + x.call
	}
	memory, between := x.readB(&l)+x.readA(&l), x.all
	switch {
	case w.packsB:
		start += x.packs
		compute += x.packing(x.k, x.n, x.nr, x.alongKB)
	case w.algorithm == algoCopy:
		compute += x.copies * x.b / lineBytes
	}
	switch {
	case l.ofA:
		between = stripBytes
	case w.algorithm == algoStrips:
		between = (x.m + l.k) * min(x.n, stripCols) * x.elem
	}
	return start + x.overlap(compute, memory+x.inTiles*(x.writing(1, x.all)+x.writing(l.passes-1, between)))
}

// predictEdge follows [direct.computeEdge].
func (mk *microKernel[T]) predictEdge(x *model, algorithm algorithm, edge float64) float64 {
	if edge == 0 {
		return 0
	}
	if x.transA { // tiles of the transposed product; see [direct.computeEdgeAlongA]
		vectors := math.Ceil(min(x.m, x.nr) / x.lanes)
		step := x.step(edge, vectors)
		if algorithm == algoDeep && int(edge) <= len(mk.Deep) {
			step = max(edge*vectors*x.fma, (edge+vectors)*x.load)
		}
		return math.Ceil(x.m/x.nr)*(x.k*step+x.call) + x.element*x.m*edge
	}
	reduce := x.reduce
	if mk.dotsTall(int(x.m), int(edge), int(x.k)) {
		reduce = x.reduceTall
	}
	time := x.m*edge*(math.Ceil(x.k/x.lanes)*x.dots*max(x.fma, x.load)+reduce) + x.call*math.Ceil(x.m/x.nr)
	if !x.alongKB {
		time += x.element * edge * x.k
	}
	return time
}

// multiplyDirect returns the time in which the FMA units compute all tiles, which leave out the
// last edge columns.
func (x *model) multiplyDirect(l *directLoops, edge float64) float64 {
	tile := func(vectors, half float64) float64 {
		step := max(l.h*(vectors+half*x.half)*x.fma, (l.h+vectors+half)*x.load)
		if vectors+half == 1 { // elements of A are not broadcast
			step = max(l.h*x.fma, (l.h*x.embedded+1)*x.load)
		}
		if vectors == 0 { // elements of A are loaded to half a vector too
			step *= x.half
		}
		if l.algorithm != algoDeep { // else no step waits for the one before it
			step = max(step, x.latency)
		}
		return l.k*step + l.h*(vectors+half)*x.storing + x.tile
	}
	compute := (l.panels - 1) * tile(2, 0)
	if rest := x.n - (l.panels-1)*x.nr - edge; rest > 0 {
		compute += tile(x.vectors(rest))
	}
	compute *= l.passes * l.tiles
	if l.algorithm == algoDeep {
		compute += l.h * 2 * x.reduce
	}
	return compute
}

// vectors returns the number of whole vectors and of halves of a vector in a row of a tile.
func (x *model) vectors(columns float64) (whole, half float64) {
	halves := math.Ceil(2 * columns / x.lanes)
	half = math.Mod(halves, 2)
	return (halves - half) / 2, half
}

// readB returns the time to read B: all of it once, then a panel for each further tile.
func (x *model) readB(l *directLoops) float64 {
	lines := x.b / lineBytes
	again := (l.tiles-1)*x.far(l.lines, l.panel+l.h*l.k*x.elem) + x.far(l.lines-lines, l.panel)
	missed := x.tlb * x.k * l.panels * beyond(l.k*x.pagesB, x.entries) * x.pagesB // pages of a tile
	fetched := lineBytes / asm.DirectAhead / (min(x.n, x.nr) * x.elem)            // of a panel, by a tile
	switch {
	case l.packsB && l.algorithm == algoStream: // packed, then read from end to end by each tile
		return x.far(lines, x.b) + x.far(lines, x.all) + (l.tiles-1)*x.far(l.lines, x.b)
	case l.packsB && (x.k > smallK || l.tiles <= 2*smallKTiles): // each panel is packed when it is needed
		return x.far(lines, x.all) + l.tiles*x.far(l.lines, l.panel+l.h*l.k*x.elem)
	case l.packsB: // packed, then read
		return x.far(lines, x.b) + x.far(lines, x.all) + again
	case l.algorithm == algoCopy: // the first tile does not prefetch
		return x.scattered(lines, l.k, x.k*l.panels, l.h, x.pagesB, x.b, (l.tiles-1)*fetched) + missed + again
	case l.algorithm == algoStrips && !l.ofA:
		time := x.far(lines, x.all) + (l.tiles-1)*x.far(lines, stripCols*l.k*x.elem)
		if x.conflictB {
			time += x.conflict * lines * l.tiles
		}
		return time
	case l.algorithm == algoStream:
		return l.tiles * x.far(l.lines, x.b)
	}
	return x.scattered(lines, l.k, x.k*l.panels, l.h, x.pagesB, x.b, l.tiles*fetched) + l.tiles*missed + again
}

// readA returns the time to read A: all of it once, then again for each further panel.
func (x *model) readA(l *directLoops) float64 {
	lines, between := x.a/lineBytes, x.m*l.k*x.elem+l.panel
	switch {
	case l.ofA:
		between = stripBytes
	case l.algorithm == algoStream || l.algorithm == algoStrips:
		between = l.h * x.k * x.elem
	}
	first, missed := x.far(lines, x.all), 0.0
	switch {
	case x.transA:
		lines = x.k * l.tiles * (l.h*x.elem/lineBytes + x.ragged)
		missed = x.tlb * x.k * l.panels * l.tiles * beyond(l.k*x.pagesA, x.entries) * x.pagesA
		steps := x.k * l.tiles * min(l.h*x.elem/lineBytes, 1) // that read another line than the tile above
		first = x.scattered(x.a/lineBytes, l.k, steps, l.h, x.pagesA, x.a, 0)
	case x.conflictA:
		between = max(between, l.h*pageBytes)
		missed = x.conflict * lines * l.panels
	}
	if l.algorithm == algoStream {
		first *= x.late
	}
	return first + missed + (l.panels-1)*x.far(lines, between)
}

// writing returns the time of reading and writing C in the given number of passes, each after bytes
// of other data.
func (x *model) writing(passes, bytes float64) float64 {
	return x.written * passes * x.far(x.c/lineBytes, bytes)
}

// packing returns the time of packing an operand of rows x along K, into panels of r.
func (x *model) packing(k, n, r float64, alongK bool) float64 {
	words := k * n * x.elem / 4
	panels := math.Ceil(n / r)
	switch {
	case alongK && n < 8: // too few to transpose in vectors
		return x.element * k * n
	case alongK:
		return x.zip*words + x.zipCall*panels*math.Ceil(r/8)
	}
	return x.copyRow*k*panels + x.copyWord*words + x.zipCall*panels
}

// predictRows follows [direct.computeRows].
func (mk *microKernel[T]) predictRows(x *model, p *gemm.Problem, w method) float64 {
	rows, steps := float64(int(1)<<(len(mk.Update)-1)), 0.0
	writing := x.inRows * x.writing(1, x.all)
	nonTemporal := mk.passesCache(p, algoRows)
	single := nonTemporal || mk.usesAlignedRows(p, w) // a row and all of K at a time
	switch {
	case nonTemporal:
		rows, writing = 1, x.stream*x.c/lineBytes
	case single:
		rows, writing = 1, x.aligned*x.writing(1, x.all)
	}
	start, perRows := x.direct, 0.0
	most := float64(int(1) << (len(mk.Update[bits.Len(uint(rows))-1]) - 1)) // steps of a pass
	for left := x.k; left > 0; left -= steps {
		if steps = x.k; !single {
			steps = min(float64(int(1)<<(bits.Len(uint(left))-1)), most)
		}
		perRows += x.updates(min(rows, x.m), steps, x.n) + x.call + x.broadcast*rows*steps
		if !single {
			perRows += min(rows, x.m) * math.Ceil(x.n/x.lanes) * (x.storing - x.store)
		}
	}
	compute := x.rows * math.Ceil(x.m/rows) * perRows
	memory := x.far(x.a/lineBytes, x.all) + x.far(x.b/lineBytes, x.all) +
		(math.Ceil(x.m/rows)-1)*x.far(x.b/lineBytes, x.b+rows*x.n*x.elem)
	if w.packsB {
		start += x.packs
		compute += x.packing(x.k, x.n, x.n, x.alongKB)
	}
	return start + x.overlap(compute, memory+writing)
}

// updates returns the time in which an Update kernel adds steps of K to rows of n columns.
func (x *model) updates(rows, steps, n float64) float64 {
	return math.Ceil(n/x.lanes) * max(rows*steps*x.fma, (steps+rows)*x.load) * x.update
}

// predictAxpy follows [axpy].
func (mk *microKernel[T]) predictAxpy(x *model, w method) float64 {
	m, n, b, small := x.m, x.n, x.b, x.a
	if w.swapAB {
		m, n, b, small = x.n, x.m, x.a, x.b
	}
	if t := mk.axpyTiles(x.in, int(m), int(x.k)); t.kernels != nil {
		return mk.predictWideningTiles(x, &t, m, n, b, small)
	}
	most := float64(int(1) << (len(mk.Update) - 1))
	groups := math.Ceil(m / most)
	passes := math.Ceil(x.k / axpyDepth)
	depth := x.k / passes
	columns := min(axpyCBytes/(m*x.elem), n) // of a task
	if w.swapAB && m > 1 {
		columns = min(axpySums/m, n)
	}
	tasks := math.Ceil(n / columns)
	compute := passes*groups*(x.updates(m/groups, depth, n)+tasks*(x.call+x.broadcast*depth*m/groups)) + x.widen*x.widened
	piece := axpyDepth * columns * x.elem // bytes of B that each group of rows reads again
	memory := x.far(b/lineBytes, x.all) + (groups-1)*x.far(b/lineBytes, piece) + x.far(small/lineBytes, x.all)
	memory += x.written * (passes - 1) * x.far(x.c/lineBytes, m*columns*x.elem+piece)
	start := x.axpy
	if w.swapAB && m > 1 {
		compute += x.transposing(m, n)
		start += x.packs
	}
	return start + x.overlap(compute, memory+x.writing(1, x.all))
}

// predictWideningTiles follows [axpy.sumTiles] for m rows of the small operand and n columns of the
// large one, whose sizes are given in bytes.
func (mk *microKernel[T]) predictWideningTiles(x *model, t *wideningTiles[T], m, n, large, small float64) float64 {
	tiles, panels := math.Ceil(m/float64(t.height)), math.Ceil(n/x.nr)
	depth := float64(t.depth(int(m)))
	passes := math.Ceil(x.k / depth)
	step := max((m+tiles*x.widening)*2*x.fma, (m+2*tiles)*x.load, tiles*x.latency)
	compute := panels * (x.k*step + passes*(m*2*x.storing+tiles*(x.tile+x.call)))
	memory := x.far(large/lineBytes, x.all) + x.far(small/lineBytes, x.all) + x.inTiles*(x.writing(1, x.all)+
		x.writing(passes-1, (m+depth)*min(n, axpyWidenedCols)*x.elem))
	return x.axpy + x.overlap(compute, memory)
}

// predictDot follows [dots].
func (mk *microKernel[T]) predictDot(x *model, w method) float64 {
	l, s, large, small := x.n, x.m, x.b, x.a
	if w.swapAB {
		l, s, large, small = x.m, x.n, x.a, x.b
	}
	across := float64(mk.maxDotCols())
	groups := math.Ceil(s / across)
	h, reduce, row := float64(equalParts(int(l), asm.DotRows, 1)), x.reduce, float64(dotsRowBytes)
	widening, widened := 0.0, x.widened // FMAs for each vector of x, and elements that are widened first
	if mk.wideningDots(x.in, int(l), int(x.k)) != nil {
		h, widening, widened = asm.DotRows, x.widening, s*x.k
	}
	tiles := math.Ceil(l / h)
	calls := tiles * groups
	if s <= across && x.widened == 0 { // one call for several tiles; see [dots.inTiles]
		row, calls = dotsBytes/s, math.Ceil(l*s/workerSums)
		if mk.dotsTall(int(l), int(s), int(x.k)) {
			h, reduce = x.lanes, x.reduceTall
			tiles = math.Ceil(l / h)
		}
	}
	row = min(row, x.k*x.elem)
	passes := math.Ceil(x.k * x.elem / row)
	vectors := math.Ceil(x.k/x.lanes) * x.dots
	compute := tiles * groups * vectors * max(h*(s/groups+widening)*x.fma, (h+s/groups)*x.load)
	compute += passes*(calls*x.call+tiles*h*s*reduce) + x.widen*widened
	yAlongK := !x.transA
	if w.swapAB {
		yAlongK = x.alongKB
	}
	if !yAlongK {
		compute += x.element * s * x.k
	}
	between := (s + h) * row // bytes until y is read again
	memory := x.far(large/lineBytes, x.all) + tiles*x.far(small/lineBytes, between)
	memory += (groups - 1) * x.far(large/lineBytes, h*row)
	memory += x.writing(passes, x.all)
	return x.dot + max(compute, memory) + x.exposedDots*min(compute, memory)
}

// predictBlocked follows [blocked].
func (mk *microKernel[T]) predictBlocked(x *model, p *gemm.Problem, w method) float64 {
	steps := math.Ceil(x.k / float64(mk.Group))
	passes := math.Ceil(steps / float64(mk.kc))
	k := steps / passes
	tiles, panels := math.Ceil(x.m/x.mr), math.Ceil(x.n/x.nr)
	h := x.m / tiles
	blocks := math.Ceil(x.m / float64(mk.mc))
	compute := passes * panels * tiles * (k*x.step(h, 2) + h*2*x.storing + x.tile + x.call)
	padded := panels * x.nr * steps * x.elem
	panel := k * x.nr * x.elem
	lines := padded / lineBytes
	memory := (blocks - 1) * x.far(lines, padded/passes)
	if mk.canCopy(p) && x.m >= x.mr {
		rest := math.Mod(x.n, x.nr) // columns of the last panel, which tiles do not copy
		compute += x.copies*x.b/lineBytes*(1-rest/x.n) + x.packing(steps, rest, x.nr, false)
		memory += x.readB(&directLoops{method: method{algorithm: algoCopy}, passes: passes, k: k, panels: panels,
			tiles: tiles, h: h, panel: panel, lines: lines})
	} else {
		compute += x.packing(steps, x.n, x.nr, x.alongKB)
		memory += 2*x.far(lines, x.all) + (tiles-1)*x.far(lines, panel+h*k*x.elem) // packed, then read
	}
	linesA := x.a / lineBytes
	start := x.blocked + x.phase*2*passes
	if w.packsA {
		compute += x.packing(steps, x.m, x.mr, !x.transA)
		memory += 2*x.far(linesA, x.all) + (panels-1)*x.far(linesA, min(x.m, float64(mk.mc))*k*x.elem+panel)
	} else {
		memory += x.far(linesA, x.all) + (panels-1)*x.far(linesA, min(x.m, float64(mk.mc))*k*x.elem+panel)
		memory += x.tlb * tiles * h * panels * passes * beyond(min(x.m, float64(mk.mc))*x.pagesA, x.entries) * x.pagesA
		if x.conflictA {
			memory += x.conflict * linesA * panels
		}
	}
	return start + x.overlap(compute, memory+x.writing(passes, x.all))
}
