package cpu

import (
	"unsafe"

	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// pack copies rows x0…x0+n-1 of an operand, for the k steps from p0 on, into a panel of r ≥ n rows:
//
//	dst[p·r + i] = word of row x0+i at step p0+p     zero for i ≥ n
//
// If the operand is cut into blocks of steps, k is a multiple of the block and the panel is
//
//	dst[p/block·block·r + i·block + p%block] = word of row x0+i at step p0+p
//
// tmp is memory for conversions: k elements, or block·r.
func (o *operand[T]) pack(dst []T, r, x0, n, p0, k int, tmp []T) {
	if k == 0 {
		return // A or B is not read and may be nil
	}
	dst = dst[:k*r]
	if n < r {
		clear(dst)
	}
	if o.block > 0 {
		for p := 0; p < k; p += o.block {
			o.packBlock(dst[p*r:], x0, n, p0+p, tmp)
		}
		return
	}
	rows, steps := o.packVectors(dst, r, x0, n, p0, k)
	o.packScalar(dst, r, x0, 0, rows, p0, steps, k, tmp)
	o.packScalar(dst, r, x0, rows, n, p0, 0, k, tmp)
}

// packBlock packs one block of steps, from p0 on, for n rows that follow each other.
func (o *operand[T]) packBlock(dst []T, x0, n, p0 int, tmp []T) {
	left := min(o.block*o.group, o.depth-p0*o.group) // elements along K
	first := 0                                       // the first row to pack word by word
	switch ld := o.from.Bytes(o.ld); {
	case o.packer.CopyRows == nil:
	case o.alongK: // the stored bytes are the words
		if left == o.block*o.group {
			asm.PackerF32.CopyRows(n, o.block, wordAddr(dst), o.block, o.addr(o.index(x0, p0*o.group)), ld)
			return
		}
		for i := range n {
			row := unsafe.Slice((*byte)(unsafe.Pointer(&dst[i*o.block])), 4*o.block)
			at := o.from.Bytes(o.index(x0+i, p0*o.group))
			clear(row[copy(row, o.raw[at:at+o.from.Bytes(left)]):])
		}
		return
	case n >= 8:
		first = n &^ 7
		whole := left / o.group
		if whole > 0 {
			o.packer.CopyRows(whole, first, wordAddr(tmp), first, o.addr(o.index(x0, p0*o.group)), ld)
		}
		clear(tmp[whole*first : o.block*first])
		for p := 0; p < o.block; p += 8 {
			asm.PackerF32.Zip(first, 8, wordAddr(dst[p:]), o.block, (*byte)(unsafe.Pointer(wordAddr(tmp[p*first:]))),
				first*4)
		}
		if left%o.group > 0 {
			for i := range first {
				o.packWord(&dst[i*o.block+whole], x0+i, p0+whole)
			}
		}
	}
	for i := first; i < n; i++ {
		for p := range o.block {
			o.packWord(&dst[i*o.block+p], x0+i, p0+p)
		}
	}
}

// packVectors packs eight rows, and along K eight steps, at a time with the operand's packer. It
// returns the number of rows and steps that it has packed.
func (o *operand[T]) packVectors(dst []T, r, x0, n, p0, k int) (rows, steps int) {
	steps = min(k, o.depth/o.group-p0)
	if o.packer.Zip == nil || steps == 0 {
		return 0, 0
	}
	ld, words := o.from.Bytes(o.ld), int(unsafe.Sizeof(dst[0]))/4 // 32-bit words per element of T
	if !o.alongK {
		rows = n &^ 7
		wide := rows
		if n == r {
			// Copy too many columns of a step, which those of the next step replace.
			rows, wide = n, ints.CeilDiv(n, 8/words)*(8/words)
			steps = o.wideSteps(r, x0, wide, p0, steps, k)
		}
		if rows > 0 && steps > 0 {
			o.packer.CopyRows(steps, wide*words, wordAddr(dst), r*words, o.addr(o.index(x0, p0*o.group)), ld)
		}
		return rows, steps
	}
	if n < 8 || steps < o.zipSteps() {
		return 0, 0
	}
	zip := func(i, n int) {
		o.packer.Zip(steps, n, wordAddr(dst[i:]), r*words, o.addr(o.index(x0+i, p0*o.group)), ld)
	}
	zip(0, n&^7)
	if n%8 > 0 {
		zip(n-8, 8) // repacks some rows rather than packing them one by one
	}
	return n, steps
}

// zipSteps returns the least number of steps of K that Zip copies.
func (o *operand[T]) zipSteps() int { return 8 * 4 / int(unsafe.Sizeof(*new(T))) }

// depthToPack returns the number of steps for which a panel of k steps needs room: more than k if
// [operand.packShort] packs it.
func (o *operand[T]) depthToPack(k int) int {
	if o.alongK && o.packer.Zip != nil {
		return max(k, o.zipSteps())
	}
	return k
}

// packShort packs an operand whose rows have fewer steps than Zip copies. It copies elements of the
// next rows as well, to the room after the panel.
func (o *operand[T]) packShort(dst []T, r, x0, n, k int) {
	if n < r {
		clear(dst[:k*r])
	}
	rows, block := 0, o.zipSteps()
	for rows < n && n >= 8 {
		i := min(rows, n-8)
		if o.from.Bytes(o.index(x0+i+7, block)) > len(o.raw) {
			break
		}
		o.packer.Zip(block, 8, wordAddr(dst[i:]), r*(8/block), o.addr(o.index(x0+i, 0)), o.from.Bytes(o.ld))
		rows = i + 8
	}
	o.packScalar(dst[:k*r], r, x0, rows, n, 0, 0, k, nil)
}

// wideSteps returns how many of the steps can be copied with wide columns each, without reading
// beyond the matrix or writing beyond a panel of k steps.
func (o *operand[T]) wideSteps(r, x0, wide, p0, steps, k int) int {
	for ; steps > 0; steps-- {
		last := o.index(x0, (p0+steps)*o.group-1) + wide
		if (steps-1)*r+wide <= k*r && o.from.Bytes(last) <= len(o.raw) {
			break
		}
	}
	return steps
}

// packScalar packs the rows from i0 to n-1, and of each the steps from q0 to k-1.
func (o *operand[T]) packScalar(dst []T, r, x0, i0, n, p0, q0, k int, tmp []T) {
	if i0 >= n || q0 >= k {
		return
	}
	if o.group > 1 {
		end := min(k, ints.CeilDiv(o.depth, o.group)-p0)
		clear(dst[end*r:])
		for p := q0; p < end; p++ {
			for i := i0; i < n; i++ {
				o.packWord(&dst[p*r+i], x0+i, p0+p)
			}
		}
		return
	}
	if !o.alongK {
		for p := q0; p < k; p++ {
			o.copyAcrossRows(dst[p*r+i0:p*r+n], x0+i0, p0+p)
		}
		return
	}
	// Transpose as many rows at a time as the panel has, so that the panel is written once, from
	// its first byte to its last.
	i, from := i0, dst[q0*r:]
	if o.widen == nil {
		row := func(i int) []T { return o.data[o.index(x0+i, p0+q0):][:k-q0] }
		for ; i+8 <= n; i += 8 {
			zip8(from[i:], r, row(i), row(i+1), row(i+2), row(i+3), row(i+4), row(i+5), row(i+6), row(i+7))
		}
		for ; i+2 <= n; i += 2 {
			zip2(from[i:], r, row(i), row(i+1))
		}
		if i < n {
			for p, v := range row(i) {
				from[p*r+i] = v
			}
		}
		return
	}
	for ; i < n; i++ {
		tmp := tmp[:k-q0]
		o.copyAlongK(tmp, x0+i, p0+q0)
		for p, v := range tmp {
			from[p*r+i] = v
		}
	}
}

// zip8 stores s0[p] … s7[p] at dst[p·r:]. All sources have the same length.
func zip8[T scalar](dst []T, r int, s0, s1, s2, s3, s4, s5, s6, s7 []T) {
	for p, v := range s0 {
		d := dst[p*r:][:8]
		d[0], d[1], d[2], d[3] = v, s1[p], s2[p], s3[p]
		d[4], d[5], d[6], d[7] = s4[p], s5[p], s6[p], s7[p]
	}
}

// zip2 is zip8 for two sources.
func zip2[T scalar](dst []T, r int, s0, s1 []T) {
	for p, v := range s0 {
		d := dst[p*r:][:2]
		d[0], d[1] = v, s1[p]
	}
}
