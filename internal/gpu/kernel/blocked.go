package kernel

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/ints"
	"tilework/ptx/build"
)

// Blocked computes several elements of C per thread, in registers (register blocking). A thread
// that holds 16 rows of A and 8 columns of B executes 128 multiply-adds per 24 loads from shared
// memory; kernel tiled executes one per two loads. Software pipelining hides latency: tiles of
// later steps are copied to shared memory during a step (panel.go), and the fragments for the next
// k are loaded to registers during the multiply-adds. A step has one barrier.
//
// The threads of a warp form a 4×8 grid, so that the distinct words of each fragment load are few
// and shared memory delivers them without bank conflicts.
//
// Tiles of 256×64 serve a tall C whose columns would fill tiles of 128 columns badly, or that has
// few of them: 8449×304×3672 in float32 takes 429 µs on an H200, and 528 µs with the next fastest
// tile.
//
// Limits: the tenth of the issue slots that is not multiply-adds, the bandwidth of shared memory,
// and register bank conflicts between the operands of a multiply-add.
var Blocked = &Kernel{
	Name:     "blocked",
	Adds:     "several elements of C in each thread's registers, vector loads, the next tiles loaded ahead",
	SM:       75,
	BetterSM: []int{80}, // cp.async
	OrderFor: fusedOrder,
	SplitsK:  true,
	Tiles: []Tile{
		{M: 128, N: 256, K: 8, RowsPerThread: 16, ColsPerThread: 8, Stages: 3},
		{M: 128, N: 128, K: 8, RowsPerThread: 16, ColsPerThread: 8, Stages: 3},
		{M: 256, N: 64, K: 8, RowsPerThread: 16, ColsPerThread: 8, Stages: 3},
		{M: 64, N: 128, K: 8, RowsPerThread: 8, ColsPerThread: 8, Stages: 4},
		{M: 64, N: 64, K: 8, RowsPerThread: 8, ColsPerThread: 4, Stages: 4},
		{M: 32, N: 128, K: 8, RowsPerThread: 8, ColsPerThread: 8, Stages: 4},
		{M: 256, N: 32, K: 8, RowsPerThread: 8, ColsPerThread: 8, Stages: 4},
		{M: 32, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		{M: 32, N: 32, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		{M: 16, N: 128, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		{M: 128, N: 16, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		{M: 4, N: 256, K: 8, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
	},
	CheckTile:    checkBlocked,
	CheckFit:     checkFitBlocked,
	SetVectors:   blockedVectors,
	Write:        writeBlocked,
	AccessLimits: limitsBlocked,
	BlockThreads: func(s Tile) device.Dim3 { return device.Dim3{X: BlockedThreads(s), Y: 1, Z: 1} },
	SharedFor:    totalsBytes,
}

// VectorOf returns the number of elements of type sums in a 16-byte vector. Fragments of a thread
// have this width: adjacent rows or columns of a tile.
func VectorOf(sums dtype.Type) int { return sums.Elements(MaxVectorBytes) }

// BlockedThreads returns the number of threads in a block of kernel blocked.
func BlockedThreads(s Tile) int { return s.M / s.RowsPerThread * (s.N / s.ColsPerThread) }

// warpGrid returns the arrangement of a warp's threads: 4×8, unless the tile is too narrow for it.
func warpGrid(s Tile) (rows, cols int) {
	rows, cols = min(4, s.M/s.RowsPerThread), min(8, s.N/s.ColsPerThread)
	if rows < 4 {
		cols = 32 / rows
	}
	return 32 / cols, cols
}

// limitsBlocked returns the bounds of blocked's memory accesses. In a K-major operand, lanes read
// runs of 8 elements. In C, a warp stores a run of its threads' fragments. Shared memory has bank
// conflicts if tiles are narrow, or so small that eight threads copy more than one of their rows.
func limitsBlocked(c Config) AccessLimits {
	_, cols := warpGrid(c.Tile)
	l := AccessLimits{Scatter: rowScatter(c, min(c.Tile.K, runAlongK), cols*VectorOf(c.Accum()))}
	if min(c.Tile.M, c.Tile.N) < 16 || BlockedThreads(c.Tile)/c.Tile.K < 8 {
		l.Conflicts = 4
	}
	return l
}

func checkBlocked(s Tile) *Reason {
	if why := checkPowersOfTwo(maxThreads, s.M, s.N, s.K, s.RowsPerThread, s.ColsPerThread); why != nil {
		return why
	}
	if s.RowsPerThread%4 != 0 || s.ColsPerThread%4 != 0 {
		return Because("%d×%d elements per thread: want multiples of 4", s.RowsPerThread, s.ColsPerThread)
	}
	threads := BlockedThreads(s)
	shared := s.Stages * s.K * (s.M + s.N + 2*MaxVectorBytes) * 4
	switch {
	case s.RowsPerThread*s.ColsPerThread > maxSumRegisters:
		return Because("%d accumulators per thread: want at most %d", s.RowsPerThread*s.ColsPerThread, maxSumRegisters)
	case threads < 32:
		return Because("a block of %d threads: want at least a warp", threads)
	case threads > maxThreads:
		return Because("a block of %d threads: want at most %d", threads, maxThreads)
	case s.K < 4 || s.K > 32:
		return Because("K is %d: want 4 to 32", s.K)
	case s.Stages < 2 || shared > staticShared:
		return Because("%d stages of %d bytes: want at least 2 stages, in at most %d bytes", s.Stages,
			shared/max(s.Stages, 1), staticShared)
	}
	return nil
}

// maxSumRegisters is the maximum number of 4-byte registers for a thread's accumulators.
// maxRegisters includes the elements that pass through registers on their way to shared memory.
const maxSumRegisters, maxRegisters = 128, 150

// registersNeeded returns the number of 4-byte registers for a thread's accumulators and for the
// elements that pass through registers.
func registersNeeded(s Tile, sums dtype.Type) int {
	moved := ints.CeilDiv((s.M+s.N)*s.K, BlockedThreads(s))
	held := s.RowsPerThread * s.ColsPerThread
	if s.SerialK > 1 && !TotalsInShared(s, sums) {
		held *= 2
	}
	return sums.Bytes(held+moved) / 4
}

// TotalsInShared reports whether kernel blocked has the totals of serial parts in shared memory. In
// registers they would leave too few warps to hide latency.
func TotalsInShared(s Tile, sums dtype.Type) bool {
	return sums.Bytes(2*s.RowsPerThread*s.ColsPerThread)/4 >= maxSumRegisters
}

// totalsBytes returns the dynamic shared memory of the totals of a block.
func totalsBytes(c Config) int {
	s, sums := c.Tile, c.Accum()
	if s.SerialK < 2 || !TotalsInShared(s, sums) {
		return 0
	}
	return sums.Bytes(s.RowsPerThread * s.ColsPerThread * BlockedThreads(s))
}

func checkFitBlocked(p *gemm.Problem, c *Config) *Reason {
	s := c.Tile
	sums := p.Accum().Bytes(s.RowsPerThread*s.ColsPerThread) / 4
	if n := registersNeeded(s, p.Accum()); sums > maxSumRegisters || n > maxRegisters {
		return Because("%d registers per thread for accumulators and elements in %v: want at most %d for accumulators and "+
			"%d in all", n, p.Accum(), maxSumRegisters, maxRegisters)
	}
	return nil
}

// staticShared is the maximum static shared memory of a kernel, in bytes.
const staticShared = 48 << 10

// CopiesAsync reports whether kernel blocked copies elements to shared memory with cp.async. Others
// pass through registers, as all do that need a conversion.
func CopiesAsync(c *Config) bool { return c.SM >= 80 && c.In == c.Accum() }

// BlockedStages returns the number of steps whose tiles kernel blocked has in shared memory at the
// same time: as many of the tile's stages as fit, or two where elements pass through registers. A
// float64 takes twice the space of a float32.
func BlockedStages(c *Config) int {
	const fewest = 2
	if !CopiesAsync(c) {
		return fewest
	}
	s, sums := c.Tile, c.Accum()
	stage := sums.Bytes(s.K * (s.M + s.N + 2*VectorOf(sums)))
	return max(fewest, min(s.Stages, staticShared/stage))
}

func blockedVectors(c *Config, p *gemm.Problem) {
	most := VectorOf(p.Accum())
	c.VecA, c.VecB, c.VecC = VectorLen(p.Layouts[gemm.A], most), VectorLen(p.Layouts[gemm.B], most),
		VectorLen(p.Layouts[gemm.C], most)
}

// blockedWriter writes kernel blocked.
type blockedWriter struct {
	g          *Writer
	stages     int
	as, bs     build.Array // tiles of A and B, stage after stage: element (k, row of A or column of B)
	a, b       *panel      // the copies to them
	row0, col0 build.Reg   // origin of the tile in C
	ty, tx     build.Reg   // the thread's position among the rows and columns of threads
	acc        [][]build.Reg
	// rows and cols are the thread's fragments of A and B for the current k and the next.
	rows, cols [2][]build.Reg
	// present and free are the first rows of the stage that is multiplied, and of that to copy to.
	present, free build.Reg
}

func writeBlocked(k *build.Kernel, c Config) {
	w := newBlockedWriter(k, c)
	w.loadFirst()
	w.multiplySteps()
	if w.a.async {
		k.CopyWait(0) // no copy may be in flight when the block exits, not even one of zeros beyond K
	}
	w.storeTile()
}

// newBlockedWriter declares the memory of a block, and the registers of a thread.
func newBlockedWriter(k *build.Kernel, c Config) *blockedWriter {
	w, s := &blockedWriter{g: DeclareParams(k, c), stages: BlockedStages(&c)}, c.Tile
	k.Threads(BlockedThreads(s), 1, 1)
	k.MinBlocks(ResidentBlocks(c))
	// Rows in shared memory keep the alignment of vectors. They are padded by one vector, so that
	// the elements of a column are in different banks.
	width := VectorOf(c.Accum())
	w.as = k.Shared("As", w.g.AccType, w.stages*s.K, s.M+width)
	w.bs = k.Shared("Bs", w.g.AccType, w.stages*s.K, s.N+width)
	tid := k.ThreadIdx(build.X)
	w.row0, w.col0 = w.g.TileOrigin()
	w.a = w.g.panel(w.g.A, !c.TransA, w.row0, s.M, c.VecA, w.as)
	w.b = w.g.panel(w.g.B.T(), c.TransB, w.col0, s.N, c.VecB, w.bs)

	lane, warp := k.Rem(tid, frag.Lanes), k.Div(tid, frag.Lanes)
	warpRows, warpCols := warpGrid(s)
	warps := s.N / s.ColsPerThread / warpCols // warps in a row of the tile
	w.ty = k.Named("ty", k.Mad(k.Div(warp, warps), warpRows, k.Div(lane, warpCols)))
	w.tx = k.Named("tx", k.Mad(k.Rem(warp, warps), warpCols, k.Rem(lane, warpCols)))

	w.acc = make([][]build.Reg, s.RowsPerThread)
	for i := range w.acc {
		w.acc[i] = k.Vars(fmt.Sprintf("acc%d_", i), w.g.AccType, s.ColsPerThread, 0)
	}
	for i := range w.rows {
		w.rows[i] = k.Vars(fmt.Sprintf("a%d_", i), w.g.AccType, s.RowsPerThread, 0)
		w.cols[i] = k.Vars(fmt.Sprintf("b%d_", i), w.g.AccType, s.ColsPerThread, 0)
	}
	w.present = k.Var("present", tid.Type(), 0)
	w.free = k.Var("free", tid.Type(), (w.stages-1)*s.K)
	return w
}

// loadFirst fills all stages but one, and loads the fragments for the first k.
func (w *blockedWriter) loadFirst() {
	w.g.Comment("the first tiles")
	var arrivals []func()
	for n := range w.stages - 1 {
		pieces, arrive := w.issue(n * w.g.Config.Tile.K)
		emit(pieces)
		arrivals = append(arrivals, arrive)
	}
	for _, arrive := range arrivals {
		arrive()
	}
	w.await()
	w.loadFragments(0)
}

// multiplySteps multiplies all steps along K. Copies between the multiply-adds find the load units
// idle. With more warps per scheduler, which hide the latency, spreading them gains nothing.
func (w *blockedWriter) multiplySteps() {
	k, s := w.g.Kernel, w.g.Config.Tile
	spread := 1
	if HasFewWarps(&w.g.Config) {
		spread = s.K - 1
	}
	steps := k.Named("steps", k.CeilDiv(k.Sub(w.g.KEnd, w.g.KBegin), s.K))
	w.g.forSteps(steps, slices.Concat(w.acc...), TotalsInShared(s, w.g.Config.Accum()), func(build.Reg) {
		k.Comment("tiles of a later step set out; behind K they are zeros")
		pieces, arrive := w.issue(w.free)
		for p := range s.K {
			if p == s.K-1 {
				k.Comment("the next tiles are there; those that were multiplied make room")
				arrive()
				w.await()
				k.Set(w.free, w.present)
				k.Set(w.present, k.Select(k.Eq(w.present, (w.stages-1)*s.K), 0, k.Add(w.present, s.K)))
			}
			if p < spread {
				emit(slicePieces(pieces, p, spread))
			}
			w.loadFragments(p + 1)
			w.multiply(w.rows[p%2], w.cols[p%2])
		}
	})
}

// issue returns functions that emit the thread's copies of the next tiles to the stage that begins
// at a given row. The function arrive then stores the elements that pass through registers.
func (w *blockedWriter) issue(stage build.Value) (pieces []func(), arrive func()) {
	fromA, toA := w.a.issue(stage)
	fromB, toB := w.b.issue(stage)
	pieces = append(fromA, fromB...)
	if w.a.async {
		pieces = append(pieces, w.g.CopyCommit)
	}
	return pieces, func() { toA(); toB() }
}

// await waits until the tiles of the next stage have arrived, from all threads.
func (w *blockedWriter) await() {
	if w.a.async {
		w.g.CopyWait(w.stages - 2)
	}
	w.g.Barrier()
}

// loadFragments loads the thread's fragments for row p of the present stage, or of the stage that
// follows the last row.
func (w *blockedWriter) loadFragments(p int) {
	s, width := w.g.Config.Tile, VectorOf(w.g.Config.Accum())
	loadFragments(w.as.From(w.present, w.g.Mul(w.ty, width)), p%s.K, s.M, w.rows[p%2])
	loadFragments(w.bs.From(w.present, w.g.Mul(w.tx, width)), p%s.K, s.N, w.cols[p%2])
}

// multiply adds the outer product of rows and cols to the accumulators. It visits them in
// serpentine order: consecutive instructions share an operand, which comes from the operand reuse
// cache instead of a port of the register file.
func (w *blockedWriter) multiply(rows, cols []build.Reg) {
	for i, x := range rows {
		for j := range cols {
			if i%2 == 1 {
				j = len(cols) - 1 - j
			}
			w.g.FMA(w.acc[i][j], x, cols[j])
		}
	}
}

// ResidentBlocks returns the number of blocks that an SM should hold. It leaves each thread the
// registers that it needs, out of a register file of 65,536.
func ResidentBlocks(c Config) int {
	each := 256
	switch n := registersNeeded(c.Tile, c.Accum()); {
	case n <= 45:
		each = 128
	case n <= 78:
		each = 168
	case n <= 100:
		each = 208
	}
	return max(1, min(65536/(each*BlockedThreads(c.Tile)), 16))
}

// HasFewWarps reports whether the accumulators leave registers for only two warps per scheduler,
// which do not hide latency.
func HasFewWarps(c *Config) bool {
	return c.Accum().Bytes(c.Tile.RowsPerThread*c.Tile.ColsPerThread)/4 == maxSumRegisters
}

// threadElement returns the offset of a thread's element i along a side of the tile, relative to
// the thread's first element. The first fragments of all threads are adjacent, then the second
// ones, and so on.
func threadElement(i, side, perThread, width int) int {
	width = min(width, perThread)
	return i/width*(side/(perThread/width)) + i%width
}

// loadFragments loads a thread's elements of row p of a tile.
func loadFragments(tile build.Array, p, side int, to []build.Reg) {
	width := MaxVectorBytes / tile.Elem().Bytes()
	for i := 0; i < len(to); i += width {
		tile.At(p, threadElement(i, side, len(to), width)).LoadTo(to[i : i+width]...)
	}
}
