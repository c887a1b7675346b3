// Command _gen writes the micro-kernels of package asm into the folder above: for
// each instruction set and element type of its table one assembly file and one
// file of Go stubs.
//
//	main.go     the table, and what is written for each of its rows
//	isa.go      what the instruction sets and the element types differ in
//	kernel.go   the micro-kernels: the loop over k, then C's tile
//	stream.go   the kernels for products that are bound by memory
//	integer.go  what int8 differs in
//	bfloat.go   what bfloat16 differs in where the processor multiplies it
//	tiles.go    the micro-kernels for AMX
//	encode.go   the instructions that Go's assembler does not know
//	finish.go   what is done to a tile of C before it leaves the cache
//	narrow.go   what a C of 16 bits needs of that
//	pack.go     the copies into panels, conversions included
//	copy.go     the copy around the caches
//	operands.go where a micro-kernel finds A and B: packed panels or matrices
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

// variant is one instruction set multiplying one element type.
type variant struct {
	isa
	element
	mr, nr int // the tile of C; nr is two vectors
}

// The tiles: two vectors wide, and as many rows as the registers have room for sums: 12
// of 16 (2 of B, 1 of A, 1 mask), 24 of 32. What a step loads from the caches is the less
// for each operation the higher a tile is; more than 12 rows leave more of a tile unused
// at the lower edge than that brings.
var variants = []variant{
	{avx512, f32, 12, 32},
	{avx512, f64, 12, 16},
	{avx2, f32, 6, 16},
	{avx2, f64, 6, 8},
	{vnni, quads, 8, 32},
	{avx2, pairs, 4, 16}, // a product and a sum are two instructions, with a register between them
	{avx512, bf16, 12, 32},
	{amx, tiled(quads, "TDPBSSD", signedQuads), 32, 32},
	{amx, tiled(bf16, "TDPBF16PS", separateSums), 32, 32},
}

func main() {
	log.SetFlags(0)
	for _, v := range variants {
		if err := v.write(".."); err != nil {
			log.Fatalf("%s: %v", v.suffix(), err)
		}
	}
	for name, write := range map[string]func(dir string) error{"pause": writePause, "pack": writePack, "copy": writeCopy} {
		if err := write(".."); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
}

// writePause writes the functions that are not for a variant.
func writePause(dir string) error {
	c := build.NewContext()
	c.Function("Fence")
	c.Attributes(attr.NOSPLIT)
	c.Doc("Fence has what was stored around the caches be seen before any later store.")
	c.SignatureExpr("func()")
	c.SFENCE()
	c.RET()

	c.Function("Pause")
	c.Attributes(attr.NOSPLIT)
	c.Doc("Pause tells the core n ≥ 1 times that the thread waits for another one, and so",
		"lasts n times some tens of nanoseconds.")
	c.SignatureExpr("func(n int)")
	n := c.Load(c.Param("n"), c.GP64())
	c.Label("again")
	c.PAUSE()
	c.DECQ(n)
	c.JNZ(operand.LabelRef("again"))
	c.RET()

	c.Function("FetchRows")
	c.Attributes(attr.NOSPLIT)
	c.Doc("FetchRows has m ≥ 1 rows of n ≥ 1 bytes, ld bytes apart, come to the L1 cache: they are to be",
		"read soon, and need not be.")
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
	c.PREFETCHT0(operand.Mem{Base: p}) // a row may begin in a line of its own
	c.ADDQ(ld, p)
	c.DECQ(m)
	c.JNZ(operand.LabelRef("row"))
	c.RET()
	return write(dir, "zpause_amd64", c)
}

// suffix is what the names of v's functions end in.
func (v variant) suffix() string { return v.element.name + v.isa.name }

func (v variant) write(dir string) error {
	g := &generator{Context: build.NewContext(), variant: v, constants: map[uint64]operand.Mem{}}
	g.functions()
	return write(dir, "z"+strings.ToLower(v.suffix())+"_amd64", g.Context)
}

// functions writes what there is of a variant.
func (g *generator) functions() {
	if g.tiles != "" {
		g.packedTiles()
		g.peakOfTiles()
		return
	}
	g.packed()
	if g.goType == "float32" && g.group == 1 {
		for _, f := range forms {
			if halves[f.name] != nil {
				g.packedHalves(f)
			}
		}
	}
	if g.group == 1 {
		for rows := 1; rows <= g.mr; rows++ {
			g.direct(rows)
		}
		for rows := 1; rows <= g.deeps(); rows++ {
			g.deep(rows)
		}
		g.copying()
		g.streaming()
		for _, shape := range g.updates() {
			g.update(shape[0], shape[1])
		}
		for rows := 1; rows <= maxDotRows; rows++ {
			for count := 1; count <= g.dots(); count++ {
				g.dot(rows, count)
			}
		}
	}
	if g.starts {
		g.start()
	}
	g.peak()
	if g.goType != "float32" || g.group == 1 { // else sums are finished as those of float32 are
		g.finishers()
	}
}

// write writes a context's functions and their stubs as dir/name.s and dir/name.go.
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
		if avx512 := with32.MatchString(name); !avx512 && beyond15.Match(text) {
			return fmt.Errorf("%s: a register that only AVX-512 has: too many are in use at once", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name+out.ext), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// with32 are the files of instruction sets that have AVX-512.
var with32 = regexp.MustCompile(`avx512|vnni|amx`)

// beyond15 is a vector register that AVX2 does not have. Avo takes them as they come.
var beyond15 = regexp.MustCompile(`\b[XY](1[6-9]|2[0-9]|3[01])\b`)

// function opens a function of v whose parameters are written with T for the
// element type. Nothing it is given escapes, and none of them calls another.
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
		g.docLoop(name, "a part of a tile of C from packed panels, for 1 ≤ m ≤ MR and 1 ≤ n ≤ NR", "i < m", "p < k", "p*MR+i", g.words.panel)...)
	g.bodies(g.mr, g.panels, true, wide, narrow, whole)
}

// packedHalves writes that for panels of B of 16 bits.
func (g *generator) packedHalves(f form) {
	name := "Packed" + f.name + g.suffix()
	g.function(name, "k int, a, b, c, next *T, ldc, m, n int, alpha, beta T",
		append(g.docLoop(name, "a part of a tile of C from packed panels, for 1 ≤ m ≤ MR and 1 ≤ n ≤ NR", "i < m", "p < k", "p*MR+i", g.words.panel),
			"", "The elements of b are of 16 bits: "+f.says+" each.")...)
	g.bodies(g.mr, func(int) operands {
		return g.panelsOf(2, func(b operand.Mem, dst reg.Register) { f.widen(g.Context, b, dst) })
	}, true, wide, narrow, whole)
}

// direct writes the micro-kernel that reads rows of A and B where they are.
func (g *generator) direct(rows int) {
	name := fmt.Sprintf("Direct%sx%d", g.suffix(), rows)
	g.function(name, "k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T",
		g.docLoop(name, "a part of a tile of C from matrices, strides in elements, for 1 ≤ n ≤ NR", fmt.Sprintf("i < %d", rows), "p < k", "i*rsa+p*csa", "p*ldb+j")...)
	if rows == g.mr {
		g.prefetchC()
	}
	g.bodies(rows, g.matrices, false, wide, narrow, whole)
}

// deep writes direct for few rows and many steps of k, with several sets of sums.
func (g *generator) deep(rows int) {
	name := fmt.Sprintf("Deep%sx%d", g.suffix(), rows)
	narrow, wide, whole := narrow.deepened(rows), wide.deepened(rows), whole.deepened(rows)
	g.function(name, "k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T",
		g.deepDoc(name, rows, narrow, wide)...)
	g.bodies(rows, g.matrices, false, wide, narrow, whole)
}

// deepDoc is the doc comment of a deep kernel: the loop that it computes.
func (g *generator) deepDoc(name string, rows int, narrow, wide body) []string {
	return []string{
		fmt.Sprintf("%s computes a part of a tile of C from matrices, strides in elements, for 1 ≤ n ≤ %d:", name, g.nr),
		"",
		fmt.Sprintf("\tsets, unroll := %d, %d", narrow.sets, narrow.unroll()),
		fmt.Sprintf("\tif n > %d {", g.lanes()),
		fmt.Sprintf("\t\tsets, unroll = %d, %d", wide.sets, wide.unroll()),
		"\t}",
		fmt.Sprintf("\tfor i := 0; i < %d; i++ {", rows),
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

// deeps returns up to how many rows deep kernels differ from direct ones.
func (v variant) deeps() int { return min(v.mr, minChains-1) }

// copying writes the micro-kernel that copies what it reads of B.
func (g *generator) copying() {
	name := "Copy" + g.suffix()
	g.function(name, "k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T",
		append(g.docLoop(name, "a tile of C with n = NR from matrices, strides in elements", fmt.Sprintf("i < %d", g.mr), "p < k", "i*rsa+p*csa", "p*ldb+j"),
			"", fmt.Sprintf("and copies the rows of b: next[p*%d+j] = b[p*ldb+j].", g.nr))...)
	from := g.matrices(g.mr)
	from.fetchNext, from.copyTo = func() {}, g.param("next")
	g.updateC(whole, g.sumOverK(whole, from, g.mr, nil), nil, false)
	g.VZEROUPPER()
	g.RET()
}

// streaming writes the micro-kernel whose tile goes around the caches.
func (g *generator) streaming() {
	name := "Stream" + g.suffix()
	g.function(name, "k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T",
		g.docLoop(name, "a whole tile of C, with n = NR and beta = 0, from matrices, strides in elements", fmt.Sprintf("i < %d", g.mr), "p < k", "i*rsa+p*csa", "p*ldb+j")...)
	from := g.matrices(g.mr)
	// What is to come: k is small, and it would be beyond B's end.
	from.fetch, from.fetchNext = func(int, int) {}, func() {}
	g.streamC(g.sumOverK(whole, from, g.mr, nil))
	g.VZEROUPPER()
	g.RET()
}

// docLoop is the doc comment of a micro-kernel: the loop that it computes. MR and
// NR in the texts become the tile's.
func (g *generator) docLoop(name, from, rows, steps, a, b string) []string {
	tile := strings.NewReplacer("MR", strconv.Itoa(g.mr), "NR", strconv.Itoa(g.nr))
	return append([]string{
		tile.Replace(name + " computes " + from + ":"),
		"",
		"\tfor i := 0; " + rows + "; i++ {",
		"\t\tfor j := 0; j < n; j++ {",
		"\t\t\tsum := " + g.words.start,
		"\t\t\tfor p := 0; " + steps + "; p++ {",
		fmt.Sprintf("\t\t\t\tsum = %s(a[%s], b[%s], sum)", g.words.step, tile.Replace(a), tile.Replace(b)),
		"\t\t\t}",
		"\t\t\tif beta == 0 {",
		"\t\t\t\tc[i*ldc+j] = alpha * sum",
		"\t\t\t} else {",
		"\t\t\t\tc[i*ldc+j] = " + g.words.update,
		"\t\t\t}",
		"\t\t}",
		"\t}",
	}, g.words.more...)
}
