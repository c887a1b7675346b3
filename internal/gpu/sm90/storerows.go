package sm90

import (
	"slices"

	"tilework/internal/gpu/frag"
	"tilework/internal/ints"
	"tilework/ptx/build"
)

// rowStore stores 64 rows of some columns of a warpgroup's part of C without TMA, for any leading
// dimension. Each warp writes accumulators of a few of its rows to its share of a subtile, from
// which it finishes and stores one row after the other.
//
// Where the rows of C begin within sectors of 32 bytes, two stores fill a sector together. The
// L2 cache merges them if they follow each other closely. Otherwise it completes the sector from
// memory, which takes longer than the stores. So a warp stores as many columns of a row at once as
// its share of the subtile permits with few idle lanes.
type rowStore struct {
	*epilogue
	columns int         // that are stored
	stride  int         // elements of a row in shared memory
	quads   int         // groups of four lanes whose rows are stored in one pass
	area    build.Array // the warp's share of the subtile
}

// StoredColumns is the most columns of a tile's row that a warp stores at once without TMA. More
// columns take more passes, in which fewer lanes write accumulators.
const StoredColumns = 128

// storeRows stores 64 rows of accumulators to C from (row, col) on; see [epilogue.store].
func (ep *epilogue) storeRows(row, col build.Reg, acc []build.Reg) {
	k := ep.w.Kernel
	if half := len(acc) / 2; ep.w.Config.ComputesGate() {
		acc = ep.w.GatedValues(acc[:half], acc[half:])
	}
	columns := ep.w.Config.ColumnsOfC()
	parts := ints.CeilDiv(columns, StoredColumns)
	x := rowStore{epilogue: ep, columns: columns / parts}
	x.stride = ints.RoundUp(x.columns, frag.Lanes)
	rows := WarpRows // of a pass
	for rows*x.stride > WarpRows*frag.Lanes {
		rows /= 2
	}
	x.quads = rows / 2 // a thread has a row in each half of the warp's rows
	x.area = ep.buffer(0).From(k.Mul(ep.warp, WarpRows), 0)
	row = k.Add(row, k.To(ep.w.IndexType, k.Mul(ep.warp, WarpRows)))
	store := func() {
		for n, part := range slices.Collect(slices.Chunk(acc, len(acc)/parts)) {
			x.storePart(row, k.Add(col, n*x.columns), part)
		}
	}
	if validRows(ep.w.Config.Tile) < WarpgroupRows {
		k.If(ep.inTile, store)
		return
	}
	store()
}

// storePart stores the warp's rows of accumulators to C from (row, col) on.
func (x *rowStore) storePart(row, col build.Reg, acc []build.Reg) {
	k := x.w.Kernel
	k.ForStep(0, WarpRows/2, x.quads, func(first build.Reg) {
		k.Comment("a warp's rows are its own")
		x.syncWarp()
		x.writePass(first, acc)
		x.syncWarp()
		k.For(0, 2*x.quads, func(r build.Reg) {
			line := k.Add(first, r)
			if x.quads < WarpRows/2 { // the second half of the rows is further down
				line = k.Select(k.Lt(r, x.quads), line, k.Add(line, WarpRows/2-x.quads))
			}
			x.storeRow(r, k.Add(row, k.To(x.w.IndexType, line)), col)
		})
	})
}

// swizzle returns the number with which the columns of row r are combined by exclusive or. It
// keeps rows of adjacent quads in different banks.
func (x *rowStore) swizzle(r build.Reg) build.Reg { return x.w.Mul(x.w.Rem(r, 4), 8) }

// writePass writes the accumulators of the quads from first on.
func (x *rowStore) writePass(first build.Reg, acc []build.Reg) {
	k := x.w.Kernel
	quad := k.Sub(k.Div(x.lane, frag.Quad), first)
	k.If(k.Lt(quad, x.quads), func() {
		for half := range 2 {
			r := k.Add(quad, half*x.quads)
			var groups [4]build.Ptr // of eight columns each
			for g := range groups {
				c := k.Add(k.Xor(x.swizzle(r), 8*g), x.col)
				groups[g] = x.area.At(0, 0).Skip(k.Mul(k.Mad(r, x.stride, c), x.w.AccType.Bytes()))
			}
			for n := 2 * half; n < len(acc); n += 4 {
				group := n / 4
				to := groups[group%4].Skip(group / 4 * frag.SwizzleBytes)
				to.StoreVec(acc[n], acc[n+1])
			}
		}
	})
}

// storeRow finishes row r of a pass and stores it to C from (row, col) on.
func (x *rowStore) storeRow(r, row, col build.Reg) {
	k := x.w.Kernel
	c := k.Add(col, k.To(x.w.IndexType, x.lane))
	from := x.area.At(0, 0).Skip(k.Mul(k.Mad(r, x.stride, k.Xor(x.lane, x.swizzle(r))), x.w.AccType.Bytes()))
	store := func(first, end int) { // groups of as many columns as a warp has lanes
		var rows, cols []build.Reg
		var acc [][]build.Reg
		for n := first; n < end; n++ {
			rows, cols = append(rows, row), append(cols, k.Add(c, n*frag.Lanes))
			acc = append(acc, from.Skip(n*frag.SwizzleBytes).LoadVec(1))
		}
		x.w.StoreAll(rows, cols, acc)
	}
	whole, rest := x.columns/frag.Lanes, x.columns%frag.Lanes
	if whole > 0 {
		store(0, whole)
	}
	if rest > 0 { // the further columns belong to the next tile
		k.If(k.Lt(x.lane, rest), func() { store(whole, whole+1) })
	}
}
