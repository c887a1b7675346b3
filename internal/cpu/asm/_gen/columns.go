package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columnsAtOnce is the number of columns that a Columns function writes at a time.
const columnsAtOnce = 8

// writeColumns writes the functions that copy rows to columns. A column of up to 32 bytes is
// transposed in registers.
func writeColumns(dir string) error {
	c := build.NewContext()
	for rows := 1; rows <= 8; rows++ {
		columns(c, "F32", "float32", 4, rows, func(from []operand.Mem, half int) []reg.Register {
			if len(from) > 4 {
				return transposeHalf(c, from, half)
			}
			return transpose4(c, from, half)
		})
	}
	for rows := 1; rows <= 4; rows++ {
		columns(c, "F64", "float64", 8, rows, func(from []operand.Mem, quarter int) []reg.Register {
			return transposePair(c, from, quarter)
		})
	}
	return write(dir, "zcolumns_amd64", c)
}

// columns writes a function for elements of the given size. transpose returns a group of 16/size
// columns of the rows.
func columns(c *build.Context, suffix, goType string, size, rows int,
	transpose func(from []operand.Mem, group int) []reg.Register) {
	name := fmt.Sprintf("Columns%sx%d", suffix, rows)
	c.Function(name)
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr(fmt.Sprintf("func(n int, dst *%s, ldd int, src *%[1]s, lds int)", goType))
	c.Pragma("noescape")
	c.Doc(fmt.Sprintf("%s copies n columns of %d rows: dst[j*ldd+i] = src[i*lds+j] for i < %[2]d and j < n. n is a",
		name, rows), "multiple of eight.")
	n, dst, ldd, src, lds := param(c, "n"), param(c, "dst"), param(c, "ldd"), param(c, "src"), param(c, "lds")
	c.SHRQ(operand.U8(log2(columnsAtOnce)), n)
	c.SHLQ(operand.U8(log2(size)), ldd)
	c.SHLQ(operand.U8(log2(size)), lds)
	from, to := strides(c, src, lds, rows), strides(c, dst, ldd, columnsAtOnce)
	c.TESTQ(n, n)
	c.JZ(operand.LabelRef("end"))
	c.Label("eight")
	each := 16 / size
	for group := range columnsAtOnce / each {
		for j, column := range transpose(from, group) {
			storeFirst(c, column, size*rows, to[group*each+j])
		}
	}
	c.ADDQ(operand.I32(columnsAtOnce*size), src)
	c.LEAQ(operand.Mem{Base: dst, Index: ldd, Scale: columnsAtOnce}, dst)
	c.DECQ(n)
	c.JNZ(operand.LabelRef("eight"))
	c.Label("end")
	c.VZEROUPPER()
	c.RET()
}

// transpose4 returns four columns of words, from word 4·half on, of up to four rows.
func transpose4(c *build.Context, from []operand.Mem, half int) []reg.Register {
	var row [4]reg.Register
	for i := range row {
		row[i] = c.XMM()
		c.VMOVUPS(from[min(i, len(from)-1)].Offset(16*half), row[i])
	}
	return transposeLanes(c, c.XMM, row)
}

// transposePair returns two columns of float64 elements, from element 2·pair on, of up to four
// rows.
func transposePair(c *build.Context, from []operand.Mem, pair int) []reg.Register {
	vector := c.XMM
	if len(from) > 2 {
		vector = c.YMM
	}
	var row [2]reg.Register // those of rows x and x+2
	for x := range row {
		row[x] = vector()
		at := from[min(x, len(from)-1)].Offset(16 * pair)
		if len(from) <= 2 {
			c.VMOVUPD(at, row[x])
			continue
		}
		c.VBROADCASTF128(at, row[x])
		c.VINSERTF128(operand.U8(1), from[min(x+2, len(from)-1)].Offset(16*pair), row[x], row[x])
	}
	low, high := vector(), vector()
	c.VUNPCKLPD(row[1], row[0], low)
	c.VUNPCKHPD(row[1], row[0], high)
	return []reg.Register{low, high}
}

// storeFirst stores the first bytes of a vector, a multiple of four. It overwrites the vector.
func storeFirst(c *build.Context, v reg.Register, bytes int, to operand.Mem) {
	low := asXMM(v)
	switch {
	case bytes == 32:
		c.VMOVUPS(v, to)
		return
	case bytes > 16:
		c.VMOVUPS(low, to)
		c.VEXTRACTF128(operand.U8(1), v, low)
		storeFirst(c, low, bytes-16, to.Offset(16))
		return
	case bytes == 16:
		c.VMOVUPS(low, to)
		return
	case bytes >= 8:
		c.VMOVLPS(low, to)
		if bytes == 12 {
			c.VEXTRACTPS(operand.U8(2), low, to.Offset(8))
		}
		return
	}
	c.VMOVSS(low, to)
}
