package sm90

import (
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

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
	rankM, rankN                  build.Value // position in the multicast cluster along M and N, or 0
	cluster, numClusters          build.Reg   // index of the block's cluster, and number of clusters
	allSteps                      build.Reg   // tiles along K
	// first is the first step of the current tile that the block multiplies, and steps the number of
	// its steps: all of them but with stream-K.
	first build.Value
	steps build.Reg
	// blockBefore is the number of the block whose tile the block ends, with stream-K.
	blockBefore build.Reg
	batchIndex  build.Value // index of the current product in a batch
}

// newWriter declares the parameters, shared memory and mbarriers of the kernel, and computes which
// tiles and which part of K are the block's.
func newWriter(k *build.Kernel, c kernel.Config) *writer {
	w := &writer{Writer: kernel.DeclareParams(k, c), Arithmetic: ArithmeticOf(c.In, c.Precision),
		tmaStore: StoresWithTMA(c), rankM: 0, rankN: 0, tid: k.ThreadIdx(build.X)}
	w.declareTensors()
	w.declareSubtiles()
	w.declareBarriers()
	w.locateCluster()
	w.partitionK()
	return w
}

// declareTensors declares the tensor maps, and the shared memory of the operands.
func (w *writer) declareTensors() {
	k, c := w.Kernel, w.Config
	shapeA, shapeB := operandShapes(c)
	boxesA, boxesB := kernel.SwapAB(c.Tile, k.Tensor("boxesA"), k.Tensor("boxesB"))
	w.a, w.b = frag.NewBoxes(k, "A", boxesA, shapeA), frag.NewBoxes(k, "B", boxesB, shapeB)
	if w.tmaStore {
		w.tensorC = k.Tensor("boxesC")
	}
	if loadsResidualWithTMA(c) {
		w.tensorResidual = k.Tensor("boxesD")
		w.residualFull = k.Mbarriers("came", Consumers(c.Tile)*subtileBuffers(c))
	}
	if c.ComputesGate() {
		w.up = w.b.WithTensor(k.Tensor("boxesUp"))
	}
}

// declareSubtiles declares the shared memory of the epilogue, unless it stores the partial sums of
// split-K directly. A subtile holds finished elements of C or accumulators.
func (w *writer) declareSubtiles() {
	c, elem := w.Config, w.AccType
	switch {
	case c.Tile.SplitK > 1:
		return
	case finishesSubtiles(c):
		elem = kernel.PTXTypes[c.Out]
	case c.ComputesGate(): // the gate has converted the accumulators
		elem = w.EpilogueType
	}
	rows := Consumers(c.Tile) * subtileBuffers(c) * WarpgroupRows
	w.subtiles = w.Tile("C", elem, rows, subtileBytes(c)/WarpgroupRows/elem.Bytes())
}

// declareBarriers declares the mbarriers of the pipeline and those between warpgroups and blocks.
func (w *writer) declareBarriers() {
	k, s := w.Kernel, w.Config.Tile
	w.pipe = frag.NewPipeline(k, s.Stages)
	if PingPong(s) {
		w.mmaOrder = k.Mbarriers("turns", Consumers(s))
	}
	if s.BlocksK() > 1 {
		w.partialsWritten, w.partialsRead = k.Mbarriers("summed", Consumers(s)), k.Mbarriers("added", Consumers(s))
	}
}

// locateCluster computes which of all clusters the block is in, and its position there if blocks
// multicast. A block without a cluster counts as one.
func (w *writer) locateCluster() {
	k, s := w.Kernel, w.Config.Tile
	w.cluster, w.numClusters = k.BlockIdx(build.X), k.GridDim(build.X)
	if n := s.ClusterBlocks(); n > 1 {
		w.cluster, w.numClusters = k.Div(w.cluster, n), k.Div(w.numClusters, n)
	}
	switch {
	case s.BlocksN() > 1:
		rank := k.ClusterRank()
		w.rankM, w.rankN = k.Rem(rank, s.BlocksM()), k.Div(rank, s.BlocksM())
	case s.BlocksM() > 1:
		w.rankM = k.ClusterRank()
	}
}

// partitionK computes the part of K that the block multiplies, and the number of its steps. The
// part is all of K, unless the blocks of a cluster divide it.
func (w *writer) partitionK() {
	k, s := w.Kernel, w.Config.Tile
	if s.BlocksK() > 1 {
		part := k.Mul(k.CeilDiv(k.CeilDiv(w.K, s.K), s.ClusterK), s.K)
		w.KBegin = k.Min(k.Mul(part, k.To(w.IndexType, k.ClusterRank())), w.K)
		w.KEnd = k.Min(k.Add(w.KBegin, part), w.K)
	}
	w.allSteps = k.Named("steps", k.To(ptx.U32, k.CeilDiv(k.Sub(w.KEnd, w.KBegin), s.K)))
	w.first, w.steps = 0, w.allSteps
}

// initBarriers emits the initialisation of all mbarriers, for one thread of the block.
func (w *writer) initBarriers() {
	k, s := w.Kernel, w.Config.Tile
	if PingPong(s) {
		for warpgroup := range Consumers(s) {
			w.mmaOrder.Init(warpgroup, WarpgroupThreads/frag.Lanes)
		}
	}
	w.pipe.Init(w.stageReleases())
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

// stageReleases returns the number of releases that empty a stage: one by every warpgroup that
// multiplies it, in every block that multicasts. In a cluster of 2×2 blocks, the block at the other
// corner neither loads nor reads a block's tiles, but without its release a block could release a
// stage twice before another one has released it. Every warp releases a stage that threads read.
// See [mainloop.release].
func (w *writer) stageReleases() int {
	s := w.Config.Tile
	releases := s.BlocksM() * s.BlocksN()
	if !PingPong(s) {
		releases *= Consumers(s)
	}
	if w.loadsFragments() {
		releases *= WarpgroupThreads / frag.Lanes
	}
	return releases
}

// shares returns the block's shares in the loads of the left and of the right operand.
func (w *writer) shares() (left, right frag.Share) {
	k, m, n := w.Kernel, w.Config.Tile.BlocksM(), w.Config.Tile.BlocksN()
	left = frag.Share{Rank: w.rankN, Blocks: 1}
	right = frag.Share{Rank: w.rankM, Blocks: 1<<m - 1}
	if n == 1 {
		return left, right
	}
	rows := 0
	for i := range n {
		rows |= 1 << (i * m)
	}
	left.Blocks = k.Shl(k.Var("sameRows", ptx.U32, rows), w.rankM)
	right.Blocks = k.Shl(k.Var("sameColumns", ptx.U32, right.Blocks), k.Mul(w.rankN, m))
	return left, right
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
	return w.Config.Tile.ClusterBlocks() > 1
}
