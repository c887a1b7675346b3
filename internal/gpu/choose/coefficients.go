package choose

import (
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/device"
)

// coefficients are the costs from which the time of a candidate is predicted, for one GPU model.
// Cycles are clock cycles of an SM, and rates are per cycle and SM while all SMs work, unless the
// comment says otherwise. TestFit fitted them to testdata/times, the times of some thousand
// candidates with cold caches on an H100 and an H200, except where a comment names another source.
type coefficients struct {
	machine machine
	naive   naiveCosts
	tiled   tiledCosts
	blocked blockedCosts
	skinny  skinnyCosts
	mma     mmaCosts
	wgmma   wgmmaCosts
}

// machine holds the coefficients that all kernels share.
type machine struct {
	memoryRate float64 // bytes that memory delivers to a copy of a large matrix
	ramp       float64 // cycles until memory delivers that many
	l2Bytes    float64 // size of the L2 cache in bytes
	l2Rate     float64 // bytes that the L2 cache delivers to TMA while all SMs load
	sum        splitSum
	serial     serialParts
}

// splitSum is the cost of the launch that adds the parts of K.
type splitSum struct {
	launch float64 // cycles before it does anything
	round  float64 // cycles for each group of parts whose loads are in flight together
	rate   float64 // bytes of partial sums
}

// serialParts is the cost of each part of K but the first.
type serialParts struct {
	add    float64 // cycles of a block to add its sums to totals in registers
	shared float64 // cycles of an SM to add a sum to a total in shared memory
	drain  float64 // cycles of a block until the tensor cores have finished a part
}

// naiveCosts are those of the kernel naive.
type naiveCosts struct {
	launch    float64 // cycles of an empty launch, with PDL
	group     float64 // cycles that a thread waits for the loads of an unrolled group of iterations
	latency   float64 // cycles that a thread waits for the loads of one iteration
	line      float64 // cycles of a warp for a line of the L1 cache that a load touches
	convert   float64 // cycles of a warp for each k, for elements of less than 4 bytes
	wide      float64 // the same, for elements of 8 bytes
	storeRate float64 // bytes of C
}

// tiledCosts are those of the kernel tiled.
type tiledCosts struct {
	launch  float64 // cycles of an empty launch, with PDL
	block   float64 // cycles of an SM to start a block
	phase   float64 // cycles that a block waits for the tiles of a step, and at its barriers
	latency float64 // cycles that a warp waits for each k
	load    float64 // cycles of the pipeline of shared memory for a warp and each k: two loads
	wide    float64 // factor of load for elements of 8 bytes
	convert float64 // cycles of a warp for a step, for elements of less than 4 bytes
}

// blockedCosts are those of the kernel blocked.
type blockedCosts struct {
	launch      float64 // cycles of an empty launch, with PDL
	multiplyAdd float64 // cycles to issue a multiply-add of a warp, per 4 bytes of an accumulator
	copyIssue   float64 // cycles to issue a copy of a warp, where a scheduler has only two warps
	kWait       float64 // cycles that a warp waits for fragments of each k
	stepWait    float64 // cycles that a warp waits at the barrier of a step
	copyWait    float64 // cycles until an asynchronous copy has arrived
	loadWait    float64 // cycles of a step that a warp waits for elements that pass through registers
	convert     float64 // cycles to issue the instructions of a warp for one such element per thread
	fragment    float64 // cycles of the pipeline of shared memory for a vector of fragments of a warp
	line        float64 // cycles of that pipeline for a line of the L1 cache that a copy touches
	storeIssue  float64 // cycles to issue the instructions of a store
	storeWait   float64 // cycles that a warp waits for each of its stores
	storeRate   float64 // bytes of C
	l2Rate      float64 // bytes that the L2 cache delivers
	memory      float64 // factor of memory's rate
	// shortRun is the number of sectors that memory delivers in vain for one sector of a K-major
	// operand.
	shortRun float64
}

// skinnyCosts are those of the kernel skinny.
type skinnyCosts struct {
	launch       float64 // cycles of an empty launch
	block        float64 // cycles to start and end a block
	exposed      float64 // cycles that a warp waits between two instructions, while one block works
	partExposed  float64 // the same where each thread along K has a part of its own
	latency      float64 // cycles until a load from memory returns
	memory       float64 // factor of memory's rate
	cacheLatency float64 // cycles until a load from the L2 cache returns
	l2Rate       float64 // bytes that an SM reads from the L2 cache
	sector       float64 // cycles of the L1 cache for a sector that an instruction accesses
	line         float64 // the same for a line
	single       float64 // the same for a line that only one lane reads
	shortRow     float64 // bytes that memory delivers for nothing, for each that a row is short of a line
}

// mmaCosts are those of the kernel mma. The rates were fitted by hand. That of float64 is the rate
// of the instruction alone, and that of int8 an estimate, as no large product of int8 was measured.
type mmaCosts struct {
	launch float64                // cycles of a launch until its blocks start, and after they end
	block  float64                // cycles to start a block and to load its first elements
	later  float64                // part of the waits of a round of blocks that later rounds have
	rates  map[dtype.Type]float64 // multiply-adds of the tensor cores

	// Instructions of a warp.
	fill       float64 // of a stage besides its copies
	copyIssue  float64 // of a copy with cp.async
	multiply   float64 // to multiply a stage, besides fragments and mma.sync
	storeIssue float64 // to store a vector of C
	rowIssue   float64 // the same where the lanes of a warp store whole rows
	rowWait    float64 // cycles of a warp besides, for each of these vectors
	exchange   float64 // to write or read a vector of accumulators in shared memory

	// A step.
	step        float64 // cycles besides issuing the instructions: the barrier and the first fragments
	stepExposed float64 // part of a step's latency that is not hidden, for one warp per scheduler
	copyExposed float64 // part of the shorter of multiplying and copying that is not hidden
	copy        float64 // cycles in which an SM executes a warp's copies with cp.async
	byteRun     float64 // cycles that a warp waits for each of its byteRuns, alone on its scheduler
	single      float64 // cycles in which an SM executes a warp's copies of single elements
	singleWait  float64 // cycles that a stage waits for single elements, which nothing hides
	l2Rate      float64 // bytes that the L2 cache delivers
	spillStart  float64 // cycles for each spilled register to fill a stage before the first step
	spillStep   float64 // the same in a step

	// The whole product.
	memory       float64 // factor of memory's rate: some of an operand is left in the L2 cache
	narrow       float64 // additional part of operands that narrow copies read along K
	storeRate    float64 // sectors of C that the L2 cache receives
	shortRow     float64 // bytes of a tile's row of C for which it receives sectors at half of that rate
	storeExposed float64 // part of the shorter of storing and all else that other blocks do not hide
	rowExposed   float64 // the same where the lanes of a warp store whole rows
}

// wgmmaCosts are those of the kernel wgmma. Block scales, activations, residuals and batches were
// measured apart, on an H200.
type wgmmaCosts struct {
	launch float64 // cycles from the end of a launch to the end of an empty one
	crowd  float64 // further cycles of launch where no SM is free for the blocks of the next one
	fill   float64 // cycles until the first stage is there
	// restart is the number of cycles from the end of a block to the first stage of the next one.
	restart float64
	exposed float64 // part of the shorter of computing and memory that is not hidden

	// A step along K.
	rate      float64 // elements of C that the tensor cores multiply by 128 bytes of K
	issue     float64 // cycles of a step besides; half of that with 128 rows per warpgroup
	latency   float64 // cycles from the request for a stage to its arrival
	meet      float64 // cycles in which the blocks of a cluster return a stage
	together  float64 // factor of a step of a cluster, whose blocks wait for the slowest
	fragments float64 // smallest number of cycles of a step whose fragments a warpgroup loads
	further   float64 // the same for each further warpgroup
	promote   float64 // cycles in which threads add a promotion to their sums
	part      float64 // cycles for 64 columns of 8-bit floats' sums that are not hidden
	partAlone float64 // the same where only one warpgroup multiplies at a time
	scales    float64 // cycles with block scales
	owners    float64 // cycles with block scales of each column

	// Power. Long products run at a lower clock rate, 1.4 to 1.6 GHz in 16 and 8 bits, while the
	// rates of the L2 cache and of memory do not change.
	power     float64 // relative increase of the time of a cycle in the longest products
	sustained float64 // cycles of the tensor cores with half of that increase

	// Loads.
	alone   float64 // relative increase of the L2 cache's rate for an SM that loads alone
	hotRate float64 // rows of boxes per cycle where all SMs load the same ones
	skewed  float64 // factor of a load where rows begin within lines of the L2 cache
	sectors float64 // factor of a load where rows begin within lines, at whole sectors
	outside float64 // cycles of TMA for a row of a box outside of the matrix
	few     float64 // part of these cycles where each SM has one tile, and most tiles are inside
	tail    float64 // cycles of TMA for a row of a box that ends outside of the matrix along K
	memory  float64 // factor of memory's rate: some of an operand is left in the L2 cache
	paired  float64 // factor of memory's rate for an SM at most, if the other SM of its TPC loads too
	// missed is the part of the repeated loads of operands that the L2 cache misses, where the
	// operands are many times its size. Blocks that share an operand do not load it at the same
	// time. An estimate: bfloat16 16384³ on an H100 ran at 0.55 of the speed of cuBLASLt in the tile
	// chosen without this term, and at 1.03 in another.
	missed float64

	// Epilogue.
	end            float64 // cycles of a tile's epilogue besides its sums
	subtile        float64 // cycles of a warpgroup for a subtile that TMA stores
	byWarps        float64 // cycles of a warpgroup for a subtile that warps copy to C
	shifted        float64 // the same if rows of C may begin in the middle of a word
	rows           float64 // cycles of a warp out of eight for 32 columns of a row of 4-byte elements
	narrowRows     float64 // cycles of a warp out of eight for 32 columns of a row of smaller elements
	residualRate   float64 // elements that threads of swapAB tiles store row by row, with a residual
	torn           float64 // factor of the bytes of C where rows begin within sectors
	edge           float64 // bytes that the end of a tile's row takes there besides
	activationRate float64 // activations computed that take the special function unit twice
	clusterMeet    float64 // cycles in which blocks of a cluster along K meet to add their sums
	clusterRate    float64 // sums that such blocks add
	pair           float64 // cycles of a warp to store a pair of partial sums of each thread
	partials       float64 // part of the partial sums that memory takes

	// Packing operands.
	packLaunch    float64 // cycles of a launch that packs, before it does anything
	copyRate      float64 // bytes copied
	transposeRate float64 // elements transposed
	batchRate     float64 // bytes read and written to transpose the operands of a batch
}

// gpus lists GPU models, and then architectures, the newest first. A device gets the first row
// whose SM it has and whose name is part of its own.
var gpus = []gpu{
	{90, "H100", &h100},
	{80, "A100", &ampere},
	{90, "", &h200},
	{80, "", &ampere},
	{0, "", &turing},
}

type gpu struct {
	sm   int
	name string
	*coefficients
}

// coefficientsOf returns the row of a device.
func coefficientsOf(d *device.Info) *coefficients {
	i := slices.IndexFunc(gpus, func(g gpu) bool { return d.Target.SM >= g.sm && strings.Contains(d.Name, g.name) })
	return gpus[i].coefficients
}
