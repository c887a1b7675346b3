package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// halves are the forms of 16 bits, with how eight float32 are rounded to them.
var halves = map[string]func(c *build.Context, x reg.Register) (half reg.Register){
	"F16": func(c *build.Context, x reg.Register) reg.Register {
		half := c.XMM()
		c.VCVTPS2PH(operand.U8(0), x, half) // to nearest, ties to even
		return half
	},
	// To nearest, ties to even: half a step less one, and one more for an odd last bit,
	// is added to the bits and the lower half cut off. A NaN is cut off and made quiet.
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
		// Words to halves, within each half of the register; then the halves' first parts.
		c.VPACKUSDW(up, up, up)
		c.VPERMQ(operand.U8(0b1000), up, up)
		return up.AsX()
	},
}

// narrow writes the function that rounds sums to a form of 16 bits.
func (f form) narrow(c *build.Context) {
	round, ok := halves[f.name]
	if !ok {
		return
	}
	name := "Narrow" + f.name
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(m, n int, dst *uint16, ldd int, src *float32, lds int)")
	c.Pragma("noescape")
	c.Doc(name+" rounds m rows of n elements, to nearest with ties to even: src's are lds elements apart,",
		"dst's ldd. n is a multiple of eight.")
	m, n, dst, ldd, src, lds := param(c, "m"), param(c, "n"), param(c, "dst"), param(c, "ldd"), param(c, "src"), param(c, "lds")
	c.SHLQ(operand.U8(1), ldd)
	c.SHLQ(operand.U8(2), lds)
	eights(c, m, n, []line{{dst, ldd, 16}, {src, lds, 32}}, func(at []operand.Mem) {
		x := c.YMM()
		c.VMOVUPS(at[1], x)
		c.VMOVDQU(round(c, x), at[0])
	})
}

// addOld writes the function that adds β·C to sums, C being of 16 bits.
func (f form) addOld(c *build.Context) {
	if _, ok := halves[f.name]; !ok {
		return
	}
	name := "AddOld" + f.name
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(m, n int, dst *float32, ldd int, src *uint16, lds int, beta float32)")
	c.Pragma("noescape")
	c.Doc(name+" adds beta times m rows of n elements, lds elements apart, to sums that are ldd elements apart.",
		"Products are rounded before they are added. n is a multiple of eight.")
	m, n, dst, ldd, src, lds := param(c, "m"), param(c, "n"), param(c, "dst"), param(c, "ldd"), param(c, "src"), param(c, "lds")
	at, err := c.Param("beta").Resolve()
	if err != nil {
		panic(err) // the signature above has it
	}
	beta := c.YMM()
	c.VBROADCASTSS(at.Addr, beta)
	c.SHLQ(operand.U8(2), ldd)
	c.SHLQ(operand.U8(1), lds)
	eights(c, m, n, []line{{dst, ldd, 32}, {src, lds, 16}}, func(at []operand.Mem) {
		x := c.YMM()
		f.widen(c, at[1], x)
		c.VMULPS(x, beta, x)
		c.VADDPS(at[0], x, x)
		c.VMOVUPS(x, at[0])
	})
}

// line is a matrix to walk along: its start, the bytes from row to row, and those that
// eight elements take.
type line struct {
	start, ld reg.GPVirtual
	eight     int
}

// eights goes along the rows of several matrices at once, eight elements at a time, and
// returns from the function.
func eights(c *build.Context, m, n reg.GPVirtual, lines []line, do func(at []operand.Mem)) {
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
