package sm90

import (
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
)

// checkTile returns why the kernel cannot have tile s.
func checkTile(s kernel.Tile) *kernel.Reason {
	rows, cols := WarpgroupTile(s)
	sums := s.RowsPerThread * s.ColsPerThread
	switch {
	case s.RowsPerThread != 2 && s.RowsPerThread != 4:
		return kernel.Because("%d rows per thread: want 2 or 4", s.RowsPerThread)
	case s.N%8 != 0 || s.N < 8 || s.N > 256:
		return kernel.Because("N is %d: want a multiple of 8 up to 256", s.N)
	case !s.SwapAB && s.N > StoredColumns && s.N%16 != 0:
		return kernel.Because("N is %d: want a multiple of 16, of which half can be stored", s.N)
	case cols != s.N:
		return kernel.Because("%d columns per thread: want a quarter of N, %d", s.ColsPerThread, s.N/frag.Quad)
	case sums > 128 || s.M > 2*rows && sums > 96:
		return kernel.Because("%d accumulators per thread: want at most 128, with three warpgroups at most 96", sums)
	case s.M != rows && s.M != 2*rows && s.M != 3*rows && (rows != WarpgroupRows || s.M != rows/2 && s.M != rows/4):
		return kernel.Because("M is %d: want 1, 2 or 3 times the %d rows of a warpgroup, or 16 or 32", s.M, rows)
	case s.K != frag.SwizzleBytes && s.K != frag.SwizzleBytes/2 && s.K != frag.SwizzleBytes/4:
		return kernel.Because("K is %d: want the elements in 128 bytes, 32, 64 or 128", s.K)
	case s.Stages < 2 || s.Stages > 16:
		return kernel.Because("%d stages: want 2 to 16", s.Stages)
	case s.N < 64 && s.ClusterBlocks() > 1:
		return kernel.Because("a cluster with N of %d: want N of at least 64", s.N)
	case s.ClusterM > 4 || s.ClusterBlocks() > 1 && s.N%(s.BlocksM()*32) != 0:
		return kernel.Because("a cluster of %d blocks: want at most 4, and a multiple of 32 columns for each", s.ClusterM)
	case s.BlocksN() > 1 && (s.BlocksM()*s.BlocksN() > 4 || s.M%(s.BlocksN()*32) != 0 || s.SwapAB || s.ClusterK > 1):
		return kernel.Because("a cluster of %d×%d blocks: want at most 4, a multiple of 32 rows for each, and neither "+
			"swapAB nor blocks along K", s.BlocksM(), s.ClusterN)
	case s.ClusterK > 1 && (s.ClusterK != 2 && s.ClusterK != 4 && s.ClusterK != 8 || s.ClusterM > 1 || s.SplitK > 1):
		return kernel.Because("a cluster of %d blocks along K and %d along M, with split-K of %d: want 2, 4 or 8 along K "+
			"alone", s.ClusterK, s.BlocksM(), max(s.SplitK, 1))
	case s.SwapAB && (s.M < WarpgroupRows || s.ClusterK > 1):
		return kernel.Because("swapAB: want at least %d columns of C, and no cluster along K", WarpgroupRows)
	case s.StreamK && (s.M != 2*rows || s.PartsOfK() > 1):
		return kernel.Because("stream-K: want two warpgroups that share each tile, and K undivided")
	case s.SerialK > 1 && (sums > 64 || s.M > 2*rows):
		return kernel.Because("too few registers for the totals of serial parts")
	case validRows(s)%(s.BlocksK()*WarpgroupThreads/frag.Lanes) != 0:
		return kernel.Because("a cluster of %d blocks cannot partition %d rows", s.ClusterK, s.M)
	}
	return nil
}

// checkProblem returns why no tile of the kernel can compute p.
func checkProblem(p *gemm.Problem) *kernel.Reason {
	// TMA coordinates are signed 32-bit integers, and a box can begin one tile past the end. The
	// terms of an operand split are concatenated along a row.
	maxSide := (1<<31 - 1024) / len(ArithmeticOf(p.In(), p.Precision).Terms)
	if side := max(p.M, p.N, p.K); side > maxSide {
		return kernel.Because("a side of %d: want at most %d", side, maxSide)
	}
	if p.BlockScaled() && len(ArithmeticOf(p.In(), p.Precision).Promotions) == 0 {
		return kernel.Because("block scales in precision %v: scaling needs accumulator promotion", p.Precision)
	}
	return nil
}

// checkFit returns why the tile of c cannot compute p, in most cases because a consumer thread has
// too few registers.
func checkFit(p *gemm.Problem, c *kernel.Config) *kernel.Reason {
	s := c.Tile
	r, operands := ArithmeticOf(p.In(), p.Precision), kernel.CountOperands(p.Epilogue)
	sums := s.RowsPerThread * s.ColsPerThread
	_, scaleSide := p.ScaleSides()
	switch {
	case s.SwapAB:
		if why := checkSwapAB(p, c); why != nil {
			return why
		}
	case IsNarrowed(s):
		if why := checkNarrowed(p, c); why != nil {
			return why
		}
	}
	switch n := frag.SwizzleBytes / r.Elem.Bytes(); {
	case s.K != n:
		return kernel.Because("want K of %d for %v", n, p.In())
	case !r.hasColumns(s.N):
		return kernel.Because("N is %d: wgmma of int8 wants 8, 24 or a multiple of 16", s.N)
	case Consumers(s) > 2 && len(r.Promotions) > 0:
		return kernel.Because("too few registers for accumulator promotion of %v", p.In())
	case (s.SwapAB || IsNarrowed(s)) && !r.promotesColumns(*c):
		return kernel.Because("N is %d: promotion wants equal parts of at least %d columns", s.N, leastPromoted)
	case scaleSide > 0 && s.RowsPerThread > 2:
		return kernel.Because("too few registers for block scales with %d rows per thread", s.RowsPerThread)
	case scaleSide == 1 && sums > 64:
		return kernel.Because("too few registers for a scale per column")
	case Consumers(s) > 2 && operands > 0:
		return kernel.Because("too few registers with three warpgroups for the operands of epilogue %v", p.Epilogue)
	case len(r.Terms) > 1 && s.N > 2*WarpgroupRows && operands > 0:
		return kernel.Because("too few registers for the operands of epilogue %v in precision %v", p.Epilogue, p.Precision)
	case s.RowsPerThread > 2 && len(r.Terms) > 1:
		return kernel.Because("too few registers for precision %v with %d rows per thread", p.Precision, s.RowsPerThread)
	case s.StreamK && (p.Batch.Kind == gemm.Grouped || p.Epilogue.Residual || p.BlockScaled()):
		return kernel.Because("stream-K: want no groups, no residual and no block scales")
	case s.StreamK && (len(r.Terms) > 1 || s.SwapAB && p.Precision == gemm.TF32):
		return kernel.Because("stream-K: want no operand split, and both operands in shared memory")
	case s.StreamK && s.SwapAB && r.PromotesEveryStep() && s.N == 256:
		return kernel.Because("stream-K: too few registers for accumulator promotion with N of 256 and swapAB")
	case p.Epilogue.Gated && !computesGate(c):
		return kernel.Because("a gated epilogue wants N of 128, 256, or 64 with a K-major B, and K not split")
	case s.SerialK > 1 && scaleSide > 0 && sums > 32:
		return kernel.Because("too few registers for block scales and the totals of serial parts")
	case s.Stages < len(r.Terms):
		return kernel.Because("want at least %d stages for precision %v", len(r.Terms), p.Precision)
	}
	return nil
}

// checkNarrowed returns a reason unless the tile of c, which has an N of no multiple of 64, can
// compute p.
func checkNarrowed(p *gemm.Problem, c *kernel.Config) *kernel.Reason {
	s := c.Tile
	switch {
	case p.In().Bits() == 32:
		return kernel.Because("N is %d: want a multiple of 64, 32 or 16 for %v", s.N, p.In())
	case p.BlockScaled():
		return kernel.Because("N is %d with block scales: want a multiple of %d", s.N, WarpgroupRows)
	case !c.TransB: // TMA loads boxes of 64 columns
		return kernel.Because("N is %d with an MN-major B: want a multiple of %d", s.N, WarpgroupRows)
	}
	return nil
}

// computesGate reports whether the tile of c can hold columns of B and of Up in equal parts. Each
// half must fill whole epilogue subtiles and, if B is MN-major, whole TMA boxes.
func computesGate(c *kernel.Config) bool {
	s := c.Tile
	whole := s.N == 2*WarpgroupRows || s.N == 4*WarpgroupRows || s.N == WarpgroupRows && c.TransB
	return whole && s.SplitK < 2 && s.ClusterK < 2
}

// accessLimits returns the limits on bank conflicts and global sectors. TMA accesses add neither.
// Ordinary loads of the old C read pairs of neighbours, which for 16-bit types fill half a sector
// per four lanes. Stores of 32-bit values to a subtile write pairs, and the lanes of two rows use
// the same banks.
func accessLimits(c kernel.Config) kernel.AccessLimits {
	l := kernel.AccessLimits{Scatter: 1}
	if c.Out.Bits() == 16 || c.Tile.SwapAB { // a warp reads 16 bytes per row of the old C
		l.Scatter = 2
	}
	if c.Out.Bits() == 32 || !finishesSubtiles(c) { // accumulators pass through a subtile
		l.Conflicts = 2
	}
	return l
}
