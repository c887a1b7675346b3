package sm90

import (
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// rowCopy copies a warp's rows of adjacent subtiles of 16-bit elements to C. The rows of C may
// begin at any address. Each lane stores a word of two elements of each subtile.
//
// A row may begin in the middle of a word of C. Each lane then joins the second element of its word
// and the first one of the next word. The first and the last element of the row remain. The last
// lane stores them one by one.
type rowCopy struct {
	*epilogue
	subtiles []subtile
	columns  []build.Reg // by subtile, the columns of C from the lane's word on; may be negative
	atEnd    build.Reg   // whether the lane has the last word of a row
}

// copyRows copies adjacent subtiles to C, once the warp has written its rows of them.
func (ep *epilogue) copyRows(adjacent []subtile) {
	const (
		perWord = 2 // elements
		atOnce  = 4 // rows in flight
	)
	k, s := ep.w.Kernel, adjacent[0]
	row := k.Add(s.row, k.To(ep.w.IndexType, k.Mul(ep.warp, WarpRows)))
	rows := ep.before(ep.w.C.Rows, row)
	if validRows(ep.w.Config.Tile) < WarpgroupRows {
		rows = k.Select(ep.inTile, rows, 0)
	}
	x := rowCopy{epilogue: ep, subtiles: adjacent, atEnd: k.Eq(ep.lane, frag.Lanes-1)}
	columns := ep.before(ep.w.C.Cols, s.col)
	rows = k.Select(k.Gt(columns, 0), rows, 0)
	columns = k.Sub(k.To(ptx.S32, columns), k.To(ptx.S32, k.Mul(ep.lane, perWord)))
	for n := range adjacent {
		x.columns = append(x.columns, k.Sub(columns, n*frag.Lanes*perWord))
	}
	to := ep.w.C.At(row, s.col).As(ptx.U32).At(ep.lane)
	ep.syncWarp()
	k.ForStep(0, WarpRows, atOnce, func(first build.Reg) {
		for n := range atOnce {
			r := k.Add(first, n)
			x.store(k.Lt(r, rows), to.Skip(ep.w.C.ByteOffset(r, 0)), x.load(first, n))
		}
	})
}

// before returns the number of rows or columns from first on that are before end, up to 256.
func (ep *epilogue) before(end build.Value, first build.Reg) build.Reg {
	k := ep.w.Kernel
	return k.To(ptx.U32, k.Min(k.Sub(k.Max(end, first), first), 256))
}

// load loads the lane's words of row n of a few, which begin at row first of the warp.
func (x *rowCopy) load(first build.Reg, n int) (words []build.Reg) {
	k := x.w.Kernel
	swizzle := k.Mul(k.Rem(first, 8), 16)
	at := k.Xor(k.Xor(k.Mul(x.lane, ptx.U32.Bytes()), swizzle), n*16)
	for _, s := range x.subtiles {
		row := s.memory.At(k.Mad(x.warp, WarpRows, first), 0)
		words = append(words, row.As(ptx.U32).Skip(at).Skip(n*frag.SwizzleBytes).Load())
	}
	return words
}

// store stores the lane's words to a row of C, the first one at to, if the row is inside C.
func (x *rowCopy) store(inside build.Reg, to build.Ptr, words []build.Reg) {
	k := x.w.Kernel
	if x.w.Config.VecC == 1 {
		x.storeShifted(inside, to, words)
		return
	}
	for n, word := range words {
		k.If(k.And(inside, k.Gt(x.columns[n], 0)), func() { to.At(n * frag.Lanes).Store(word) })
	}
}

// storeShifted is store for rows that may begin in the middle of a word.
func (x *rowCopy) storeShifted(inside build.Reg, to build.Ptr, words []build.Reg) {
	k := x.w.Kernel
	shift := k.And(k.To(ptx.U32, to.Address()), ptx.U16.Bytes()) // bytes before the first whole word
	elements := k.To(ptx.S32, k.Shr(shift, 1))
	for n, word := range x.join(words, shift) {
		at := to.At(n * frag.Lanes).Skip(shift)
		any := k.And(inside, k.Gt(x.columns[n], elements))
		whole := k.And(any, k.Gt(x.columns[n], k.Add(elements, 1)))
		if n == len(words)-1 {
			apart := k.And(x.atEnd, k.Ne(shift, 0))
			whole = k.And(whole, k.Not(apart))
			k.If(k.And(inside, apart), func() {
				first := to.At(1 - frag.Lanes).As(ptx.U16)
				first.Store(k.To(ptx.U16, k.Shr(word, 16)))
			})
		}
		k.If(whole, func() { at.Store(word) })
		k.If(k.And(any, k.Not(whole)), func() { at.As(ptx.U16).Store(k.To(ptx.U16, word)) })
	}
}

// join returns the words that begin shift bytes after the given ones. The first word follows the
// last one.
func (x *rowCopy) join(words []build.Reg, shift build.Reg) []build.Reg {
	k := x.w.Kernel
	next := make([]build.Reg, len(words)) // the word of the next lane; lane 31 gets that of lane 0
	for n, word := range words {
		next[n] = k.Shuffle(word, k.Add(x.lane, 1), 0)
	}
	joined := make([]build.Reg, len(words))
	for n, word := range words {
		joined[n] = k.Fresh(ptx.U32)
		k.Do("shf.r.wrap.b32", joined[n], word, k.Select(x.atEnd, next[(n+1)%len(words)], next[n]), k.Mul(shift, 8))
	}
	return joined
}
