// Package sm90 holds the wgmma kernel for Hopper. One thread of a producer warpgroup loads tiles
// of A and B with TMA into a pipeline of stages. Consumer warpgroups multiply them on the tensor
// cores, cooperatively or ping-pong, and the epilogue stores C with TMA where its layout allows
// that.
package sm90

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// WGMMA is the warp-specialised, persistent kernel for Hopper's tensor cores. One thread of the
// first warpgroup, the producer, issues TMA loads of tiles with 128 bytes along K into a pipeline
// of stages. Two or three consumer warpgroups multiply the tiles with wgmma, which reads its
// operands from shared memory. Instead of block-wide barriers, each stage has a full and an empty
// mbarrier. A block stays on its SM and computes one tile of C after another: while the epilogue
// stores one tile, TMA loads the operands of the next.
//
// The functions write, produce and consume at the end of this file are the algorithm. The tensor
// cores and the power limit of the GPU bound its speed.
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
	StreamsK:         true,
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
	case len(ArithmeticOf(c.In, c.Precision).Terms) > 1, c.ScaleB > 0: // otherwise the producer spills
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

// write emits the kernel: one thread initialises the mbarriers, and then the warpgroups take their
// roles.
func write(k *build.Kernel, c kernel.Config) {
	w := newWriter(k, c)
	leader := k.Eq(w.tid, 0)
	w.setLaunchBounds()
	w.prologue(leader)
	producer, consumer := warpgroupRegisters(c)
	k.If(k.Lt(w.tid, WarpgroupThreads), func() {
		k.WarpgroupRegDealloc(producer)
		k.If(leader, w.produce)
	}).Else(func() {
		k.WarpgroupRegAlloc(consumer)
		w.consume()
	})
}

// setLaunchBounds declares the sizes of a block and of a cluster.
func (w *writer) setLaunchBounds() {
	w.Threads(blockThreads(w.Config.Tile), 1, 1)
	w.MinBlocks(1) // one block gets all registers of the SM, and setmaxnreg redistributes them
	if w.usesCluster() {
		w.Cluster(w.Config.Tile.ClusterBlocks(), 1, 1)
	}
}

// prologue emits the code before the roles. The leader of the block initialises the mbarriers, and
// all threads see them. With PDL they wait until the kernel before this one has ended.
func (w *writer) prologue(leader build.Reg) {
	k := w.Kernel
	k.If(leader, func() {
		w.initBarriers()
		w.prefetchTensorMaps()
	})
	if validRows(w.Config.Tile) < WarpgroupRows {
		w.a.Clear(w.tid, blockThreads(w.Config.Tile))
		k.ProxyFence()
	}
	if w.usesCluster() {
		k.ClusterArrive()
		k.ClusterWait()
	} else {
		k.Barrier()
	}
	if w.Config.PDL {
		k.GridDependencyWait()
		k.LaunchDependents() // their blocks find no room on an SM before these exit
	}
}

// produce emits the producer. For every tile of the block and every step along K, it waits for an
// empty stage and issues the TMA loads of A and B, of one term of an operand split after the other.
func (w *writer) produce() {
	k := w.Kernel
	p := w.newProducer()
	w.forEachTile(w.cluster, w.numClusters, func(row, col build.Reg) {
		p.begin(row, col)
		from := w.firstElement()
		k.For(0, w.steps, func(step build.Reg) {
			for term := range w.Terms {
				whole := p.loadsWhole()
				p.state.WaitEmpty(p.stageBytes(whole))
				p.load(term, whole, k.Mad(step, w.Config.Tile.K, from))
				p.next()
			}
		})
	})
	if w.Config.Tile.Multicasts() {
		p.state.WaitAllEmpty()
	}
}

// consume emits the consumers. For every tile, a warpgroup multiplies its rows in the main loop and
// stores them in the epilogue, whose operands arrive meanwhile. Ping-pong warpgroups compute
// alternate tiles and take turns on the tensor cores.
func (w *writer) consume() {
	c := w.newConsumer()
	w.forEachTile(c.firstTile, c.tileStep, func(row, col build.Reg) {
		c.prefetch(row, col)
		c.waitForTurn()
		sums := c.loop.multiply(c.passTurn)
		c.finish(row, col, sums)
	})
	c.epilogue.drain()
	if w.Config.Tile.BlocksK() > 1 {
		c.epilogue.waitPartialsRead()
	}
}
