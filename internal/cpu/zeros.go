package cpu

import (
	"context"
	"encoding/binary"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// Kernels multiply int8. A product of uint8 or with zero points is one of int8 whose sums the
// epilogue corrects before it converts them; see [gemm.Problem.Signed]. The sums along K that the
// correction needs, and copies of uint8 as int8, are computed before the product.

// zeroTerms holds the terms that correct the sums: row[i] + col[j] and, where the zero points of an
// operand differ, rowFactor[i]·colSum[j] + rowSum[i]·colFactor[j].
type zeroTerms[T scalar] struct {
	row, rowFactor, rowSum []T
	col, colFactor, colSum []T
}

// zeroTermsOf returns the terms that [Plan.shift] has left in b, for sums of type T that have some.
func zeroTermsOf[T scalar](p *gemm.Problem, b *gemm.Buffers) (z zeroTerms[T]) {
	if p.Epilogue.RowZero && dtype.Of[T]() == p.Accum() {
		z.row, z.rowFactor, z.rowSum = thirds(dtype.View[T](b[gemm.RowZero]), p.M)
		z.col, z.colFactor, z.colSum = thirds(dtype.View[T](b[gemm.ColZero]), p.N)
	}
	return z
}

// thirds returns the first n elements of s, the next n and the last n, as far as s has them.
func thirds[T scalar](s []T, n int) (first, second, third []T) {
	if len(s) <= n {
		return s, nil, nil
	}
	return s[:n], s[n : 2*n], s[2*n:]
}

// correct adds the terms to rows×cols sums at c, which belong at (i0, j0) of C.
func (z *zeroTerms[T]) correct(v *asm.Epilogue[T], c []T, ldc, i0, j0, rows, cols int) {
	t := sums[T]{c, ldc, rows, cols}
	t.zipVector(v.BiasRow, plus, z.row[i0:], 1, 0)
	t.zipVector(v.BiasCol, plus, z.col[j0:], 0, 1)
	if z.rowFactor == nil {
		return
	}
	sum, factor := z.colSum[j0:][:cols], z.colFactor[j0:][:cols]
	for i := range rows {
		f, s := z.rowFactor[i0+i], z.rowSum[i0+i]
		row := c[i*ldc:][:cols]
		for j := range row {
			row[j] += f*sum[j] + s*factor[j]
		}
	}
}

// setProblem makes pl a plan for p, and returns p as the kernels compute it.
func (pl *Plan) setProblem(p *gemm.Problem) *gemm.Problem {
	if pl.Problem = p; p.Shifted() {
		q := p.Signed()
		if pl.Problem = &q; q.Shifted() {
			pl.given, q.Epilogue.RowZero, q.Epilogue.ColZero = p, true, true
		}
	}
	return pl.Problem
}

// multiplyShifted computes a product of uint8 or with zero points.
func (pl *Plan) multiplyShifted(ctx context.Context, b *gemm.Buffers) error {
	m := getWorkspace(pl.shiftBytes())
	defer m.put()
	with, q, shifted := *pl, *pl.Problem, *b
	if err := pl.shift(ctx, &m, &q, &shifted); err != nil {
		return err
	}
	with.given, with.Problem = nil, &q
	return with.multiply(ctx, &shifted)
}

// shiftBytes returns the bytes of memory that [Plan.shift] takes.
func (pl *Plan) shiftBytes() int {
	p := pl.given
	n := allocBytes[int32](3*p.M) + allocBytes[int32](3*p.N)
	for _, o := range []gemm.Operand{gemm.A, gemm.B} {
		n += allocBytes[int32](ints.CeilDiv(pl.copyBytes(o), 4))
	}
	return n
}

// copyBytes returns the bytes of the copy of A or B as int8. A packed B is int8 already.
func (pl *Plan) copyBytes(o gemm.Operand) int {
	l := pl.given.Layouts[o]
	if l.Type == dtype.I8 || o == gemm.B && pl.packed != nil {
		return 0
	}
	return l.Rows * l.Cols
}

// shift replaces the uint8 operands of q and b by copies of int8 in m, and the zero points in b by
// the terms of [zeroTerms].
func (pl *Plan) shift(ctx context.Context, m *workspace, q *gemm.Problem, b *gemm.Buffers) error {
	p := pl.given
	zeroA, zeroB := p.SignedZeros(gemm.A, b), p.SignedZeros(gemm.B, b)
	rows, cols := alloc[int32](m, 3*p.M), alloc[int32](m, 3*p.N)
	clear(rows)
	clear(cols)
	row, rowFactor, rowSum := thirds(rows, p.M)
	col, colFactor, colSum := thirds(cols, p.N)
	if err := pl.shiftOperand(ctx, m, gemm.A, q, b, rowSum, zeroB != nil); err != nil {
		return err
	}
	if err := pl.shiftOperand(ctx, m, gemm.B, q, b, colSum, zeroA != nil); err != nil {
		return err
	}
	alpha := alphaOf[int32](q)
	for i, z := range zeroA {
		rowFactor[i] = -alpha * z
		rowSum[i] -= int32(p.K) * z
	}
	for i := range rowSum {
		rowSum[i] *= -alpha
	}
	copy(colFactor, zeroB)
	if isUniform(zeroA) && isUniform(zeroB) { // a term for each row and column, which are added in vectors
		for i, s := range rowSum {
			row[i] = s * colFactor[0]
		}
		for j, s := range colSum {
			col[j] = s * rowFactor[0]
		}
		rows, cols = row, col
	}
	b[gemm.RowZero], b[gemm.ColZero] = dtype.Bytes(rows), dtype.Bytes(cols)
	return nil
}

// isUniform reports whether all elements of s are equal.
func isUniform(s []int32) bool {
	for _, v := range s {
		if v != s[0] {
			return false
		}
	}
	return true
}

// shiftOperand replaces A or B of q and b by a copy in m if it is of uint8. With needed, it sums
// the elements as int8 along K.
func (pl *Plan) shiftOperand(ctx context.Context, m *workspace, o gemm.Operand, q *gemm.Problem, b *gemm.Buffers,
	sums []int32, needed bool) error {
	if o == gemm.B && pl.packed != nil {
		copy(sums, pl.packed.sums)
		return nil
	}
	from := operandSums{l: pl.given.Layouts[o], data: b[o], alongK: pl.given.Layouts[o].Trans == (o == gemm.B)}
	if needed {
		from.sums = sums
	}
	if n := pl.copyBytes(o); n > 0 {
		from.to = dtype.Bytes(alloc[int32](m, ints.CeilDiv(n, 4)))
		b[o], q.Layouts[o].LD = from.to, max(from.l.Cols, 1)
	}
	return from.run(ctx, pl.Threads)
}

// operandSums computes the sums along K of the elements of A or B as int8, and a copy of uint8 as
// int8.
type operandSums struct {
	l      gemm.Layout
	data   []byte
	alongK bool    // whether K extends along the stored rows
	to     []byte  // the copy, without gaps between rows, or nil
	sums   []int32 // zeros, one for each row of op(A) or column of op(B), or nil
}

const (
	sumRows = 64   // stored rows that a task sums along K
	sumCols = 1024 // stored columns that a task sums across rows
)

func (s *operandSums) run(ctx context.Context, threads int) error {
	switch {
	case s.l.Len() == 0 || s.sums == nil && s.to == nil:
		return nil
	case s.alongK || s.sums == nil:
		return ParallelFor(ctx, ints.CeilDiv(s.l.Rows, sumRows), threads, func(i int) {
			for r := i * sumRows; r < min((i+1)*sumRows, s.l.Rows); r++ {
				sum := s.row(r, 0, s.l.Cols, nil, nil)
				if s.sums != nil {
					s.sums[r] = sum
				}
			}
		})
	}
	return ParallelFor(ctx, ints.CeilDiv(s.l.Cols, sumCols), threads, func(i int) {
		s.columns(i*sumCols, min((i+1)*sumCols, s.l.Cols))
	})
}

// The sums are those of unsigned bytes, u = x + 128 of an int8 x. A word of 64 bits has four sums
// of 16 bits, in which laneTerms bytes do not overflow.
const (
	evenBytes = 0x00ff00ff00ff00ff
	flips     = 0x8080808080808080
	laneTerms = 256
)

// columns sums the columns from c0 to c1 across all rows.
func (s *operandSums) columns(c0, c1 int) {
	var even, odd [sumCols / 8]uint64
	for r := range s.l.Rows {
		s.row(r, c0, c1, even[:], odd[:])
		if r%laneTerms != laneTerms-1 && r < s.l.Rows-1 {
			continue
		}
		for w := range (c1 - c0) / 8 {
			for lane := range 4 {
				s.sums[c0+8*w+2*lane] += int32(uint16(even[w] >> (16 * lane)))
				s.sums[c0+8*w+2*lane+1] += int32(uint16(odd[w] >> (16 * lane)))
			}
		}
		clear(even[:])
		clear(odd[:])
	}
	for c := c0; c < c1; c++ {
		s.sums[c] -= int32(s.l.Rows) * gemm.SignedOffset
	}
}

// row copies the columns from c0 to c1 of a stored row. Without even and odd it returns the sum of
// the elements as int8. Otherwise it adds eight bytes u at a time to these, and the last ones to
// sums.
func (s *operandSums) row(r, c0, c1 int, even, odd []uint64) (sum int32) {
	in := s.data[r*s.l.LD+c0:][:c1-c0]
	var out []byte
	if s.to != nil {
		out = s.to[r*s.l.Cols+c0:][:c1-c0]
	}
	toUnsigned := uint64(flips)
	if s.l.Type == dtype.U8 {
		toUnsigned = 0
	}
	var lanes, total uint64
	whole := len(in) &^ 7
	for at := 0; at < whole; at += 8 {
		x := binary.LittleEndian.Uint64(in[at:])
		if out != nil {
			binary.LittleEndian.PutUint64(out[at:], x^flips)
		}
		u := x ^ toUnsigned
		if even != nil {
			even[at/8] += u & evenBytes
			odd[at/8] += u >> 8 & evenBytes
			continue
		}
		lanes += u&evenBytes + u>>8&evenBytes
		if at%(4*laneTerms) == 4*laneTerms-8 || at == whole-8 {
			total += lanes&0xffff + lanes>>16&0xffff + lanes>>32&0xffff + lanes>>48
			lanes = 0
		}
	}
	for at := whole; at < len(in); at++ {
		if out != nil {
			out[at] = in[at] ^ flips&0xff
		}
		u := in[at] ^ byte(toUnsigned)
		if total += uint64(u); even != nil {
			s.sums[c0+at] += int32(u)
		}
	}
	return int32(total) - int32(len(in))*gemm.SignedOffset
}
