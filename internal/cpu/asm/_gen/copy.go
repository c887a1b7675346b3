package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeCopy writes CopyLines.
func writeCopy(dir string) error {
	const line, vector = 64, 32
	c := build.NewContext()
	c.Function("CopyLines")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(dst, src *byte, next uintptr, lines int)")
	c.Pragma("noescape")
	c.Doc("CopyLines copies lines ≥ 1 times [Line] bytes with non-temporal AVX2 stores. dst is a multiple",
		"of [Line]. It also prefetches as many lines from next on, which the caller should copy next.",
		"A [Fence] must follow before another thread learns of the copy.")
	dst, src := c.Load(c.Param("dst"), c.GP64()), c.Load(c.Param("src"), c.GP64())
	next, lines := c.Load(c.Param("next"), c.GP64()), c.Load(c.Param("lines"), c.GP64())
	at := func(base reg.Register, offset int) operand.Mem { return operand.Mem{Base: base, Disp: offset} }

	copyLines := func(n int) {
		var held []reg.VecVirtual
		for i := range n * line / vector {
			held = append(held, c.YMM())
			c.VMOVDQU(at(src, i*vector), held[i])
		}
		for i := range n {
			c.PREFETCHT0(at(next, i*line))
		}
		for i, v := range held {
			c.VMOVNTDQ(v, at(dst, i*vector))
		}
		for _, p := range []reg.Register{dst, src, next} {
			c.ADDQ(operand.U32(uint32(n*line)), p)
		}
	}
	const together = 4
	c.SUBQ(operand.Imm(together), lines)
	c.JL(operand.LabelRef("rest"))
	c.Label("many")
	copyLines(together)
	c.SUBQ(operand.Imm(together), lines)
	c.JGE(operand.LabelRef("many"))
	c.Label("rest")
	c.ADDQ(operand.Imm(together), lines)
	c.JZ(operand.LabelRef("done"))
	c.Label("one")
	copyLines(1)
	c.DECQ(lines)
	c.JNZ(operand.LabelRef("one"))
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
	return write(dir, "zcopy_amd64", c)
}
