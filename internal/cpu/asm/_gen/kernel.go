package main

import (
	"fmt"
	"math/bits"

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

// body is a micro-kernel for tiles of one range of widths. Only the last vector of a row can be
// partial, so one mask is enough.
type body struct {
	name    string
	vectors int  // per row of the tile
	partial bool // whether n may end within the last vector
	sets    int  // of sums, used by steps of k in turn; a power of two
}

var (
	whole  = body{"whole", 2, false, 1}
	wide   = body{"wide", 2, true, 1}
	narrow = body{"narrow", 1, true, 1}
)

// withSets returns b with enough sets of sums to hide the latency of the FMA in a tile of that many
// rows.
func (b body) withSets(rows int) body {
	b.sets = setsFor(rows * b.vectors)
	return b
}

// unroll returns the number of steps of k in b's main loop.
func (b body) unroll() int { return max(minUnroll, b.sets) }

// bodies writes a micro-kernel of the given rows: a branch on n, then the given bodies. With
// limitRows it stores only the first m rows of C, otherwise it goes on to the tile below.
func (g *generator) bodies(rows int, open func(rows int) operands, limitRows bool, bodies ...body) {
	n := g.param("n")
	g.CMPQ(n, operand.I32(g.nr))
	g.JEQ(operand.LabelRef(whole.name))
	g.CMPQ(n, operand.I32(g.lanes()))
	g.JLE(operand.LabelRef(narrow.name))
	for _, b := range bodies {
		g.Label(b.name)
		var mask reg.Register
		if b.partial {
			count := g.param("n")
			if b.vectors > 1 {
				g.SUBQ(operand.I32((b.vectors-1)*g.lanes()), count)
			}
			mask = g.mask(g, count)
		}
		sums := g.sumOverK(b, open(rows), rows, mask)
		g.updateC(b, sums, mask, limitRows)
		if !limitRows {
			g.nextTile(b, rows)
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
func (g *generator) sumOverK(b body, from operands, rows int, mask reg.Register) [][]reg.Register {
	g.Comment(fmt.Sprintf("%d×%d sums.", rows, b.vectors*g.lanes()))
	sets := make([][]reg.Register, b.sets) // vector v of row i is at i*b.vectors+v of each set
	for u := range sets {
		sets[u] = g.vectors(rows * b.vectors)
		for at, sum := range sets[u] {
			if from.start == nil {
				g.zero(sum)
			} else {
				g.move(g.Context, from.start(at%b.vectors), sum)
			}
		}
	}
	if from.start != nil {
		from.skipHeader()
	}
	row := g.vectors(b.vectors)
	elem := g.vector(g.Context)

	steps := func(count int) {
		for u := range count {
			for v := range row {
				if from.widen != nil {
					from.widen(from.b(u, v), row[v])
					continue
				}
				g.loadVector(b, from.b(u, v), v, from.maskTail, mask, row[v])
			}
			if from.copyTo != nil {
				for v := range row {
					g.move(g.Context, row[v], operand.Mem{Base: from.copyTo, Disp: v * g.vectorBytes})
				}
				g.ADDQ(operand.I32(g.nr*g.size), from.copyTo)
			}
			for i := range rows {
				g.broadcast(g.Context, from.a(u, i), elem)
				for v := range row {
					g.fma(g.Context, row[v], elem, sets[u%b.sets][i*b.vectors+v])
				}
				from.fetch(u, i)
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

// updateC writes α·sums + β·C to the tile.
func (g *generator) updateC(b body, sums [][]reg.Register, mask reg.Register, limitRows bool) {
	c, ldc := g.param("c"), g.stride("ldc")
	var m reg.Register
	if limitRows {
		m = g.param("m")
	}
	overwrite, done := b.name+"_overwrite", b.name+"_done"

	// rowsOfC stops at row m. The rows are unrolled, so it jumps out of them.
	rowsOfC := func(update func(sum reg.Register, v int, at operand.Mem)) {
		g.rowsOfC(sums, c, ldc, update, func() {
			if limitRows {
				g.DECQ(m)
				g.JZ(operand.LabelRef(done))
			}
		})
	}
	alpha, beta, t := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)

	g.broadcast(g.Context, g.address("alpha"), alpha)
	g.jumpIfZero(g, g.address("beta"), overwrite)

	g.broadcast(g.Context, g.address("beta"), beta)
	rowsOfC(func(sum reg.Register, v int, at operand.Mem) {
		g.loadVector(b, at, v, true, mask, t)
		g.mul(g.Context, beta, t, t)
		g.addScaled(g.Context, alpha, sum, t)
		g.storeVector(b, t, v, mask, at)
	})
	g.JMP(operand.LabelRef(done))

	g.Label(overwrite)
	rowsOfC(func(sum reg.Register, v int, at operand.Mem) {
		g.mul(g.Context, alpha, sum, sum)
		g.storeVector(b, sum, v, mask, at)
	})
	g.Label(done)
}

// streamC writes α·sums to the tile with non-temporal stores.
func (g *generator) streamC(sums [][]reg.Register) {
	alpha := g.vector(g.Context)
	g.broadcast(g.Context, g.address("alpha"), alpha)
	g.rowsOfC(sums, g.param("c"), g.stride("ldc"), func(sum reg.Register, _ int, at operand.Mem) {
		g.mul(g.Context, alpha, sum, sum)
		g.stream(g.Context, sum, at)
	}, func() {})
}

// rowsOfC calls update for each vector of the tile at c, and next between two rows.
func (g *generator) rowsOfC(sums [][]reg.Register, c, ldc reg.Register,
	update func(sum reg.Register, v int, at operand.Mem), next func()) {
	for i := range sums {
		for v, sum := range sums[i] {
			update(sum, v, operand.Mem{Base: c, Disp: v * g.vectorBytes})
		}
		if i < len(sums)-1 {
			next()
			g.ADDQ(ldc, c)
		}
	}
}

// fetchTile returns a function that prefetches one row of C's tile per call and starts over after
// the last row. The tile has then arrived when the sums are done, without delaying the operands: a
// core has about ten outstanding misses. Prefetching rows beyond m is harmless, because a prefetch
// never faults.
func (g *generator) fetchTile() func() { return g.fetchTileAt(g.param("c"), g.stride("ldc")) }

func (g *generator) fetchTileAt(c, ldc reg.Register) func() {
	at, end := g.GP64(), g.GP64()
	g.MOVQ(c, at)
	g.IMUL3Q(operand.I32(g.mr), ldc, end)
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

// loadVector loads vector v of a row, with the mask if it is partial.
func (g *generator) loadVector(b body, src operand.Mem, v int, maskTail bool, mask, dst reg.Register) {
	if maskTail && b.partial && v == b.vectors-1 {
		g.load(g, src, mask, dst)
		return
	}
	g.move(g.Context, src, dst)
}

// storeVector stores vector v of a row, with the mask if it is partial.
func (g *generator) storeVector(b body, src reg.Register, v int, mask reg.Register, dst operand.Mem) {
	if b.partial && v == b.vectors-1 {
		g.store(g, src, mask, dst)
		return
	}
	g.move(g.Context, src, dst)
}

// lanes returns the number of elements in a vector.
func (g *generator) lanes() int { return g.vectorBytes / g.size }

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
