package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packer describes the conversion of stored elements to the 32-bit words of panels.
type packer struct {
	name, desc string
	bytes      int // bytes of a row that make eight words
	// widen loads eight words from consecutive elements of a row.
	widen func(c *build.Context, src operand.Mem, dst reg.Register)
	// rows is the number of rows that make a word of each column. join loads eight such words from
	// as many rows, in two halves. A single row needs no join.
	rows int
	join func(c *build.Context, row []operand.Mem) (low, high reg.Register)
}

var packers = []packer{
	{name: "F32", desc: "a float32", bytes: 32, rows: 1, widen: loadWords},
	{name: "F16", desc: "a float16 as float32", bytes: 16, rows: 1,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) { c.VCVTPH2PS(src, dst) }},
	{name: "BF16", desc: "a bfloat16 as float32", bytes: 16, rows: 1,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) {
			c.VPMOVZXWD(src, dst)
			c.VPSLLD(operand.U8(16), dst, dst)
		}},
	{name: "BF16x2", desc: "two bfloat16", bytes: 32, rows: 2, widen: loadWords,
		join: func(c *build.Context, row []operand.Mem) (low, high reg.Register) {
			x, y := c.XMM(), c.XMM()
			c.VMOVDQU(row[0], x)
			c.VMOVDQU(row[1], y)
			return joinHalves(c, x, y)
		}},
	{name: "I8x4", desc: "four int8", bytes: 32, rows: 4, widen: loadWords, join: joinQuads},
	{name: "U8x4", desc: "four int8, 128 added to each", bytes: 32, rows: 4,
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
	{name: "I8x2", desc: "two int8, each as 16 bits", bytes: 16, rows: 2,
		widen: func(c *build.Context, src operand.Mem, dst reg.Register) { c.VPMOVSXBW(src, dst) },
		join: func(c *build.Context, row []operand.Mem) (low, high reg.Register) {
			x, y := c.XMM(), c.XMM()
			c.VPMOVSXBW(row[0], x)
			c.VPMOVSXBW(row[1], y)
			return joinHalves(c, x, y)
		}},
}

// joinHalves joins eight 16-bit elements of each of two rows to words.
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

// joinQuads joins eight bytes of each of four rows to words.
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

// writePack writes the packing functions.
func writePack(dir string) error {
	c := build.NewContext()
	for _, f := range packers {
		f.zip(c)
		f.copyRows(c)
		f.narrow(c)
		f.addOld(c)
	}
	zipFloat64(c)
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

// strides returns the addresses of up to eight rows, step bytes apart.
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

// zip writes the Zip function for operands stored along K. It transposes eight rows, eight
// words of each at a time.
func (f packer) zip(c *build.Context) {
	zip(c, "Zip"+f.name, "dst[p*r+i] is word p of row i ("+f.desc+")", 8, f.bytes, func(from, to []operand.Mem) {
		for p, column := range f.transpose8(c, from) {
			c.VMOVDQU(column, to[p])
		}
	})
}

// zipFloat64 is zip for float64 elements, which take two words.
func zipFloat64(c *build.Context) {
	const result = "dst[p*r+2*i] and the next word are element p of row i (a float64)"
	zip(c, "ZipF64", result, 4, 32, func(from, to []operand.Mem) {
		for i := 0; i < 8; i += 4 {
			for p := 0; p < 4; p += 2 {
				for q, column := range transposePair(c, from[i:i+4], p/2) {
					c.VMOVUPD(column, to[p+q].Offset(i*8))
				}
			}
		}
	})
}

// zip writes a Zip function. transpose copies a number of steps of eight rows, which take bytes of
// each row. If k is no multiple of steps, the last ones overlap those before them.
func zip(c *build.Context, name, result string, steps, bytes int, transpose func(from, to []operand.Mem)) {
	packFunction(c, name, "k, n",
		fmt.Sprintf("%s copies n rows, ld bytes apart, to a panel r words wide:", name), result+", for p < k and i < n.",
		fmt.Sprintf("n is a multiple of eight. k is at least %d.", steps))
	n, dst, r, src, ld := param(c, "n"), param(c, "dst"), param(c, "r"), param(c, "src"), param(c, "ld")
	c.SHLQ(operand.U8(2), r)
	from, to := strides(c, src, ld, 8), strides(c, dst, r, steps)
	blocks, count := c.GP64(), c.GP64()
	block := func() { // transposes steps and moves on to the next ones
		transpose(from, to)
		c.ADDQ(operand.I32(bytes), src)
		c.LEAQ(operand.Mem{Base: dst, Index: r, Scale: uint8(steps)}, dst)
	}
	move := func() { // moves on by count steps, which may be negative
		words := c.GP64()
		c.MOVQ(count, words)
		c.IMULQ(r, words)
		c.ADDQ(words, dst)
		c.IMUL3Q(operand.I32(bytes/steps), count, count)
		c.ADDQ(count, src)
	}
	c.Label("rows")
	c.Load(c.Param("k"), blocks)
	c.SHRQ(operand.U8(uint8(bits.TrailingZeros(uint(steps)))), blocks)
	c.Label("steps")
	block()
	c.DECQ(blocks)
	c.JNZ(operand.LabelRef("steps"))

	// The last steps, which end at k.
	c.Load(c.Param("k"), count)
	c.ANDQ(operand.I32(steps-1), count)
	c.JZ(operand.LabelRef("next"))
	c.SUBQ(operand.I32(steps), count)
	move()
	block()

	// Back to the first step, and on to the next eight rows.
	c.Label("next")
	c.Load(c.Param("k"), count)
	c.NEGQ(count)
	move()
	c.LEAQ(operand.Mem{Base: src, Index: ld, Scale: 8}, src)
	c.ADDQ(operand.I32(8*32/steps), dst) // eight elements of 32/steps bytes
	c.SUBQ(operand.I32(8), n)
	c.JNZ(operand.LabelRef("rows"))
	c.VZEROUPPER()
	c.RET()
}

// transpose8 returns the columns of eight words of each of eight rows in memory.
func (f packer) transpose8(c *build.Context, from []operand.Mem) []reg.Register {
	if f.rows == 1 && f.bytes == 32 {
		return append(transposeHalf(c, from, 0), transposeHalf(c, from, 1)...)
	}
	var half [2][4]reg.Register // words 0 to 3 and 4 to 7 of rows i and i+4
	for i := range 4 {
		x, y := c.YMM(), c.YMM()
		f.widen(c, from[i], x)
		f.widen(c, from[i+4], y)
		for h, select128 := range []operand.U8{0x20, 0x31} {
			v := c.YMM()
			c.VPERM2I128(select128, y, x, v)
			half[h][i] = v
		}
	}
	return append(transposeLanes(c, c.YMM, half[0]), transposeLanes(c, c.YMM, half[1])...)
}

// transposeHalf returns four columns of words, from word 4·half on, of up to eight rows in memory.
// It loads half rows, two to a register: a load into the upper half needs no shuffle, and a core
// executes only one shuffle per cycle.
func transposeHalf(c *build.Context, from []operand.Mem, half int) []reg.Register {
	var row [4]reg.Register
	for i := range row {
		v := c.YMM()
		c.VBROADCASTI128(from[i].Offset(16*half), v)
		c.VINSERTI128(operand.U8(1), from[min(i+4, len(from)-1)].Offset(16*half), v, v)
		row[i] = v
	}
	return transposeLanes(c, c.YMM, row)
}

// transposeLanes transposes the 4×4 words in each 128 bits of four vectors.
func transposeLanes[V reg.Register](c *build.Context, vector func() V, row [4]reg.Register) []reg.Register {
	apply := func(op func(ops ...operand.Op), x, y reg.Register) reg.Register {
		v := vector()
		op(y, x, v)
		return v
	}
	low := [2]reg.Register{apply(c.VPUNPCKLDQ, row[0], row[1]), apply(c.VPUNPCKLDQ, row[2], row[3])}
	high := [2]reg.Register{apply(c.VPUNPCKHDQ, row[0], row[1]), apply(c.VPUNPCKHDQ, row[2], row[3])}
	var columns []reg.Register
	for _, pair := range [][2]reg.Register{low, high} {
		columns = append(columns, apply(c.VPUNPCKLQDQ, pair[0], pair[1]), apply(c.VPUNPCKHQDQ, pair[0], pair[1]))
	}
	return columns
}

// copyRows writes the function CopyRows, for operands whose columns are adjacent in memory.
func (f packer) copyRows(c *build.Context) {
	name := "CopyRows" + f.name
	word := "element j of row p"
	if f.rows > 1 {
		word = fmt.Sprintf("elements j of rows %d·p to %d·p+%d", f.rows, f.rows, f.rows-1)
	}
	packFunction(c, name, "k, n",
		fmt.Sprintf("%s copies n columns of rows, ld bytes apart, to a panel r words wide: dst[p*r+j] is", name),
		fmt.Sprintf("%s (%s),", word, f.desc), "for p < k and j < n. n is a multiple of eight.")
	k, n, dst, r, src, ld := param(c, "k"), param(c, "n"), param(c, "dst"), param(c, "r"), param(c, "src"),
		param(c, "ld")
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
