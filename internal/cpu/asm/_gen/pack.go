package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// form is a way in which elements in memory become the words of 32 bits that panels
// are made of.
type form struct {
	name, says string
	bytes      int // that eight words of a row are made from
	// widen loads eight words from where they run along a row.
	widen func(c *build.Context, src operand.Mem, dst reg.Register)
	// rows is how many rows make a word of each column; join loads eight such words
	// from as many rows, in two halves. A single row needs no join.
	rows int
	join func(c *build.Context, row []operand.Mem) (low, high reg.Register)
}

var forms = []form{
	{name: "F32", says: "the float32", bytes: 32, rows: 1, widen: loadWords},
	{name: "F16", says: "a float16 as float32", bytes: 16, rows: 1,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) { c.VCVTPH2PS(src, dst) }},
	{name: "BF16", says: "a bfloat16 as float32", bytes: 16, rows: 1,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) {
			c.VPMOVZXWD(src, dst)
			c.VPSLLD(operand.U8(16), dst, dst)
		}},
	{name: "BF16x2", says: "two bfloat16", bytes: 32, rows: 2, widen: loadWords,
		join: func(c *build.Context, row []operand.Mem) (low, high reg.Register) {
			x, y := c.XMM(), c.XMM()
			c.VMOVDQU(row[0], x)
			c.VMOVDQU(row[1], y)
			return joinHalves(c, x, y)
		}},
	{name: "I8x4", says: "four int8", bytes: 32, rows: 4, widen: loadWords, join: joinQuads},
	{name: "U8x4", says: "four int8, 128 added to each", bytes: 32, rows: 4,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) {
			loadWords(c, src, dst)
			c.VPXOR(signBits(c, c.YMM()), dst, dst)
		},
		join: func(c *build.Context, row []operand.Mem) (low, high reg.Register) {
			low, high = joinQuads(c, row)
			flip := signBits(c, c.XMM())
			c.VPXOR(flip, low, low)
			c.VPXOR(flip, high, high)
			return low, high
		}},
	{name: "I8x2", says: "two int8, each as 16 bits", bytes: 16, rows: 2,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) { c.VPMOVSXBW(src, dst) },
		join: func(c *build.Context, row []operand.Mem) (low, high reg.Register) {
			x, y := c.XMM(), c.XMM()
			c.VPMOVSXBW(row[0], x)
			c.VPMOVSXBW(row[1], y)
			return joinHalves(c, x, y)
		}},
}

// joinHalves makes words of eight halves of each of two rows.
func joinHalves(c *build.Context, x, y reg.Register) (low, high reg.Register) {
	low, high = c.XMM(), c.XMM()
	c.VPUNPCKLWD(y, x, low)
	c.VPUNPCKHWD(y, x, high)
	return low, high
}

func loadWords(c *build.Context, src operand.Mem, dst reg.Register) { c.VMOVDQU(src, dst) }

// signBits sets a vector to the highest bit of each byte.
func signBits(c *build.Context, v reg.Register) reg.Register {
	c.VPCMPEQB(v, v, v)
	c.VPABSB(v, v)
	c.VPSLLW(operand.U8(7), v, v)
	return v
}

// joinQuads makes words of the bytes of four rows, eight of each.
func joinQuads(c *build.Context, row []operand.Mem) (low, high reg.Register) {
	x := make([]reg.Register, 4)
	for i := range x {
		v := c.XMM()
		c.VMOVQ(row[i], v)
		x[i] = v
	}
	c.VPUNPCKLBW(x[1], x[0], x[0])
	c.VPUNPCKLBW(x[3], x[2], x[2])
	low, high = c.XMM(), c.XMM()
	c.VPUNPCKLWD(x[2], x[0], low)
	c.VPUNPCKHWD(x[2], x[0], high)
	return low, high
}

// writePack writes the functions that fill panels.
func writePack(dir string) error {
	c := build.NewContext()
	for _, f := range forms {
		f.zip(c)
		f.lay(c)
		f.narrow(c)
		f.addOld(c)
	}
	zipDoubles(c)
	return write(dir, "zpack_amd64", c)
}

const packSignature = "dst *uint32, r int, src *byte, ld int"

func packFunction(c *build.Context, name, counts string, doc ...string) {
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(fmt.Sprintf("func(%s int, %s)", counts, packSignature))
	c.Pragma("noescape")
	c.Doc(doc...)
}

// strides are addresses of rows a distance apart, up to eight of them.
func strides(c *build.Context, base, step reg.GPVirtual, rows int) []operand.Mem {
	odd := map[int]reg.Register{1: step}
	for n := 3; n < rows; n += 2 {
		r := c.GP64()
		c.LEAQ(operand.Mem{Base: odd[n-2], Index: step, Scale: 2}, r)
		odd[n] = r
	}
	at := []operand.Mem{{Base: base}}
	for i := 1; i < rows; i++ {
		scale := i & -i
		at = append(at, operand.Mem{Base: base, Index: odd[i/scale], Scale: uint8(scale)})
	}
	return at
}

func param(c *build.Context, name string) reg.GPVirtual {
	r := c.GP64()
	c.Load(c.Param(name), r)
	return r
}

// zip writes the function for operands that run along K: eight rows become the rows
// of a panel's transpose, eight words of each at a time.
func (f form) zip(c *build.Context) {
	name := "Zip" + f.name
	packFunction(c, name, "k",
		fmt.Sprintf("%s copies eight rows, ld bytes apart, to a panel r words wide: dst[p*r+i] is word p", name),
		fmt.Sprintf("of row i, %s, for p < k. k is a multiple of eight.", f.says))
	k, dst, r, src, ld := param(c, "k"), param(c, "dst"), param(c, "r"), param(c, "src"), param(c, "ld")
	c.SHRQ(operand.U8(3), k)
	c.SHLQ(operand.U8(2), r)
	from, to := strides(c, src, ld, 8), strides(c, dst, r, 8)
	c.TESTQ(k, k)
	c.JZ(operand.LabelRef("end"))
	c.Label("eight")
	row := make([]reg.Register, 8)
	for i := range row {
		row[i] = c.YMM()
		f.widen(c, from[i], row[i])
	}
	for p, column := range transposed(c, row) {
		c.VMOVDQU(column, to[p])
	}
	c.ADDQ(operand.I32(f.bytes), src)
	c.LEAQ(operand.Mem{Base: dst, Index: r, Scale: 8}, dst)
	c.DECQ(k)
	c.JNZ(operand.LabelRef("eight"))
	c.Label("end")
	c.VZEROUPPER()
	c.RET()
}

// transposed are the columns of eight words by eight.
func transposed(c *build.Context, row []reg.Register) []reg.Register {
	apply := func(op func(ops ...operand.Op), x, y reg.Register) reg.Register {
		v := c.YMM()
		op(y, x, v)
		return v
	}
	var pair, four [8]reg.Register // pairs of rows, then fours, in the low and high half the columns p and p+4
	for i := 0; i < 8; i += 2 {
		pair[i], pair[i+1] = apply(c.VPUNPCKLDQ, row[i], row[i+1]), apply(c.VPUNPCKHDQ, row[i], row[i+1])
	}
	for i := 0; i < 8; i += 4 {
		for h := range 2 {
			four[i+2*h], four[i+2*h+1] = apply(c.VPUNPCKLQDQ, pair[i+h], pair[i+2+h]), apply(c.VPUNPCKHQDQ, pair[i+h], pair[i+2+h])
		}
	}
	column := make([]reg.Register, 8)
	for p := range 4 {
		for half, select128 := range []operand.U8{0x20, 0x31} {
			v := c.YMM()
			c.VPERM2I128(select128, four[p+4], four[p], v)
			column[p+4*half] = v
		}
	}
	return column
}

// zipDoubles is zip for float64, each of which is two words.
func zipDoubles(c *build.Context) {
	packFunction(c, "ZipF64", "k",
		"ZipF64 copies eight rows, ld bytes apart, to a panel r words wide: dst[p*r+2*i] and the word",
		"after it are element p of row i, the float64, for p < k. k is a multiple of four.")
	k, dst, r, src, ld := param(c, "k"), param(c, "dst"), param(c, "r"), param(c, "src"), param(c, "ld")
	c.SHRQ(operand.U8(2), k)
	c.SHLQ(operand.U8(2), r)
	from, to := strides(c, src, ld, 8), strides(c, dst, r, 4)
	c.TESTQ(k, k)
	c.JZ(operand.LabelRef("end"))
	c.Label("four")
	for i := 0; i < 8; i += 4 {
		row, pair := make([]reg.Register, 4), make([]reg.Register, 4)
		for x := range row {
			row[x], pair[x] = c.YMM(), c.YMM()
			c.VMOVUPD(from[i+x], row[x])
		}
		for x := 0; x < 4; x += 2 {
			c.VUNPCKLPD(row[x+1], row[x], pair[x])
			c.VUNPCKHPD(row[x+1], row[x], pair[x+1])
		}
		for p := range 4 {
			c.VPERM2F128(operand.U8(0x20+0x11*(p/2)), pair[2+p%2], pair[p%2], row[p])
			c.VMOVUPD(row[p], to[p].Offset(i*8))
		}
	}
	c.ADDQ(operand.I32(32), src)
	c.LEAQ(operand.Mem{Base: dst, Index: r, Scale: 4}, dst)
	c.DECQ(k)
	c.JNZ(operand.LabelRef("four"))
	c.Label("end")
	c.VZEROUPPER()
	c.RET()
}

// lay writes the function for operands whose columns lie side by side.
func (f form) lay(c *build.Context) {
	name := "Lay" + f.name
	word := "element j of row p"
	if f.rows > 1 {
		word = fmt.Sprintf("elements j of the rows %d·p to %d·p+%d", f.rows, f.rows, f.rows-1)
	}
	packFunction(c, name, "k, n",
		fmt.Sprintf("%s copies n columns of rows that are ld bytes apart to a panel r words wide:", name),
		fmt.Sprintf("dst[p*r+j] is %s, %s, for p < k and j < n. n is a multiple of eight.", word, f.says))
	k, n, dst, r, src, ld := param(c, "k"), param(c, "n"), param(c, "dst"), param(c, "r"), param(c, "src"), param(c, "ld")
	c.SHRQ(operand.U8(3), n)
	c.SHLQ(operand.U8(2), r)
	from, to, left := c.GP64(), c.GP64(), c.GP64()
	at := strides(c, from, ld, f.rows)
	c.TESTQ(n, n)
	c.JZ(operand.LabelRef("end"))
	c.TESTQ(k, k)
	c.JZ(operand.LabelRef("end"))
	c.Label("row")
	c.MOVQ(src, from)
	c.MOVQ(dst, to)
	c.MOVQ(n, left)
	c.Label("eight")
	if f.rows == 1 {
		v := c.YMM()
		f.widen(c, at[0], v)
		c.VMOVDQU(v, operand.Mem{Base: to})
		c.ADDQ(operand.I32(f.bytes), from)
	} else {
		low, high := f.join(c, at)
		c.VMOVDQU(low, operand.Mem{Base: to})
		c.VMOVDQU(high, operand.Mem{Base: to, Disp: 16})
		c.ADDQ(operand.I32(f.bytes/f.rows), from)
	}
	c.ADDQ(operand.I32(32), to)
	c.DECQ(left)
	c.JNZ(operand.LabelRef("eight"))
	for range f.rows {
		c.ADDQ(ld, src)
	}
	c.ADDQ(r, dst)
	c.DECQ(k)
	c.JNZ(operand.LabelRef("row"))
	c.Label("end")
	c.VZEROUPPER()
	c.RET()
}
