package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeLargest writes the functions that find the largest element of a vector.
func writeLargest(dir string) error {
	c := build.NewContext()
	largest(c, f32, maths32.and, c.VPSRLD, c.VCMPPS, c.VMOVMSKPS)
	largest(c, f64, maths64.and, c.VPSRLQ, c.VCMPPD, c.VMOVMSKPD)
	return write(dir, "zlargest_amd64", c)
}

// largest writes the function for an element type: it finds the largest absolute value, then the
// first element that has it. Each step of either loop reads 128 bytes. The last step ends with the
// last element, and so repeats some.
func largest(c *build.Context, e element, and instruction, shift, compare func(ops ...operand.Op),
	signs func(x, dst operand.Op)) {
	const vectors, vectorBytes, isEqual = 4, 32, 0
	lanes := vectorBytes / e.size
	name := "Largest" + e.name
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func(n int, x *" + e.goType + ") int")
	c.Pragma("noescape")
	c.Doc(name+" returns the index of the first element with the largest absolute value of n ≥ 32 elements.",
		"NaNs are skipped, but x[0] must not be one.")
	last, x := param(c, "n"), param(c, "x")
	c.SUBQ(operand.Imm(uint64(vectors*lanes)), last)
	magnitude, v := c.YMM(), c.YMM()
	c.VPCMPEQD(magnitude, magnitude, magnitude)
	shift(operand.Imm(1), magnitude, magnitude)
	var most [vectors]reg.VecVirtual
	for i := range most {
		most[i] = c.YMM()
		c.VXORPS(most[i], most[i], most[i])
	}

	at := c.GP64()
	load := func(i int) { // the absolute values of vector i of a step
		from := operand.Mem{Base: x, Index: at, Scale: uint8(e.size), Disp: i * vectorBytes}
		and(c, from, magnitude, v)
	}
	steps := func(label string, step, leave func()) {
		c.XORQ(at, at)
		c.Label(label)
		step()
		leave()
		c.ADDQ(operand.Imm(uint64(vectors*lanes)), at)
		c.CMPQ(at, last)
		c.JLT(operand.LabelRef(label))
		c.MOVQ(last, at)
		step()
	}
	steps("most", func() {
		for i := range most {
			load(i)
			e.max(c, most[i], v, most[i]) // in this order, a NaN leaves the old value
		}
	}, func() {})
	all := most[0]
	for _, m := range most[1:] {
		e.max(c, m, all, all)
	}
	c.VPERM2F128(operand.Imm(1), all, all, v)
	e.max(c, v, all, all)
	for _, order := range []uint64{0x4e, 0xb1} { // the halves of 16 bytes, then of 8 bytes
		if e.size == 8 && order == 0xb1 {
			break
		}
		c.VPERMILPS(operand.Imm(order), all, v)
		e.max(c, v, all, all)
	}
	found := c.GP64()
	steps("first", func() {
		c.XORQ(found, found)
		for i := range vectors {
			load(i)
			compare(operand.Imm(isEqual), v, all, v)
			bits := c.GP32()
			signs(v, bits)
			c.SHLQ(operand.Imm(uint64(i*lanes)), bits.As64())
			c.ORQ(bits.As64(), found)
		}
	}, func() { c.JNZ(operand.LabelRef("end")) })
	c.Label("end")
	c.BSFQ(found, found)
	c.ADDQ(at, found)
	c.Store(found, c.ReturnIndex(0))
	c.VZEROUPPER()
	c.RET()
}
