// Package sm90 holds the wgmma kernel for Hopper. One thread of a producer warpgroup loads tiles
// of A and B with TMA into a pipeline of stages. Consumer warpgroups multiply them on the tensor
// cores, cooperatively or ping-pong, and the epilogue stores C with TMA where its layout allows
// that.
package sm90

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// WGMMA is the warp-specialised, persistent kernel for Hopper's tensor cores. One thread of the
// first warpgroup, the producer, issues TMA loads of tiles with 128 bytes along K into a pipeline
// of stages. Two or three consumer warpgroups multiply the tiles with wgmma, which reads its
// operands from shared memory. Instead of block-wide barriers, each stage has a full and an empty
// mbarrier. A block stays on its SM and computes one tile of C after another: while the epilogue
// stores one tile, TMA loads the operands of the next.
//
// The tensor cores and the power limit of the GPU bound its speed.
var WGMMA = &kernel.Kernel{
	Name:        "wgmma",
	Adds:        "wgmma on tiles that TMA loads: a producer warpgroup, two consumers, persistent blocks",
	SM:          90,
	Suffix:      "a",
	NativeTypes: []dtype.Type{dtype.BF16, dtype.F16, dtype.F8E4M3, dtype.F8E5M2, dtype.I8},
	PrecisionTypes: map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}, gemm.F32x3: {dtype.F32},
		gemm.Fast: {dtype.F8E4M3, dtype.F8E5M2}},
	AccuracyFor:      accuracy,
	OrderFor:         order,
	Tensor:           true,
	SplitsK:          true,
	BlockScales:      true,
	GatesInOneLaunch: true,
	TMA:              true,
	Tiles:            TileList(),
	CheckTile:        checkTile,
	CheckProblem:     checkProblem,
	CheckFit:         checkFit,
	SetVectors:       setVectors,
	Write:            write,
	EmitsPDLWait:     true,
	AccessLimits:     accessLimits,
	BlockThreads:     func(s kernel.Tile) device.Dim3 { return device.Dim3{X: blockThreads(s), Y: 1, Z: 1} },
	SharedFor:        sharedBytes,
	GridFor:          Grid,
	TensorMaps:       tensorMaps,
}

const (
	WarpgroupThreads = 128
	WarpgroupRows    = 64 // M of one wgmma instruction
)

// Consumers returns the number of consumer warpgroups: one for each part of the rows of tile s, or
// two that work ping-pong.
func Consumers(s kernel.Tile) int {
	rows, _ := WarpgroupTile(s)
	return max(s.M/rows, 2)
}

// blockThreads returns the threads of a block: one producer warpgroup and the consumers.
func blockThreads(s kernel.Tile) int { return (1 + Consumers(s)) * WarpgroupThreads }

// warpgroupRegisters returns the operands of setmaxnreg: the registers per thread of the producer
// and of each consumer. All warpgroups together have the same total as at launch.
func warpgroupRegisters(c kernel.Config) (producer, consumer int) {
	switch {
	case Consumers(c.Tile) > 2:
		return 32, 160
	case len(ArithmeticOf(c.In, c.Precision).Terms) > 1: // the producer computes more addresses
		return 40, 232
	}
	return 24, 240
}

// WarpgroupTile returns the part of a tile that one warpgroup accumulates in its registers. A
// thread has two rows of every 64, and in these rows two of every 8 columns.
func WarpgroupTile(s kernel.Tile) (rows, cols int) {
	return s.RowsPerThread * frag.Lanes, s.ColsPerThread * frag.Quad
}

// validRows returns how many of the 64 rows of a wgmma instruction belong to the tile. The other
// rows multiply zeros and are not stored.
func validRows(s kernel.Tile) int { return min(s.M, WarpgroupRows) }

// PingPong reports whether one warpgroup computes the whole tile. Two consumer warpgroups then
// work on alternate tiles: one uses the tensor cores while the other runs its epilogue. Otherwise
// the consumers are cooperative and divide the rows of each tile.
func PingPong(s kernel.Tile) bool {
	rows, _ := WarpgroupTile(s)
	return s.M <= rows
}

// checkTile returns why the kernel cannot have tile s.
func checkTile(s kernel.Tile) *kernel.Reason {
	rows, cols := WarpgroupTile(s)
	sums := s.RowsPerThread * s.ColsPerThread
	switch {
	case s.RowsPerThread != 2 && s.RowsPerThread != 4:
		return kernel.Because("%d rows per thread: want 2 or 4", s.RowsPerThread)
	case s.N != 16 && s.N != 32 && s.N != 64 && s.N != 128 && s.N != 192 && s.N != 256:
		return kernel.Because("N is %d: want 16, 32, 64, 128, 192 or 256", s.N)
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
	case s.N < 64 && s.BlocksM()*s.BlocksK() > 1:
		return kernel.Because("a cluster with N of %d: want N of at least 64", s.N)
	case s.ClusterM > 4 || s.N >= 64 && s.N%(s.BlocksM()*32) != 0:
		return kernel.Because("a cluster of %d blocks: want at most 4, and a multiple of 32 columns for each", s.ClusterM)
	case s.ClusterK > 1 && (s.ClusterK != 2 && s.ClusterK != 4 && s.ClusterK != 8 || s.ClusterM > 1 || s.SplitK > 1):
		return kernel.Because("a cluster of %d blocks along K and %d along M, with split-K of %d: want 2, 4 or 8 along K "+
			"alone", s.ClusterK, s.BlocksM(), max(s.SplitK, 1))
	case s.SwapAB && (s.M < WarpgroupRows || s.ClusterK > 1):
		return kernel.Because("swapAB: want at least %d columns of C, and no cluster along K", WarpgroupRows)
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

// checkFit returns why tile s cannot compute p, in most cases because a consumer thread has too few
// registers.
func checkFit(p *gemm.Problem, s kernel.Tile) *kernel.Reason {
	r, operands := ArithmeticOf(p.In(), p.Precision), kernel.CountOperands(p.Epilogue)
	sums := s.RowsPerThread * s.ColsPerThread
	_, scaleSide := p.ScaleSides()
	if s.SwapAB {
		if why := checkSwapAB(p); why != nil {
			return why
		}
	}
	switch n := frag.SwizzleBytes / r.Elem.Bytes(); {
	case s.K != n:
		return kernel.Because("want K of %d for %v", n, p.In())
	case Consumers(s) > 2 && len(r.Promotions) > 0:
		return kernel.Because("too few registers for accumulator promotion of %v", p.In())
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
	case p.Epilogue.Gated && !computesGate(p, s):
		return kernel.Because("a gated epilogue wants N of 128, 256, or 64 with a K-major B, and K not split")
	case s.SerialK > 1 && scaleSide > 0 && sums > 32:
		return kernel.Because("too few registers for block scales and the totals of serial parts")
	case s.Stages < len(r.Terms):
		return kernel.Because("want at least %d stages for precision %v", len(r.Terms), p.Precision)
	}
	return nil
}

// computesGate reports whether tile s can hold columns of B and of Up in equal parts. Each half
// must fill whole epilogue subtiles and, if B is MN-major, whole TMA boxes.
func computesGate(p *gemm.Problem, s kernel.Tile) bool {
	q, _ := kernel.Repack(p, s, kernel.Align{})
	whole := s.N == 2*WarpgroupRows || s.N == 4*WarpgroupRows || s.N == WarpgroupRows && q.B().Trans
	return whole && s.SplitK < 2 && s.ClusterK < 2
}

// setVectors sets the vector lengths of configuration c. TMA needs 16-byte vectors of A and B.
func setVectors(_ kernel.Tile, c *kernel.Config, p *gemm.Problem) {
	c.VecA, c.VecB = c.In.Elements(kernel.MaxVectorBytes), c.In.Elements(kernel.MaxVectorBytes)
	c.VecC = kernel.VectorLen(p.Layouts[gemm.C], p.Out().Elements(kernel.MaxVectorBytes))
}

// StoresWithTMA reports whether TMA stores C, which needs rows of 16-byte vectors and at least 128
// bytes per row of the tile. 8-bit elements take the other path: a thread has only two neighbours
// in a row, so 32-bit accumulators pass through the subtile instead. With swapAB a thread has no
// neighbours in a row, so 16-bit elements and epilogues with operands take the other path too.
func StoresWithTMA(c kernel.Config) bool {
	if c.Tile.SwapAB && (kernel.CountOperands(c.Epilogue) > 0 || c.Out.Bits() < 32) {
		return false
	}
	_, cols := kernel.SwapAB(c.Tile, c.Tile.M, c.ColumnsOfC())
	return c.Out.Bits() > 8 && c.Out.Bytes(c.VecC) == kernel.MaxVectorBytes &&
		c.Tile.SplitK < 2 && c.Tile.ClusterK < 2 && c.Out.Bytes(cols) >= frag.SwizzleBytes
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
		Multicast: 1}
	b = frag.BoxShape{Elem: elem, Side: s.N, Loaded: s.N, Stages: s.Stages, KMajor: kMajorB, Multicast: s.BlocksM()}
	if c.ComputesGate() {
		b.Matrices = 2
	}
	if !b.KMajor && elem.Bytes() == 2 {
		b.Side = max(s.N, b.Depth()) // at least one TMA box
	}
	return a, b
}

// sharedBytes returns the dynamic shared memory of a block, without mbarriers.
func sharedBytes(c kernel.Config) int {
	a, b := operandShapes(c)
	n := c.Tile.Stages * (a.StageBytes() + b.StageBytes())
	if c.Tile.SplitK < 2 {
		n += Consumers(c.Tile) * subtileBuffers(c) * WarpgroupRows * frag.SwizzleBytes
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
	box := []int{c.Out.Elements(frag.SwizzleBytes), validRows(c.Tile)}
	if c.Tile.SwapAB {
		box[1] = min(swapABSubtileRows, c.Tile.N)
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

// A writer emits the kernel for one configuration. The left operand supplies the M side of wgmma
// and the right operand the N side: A and B, or B and A with swapAB.
type writer struct {
	*kernel.Writer
	Arithmetic
	tmaStore       bool            // TMA stores C
	a, b           *frag.Boxes     // tiles of the left and of the right operand
	up             *frag.Boxes     // tiles of Up in a gated product, else nil
	tensorC        build.Tensor    // declared if tmaStore is set
	tensorResidual build.Tensor    // declared if TMA loads the residual
	residualFull   build.Mbarriers // per subtile: the residual has arrived
	subtiles       build.Array     // epilogue subtiles, those of each warpgroup together
	pipe           *frag.Pipeline
	mmaOrder       build.Mbarriers // per warpgroup, ping-pong: its turn on the tensor cores
	// partialsWritten and partialsRead order the reduction over a cluster along K. Per warpgroup:
	// every block has written its partial sums, and every block has read all of them.
	partialsWritten, partialsRead build.Mbarriers
	tid                           build.Reg
	rank                          build.Value // rank in the multicast cluster, 0 without multicast
	steps                         build.Reg   // tiles along K
	cluster, numClusters          build.Reg   // index of the block's cluster, and number of clusters
	batchIndex                    build.Value // index of the current product in a batch
}

// newWriter declares the parameters, shared memory and mbarriers of the kernel.
func newWriter(k *build.Kernel, c kernel.Config) *writer {
	s := c.Tile
	w := &writer{Writer: kernel.DeclareParams(k, c), Arithmetic: ArithmeticOf(c.In, c.Precision),
		tmaStore: StoresWithTMA(c), rank: 0, tid: k.ThreadIdx(build.X)}
	shapeA, shapeB := operandShapes(c)
	boxesA, boxesB := kernel.SwapAB(s, k.Tensor("boxesA"), k.Tensor("boxesB"))
	w.a, w.b = frag.NewBoxes(k, "A", boxesA, shapeA), frag.NewBoxes(k, "B", boxesB, shapeB)
	if w.tmaStore {
		w.tensorC = k.Tensor("boxesC")
	}
	if loadsResidualWithTMA(c) {
		w.tensorResidual = k.Tensor("boxesD")
		w.residualFull = k.Mbarriers("came", Consumers(s)*subtileBuffers(c))
	}
	if c.ComputesGate() {
		w.up = w.b.WithTensor(k.Tensor("boxesUp"))
	}
	if s.SplitK < 2 {
		elem := w.AccType
		switch {
		case w.tmaStore:
			elem = kernel.PTXTypes[c.Out]
		case c.ComputesGate(): // the gate has converted the accumulators
			elem = w.EpilogueType
		}
		w.subtiles = k.Tile("C", elem, Consumers(s)*subtileBuffers(c)*WarpgroupRows, frag.SwizzleBytes/elem.Bytes())
	}
	w.pipe = frag.NewPipeline(k, s.Stages)
	if PingPong(s) {
		w.mmaOrder = k.Mbarriers("turns", Consumers(s))
	}
	if s.BlocksK() > 1 {
		w.partialsWritten, w.partialsRead = k.Mbarriers("summed", Consumers(s)), k.Mbarriers("added", Consumers(s))
	}
	w.cluster, w.numClusters = k.BlockIdx(build.X), k.GridDim(build.X)
	if n := s.BlocksM() * s.BlocksK(); n > 1 {
		w.cluster, w.numClusters = k.Div(w.cluster, n), k.Div(w.numClusters, n)
	}
	switch {
	case s.BlocksM() > 1:
		w.rank = k.ClusterRank()
	case s.BlocksK() > 1:
		part := k.Mul(k.CeilDiv(k.CeilDiv(w.K, s.K), s.ClusterK), s.K)
		w.KBegin = k.Min(k.Mul(part, k.To(w.IndexType, k.ClusterRank())), w.K)
		w.KEnd = k.Min(k.Add(w.KBegin, part), w.K)
	}
	w.steps = k.Named("steps", k.To(ptx.U32, k.CeilDiv(k.Sub(w.KEnd, w.KBegin), s.K)))
	return w
}

// write emits the kernel: initialisation of the mbarriers, then the producer and the consumers.
func write(k *build.Kernel, c kernel.Config) {
	w := newWriter(k, c)
	s := c.Tile
	k.Threads(blockThreads(s), 1, 1)
	k.MinBlocks(1) // one block gets all registers of the SM, and setmaxnreg redistributes them
	if w.usesCluster() {
		k.Cluster(s.BlocksM()*s.BlocksK(), 1, 1)
	}
	leader := k.Eq(w.tid, 0)
	k.If(leader, func() {
		w.initBarriers()
		w.prefetchTensorMaps()
	})
	if validRows(s) < WarpgroupRows {
		w.a.Clear(w.tid, blockThreads(s))
		k.ProxyFence()
	}
	if w.usesCluster() {
		k.ClusterArrive()
		k.ClusterWait()
	} else {
		k.Barrier()
	}
	if c.PDL {
		k.GridDependencyWait()
		k.LaunchDependents() // their blocks find no room on an SM before these exit
	}
	producer, consumer := warpgroupRegisters(c)
	k.If(k.Lt(w.tid, WarpgroupThreads), func() {
		k.WarpgroupRegDealloc(producer)
		k.If(leader, w.produce)
	}).Else(func() {
		k.WarpgroupRegAlloc(consumer)
		w.consume()
	})
	if w.usesCluster() {
		k.Comment("nobody leaves while others may still use its shared memory")
		k.ClusterArriveRelaxed()
		k.ClusterWait()
	}
}

// initBarriers emits the initialisation of all mbarriers, for one thread of the block.
func (w *writer) initBarriers() {
	k, s := w.Kernel, w.Config.Tile
	releases := s.BlocksM() // arrivals that empty a stage
	if PingPong(s) {
		for warpgroup := range Consumers(s) {
			w.mmaOrder.Init(warpgroup, WarpgroupThreads/frag.Lanes)
		}
	} else {
		releases *= Consumers(s)
	}
	if s.SwapAB {
		releases *= WarpgroupThreads / frag.Lanes
	}
	w.pipe.Init(releases)
	if loadsResidualWithTMA(w.Config) {
		for n := range Consumers(s) * subtileBuffers(w.Config) {
			w.residualFull.Init(n, 1)
		}
	}
	if s.BlocksK() > 1 {
		for warpgroup := range Consumers(s) {
			w.partialsWritten.Init(warpgroup, s.ClusterK)
			w.partialsRead.Init(warpgroup, s.ClusterK)
		}
	}
	k.MbarrierFence()
}

// prefetchTensorMaps emits prefetches of the tensor maps of A, B and Up.
func (w *writer) prefetchTensorMaps() {
	w.a.Prefetch()
	w.b.Prefetch()
	if w.up != nil {
		w.up.Prefetch()
	}
}

// usesCluster reports whether a launch has clusters of more than one block.
func (w *writer) usesCluster() bool {
	return w.Config.Tile.BlocksM()*w.Config.Tile.BlocksK() > 1
}

// produce emits the producer: for every tile of the block and every step along K, it waits for an
// empty stage and issues the TMA loads of A and B.
func (w *writer) produce() {
	k := w.Kernel
	shapeA, shapeB := operandShapes(w.Config)
	termsA, termsB := w.termTiles(w.a, shapeA.KMajor, w.M), w.termTiles(w.b, shapeB.KMajor, w.N)
	var termsUp []*frag.Boxes
	if w.up != nil {
		termsUp = w.termTiles(w.up, shapeB.KMajor, w.N)
	}
	state := w.pipe.State()
	a, b := kernel.SwapAB(w.Config.Tile, gemm.A, gemm.B)
	w.forEachTile(w.cluster, w.numClusters, func(row, col build.Reg) {
		fromA, fromB := kernel.SwapAB(w.Config.Tile, row, col)
		k.For(0, w.steps, func(i build.Reg) {
			for n := range w.Terms {
				state.WaitEmpty(shapeA.LoadedBytes() + shapeB.LoadedBytes())
				p := k.Mad(i, w.Config.Tile.K, w.KBegin)
				termsA[n].Matrix(w.batchCoord(a)).Load(state.Stage(), state.Full(), fromA, p, 0)
				termsB[n].Matrix(w.batchCoord(b)).Load(state.Stage(), state.Full(), fromB, p, w.rank)
				if w.up != nil {
					termsUp[n].Load(state.Stage(), state.Full(), fromB, p, w.rank)
				}
				state.Next()
			}
		})
	})
}

// consume emits the consumers: for every tile, a warpgroup runs the main loop on its rows and then
// the epilogue. Ping-pong warpgroups take alternate tiles.
func (w *writer) consume() {
	k, s := w.Kernel, w.Config.Tile
	// The shuffle tells ptxas that all lanes of a warp have the same value. It then computes matrix
	// descriptors in uniform registers, instead of copying them there before each wgmma.
	warpgroup := k.Named("group", k.Shuffle(k.Sub(k.Div(w.tid, WarpgroupThreads), 1), 0, 0))
	thread := k.Named("member", k.Rem(w.tid, WarpgroupThreads))
	rows, _ := WarpgroupTile(s)
	shapeA, shapeB := operandShapes(w.Config)

	var firstRow build.Value = 0 // first row of the warpgroup's part of the tile
	if !PingPong(s) {
		firstRow = k.Mul(warpgroup, rows)
	}
	x := &mainloop{
		writer: w, thread: thread,
		op:  build.Wgmma{N: s.N, A: w.Elem, B: w.Elem, MNMajorA: !shapeA.KMajor, MNMajorB: !shapeB.KMajor},
		acc: make([][]build.Reg, rows/WarpgroupRows), descA: make([]build.Reg, rows/WarpgroupRows),
	}
	for m := range x.acc {
		x.acc[m] = k.Vars(fmt.Sprintf("sum%d_", m), w.AccType, s.N/2, 0)
		if !s.SwapAB {
			x.descA[m] = w.a.Descriptor(k.Add(firstRow, m*WarpgroupRows))
		}
	}
	if s.SwapAB {
		x.fragA = w.a.FragmentsA(thread, firstRow)
	}
	x.descB = w.b.Descriptor(0)
	x.state, x.first, x.steps = w.pipe.State(), 0, w.steps
	if s.SerialK > 1 {
		x.totals = w.NewSerialSums(slices.Concat(x.acc...))
	}
	x.prevStage = k.Var("before", ptx.U32, 0)
	ep := w.newEpilogue(warpgroup, thread)
	ep.fragA = x.fragA
	x.scales = w.newTileScales(ep)
	first, step := w.cluster, w.numClusters
	loads := k.Mul(w.steps, len(w.Terms)) // stages that a tile passes through
	var mmaPhase build.Reg                // phase of the warpgroup's mbarrier in mmaOrder
	if PingPong(s) {
		first, step = k.Mad(warpgroup, w.numClusters, w.cluster), k.Mul(w.numClusters, Consumers(s))
		x.state.Skip(k.Mul(warpgroup, loads))
		mmaPhase = k.Var("mine", ptx.U32, k.Xor(warpgroup, 1))
	}
	w.forEachTile(first, step, func(row, col build.Reg) {
		ep.prefetch(k.Add(row, firstRow), col)
		if x.scales != nil {
			x.scales.startTile(k.Add(row, firstRow), col, ep)
		}
		if PingPong(s) {
			k.Comment("once the other warpgroup has had all of its tile multiplied")
			w.mmaOrder.Wait(warpgroup, mmaPhase)
			k.Set(mmaPhase, k.Xor(mmaPhase, 1))
		}
		acc := x.multiply(func() {
			if PingPong(s) {
				// Every warp arrives. With a single arrival, a slow warp could still wait for this
				// phase of its mbarrier when the next phase completes.
				k.If(k.Eq(k.Rem(thread, frag.Lanes), 0), func() { w.mmaOrder.Arrive(k.Xor(warpgroup, 1)) })
				x.state.Skip(loads)
			}
		})
		k.Comment("the warpgroup's part of C")
		if s.BlocksK() > 1 {
			ep.reduceCluster(k.Add(row, firstRow), col, acc)
			return
		}
		for m := range acc {
			if from := k.Add(firstRow, m*WarpgroupRows); s.SwapAB {
				ep.storeSwapAB(row, k.Add(col, from), acc[m])
			} else {
				ep.store(m*WarpgroupRows, k.Add(row, from), col, acc[m])
			}
		}
	})
	ep.drain()
}
