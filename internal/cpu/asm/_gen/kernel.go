package main

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// minUnroll is the smallest number of steps of k in the main loop.
const minUnroll = 4

// generator writes the functions of one variant into one file.
type generator struct {
	*build.Context
	variant
	masks     operand.Mem
	constants map[uint64]operand.Mem
}

// body is a micro-kernel for tiles of one range of widths.
type body struct {
	name    string
	least   int  // columns; another body may serve more of them
	vectors int  // per row of the tile
	bytes   int  // of a vector in memory: fewer than a register has in a tile narrower than a register
	half    bool // whether the last vector takes half a register, which some CPUs multiply in half the time
	end     rowEnd
	sets    int // of sums, used by steps of k in turn; a power of two

	mask reg.Register // the elements of the last vector
	last reg.Register // the first column of the last vector
}

// rowEnd is the way in which the last vector of a row ends with column n.
type rowEnd int

const (
	exact       rowEnd = iota // the vectors have n elements
	masked                    // a mask selects elements of the last vector
	overlapping               // the last vector ends at column n and overlaps the one before
)

// bodiesByWidth returns the bodies for all n ≤ nr, the widest first. Rows of fewer than nr columns
// end as given. halves adds bodies whose last vector takes half a register.
func (v variant) bodiesByWidth(end rowEnd, halves bool) []body {
	bodies := []body{v.whole()}
	if end == masked {
		for n := 2; n > 0; n-- {
			b := body{name: [...]string{"narrow", "wide"}[n-1], least: (n-1)*v.lanes() + 1, vectors: n, bytes: v.vectorBytes,
				end: end, sets: 1}
			if halves {
				half := b
				half.name, half.half = b.name+"_half", true
				b.least += v.lanes() / 2
				bodies = append(bodies, b, half)
			} else {
				bodies = append(bodies, b)
			}
		}
		return bodies
	}
	for n := v.lanes(); n > 0; n /= 2 {
		if n > 1 {
			bodies = append(bodies,
				body{name: fmt.Sprintf("over%d", n), least: n + 1, vectors: 2, bytes: n * v.size, end: end, sets: 1})
		}
		bodies = append(bodies, body{name: fmt.Sprintf("only%d", n), least: n, vectors: 1, bytes: n * v.size, sets: 1})
	}
	return bodies
}

// hasHalves reports whether there are instructions for the lower halves of vectors.
func (v variant) hasHalves() bool { return v.vectorBytes == 64 && v.group == 1 }

// whole returns the body for a tile of nr columns.
func (v variant) whole() body {
	return body{name: "whole", least: v.nr, vectors: 2, bytes: v.vectorBytes, sets: 1}
}

// withSets returns b with enough sets of sums to hide the latency of the FMA in a tile of that many
// rows.
func (b body) withSets(rows int) body {
	b.sets = setsFor(rows * b.vectors)
	return b
}

// unroll returns the number of steps of k in b's main loop.
func (b body) unroll() int { return max(minUnroll, b.sets) }

// micro describes a micro-kernel.
type micro struct {
	rows      int
	open      func(rows int) operands
	end       rowEnd // of rows of fewer than nr columns
	deep      bool   // tiles have several sets of sums
	limitRows bool   // stores only the first m rows of C, instead of going on to the tile below
	// wholeVectors leaves out the bodies whose last vector takes half a register.
	wholeVectors bool
}

// micro writes a micro-kernel: a branch on n, then the bodies.
func (g *generator) micro(m micro) {
	bodies := g.bodiesByWidth(m.end, g.hasHalves() && !m.wholeVectors)
	n := g.param("n")
	for _, b := range bodies[:len(bodies)-1] {
		g.CMPQ(n, operand.I32(b.least))
		g.JGE(operand.LabelRef(b.name))
	}
	slices.Reverse(bodies) // the last one follows the branches
	for _, b := range bodies {
		if m.deep {
			b = b.withSets(m.rows)
		}
		g.Label(b.name)
		switch b.end {
		case masked:
			count := g.param("n")
			if b.vectors > 1 {
				g.SUBQ(operand.I32((b.vectors-1)*g.lanes()), count)
			}
			b.mask = g.mask(g, count)
		case overlapping:
			last := g.param("n")
			g.SUBQ(operand.I32(b.bytes/g.size), last)
			b.last = last
		}
		sums := g.sumOverK(b, m.open(m.rows), m.rows)
		g.updateC(b, sums, m.limitRows)
		if !m.limitRows {
			g.nextTile(b, m.rows)
		}
		g.VZEROUPPER()
		g.RET()
	}
}

// nextTile starts again with the tile below, if there is one. The parameters in the frame are the
// variables of this loop, because the registers are in use.
func (g *generator) nextTile(b body, rows int) {
	end := b.name + "_end"
	g.DECQ(g.address("tiles"))
	g.JZ(operand.LabelRef(end))
	for _, x := range []struct{ at, stride string }{{"a", "rsa"}, {"c", "ldc"}} {
		step := g.stride(x.stride)
		g.IMUL3Q(operand.I32(rows), step, step)
		g.ADDQ(step, g.address(x.at))
	}
	g.JMP(operand.LabelRef(b.name))
	g.Label(end)
}

// sumOverK writes the loop over k and returns the sums, one register for each vector of the tile.
func (g *generator) sumOverK(b body, from operands, rows int) [][]reg.Register {
	g.Comment(fmt.Sprintf("%d×%d sums.", rows, b.vectors*b.bytes/g.size))
	sets := make([][]reg.Register, b.sets) // vector v of row i is at i*b.vectors+v of each set
	for u := range sets {
		sets[u] = g.rowsOf(b, rows)
		for at, sum := range sets[u] {
			if from.start == nil {
				g.zero(sum)
			} else {
				g.loadVector(b, g.vectorAt(b, from.start(), at%b.vectors, g.size), at%b.vectors, false, sum)
			}
		}
	}
	if from.start != nil {
		from.skipHeader()
	}
	row := g.rowsOf(b, 1)
	elem := g.vector(g.Context)

	steps := func(count int) {
		for u := range count {
			for v := range row {
				if from.widen != nil {
					from.widen(g.vectorAt(b, from.b(u), v, from.sizeB), row[v])
					continue
				}
				g.loadVector(b, g.vectorAt(b, from.b(u), v, g.size), v, from.maskTail, row[v])
			}
			if from.copyTo != nil {
				for v := range row {
					g.move(g.Context, row[v], operand.Mem{Base: from.copyTo, Disp: v * g.vectorBytes})
				}
				g.ADDQ(operand.I32(g.nr*g.size), from.copyTo)
			}
			for i := range rows {
				g.multiplyRow(b, from.a(u, i), elem, row, sets[u%b.sets][i*b.vectors:])
				from.fetch(u, i, b.vectors*b.bytes)
			}
			from.step()
		}
		from.advance(count)
	}

	unroll := b.unroll()
	k, groups := g.param("k"), g.GP64()
	g.MOVQ(k, groups)
	g.SHRQ(operand.U8(log2(unroll)), groups)
	fetchC := from.fetchC
	if fetchC == nil {
		fetchC = func() {}
	}
	g.loop(b.name+"_unrolled", groups, func() {
		steps(unroll)
		fetchC()
		from.fetchNext()
	})
	g.ANDQ(operand.I32(unroll-1), k)
	g.loop(b.name+"_single", k, func() { steps(1) })
	g.addSets(sets)
	sums := make([][]reg.Register, rows)
	for i := range sums {
		sums[i] = sets[0][i*b.vectors:][:b.vectors]
	}
	return sums
}

// multiplyRow adds the product of an element of A and a row of B to the sums. A row of a single
// vector uses an FMA with embedded broadcast: on a Zen 4 a broadcast to a register takes as long as
// the FMA. With several vectors each FMA would load the element again, so elem holds it.
func (g *generator) multiplyRow(b body, a operand.Mem, elem reg.Register, row, sums []reg.Register) {
	if b.vectors == 1 && g.vectorBytes == 64 && g.fmaBroadcast != nil {
		g.fmaBroadcast(g.Context, a, row[0], sums[0])
		return
	}
	g.broadcast(g.Context, a, b.resized(elem, 0))
	for v := range row {
		g.fma(g.Context, row[v], b.resized(elem, v), sums[v])
	}
}

// updateC writes α·sums + β·C to the tile.
func (g *generator) updateC(b body, sums [][]reg.Register, limitRows bool) {
	c, ldc := g.param("c"), g.stride("ldc")
	var m reg.Register
	if limitRows {
		m = g.param("m")
	}
	overwrite, done := b.name+"_overwrite", b.name+"_done"

	// rowsOfC stops at row m. The rows are unrolled, so it jumps out of them.
	rowsOfC := func(update func(sums []reg.Register, row operand.Mem)) {
		g.rowsOfC(sums, c, ldc, update, func() {
			if limitRows {
				g.DECQ(m)
				g.JZ(operand.LabelRef(done))
			}
		})
	}
	alpha, beta, old := g.vector(g.Context), g.vector(g.Context), g.rowsOf(b, 1)

	g.broadcast(g.Context, g.address("alpha"), alpha)
	g.jumpIfZero(g, g.address("beta"), overwrite)

	g.broadcast(g.Context, g.address("beta"), beta)
	rowsOfC(func(sums []reg.Register, row operand.Mem) {
		for v, t := range old { // all loads come before the stores, which may overlap
			g.loadVector(b, g.vectorAt(b, row, v, g.size), v, true, t)
			g.mul(g.Context, b.resized(beta, v), t, t)
			g.addScaled(g.Context, b.resized(alpha, v), sums[v], t)
		}
		for v, t := range old {
			g.storeVector(b, t, v, g.vectorAt(b, row, v, g.size))
		}
	})
	g.JMP(operand.LabelRef(done))

	g.Label(overwrite)
	rowsOfC(func(sums []reg.Register, row operand.Mem) {
		for v, sum := range sums {
			g.mul(g.Context, b.resized(alpha, v), sum, sum)
			g.storeVector(b, sum, v, g.vectorAt(b, row, v, g.size))
		}
	})
	g.Label(done)
}

// streamC writes α·sums to the tile with non-temporal stores.
func (g *generator) streamC(b body, sums [][]reg.Register) {
	alpha := g.vector(g.Context)
	g.broadcast(g.Context, g.address("alpha"), alpha)
	g.rowsOfC(sums, g.param("c"), g.stride("ldc"), func(sums []reg.Register, row operand.Mem) {
		for v, sum := range sums {
			g.mul(g.Context, alpha, sum, sum)
			g.stream(g.Context, sum, g.vectorAt(b, row, v, g.size))
		}
	}, func() {})
}

// rowsOfC calls update for each row of the tile at c, and next between two rows.
func (g *generator) rowsOfC(sums [][]reg.Register, c, ldc reg.Register,
	update func(sums []reg.Register, row operand.Mem), next func()) {
	for i, row := range sums {
		if i > 0 {
			next()
			g.ADDQ(ldc, c)
		}
		update(row, operand.Mem{Base: c})
	}
}

// fetchTile returns a function that prefetches one row of C's tile per call and starts over after
// the last row. The tile has then arrived when the sums are done, without delaying the operands: a
// core has about ten outstanding misses. Prefetching rows beyond m is harmless, because a prefetch
// never faults.
func (g *generator) fetchTile(rows int) func() {
	return g.fetchTileAt(g.param("c"), g.stride("ldc"), rows)
}

func (g *generator) fetchTileAt(c, ldc reg.Register, rows int) func() {
	at, end := g.GP64(), g.GP64()
	g.MOVQ(c, at)
	g.IMUL3Q(operand.I32(rows), ldc, end)
	g.ADDQ(c, end)
	return func() {
		g.fetchRowOfC(at)
		g.ADDQ(ldc, at)
		g.CMPQ(at, end)
		g.CMOVQGE(c, at)
	}
}

// prefetchC prefetches all lines of C's tile at once.
func (g *generator) prefetchC() {
	c, ldc := g.param("c"), g.stride("ldc")
	for i := range g.mr {
		if i > 0 {
			g.ADDQ(ldc, c)
		}
		g.fetchRowOfC(c)
	}
}

// fetchRowOfC prefetches a row of C's tile. A row that does not start on a cache line spans one
// more.
func (g *generator) fetchRowOfC(at reg.Register) {
	width := g.nr * g.size
	for line := 0; line < width; line += lineBytes {
		g.PREFETCHT0(operand.Mem{Base: at, Disp: line})
	}
	g.PREFETCHT0(operand.Mem{Base: at, Disp: width - 1})
}

// peak writes a loop of multiply-adds on registers only.
func (g *generator) peak() {
	chains := 16 // more than two units with a latency of five cycles keep in flight
	if g.goType == pairs.goType && g.group == pairs.group {
		chains = 12 // each product takes a register too
	}
	name := "Peak" + g.suffix()
	g.function(name, "n int",
		fmt.Sprintf("%s runs n rounds of %d independent vector FMAs (%d operations) on registers.", name, chains,
			chains*g.lanes()*g.group*2))
	sums := g.vectors(chains)
	for _, sum := range sums {
		g.zero(sum)
	}
	g.loop("fmas", g.param("n"), func() {
		for _, sum := range sums {
			g.fma(g.Context, sum, sum, sum)
		}
	})
	g.VZEROUPPER()
	g.RET()
}

// loop repeats the body count times, possibly zero times. It overwrites count.
func (g *generator) loop(name string, count reg.Register, body func()) {
	g.TESTQ(count, count)
	g.JZ(operand.LabelRef(name + "_end"))
	g.Label(name)
	body()
	g.DECQ(count)
	g.JNZ(operand.LabelRef(name))
	g.Label(name + "_end")
}

// vectorAt returns the address of vector v of a row, whose elements have the given size.
func (g *generator) vectorAt(b body, row operand.Mem, v, size int) operand.Mem {
	if b.end == overlapping && v == b.vectors-1 {
		row.Index, row.Scale = b.last, uint8(size)
		return row
	}
	return row.Offset(v * b.bytes / g.size * size)
}

// loadVector loads vector v of a row, with the mask if it is partial. A vector smaller than the
// register is repeated in it.
func (g *generator) loadVector(b body, src operand.Mem, v int, maskTail bool, dst reg.Register) {
	if maskTail && b.end == masked && v == b.vectors-1 {
		g.load(g, src, b.mask, dst)
		return
	}
	switch b.bytes {
	case 4:
		g.VBROADCASTSS(src, dst)
	case 8:
		g.VBROADCASTSD(src, dst)
	case 16:
		g.VBROADCASTF128(src, dst)
	default:
		g.move(g.Context, src, dst)
	}
}

// storeVector stores vector v of a row, with the mask if it is partial.
func (g *generator) storeVector(b body, src reg.Register, v int, dst operand.Mem) {
	if b.end == masked && v == b.vectors-1 {
		g.store(g, src, b.mask, dst)
		return
	}
	switch b.bytes {
	case 4:
		g.VMOVSS(asXMM(src), dst)
	case 8:
		g.VMOVSD(asXMM(src), dst)
	case 16:
		g.VMOVUPS(asXMM(src), dst)
	default:
		g.move(g.Context, src, dst)
	}
}

// lanes returns the number of elements in a vector.
func (v variant) lanes() int { return v.vectorBytes / v.size }

// rowsOf returns registers for the vectors of rows.
func (g *generator) rowsOf(b body, rows int) []reg.Register {
	all := g.vectors(rows * b.vectors)
	for i := range all {
		all[i] = b.resized(all[i], i%b.vectors)
	}
	return all
}

// resized returns the part of a register that holds vector v of a row.
func (b body) resized(r reg.Register, v int) reg.Register {
	if b.half && v == b.vectors-1 {
		return asYMM(r)
	}
	return r
}

func (g *generator) vectors(count int) []reg.Register {
	all := make([]reg.Register, count)
	for i := range all {
		all[i] = g.vector(g.Context)
	}
	return all
}

// zero clears a vector register.
func (g *generator) zero(r reg.Register) { g.VXORPS(r, r, r) }

// param loads a parameter into a register of its own.
func (g *generator) param(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

// stride loads a parameter that counts elements and converts it to bytes.
func (g *generator) stride(name string) reg.GPVirtual {
	r := g.param(name)
	g.SHLQ(operand.U8(log2(g.size)), r)
	return r
}

// address returns the address of a parameter in the frame.
func (g *generator) address(name string) operand.Mem {
	at, err := g.Param(name).Resolve()
	if err != nil {
		panic(err) // the function has no parameter of that name
	}
	return at.Addr
}

func log2(n int) uint64 { return uint64(bits.TrailingZeros(uint(n))) }
