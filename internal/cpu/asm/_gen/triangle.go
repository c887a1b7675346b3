package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The following kernels substitute in a triangular system, or multiply with a triangle, a few rows
// at a time. The rows are a tile in registers: the loop over k adds the product with the rows
// before them, and the triangle on the diagonal is unrolled.

// triangleParams are the parameters of a kernel for rows of a triangle.
const triangleParams = "tiles, k int, a *T, rsa, csa int, l, b *T, ldb int, alpha T"

// triangleRows lists the rows of the kernels: the powers of two below mr, and mr.
func (v variant) triangleRows() (rows []int) {
	for n := 1; n < v.mr; n *= 2 {
		rows = append(rows, n)
	}
	return append(rows, v.mr)
}

// solve writes the kernel that solves for some rows of a triangular system.
func (g *generator) solve(rows int) {
	name := fmt.Sprintf("Solve%sx%d", g.suffix(), rows)
	g.function(name, triangleParams, g.docTriangle(name, "solves for", rows,
		"\t\tfor i := 0; i < ROWS; i++ {",
		"\t\t\tx[i] = alpha*c[i*ldb+j] - sum[i]",
		"\t\t}",
		"\t\tfor i := 0; i < ROWS; i++ {",
		"\t\t\tx[i] *= l[i*MR+i]",
		"\t\t\tfor r := i + 1; r < ROWS; r++ {",
		"\t\t\t\tx[r] -= l[i*MR+r] * x[i]",
		"\t\t\t}",
		"\t\t\tc[i*ldb+j] = x[i]",
		"\t\t}",
	)...)
	g.triangle(rows, func(b body, x [][]reg.Register, c, ldb reg.Register) {
		alpha, old, elem := g.vector(g.Context), g.vector(g.Context), g.vector(g.Context)
		at, l := g.GP64(), g.param("l")
		g.MOVQ(c, at)
		g.broadcast(g.Context, g.address("alpha"), alpha)
		g.rowsOfC(x, at, ldb, func(row []reg.Register, from operand.Mem) {
			for v, s := range row {
				g.move(g.Context, g.vectorAt(b, from, v, g.size), old)
				g.fmsub(g.Context, old, alpha, s)
			}
		}, func() {})
		for i, row := range x {
			g.broadcast(g.Context, g.ofTriangle(l, i, i), elem)
			for v, s := range row {
				g.mul(g.Context, elem, s, s)
				g.move(g.Context, s, g.vectorAt(b, operand.Mem{Base: c}, v, g.size))
			}
			for r := i + 1; r < rows; r++ {
				g.broadcast(g.Context, g.ofTriangle(l, r, i), elem)
				for v, s := range row {
					g.fnma(g.Context, s, elem, x[r][v])
				}
			}
			g.ADDQ(ldb, c)
		}
	})
}

// multiply writes the kernel that multiplies some rows with a triangle.
func (g *generator) multiply(rows int) {
	name := fmt.Sprintf("Multiply%sx%d", g.suffix(), rows)
	g.function(name, triangleParams, g.docTriangle(name, "computes", rows,
		"\t\tfor i := 0; i < ROWS; i++ {",
		"\t\t\tfor r := i; r < ROWS; r++ {",
		"\t\t\t\tsum[r] += l[i*MR+r] * c[i*ldb+j]",
		"\t\t\t}",
		"\t\t}",
		"\t\tfor i := 0; i < ROWS; i++ {",
		"\t\t\tc[i*ldb+j] = alpha * sum[i]",
		"\t\t}",
	)...)
	g.triangle(rows, func(b body, sums [][]reg.Register, c, ldb reg.Register) {
		row, elem := g.vectors(b.vectors), g.vector(g.Context)
		at, l := g.GP64(), g.param("l")
		g.MOVQ(c, at)
		for i := range sums {
			for v, r := range row {
				g.move(g.Context, g.vectorAt(b, operand.Mem{Base: at}, v, g.size), r)
			}
			for r := i; r < rows; r++ {
				g.broadcast(g.Context, g.ofTriangle(l, r, i), elem)
				for v, s := range sums[r] {
					g.fma(g.Context, row[v], elem, s)
				}
			}
			g.ADDQ(ldb, at)
		}
		g.broadcast(g.Context, g.address("alpha"), elem)
		g.rowsOfC(sums, c, ldb, func(sums []reg.Register, to operand.Mem) {
			for v, s := range sums {
				g.mul(g.Context, elem, s, s)
				g.move(g.Context, s, g.vectorAt(b, to, v, g.size))
			}
		}, func() {})
	})
}

// ofTriangle returns the address of element (i, j) of the triangle.
func (g *generator) ofTriangle(l reg.Register, i, j int) operand.Mem {
	return operand.Mem{Base: l, Disp: (j*g.mr + i) * g.size}
}

// triangle writes the loop over tiles: the sums over k, and finish, which completes the tile at c.
func (g *generator) triangle(rows int, finish func(b body, sums [][]reg.Register, c, ldb reg.Register)) {
	whole := g.whole()
	g.Label(whole.name)
	from, c, ldb := g.rowsBefore(rows)
	finish(whole, g.sumOverK(whole, from, rows), c, ldb)
	g.DECQ(g.address("tiles"))
	g.JZ(operand.LabelRef("end"))
	g.ADDQ(operand.I32(g.nr*g.size), g.address("b"))
	g.JMP(operand.LabelRef(whole.name))
	g.Label("end")
	g.VZEROUPPER()
	g.RET()
}

// rowsBefore returns the operands of the product with the rows before a tile. After the loop over
// k, c points to the tile.
func (g *generator) rowsBefore(rows int) (from operands, c, ldb reg.Register) {
	a, b := g.param("a"), g.param("b")
	csa, ldb := g.stride("csa"), g.stride("ldb")
	rowOfA := g.rowsAt(a, g.stride("rsa"), rows)
	return operands{
		a:     func(_, i int) operand.Mem { return rowOfA(i) },
		b:     func(int) operand.Mem { return operand.Mem{Base: b} },
		fetch: func(int, int, int) {},
		step: func() {
			g.ADDQ(csa, a)
			g.ADDQ(ldb, b)
		},
		advance:   func(int) {},
		fetchNext: func() {},
	}, b, ldb
}

// docTriangle returns the doc comment of a kernel for rows of a triangle: the loop that it
// computes, which ends with the given lines.
func (g *generator) docTriangle(name, verb string, rows int, end ...string) []string {
	with := strings.NewReplacer("MR", strconv.Itoa(g.mr), "NR", strconv.Itoa(g.nr), "ROWS", strconv.Itoa(rows))
	doc := append([]string{
		name + " " + verb + " rows k to k+ROWS-1 of b, for tiles·NR columns. c is b[k*ldb:]. Sums and",
		"differences of products are fused.",
		"",
		"\tfor j := 0; j < tiles*NR; j++ {",
		"\t\tfor i := 0; i < ROWS; i++ {",
		"\t\t\tfor p := 0; p < k; p++ {",
		"\t\t\t\tsum[i] += a[i*rsa+p*csa] * b[p*ldb+j]",
		"\t\t\t}",
		"\t\t}",
	}, append(end, "\t}")...)
	for i := range doc {
		doc[i] = with.Replace(doc[i])
	}
	return doc
}
