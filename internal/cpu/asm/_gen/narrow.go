package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// halves holds, for each packer of 16-bit elements, the code that rounds eight float32 to them.
var halves = map[string]func(c *build.Context, x reg.Register) (half reg.Register){
	"F16": func(c *build.Context, x reg.Register) reg.Register {
		half := c.XMM()
		c.VCVTPS2PH(operand.U8(0), x, half) // to nearest, ties to even
		return half
	},
	// Rounds to nearest, ties to even: it adds 0x7fff, plus one if the last bit to keep is odd, and
	// drops the lower 16 bits. It truncates a NaN and makes it quiet.
	"BF16": func(c *build.Context, x reg.Register) reg.Register {
		nan, up, ones, quiet := c.YMM(), c.YMM(), c.YMM(), c.YMM()
		c.VCMPPS(operand.U8(3), x, x, nan)
		c.VPCMPEQD(ones, ones, ones)
		c.VPSRLD(operand.U8(16), x, up)
		c.VPSLLD(operand.U8(31), up, up)
		c.VPSRLD(operand.U8(31), up, up)
		c.VPSRLD(operand.U8(17), ones, quiet) // 0x7fff
		c.VPADDD(quiet, up, up)
		c.VPADDD(x, up, up)
		c.VPSRLD(operand.U8(31), ones, quiet)
		c.VPSLLD(operand.U8(22), quiet, quiet)
		c.VPOR(x, quiet, quiet)
		c.VBLENDVPS(nan, quiet, up, up)
		c.VPSRLD(operand.U8(16), up, up)
		// Pack words to 16 bits within each half of the register, then join the low parts of both
		// halves.
		c.VPACKUSDW(up, up, up)
		c.VPERMQ(operand.U8(0b1000), up, up)
		return up.AsX()
	},
}

// narrow writes the function that rounds sums to 16-bit elements.
func (f packer) narrow(c *build.Context) {
	round, ok := halves[f.name]
	if !ok {
		return
	}
	name := "Narrow" + f.name
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(m, n int, dst *uint16, ldd int, src *float32, lds int)")
	c.Pragma("noescape")
	c.Doc(name+" rounds m rows of n elements to nearest, ties to even. Rows of src are lds elements",
		"apart, rows of dst ldd. n is a multiple of eight.")
	m, n, dst, ldd, src, lds := param(c, "m"), param(c, "n"), param(c, "dst"), param(c, "ldd"), param(c, "src"),
		param(c, "lds")
	c.SHLQ(operand.U8(1), ldd)
	c.SHLQ(operand.U8(2), lds)
	forEachEight(c, m, n, []strideOver{{dst, ldd, 16}, {src, lds, 32}}, func(at []operand.Mem) {
		x := c.YMM()
		c.VMOVUPS(at[1], x)
		c.VMOVDQU(round(c, x), at[0])
	})
}

// addOld writes the function that adds β·C to sums for a C of 16-bit elements.
func (f packer) addOld(c *build.Context) {
	if _, ok := halves[f.name]; !ok {
		return
	}
	name := "AddOld" + f.name
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(m, n int, dst *float32, ldd int, src *uint16, lds int, beta float32)")
	c.Pragma("noescape")
	c.Doc(name+" adds beta times m rows of n elements of src to dst and rounds each product before",
		"it adds it. Rows of src are lds elements apart, rows of dst ldd. n is a multiple of eight.")
	m, n, dst, ldd, src, lds := param(c, "m"), param(c, "n"), param(c, "dst"), param(c, "ldd"), param(c, "src"),
		param(c, "lds")
	at, err := c.Param("beta").Resolve()
	if err != nil {
		panic(err) // the signature above declares it
	}
	beta := c.YMM()
	c.VBROADCASTSS(at.Addr, beta)
	c.SHLQ(operand.U8(2), ldd)
	c.SHLQ(operand.U8(1), lds)
	forEachEight(c, m, n, []strideOver{{dst, ldd, 32}, {src, lds, 16}}, func(at []operand.Mem) {
		x := c.YMM()
		f.widen(c, at[1], x)
		c.VMULPS(x, beta, x)
		c.VADDPS(at[0], x, x)
		c.VMOVUPS(x, at[0])
	})
}

// strideOver is a matrix to iterate over: its start, the bytes between rows, and the bytes that
// eight elements take.
type strideOver struct {
	start, ld reg.GPVirtual
	eight     int
}

// forEachEight iterates over the rows of several matrices together, eight elements at a time, and
// returns from the function.
func forEachEight(c *build.Context, m, n reg.GPVirtual, lines []strideOver, do func(at []operand.Mem)) {
	c.SHRQ(operand.U8(3), n)
	c.TESTQ(n, n)
	c.JZ(operand.LabelRef("end"))
	c.TESTQ(m, m)
	c.JZ(operand.LabelRef("end"))
	c.Label("row")
	left := c.GP64()
	c.MOVQ(n, left)
	var at []operand.Mem
	for _, l := range lines {
		p := c.GP64()
		c.MOVQ(l.start, p)
		at = append(at, operand.Mem{Base: p})
	}
	c.Label("eight")
	do(at)
	for i, l := range lines {
		c.ADDQ(operand.I32(l.eight), at[i].Base)
	}
	c.DECQ(left)
	c.JNZ(operand.LabelRef("eight"))
	for _, l := range lines {
		c.ADDQ(l.ld, l.start)
	}
	c.DECQ(m)
	c.JNZ(operand.LabelRef("row"))
	c.Label("end")
	c.VZEROUPPER()
	c.RET()
}
