package sm90

import (
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/ptx"
)

// setVectors sets the vector lengths of configuration c. TMA needs 16-byte vectors of A and B.
func setVectors(c *kernel.Config, p *gemm.Problem) {
	c.VecA, c.VecB = c.In.Elements(kernel.MaxVectorBytes), c.In.Elements(kernel.MaxVectorBytes)
	c.VecC = kernel.VectorLen(p.Layouts[gemm.C], p.Out().Elements(kernel.MaxVectorBytes))
}

// StoresWithTMA reports whether TMA stores C, which needs rows of 16-byte vectors. With swapAB a
// thread has no neighbours in a row, so epilogues with operands take another path, as do 16-bit
// results of tf32, whose fragments have their rows in another order.
func StoresWithTMA(c kernel.Config) bool {
	if c.Tile.SwapAB && (kernel.CountOperands(c.Epilogue) > 0 || c.In.Bits() == 32 && c.Out.Bits() < 32) {
		return false
	}
	return fillsSubtiles(c) && c.Out.Bytes(c.VecC) == kernel.MaxVectorBytes
}

// fillsSubtiles reports whether a row of a subtile is long enough for TMA. 8-bit elements take
// another path, because a thread has only two neighbours in a row.
func fillsSubtiles(c kernel.Config) bool {
	return c.Out.Bits() > 8 && c.Tile.SplitK < 2 && c.Tile.ClusterK < 2 && SubtileColumns(c) >= leastSubtile
}

// leastSubtile is the least number of columns of a subtile that TMA stores.
const leastSubtile = 24

// SubtileColumns returns the number of columns of C in a subtile of finished elements: those in 128
// bytes, which TMA swizzles, or [oddColumns] if they do not divide the columns of a tile.
func SubtileColumns(c kernel.Config) int {
	_, cols := kernel.SwapAB(c.Tile, c.Tile.M, c.ColumnsOfC())
	if whole := c.Out.Elements(frag.SwizzleBytes); cols%whole == 0 {
		return whole
	}
	return oddColumns(cols)
}

// oddColumns returns the largest odd multiple of 8 below 64 that divides the columns of a tile. The
// rows of a subtile with as many columns are in different banks without a swizzle.
func oddColumns(cols int) int {
	n := 56
	for cols%n != 0 {
		n -= 16
	}
	return n
}

// swizzlesSubtiles reports whether the rows of subtiles have 128 bytes, which are swizzled.
func swizzlesSubtiles(c kernel.Config) bool {
	return subtileBytes(c) == WarpgroupRows*frag.SwizzleBytes
}

// subtileBytes returns the shared memory of a subtile, of finished elements or of accumulators.
func subtileBytes(c kernel.Config) int {
	if finishesSubtiles(c) {
		return WarpgroupRows * c.Out.Bytes(SubtileColumns(c))
	}
	return WarpgroupRows * frag.SwizzleBytes
}

// finishesSubtiles reports whether the threads write finished elements of C to the subtiles, which
// TMA or the warps copy to C.
func finishesSubtiles(c kernel.Config) bool {
	return StoresWithTMA(c) || CopiesRows(c)
}

// CopiesRows reports whether the warps copy subtiles of finished 16-bit elements to C, because TMA
// cannot. It gains nothing for 32-bit elements, nor for three subtiles side by side: the third one
// would be copied alone.
func CopiesRows(c kernel.Config) bool {
	across := c.Out.Bytes(c.ColumnsOfC()) / frag.SwizzleBytes
	return fillsSubtiles(c) && c.Out.Bytes(SubtileColumns(c)) == frag.SwizzleBytes &&
		c.Out.Bytes(c.VecC) < kernel.MaxVectorBytes && c.Out.Bits() == 16 && (across == 1 || across%2 == 0) &&
		!c.Tile.SwapAB && !c.Epilogue.Residual
}

// loadsResidualWithTMA reports whether TMA loads the residual into the subtile that C is stored
// from. It does not if some rows of a subtile are outside the tile: the warps of those rows would
// read uninitialised shared memory.
func loadsResidualWithTMA(c kernel.Config) bool {
	return StoresWithTMA(c) && c.Epilogue.Residual && c.Out.Bytes(c.VecResidual) == kernel.MaxVectorBytes &&
		validRows(c.Tile) == WarpgroupRows
}

// operandShapes returns the shared-memory tiles of the left operand and of the right operand.
func operandShapes(c kernel.Config) (a, b frag.BoxShape) {
	s, elem := c.Tile, ArithmeticOf(c.In, c.Precision).storedType()
	kMajorA, kMajorB := kernel.SwapAB(s, !c.TransA, c.TransB)
	a = frag.BoxShape{Elem: elem, Side: max(s.M, WarpgroupRows), Loaded: s.M, Stages: s.Stages, KMajor: kMajorA,
		Multicast: s.BlocksN()}
	b = frag.BoxShape{Elem: elem, Side: s.N, Loaded: s.N, Stages: s.Stages, KMajor: kMajorB, Multicast: s.BlocksM()}
	if c.ComputesGate() {
		b.Matrices = 2
	}
	if !b.KMajor && elem.Bytes() == 2 {
		b.Side = ints.RoundUp(s.N, b.Depth()) // whole TMA boxes
	}
	return a, b
}

// sharedBytes returns the dynamic shared memory of a block, without mbarriers.
func sharedBytes(c kernel.Config) int {
	a, b := operandShapes(c)
	n := c.Tile.Stages * (a.StageBytes() + b.StageBytes())
	if c.Tile.SplitK < 2 {
		n += Consumers(c.Tile) * subtileBuffers(c) * subtileBytes(c)
	}
	return n
}

// tensorMaps returns the TMA tensor maps of the operands in the order in which the kernel declares
// them: A, B and, if used, C, the residual and Up.
func tensorMaps(c kernel.Config, p *gemm.Problem, m kernel.Memory) []ptx.TensorMap {
	left, right := operandShapes(c)
	a, b := kernel.SwapAB(c.Tile, left, right)
	elem := ArithmeticOf(c.In, c.Precision).Elem // TMA rounds float32 to tf32
	list := []ptx.TensorMap{
		kernel.TensorMapOf(p.Layouts[gemm.A], elem, m[gemm.A], a.Box()),
		kernel.TensorMapOf(p.Layouts[gemm.B], elem, m[gemm.B], b.Box()),
	}
	box := []int{SubtileColumns(c), validRows(c.Tile)}
	if c.Tile.SwapAB {
		box[1] = swapABBoxRows(c)
	}
	if StoresWithTMA(c) {
		list = append(list, kernel.TensorMapOf(p.Layouts[gemm.C], kernel.PTXTypes[c.Out], m[gemm.C], box))
	}
	if loadsResidualWithTMA(c) {
		list = append(list, kernel.TensorMapOf(p.Layouts[gemm.Residual], kernel.PTXTypes[c.Out], m[gemm.Residual], box))
	}
	if c.ComputesGate() {
		list = append(list, kernel.TensorMapOf(p.Layouts[gemm.Up], elem, m[gemm.Up], b.Box()))
	}
	return kernel.BatchTensorMaps(list, p, validRows(c.Tile))
}

// subtileBuffers returns how many subtiles of a warpgroup fit in shared memory. With two, the
// warpgroup writes one while TMA stores the other, or its warps copy longer rows at once. That
// requires an even number of subtiles per tile, so that the two alternate across tiles. A reduction
// over a cluster needs all subtiles at once.
func subtileBuffers(c kernel.Config) int {
	rows, _ := WarpgroupTile(c.Tile)
	cols := c.ColumnsOfC()
	if c.Tile.ClusterK > 1 {
		return c.Accum().Bytes(rows/WarpgroupRows*cols) / frag.SwizzleBytes
	}
	if c.Tile.SwapAB {
		return 2
	}
	if count := rows / WarpgroupRows * cols / SubtileColumns(c); count%2 != 0 || !finishesSubtiles(c) {
		return 1
	}
	return 2
}
