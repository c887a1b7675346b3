package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The following kernels are for products whose time goes into memory accesses: of a matrix and one
// or a few vectors, and of a few columns and a few rows. They read the large matrix as stored, once
// and sequentially.

// updateShapes lists the rows of C and steps of k of the update kernels. The elements of A stay in
// registers and take up to half of them.
func (v variant) updateShapes() (shapes [][2]int) {
	for rows := 1; rows <= maxUpdateRows; rows *= 2 {
		for depth := 1; depth <= maxUpdateDepth && rows*depth <= v.registers/2; depth *= 2 {
			shapes = append(shapes, [2]int{rows, depth})
		}
	}
	return shapes
}

// updateParams are the parameters of a kernel for rows of C.
const updateParams = "a *T, rsa, csa int, b *T, ldb int, c *T, ldc, n int, alpha, beta T"

const (
	maxUpdateRows  = 4
	maxUpdateDepth = 8
	maxStreamDepth = 4
	maxNarrowDepth = 8
)

// streamBytes is the prefetch distance for rows of a large matrix. With 1024 bytes a Zen 4 reads 20
// % slower and a Xeon as fast.
const streamBytes = 256

// update writes the kernel that adds a few steps of k to whole rows of C.
func (g *generator) update(rows, depth int) {
	name := fmt.Sprintf("Update%sx%dx%d", g.suffix(), rows, depth)
	g.function(name, updateParams,
		g.docLoop(name, fmt.Sprintf("%d×n elements of C from matrices", rows), fmt.Sprintf("i < %d", rows),
			fmt.Sprintf("p < %d", depth), "i*rsa+p*csa", "p*ldb+j")...)

	a := g.broadcastA(rows, depth)
	b, c := g.param("b"), g.param("c")
	rowOfB, rowOfC := g.rowsAt(b, g.stride("ldb"), depth), g.rowsAt(c, g.stride("ldc"), rows)
	alpha, beta := g.vector(g.Context), g.vector(g.Context)
	g.broadcast(g.Context, g.address("alpha"), alpha)

	// sum computes a vector of each row; a nil mask selects whole vectors.
	row := g.vector(g.Context)
	sums := g.vectors(rows)
	sum := func(mask reg.Register) {
		for _, s := range sums {
			g.zero(s)
		}
		for p := range depth {
			g.loadMasked(rowOfB(p), mask, row)
			if mask == nil {
				g.PREFETCHT0(rowOfB(p).Offset(streamBytes))
			}
			for i, s := range sums {
				g.fma(g.Context, row, a[i][p], s)
			}
		}
	}
	// pass iterates over the rows, one vector at a time, and ends with a partial one.
	pass := func(label string, finish func(s reg.Register, i int, mask reg.Register)) {
		n := g.param("n")
		g.SHRQ(operand.U8(log2(g.lanes())), n)
		g.loop(label, n, func() {
			sum(nil)
			for i, s := range sums {
				finish(s, i, nil)
			}
			g.ADDQ(operand.I32(g.vectorBytes), b)
			g.ADDQ(operand.I32(g.vectorBytes), c)
		})
		rest := g.param("n")
		g.ANDQ(operand.I32(g.lanes()-1), rest)
		g.JZ(operand.LabelRef("done"))
		mask := g.mask(g, rest)
		sum(mask)
		for i, s := range sums {
			finish(s, i, mask)
		}
		g.JMP(operand.LabelRef("done"))
	}

	g.jumpIfZero(g, g.address("beta"), "overwrite")
	g.broadcast(g.Context, g.address("beta"), beta)
	old := g.vector(g.Context)
	pass("accumulating", func(s reg.Register, i int, mask reg.Register) {
		g.loadMasked(rowOfC(i), mask, old)
		g.mul(g.Context, beta, old, old)
		g.fma(g.Context, alpha, s, old)
		g.storeMasked(old, mask, rowOfC(i))
	})

	g.Label("overwrite")
	pass("overwriting", func(s reg.Register, i int, mask reg.Register) {
		g.mul(g.Context, alpha, s, s)
		g.storeMasked(s, mask, rowOfC(i))
	})

	g.Label("done")
	g.VZEROUPPER()
	g.RET()
}

// alignedRow writes a kernel that computes a row of C and writes it in aligned vectors. store emits
// the store of a vector, and how describes it.
func (g *generator) alignedRow(name string, depth int, how string, store func(s reg.Register, to operand.Mem)) {
	name = fmt.Sprintf("%s%sx%d", name, g.suffix(), depth)
	g.function(name, updateParams,
		g.docLoop(name, "a row of n ≥ 1 elements of C (beta = 0) from matrices"+how, "i < 1", fmt.Sprintf("p < %d", depth),
			"i*rsa+p*csa", "p*ldb+j")...)

	a := g.broadcastA(1, depth)[0]
	b, c := g.param("b"), g.param("c")
	rowOfB := g.rowsAt(b, g.stride("ldb"), depth)
	alpha, row, sum := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)
	g.broadcast(g.Context, g.address("alpha"), alpha)
	compute := func(mask reg.Register) {
		g.zero(sum)
		for p := range depth {
			g.loadMasked(rowOfB(p), mask, row)
			g.fma(g.Context, row, a[p], sum)
		}
		g.mul(g.Context, alpha, sum, sum)
	}
	count := g.GP64()
	part := func() { // stores the first count elements as usual
		mask := g.mask(g, count)
		compute(mask)
		g.storeMasked(sum, mask, operand.Mem{Base: c})
	}

	n, head := g.param("n"), g.GP64() // head is the number of elements before the first whole vector
	g.MOVQ(c, head)
	g.NEGQ(head)
	g.ANDQ(operand.I32(g.vectorBytes-1), head)
	g.SHRQ(operand.U8(log2(g.size)), head)
	g.CMPQ(head, n)
	g.CMOVQGT(n, head)
	g.TESTQ(head, head)
	g.JZ(operand.LabelRef("whole"))
	g.MOVQ(head, count)
	part()
	g.SUBQ(head, n)
	g.SHLQ(operand.U8(log2(g.size)), head)
	g.ADDQ(head, b)
	g.ADDQ(head, c)

	g.Label("whole")
	vectors := g.GP64()
	g.MOVQ(n, vectors)
	g.SHRQ(operand.U8(log2(g.lanes())), vectors)
	g.loop("vectors", vectors, func() {
		compute(nil)
		store(sum, operand.Mem{Base: c})
		g.ADDQ(operand.I32(g.vectorBytes), b)
		g.ADDQ(operand.I32(g.vectorBytes), c)
	})
	g.MOVQ(n, count)
	g.ANDQ(operand.I32(g.lanes()-1), count)
	g.JZ(operand.LabelRef("done"))
	part()

	g.Label("done")
	g.VZEROUPPER()
	g.RET()
}

// narrow writes the kernel that computes rows of a C whose columns fit in a vector. The rows of B
// stay in registers.
func (g *generator) narrow(depth int) {
	name := fmt.Sprintf("Narrow%sx%d", g.suffix(), depth)
	g.function(name, "rows int, a *T, rsa, csa int, b *T, ldb int, c *T, ldc, n int, alpha T",
		g.docLoopTo(name, fmt.Sprintf("rows ≥ 1 rows of 1 ≤ n ≤ %d elements of C from matrices", g.lanes()),
			"i < rows", fmt.Sprintf("p < %d", depth), "i*rsa+p*csa", "p*ldb+j", "c[i*ldc+j] = alpha * sum")...)

	mask := g.mask(g, g.param("n"))
	rowOfB := g.rowsAt(g.param("b"), g.stride("ldb"), depth)
	bs := g.vectors(depth)
	for p, v := range bs {
		g.loadMasked(rowOfB(p), mask, v)
	}
	alpha, element, sum := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)
	g.broadcast(g.Context, g.address("alpha"), alpha)
	a, c := g.param("a"), g.param("c")
	elementOfA := g.rowsAt(a, g.stride("csa"), depth)
	rsa, ldc := g.stride("rsa"), g.stride("ldc")
	g.loop("rows", g.param("rows"), func() {
		g.zero(sum)
		for p, v := range bs {
			g.broadcast(g.Context, elementOfA(p), element)
			g.fma(g.Context, v, element, sum)
		}
		g.mul(g.Context, alpha, sum, sum)
		g.storeMasked(sum, mask, operand.Mem{Base: c})
		g.ADDQ(rsa, a)
		g.ADDQ(ldc, c)
	})
	g.VZEROUPPER()
	g.RET()
}

// broadcastA loads the elements of A, each broadcast to a vector.
func (g *generator) broadcastA(rows, depth int) [][]reg.Register {
	row, rsa, csa := g.param("a"), g.stride("rsa"), g.stride("csa")
	at := g.GP64()
	all := make([][]reg.Register, rows)
	for i := range all {
		g.MOVQ(row, at)
		all[i] = g.vectors(depth)
		for p, v := range all[i] {
			g.broadcast(g.Context, operand.Mem{Base: at}, v)
			if p < depth-1 {
				g.ADDQ(csa, at)
			}
		}
		if i < rows-1 {
			g.ADDQ(rsa, row)
		}
	}
	return all
}

// maxDotRows is the largest number of rows of x that a dot kernel reads at once. Their lines often
// share a set of the L1 cache, also with those of y.
const maxDotRows = 4

// maxDotCols is the largest number of rows of y. At maxDotRows, a sum for each pair of rows stays
// in a register, and the sums take up to half of the registers.
func (v variant) maxDotCols() int { return v.registers / 2 / maxDotRows }

// minChains is the number of independent chains of FMAs that keeps two units with a latency of four
// cycles busy.
const minChains = 8

// setsFor returns the number of sets of sums that steps of k use in turn. It is the least power of
// two that gives minChains chains, one for each vector of each set.
func setsFor(vectors int) int {
	sets := 1
	for vectors*sets < minChains {
		sets *= 2
	}
	return sets
}

// dot writes the kernel that computes dot products of rows of both matrices.
func (g *generator) dot(rows, count int) {
	name := fmt.Sprintf("Dot%sx%dx%d", g.suffix(), rows, count)
	g.dots(name, rows, count, "*T", g.size, g.loadMasked, func(k reg.Register, step func(mask reg.Register)) {
		g.ANDQ(operand.I32(g.lanes()-1), k)
		g.JZ(operand.LabelRef("reduce"))
		step(g.mask(g, k.(reg.GPVirtual)))
	}, fmt.Sprintf("The lanes beyond k in the last vector of %d add 0·0.", g.lanes()))
}

// wideningDot writes the kernel for rows of x with 16-bit elements.
func (g *generator) wideningDot(f packer, rows, count int) {
	name := fmt.Sprintf("Dot%s%sx%dx%d", f.name, g.suffix(), rows, count)
	g.dots(name, rows, count, "*uint16", 2, func(src operand.Mem, _, dst reg.Register) { f.widen(g.Context, src, dst) },
		func(k reg.Register, step func(mask reg.Register)) {},
		fmt.Sprintf("The elements of x are %s. k is a multiple of %d.", strings.Fields(f.desc)[1], g.lanes()))
}

// dots writes a kernel whose elements of x have the given type and size. loadX loads a vector of x,
// and last multiplies the elements after the last whole vector.
func (g *generator) dots(name string, rows, count int, typeX string, sizeX int,
	loadX func(src operand.Mem, mask, dst reg.Register), last func(k reg.Register, step func(mask reg.Register)),
	note string) {
	lanes, sets := g.lanes(), setsFor(rows*count)
	steps := max(sets, lineBytes/g.vectorBytes) // vectors per iteration of the main loop: whole cache lines
	apart := max(rows, maxDotRows)              // sums of a row of y
	g.function(name, "tiles, k int, x "+typeX+", ldx int, y *T, ldy int, sums *T",
		append(dotDoc(name, rows, count, apart, lanes, sets, steps), note)...)

	g.Label("tile")
	k, x, y := g.param("k"), g.param("x"), g.param("y")
	ldx := func() reg.GPVirtual {
		ld := g.param("ldx")
		g.SHLQ(operand.U8(log2(sizeX)), ld)
		return ld
	}
	rowOfX, rowOfY := g.rowsAt(x, ldx(), rows), g.rowsAt(y, g.stride("ldy"), count)
	sums := make([][]reg.Register, sets) // the sum of the pair (i, j) is at j*rows+i of each set
	for u := range sums {
		sums[u] = g.vectors(count * rows)
		for _, s := range sums[u] {
			g.zero(s)
		}
	}
	ys, row := g.vectors(count), g.vector(g.Context)
	step := func(u int, sums []reg.Register, mask reg.Register) {
		for j, v := range ys {
			g.loadMasked(rowOfY(j).Offset(u*g.vectorBytes), mask, v)
		}
		for i := range rows {
			loadX(rowOfX(i).Offset(u*lanes*sizeX), mask, row)
			for j, v := range ys {
				g.fma(g.Context, row, v, sums[j*rows+i])
			}
		}
	}
	advance := func(vectors int) {
		g.ADDQ(operand.I32(vectors*lanes*sizeX), x)
		g.ADDQ(operand.I32(vectors*g.vectorBytes), y)
	}
	left := g.GP64() // iterations
	g.MOVQ(k, left)
	g.SHRQ(operand.U8(log2(steps*lanes)), left)
	g.loop("groups", left, func() {
		for u := range steps {
			step(u, sums[u%sets], nil)
			if offset := u * lanes * sizeX; offset%lineBytes == 0 {
				for i := range rows {
					g.PREFETCHT0(rowOfX(i).Offset(offset + streamBytes))
				}
			}
		}
		advance(steps)
	})
	if steps > 1 {
		g.MOVQ(k, left)
		g.SHRQ(operand.U8(log2(lanes)), left)
		g.ANDQ(operand.I32(steps-1), left)
		g.loop("vectors", left, func() {
			step(0, sums[0], nil)
			advance(1)
		})
	}
	last(k, func(mask reg.Register) { step(0, sums[0], mask) })

	g.Label("reduce")
	g.addSets(sums)
	to := g.param("sums")
	for j := range count {
		g.storeSums(sums[0][j*rows:][:rows], row, operand.Mem{Base: to, Disp: j * apart * g.size})
	}
	g.DECQ(g.address("tiles"))
	g.JZ(operand.LabelRef("done"))
	g.ADDQ(operand.I32(count*apart*g.size), g.address("sums"))
	below := ldx()
	g.IMUL3Q(operand.I32(rows), below, below)
	g.ADDQ(below, g.address("x"))
	g.JMP(operand.LabelRef("tile"))

	g.Label("done")
	g.VZEROUPPER()
	g.RET()
}

// dotDoc returns the doc comment of a dot kernel: the loop that it computes.
func dotDoc(name string, rows, count, apart, lanes, sets, steps int) []string {
	return []string{
		name + " computes the products of rows of x with rows of y, for tiles ≥ 1:",
		"",
		fmt.Sprintf("\tfor i := 0; i < tiles*%d; i++ {", rows),
		fmt.Sprintf("\t\tfor j := 0; j < %d; j++ {", count),
		fmt.Sprintf("\t\t\tvar lane [%d]T", sets*lanes),
		"\t\t\tfor p := 0; p < k; p++ {",
		fmt.Sprintf("\t\t\t\tl := p %% %d", sets*lanes),
		fmt.Sprintf("\t\t\t\tif p >= k/%d*%d {", steps*lanes, steps*lanes),
		fmt.Sprintf("\t\t\t\t\tl = p %% %d", lanes),
		"\t\t\t\t}",
		"\t\t\t\tlane[l] = fma(x[i*ldx+p], y[j*ldy+p], lane[l])",
		"\t\t\t}",
		fmt.Sprintf("\t\t\tfor half := %d; half > 0; half /= 2 {", sets*lanes/2),
		"\t\t\t\tfor l := 0; l < half; l++ {",
		"\t\t\t\t\tlane[l] += lane[l+half]",
		"\t\t\t\t}",
		"\t\t\t}",
		fmt.Sprintf("\t\t\tsums[i/%d*%d+j*%d+i%%%d] = lane[0]", rows, count*apart, apart, rows),
		"\t\t}",
		"\t}",
		"",
	}
}

// addSets adds the upper half of the sets of sums to the lower half until one set is left.
func (g *generator) addSets(sums [][]reg.Register) {
	for half := len(sums) / 2; half > 0; half /= 2 {
		for u := range half {
			for s := range sums[u] {
				g.add(g.Context, sums[u+half][s], sums[u][s], sums[u][s])
			}
		}
	}
}

func asXMM(r reg.Register) reg.Register { return r.(reg.Vec).AsX() }
func asYMM(r reg.Register) reg.Register { return r.(reg.Vec).AsY() }

// loadMasked loads a vector, or its first elements if mask is not nil.
func (g *generator) loadMasked(src operand.Mem, mask, dst reg.Register) {
	if mask == nil {
		g.move(g.Context, src, dst)
		return
	}
	g.load(g, src, mask, dst)
}

// storeMasked stores a vector, or its first elements if mask is not nil.
func (g *generator) storeMasked(src, mask reg.Register, dst operand.Mem) {
	if mask == nil {
		g.move(g.Context, src, dst)
		return
	}
	g.store(g, src, mask, dst)
}
