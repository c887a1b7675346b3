// Command _gen writes the micro-kernels of package asm into the parent directory: an assembly file
// and a file of Go stubs for each instruction set and element type in its table.
//
//	main.go     the table, and the functions written for each of its rows
//	isa.go      the instruction sets and the element types
//	kernel.go   the micro-kernels: the loop over k, then the update of C
//	stream.go   the kernels for products bound by memory
//	reduce.go   the sums of the lanes of their vectors
//	triangle.go the kernels for rows of a triangle
//	integer.go  the int8 element types
//	bfloat.go   bfloat16 for CPUs that multiply it
//	tiles.go    the micro-kernels for AMX
//	encode.go   the instructions that Go's assembler lacks
//	epilogue.go the epilogue functions for a tile of C in the cache
//	narrow.go   the conversions to and from a C of 16-bit elements
//	pack.go     the copies into panels, with conversions
//	columns.go  the copies from rows to columns
//	largest.go  the search for the largest element of a vector
//	copy.go     the copy with non-temporal stores
//	operands.go the addresses of A and B: packed panels or matrices
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// variant is an instruction set that multiplies one element type.
type variant struct {
	isa
	element
	mr, nr int // the tile of C; nr is two vectors
}

// variants lists the kernels. Their tiles are two vectors wide and as high as the accumulator
// registers allow: 12 of the 16
// registers of AVX2 (2 more hold B, 1 A, 1 the mask) and 24 of the 32 of AVX-512. A higher tile
// loads less from the caches per operation. Beyond 12 rows this gains less than the unused part of
// tiles at the lower edge of C loses.
var variants = []variant{
	{avx512, f32, 12, 32},
	{avx512, f64, 12, 16},
	{avx2, f32, 6, 16},
	{avx2, f64, 6, 8},
	{vnni, quads, 8, 32},
	{avx2, pairs, 4, 16}, // a product and a sum take two instructions and a register between them
	{avx512, bf16, 12, 32},
	{amx, tiled(quads, "TDPBSSD", int8TileDoc), 32, 32},
	{amx, tiled(bf16, "TDPBF16PS", bf16TileDoc), 32, 32},
}

func main() {
	log.SetFlags(0)
	for _, v := range variants {
		if err := v.write(".."); err != nil {
			log.Fatalf("%s: %v", v.suffix(), err)
		}
	}
	for name, write := range map[string]func(dir string) error{"pause": writePause, "pack": writePack,
		"copy": writeCopy, "columns": writeColumns, "largest": writeLargest} {
		if err := write(".."); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
}

// writePause writes Fence, Pause and FetchRows, which do not depend on the variant.
func writePause(dir string) error {
	c := build.NewContext()
	c.Function("Fence")
	c.Attributes(attr.NOSPLIT)
	c.Doc("Fence orders earlier non-temporal stores before all later stores.")
	c.SignatureExpr("func()")
	c.SFENCE()
	c.RET()

	c.Function("Pause")
	c.Attributes(attr.NOSPLIT)
	c.Doc("Pause executes n ≥ 1 PAUSE instructions of some tens of nanoseconds each. Use it in loops that",
		"wait for another thread.")
	c.SignatureExpr("func(n int)")
	n := c.Load(c.Param("n"), c.GP64())
	c.Label("again")
	c.PAUSE()
	c.DECQ(n)
	c.JNZ(operand.LabelRef("again"))
	c.RET()

	c.Function("FetchRows")
	c.Attributes(attr.NOSPLIT)
	c.Doc("FetchRows prefetches m ≥ 1 rows of n ≥ 1 bytes, ld bytes apart, into the L1 cache. It reads",
		"nothing and never faults.")
	c.SignatureExpr("func(m, n int, p *byte, ld int)")
	c.Pragma("noescape")
	m, last, p, ld := param(c, "m"), param(c, "n"), param(c, "p"), param(c, "ld")
	c.DECQ(last)
	c.Label("row")
	at := c.GP64()
	c.MOVQ(last, at)
	c.Label("line")
	c.PREFETCHT0(operand.Mem{Base: p, Index: at, Scale: 1})
	c.SUBQ(operand.I32(lineBytes), at)
	c.JGE(operand.LabelRef("line"))
	c.PREFETCHT0(operand.Mem{Base: p}) // the end of a row that spans one more line
	c.ADDQ(ld, p)
	c.DECQ(m)
	c.JNZ(operand.LabelRef("row"))
	c.RET()
	return write(dir, "zpause_amd64", c)
}

// suffix returns the suffix of the names of v's functions.
func (v variant) suffix() string { return v.element.name + v.isa.name }

func (v variant) write(dir string) error {
	g := &generator{Context: build.NewContext(), variant: v, constants: map[uint64]operand.Mem{}}
	g.functions()
	return write(dir, "z"+strings.ToLower(v.suffix())+"_amd64", g.Context)
}

// functions writes all functions of a variant.
func (g *generator) functions() {
	if g.tiles != "" {
		g.packedTiles()
		g.peakTiles()
		return
	}
	g.packed()
	if g.goType == "float32" && g.group == 1 {
		for _, f := range packers {
			if halves[f.name] != nil {
				for rows := 2; rows <= g.mr; rows += 2 { // a step of one row takes as long as one of two
					g.widening(f, rows)
				}
				for count := 1; count <= g.maxDotCols(); count++ {
					g.wideningDot(f, maxDotRows, count)
				}
			}
		}
	}
	if g.group == 1 {
		for rows := 1; rows <= g.mr; rows++ {
			g.direct(rows)
		}
		for rows := 1; rows <= g.maxDeepRows(); rows++ {
			g.deep(rows)
		}
		for _, rows := range g.triangleRows() {
			g.solve(rows)
			g.multiply(rows)
		}
		g.copyKernel()
		g.streamKernel()
		for _, shape := range g.updateShapes() {
			g.update(shape[0], shape[1])
		}
		for depth := 1; depth <= maxStreamDepth; depth++ {
			g.alignedRow("AlignedRow", depth, "", func(s reg.Register, to operand.Mem) { g.move(g.Context, s, to) })
			g.alignedRow("StreamRow", depth, ", with non-temporal stores", func(s reg.Register, to operand.Mem) {
				g.stream(g.Context, s, to)
			})
		}
		if g.shortRows == masked {
			for depth := 1; depth <= maxNarrowDepth; depth++ {
				g.narrow(depth)
			}
		}
		for rows := 1; rows <= maxDotRows; rows++ {
			for count := 1; count <= g.maxDotCols(); count++ {
				g.dot(rows, count)
			}
		}
		if g.lanes() > maxDotRows {
			g.dot(g.lanes(), 1)
		}
	}
	if g.compensates {
		g.compensation()
	}
	g.peak()
	if g.goType != "float32" || g.group == 1 { // other variants with float32 sums share the functions of float32
		g.epilogueFuncs()
	}
}

// write writes a context's functions to dir/name.s and their stubs to dir/name.go.
func write(dir, name string, c *build.Context) error {
	file, err := c.Result()
	if err != nil {
		return err
	}
	if err := pass.Concat(pass.Compile, encode).Execute(file); err != nil {
		return err
	}
	config := printer.Config{Name: "internal/cpu/asm/_gen", Pkg: "asm"}
	for _, out := range []struct {
		ext     string
		printer printer.Printer
	}{
		{".s", printer.NewGoAsm(config)},
		{".go", printer.NewStubs(config)},
	} {
		text, err := out.printer.Print(file)
		if err != nil {
			return err
		}
		if avx512 := hasAVX512.MatchString(name); !avx512 && avx512Only.Match(text) {
			return fmt.Errorf("%s uses a register that only AVX-512 has: want at most 16 live vector registers", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name+out.ext), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// hasAVX512 matches the names of files whose instruction sets include AVX-512.
var hasAVX512 = regexp.MustCompile(`avx512|vnni|amx`)

// avx512Only matches vector registers that AVX2 lacks. Avo allocates registers beyond 15 if it
// needs them.
var avx512Only = regexp.MustCompile(`\b[XY](1[6-9]|2[0-9]|3[01])\b`)

// function starts a function of v. T in params stands for the element type. Its arguments do not
// escape, and it calls no other function.
func (g *generator) function(name, params string, doc ...string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(" + strings.ReplaceAll(params, "T", g.goType) + ")")
	g.Pragma("noescape")
	g.Doc(doc...)
}

// packed writes the micro-kernel that reads packed panels.
func (g *generator) packed() {
	name := "Packed" + g.suffix()
	g.function(name, "k int, a, b, c, next *T, ldc, m, n int, alpha, beta T",
		g.docLoop(name, "m×n elements of C, m ≤ MR and n ≤ NR, from packed panels", "i < m", "p < k", "p*MR+i",
			g.words.panel)...)
	g.micro(micro{rows: g.mr, open: g.panels, end: masked, limitRows: true})
}

// widening writes the micro-kernel for rows of B with 16-bit elements and panels of A with the
// given rows.
func (g *generator) widening(f packer, rows int) {
	name := fmt.Sprintf("Widen%s%sx%d", f.name, g.suffix(), rows)
	g.function(name, "k int, a *T, lda int, b, next *uint16, ldb, ldn int, c *T, ldc, m, n int, alpha, beta T",
		append(g.docLoop(name, fmt.Sprintf("m×n elements of C, m ≤ %d and n ≤ NR, from a panel and a matrix", rows),
			"i < m", "p < k", "p*lda+i", "p*ldb+j"),
			"", "It widens the elements of b, which are "+strings.Fields(f.desc)[1]+", and loads NR of each row.")...)
	g.micro(micro{rows: rows, open: func(rows int) operands {
		return g.panelAndMatrix(rows, func(b operand.Mem, dst reg.Register) { f.widen(g.Context, b, dst) })
	}, end: masked, limitRows: true, wholeVectors: true})
}

// direct writes the micro-kernel that reads A and B as stored.
func (g *generator) direct(rows int) {
	name := fmt.Sprintf("Direct%sx%d", g.suffix(), rows)
	g.function(name, "tiles, "+directParams,
		g.docLoop(name, fmt.Sprintf("tiles·%d×n elements of C, n ≤ NR and tiles ≥ 1, from matrices", rows),
			fmt.Sprintf("i < tiles*%d", rows), "p < k", "i*rsa+p*csa", "p*ldb+j")...)
	if rows == g.mr {
		g.prefetchC()
	}
	g.micro(micro{rows: rows, open: g.matrices, end: g.shortRows})
}

// directParams are the parameters of a kernel that reads matrices as stored.
const directParams = "k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T"

// deep writes a direct kernel for few rows and many steps of k, with several sets of sums.
func (g *generator) deep(rows int) {
	name := fmt.Sprintf("Deep%sx%d", g.suffix(), rows)
	g.function(name, "tiles, "+directParams, g.deepDoc(name, rows)...)
	g.micro(micro{rows: rows, open: g.matrices, end: masked, deep: true})
}

// deepDoc returns the doc comment of a deep kernel: the loop that it computes.
func (g *generator) deepDoc(name string, rows int) []string {
	narrow, wide := body{vectors: 1}.withSets(rows), body{vectors: 2}.withSets(rows)
	return []string{
		fmt.Sprintf("%s computes tiles·%d×n elements of C, n ≤ %d and tiles ≥ 1, from matrices:", name, rows, g.nr),
		"",
		fmt.Sprintf("\tsets, unroll := %d, %d", narrow.sets, narrow.unroll()),
		fmt.Sprintf("\tif n > %d {", g.lanes()),
		fmt.Sprintf("\t\tsets, unroll = %d, %d", wide.sets, wide.unroll()),
		"\t}",
		fmt.Sprintf("\tfor i := 0; i < tiles*%d; i++ {", rows),
		"\t\tfor j := 0; j < n; j++ {",
		fmt.Sprintf("\t\t\tvar sum [%d]T", narrow.sets),
		"\t\t\tfor p := 0; p < k; p++ {",
		"\t\t\t\tu := p % sets",
		"\t\t\t\tif p >= k/unroll*unroll {",
		"\t\t\t\t\tu = 0",
		"\t\t\t\t}",
		"\t\t\t\tsum[u] = fma(a[i*rsa+p*csa], b[p*ldb+j], sum[u])",
		"\t\t\t}",
		"\t\t\tfor half := sets / 2; half > 0; half /= 2 {",
		"\t\t\t\tfor u := 0; u < half; u++ {",
		"\t\t\t\t\tsum[u] += sum[u+half]",
		"\t\t\t\t}",
		"\t\t\t}",
		"\t\t\tif beta == 0 {",
		"\t\t\t\tc[i*ldc+j] = alpha * sum[0]",
		"\t\t\t} else {",
		"\t\t\t\tc[i*ldc+j] = fma(alpha, sum[0], beta*c[i*ldc+j])",
		"\t\t\t}",
		"\t\t}",
		"\t}",
	}
}

// maxDeepRows returns the largest number of rows for which deep kernels differ from direct ones.
func (v variant) maxDeepRows() int { return min(v.mr, minChains-1) }

// copyKernel writes the micro-kernel that copies the rows of B that it reads.
func (g *generator) copyKernel() {
	name := "Copy" + g.suffix()
	g.function(name, directParams,
		append(g.docLoop(name, "an MR×NR tile of C (n = NR) from matrices", fmt.Sprintf("i < %d", g.mr), "p < k",
			"i*rsa+p*csa", "p*ldb+j"),
			"", fmt.Sprintf("It also copies the rows of b: next[p*%d+j] = b[p*ldb+j].", g.nr))...)
	from := g.matrices(g.mr)
	from.fetchNext, from.copyTo = func() {}, g.param("next")
	whole := g.whole()
	g.updateC(whole, g.sumOverK(whole, from, g.mr), false)
	g.VZEROUPPER()
	g.RET()
}

// streamKernel writes the micro-kernel that stores its tiles with non-temporal stores.
func (g *generator) streamKernel() {
	name := "Stream" + g.suffix()
	g.function(name, "tiles, "+directParams,
		g.docLoop(name, "tiles·MR×NR elements of C (n = NR, beta = 0) from matrices", fmt.Sprintf("i < tiles*%d", g.mr),
			"p < k", "i*rsa+p*csa", "p*ldb+j")...)
	whole := g.whole()
	g.Label(whole.name)
	from := g.matrices(g.mr)
	// No prefetches: k is small, and they would be beyond the end of B.
	from.fetch, from.fetchNext = func(int, int, int) {}, func() {}
	g.streamC(whole, g.sumOverK(whole, from, g.mr))
	g.nextTile(whole, g.mr)
	g.VZEROUPPER()
	g.RET()
}

// docLoop returns the doc comment of a micro-kernel: the loop that it computes. It replaces MR and
// NR by the size of the tile.
func (g *generator) docLoop(name, from, rows, steps, a, b string) []string {
	return g.docLoopTo(name, from, rows, steps, a, b,
		"if beta == 0 {",
		"\tc[i*ldc+j] = alpha * sum",
		"} else {",
		"\tc[i*ldc+j] = "+g.words.update,
		"}")
}

// docLoopTo is docLoop for other statements that write an element of C.
func (g *generator) docLoopTo(name, from, rows, steps, a, b string, write ...string) []string {
	tile := strings.NewReplacer("MR", strconv.Itoa(g.mr), "NR", strconv.Itoa(g.nr))
	lines := []string{
		tile.Replace(name + " computes " + from + ":"),
		"",
		"\tfor i := 0; " + rows + "; i++ {",
		"\t\tfor j := 0; j < n; j++ {",
		"\t\t\tsum := " + g.words.start,
		"\t\t\tfor p := 0; " + steps + "; p++ {",
		fmt.Sprintf("\t\t\t\tsum = %s(a[%s], b[%s], sum)", g.words.step, tile.Replace(a), tile.Replace(b)),
		"\t\t\t}",
	}
	for _, statement := range write {
		lines = append(lines, "\t\t\t"+statement)
	}
	return append(append(lines, "\t\t}", "\t}"), g.words.notes...)
}
