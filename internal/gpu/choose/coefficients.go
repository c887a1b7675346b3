package choose

import (
	"tilework/dtype"
	"tilework/internal/device"
)

// coefficients are the costs from which the time of a candidate is predicted, for one GPU model.
// Cycles are clock cycles of an SM, and rates are per cycle and SM while all SMs work, unless the
// comment says otherwise. A fit sets the fields of one row.
type coefficients struct {
	naive   naiveCosts
	tiled   tiledCosts
	blocked blockedCosts
	skinny  skinnyCosts
	mma     mmaCosts
	wgmma   wgmmaCosts
	// corrections are factors for cases that the models do not explain.
	corrections []correction
}

// naiveCosts are those of the kernel naive. Source: 16³ to 10000³ in docs/results/study-h200.jsonl.
type naiveCosts struct {
	launch  float64 // cycles of an empty launch
	latency float64 // cycles that a thread waits for each k
	issue   float64 // cycles of a warp for each k, where loads are coalesced
}

// tiledCosts are those of the kernel tiled. Source: 16³ to 10000³ in docs/results/study-h200.jsonl.
type tiledCosts struct {
	launch float64 // cycles of an empty launch
	phase  float64 // cycles that a block waits for the tiles of a step, and at its barriers
	issue  float64 // cycles of a warp for each k: two loads from shared memory
}

// blockedCosts are those of the kernel blocked. Source: the products of TestPredictions, measured
// on an H200 in float32.
type blockedCosts struct {
	launch     float64 // cycles of an empty launch
	stepIssue  float64 // instructions of a step besides multiply-adds, fragments and copies
	copyIssue  float64 // instructions of a copy, where an SM has warps to hide its latency
	copyWait   float64 // cycles of a copy, where it has not
	kWait      float64 // cycles that each k of a step waits for fragments, where nothing hides it
	blockWait  float64 // cycles until a block's first tiles are there
	storeIssue float64 // instructions to store a sum
	storeBytes float64 // bytes of C, whose store nothing hides
	loadBytes  float64 // bytes that memory delivers
	batchBytes float64 // bytes of a batch's operands, whose loads overlap with no other product
	sum        splitSum
	// slowdown is the time of multiply-adds relative to issuing them, by the number of sums per
	// thread: register bank conflicts, and shared memory where a thread reuses little.
	slowdown [5]sumSlowdown
}

// sumSlowdown is a slowdown for threads of at least sums sums, in blocks of fewer than threads
// threads unless that is 0.
type sumSlowdown struct {
	sums, threads int
	factor        float64
}

// splitSum is the cost of the launch that adds the parts of K.
type splitSum struct {
	launch float64 // cycles before it does anything
	bytes  float64 // bytes of partial sums that it writes and reads
	part   float64 // cycles for each group of parts whose loads are in flight together
}

// skinnyCosts are those of the kernel skinny. Source: docs/results/f32-h200.jsonl and
// f64-h200.jsonl, and docs/kernels/skinny.md for 16-bit types. 8-bit types were not measured.
type skinnyCosts struct {
	launch    float64 // cycles of an empty launch
	blockWait float64 // cycles until a block's first elements are there
	block     float64 // bytes that an SM with one block loads
	// memory is the bytes that memory delivers, by the bits of an element, for tiles of up to 1, 4
	// and 8 rows: the sums of more take registers that loads need.
	memory map[int][3]float64
	sum    splitSum
}

// mmaCosts are those of the kernel mma. Source: float64 was measured on an H200.
type mmaCosts struct {
	launch  float64                // cycles of an empty launch
	rates   map[dtype.Type]float64 // multiply-adds of an SM
	sparse  float64                // factor of the rate where an SM has fewer than 8 warps
	traffic float64                // bytes copied to shared memory in 16-byte copies
	copies  float64                // copies of less than 16 bytes to shared memory
	alone   float64                // bytes copied to shared memory while few SMs load
	memory  float64                // bytes of memory
	hidden  float64                // part of the shorter of loading and multiplying that is not hidden
	latency float64                // cycles until a step's tiles have come
	step    float64                // cycles of a step at the least, where an SM has one block
	store   float64                // elements of C stored
	sum     splitSum
	// sumBytes is the rate of sum by the bits of an element of A.
	sumBytes map[int]float64
	tiles    map[mmaTile]mmaEfficiency
	// other is the efficiency of tiles that are not in tiles.
	other mmaEfficiency
}

// mmaTile identifies a tile of mma, whose K follows from the element type.
type mmaTile struct {
	f64          bool
	m, n, stages int
}

// mmaEfficiency is the efficiency of a tile of mma.
type mmaEfficiency struct {
	rate   float64 // of the peak rate, for large products
	narrow float64 // of the peak rate, where both operands are copied element by element
	edge   float64 // cycles of a block for its first tiles and its store, which nothing hides
}

// wgmmaCosts are those of the kernel wgmma. Source unless stated otherwise: 30 products in 12
// tiles on an H200; see docs/kernels/wgmma.md.
type wgmmaCosts struct {
	launch float64 // cycles until the first tiles are there and after the last tile
	rate   float64 // elements of C that an SM multiplies by 128 bytes of K
	step   float64 // cycles of a step besides; half of that with 128 rows per warpgroup

	// Loads.
	traffic float64 // bytes that the L2 cache delivers
	alone   float64 // bytes that the L2 cache delivers where few SMs load
	skewed  float64 // factor of a load where rows begin within lines of the L2 cache
	sectors float64 // factor of a load where rows begin within lines, at whole sectors
	small   float64 // factor of a load in the boxes of the smallest tiles
	latency float64 // cycles until a stage is there
	meet    float64 // cycles in which the blocks of a cluster return a stage
	memory  float64 // bytes of memory
	hidden  float64 // part of the shorter of loading and multiplying that is not hidden
	groups  float64 // the same for groups of rows, as some wait for memory
	stream  float64 // part of traffic that is lost while the L2 cache is filled for groups
	outside float64 // cycles of TMA for a row along K of a box outside of the matrix
	free    float64 // rows of a box outside of the matrix that cost nothing

	// Arithmetic besides the tensor cores.
	promote  float64 // cycles in which threads add a promotion to their sums
	part     float64 // cycles for 64 columns of 8-bit floats' sums that are not hidden
	together float64 // factor of a step of clusters with a K-major B or an operand split
	scales   float64 // cycles of a step with block scales
	owners   float64 // cycles of a step with block scales of each column

	// Epilogue.
	end       float64 // cycles of a tile's epilogue besides its sums
	store     float64 // sums stored
	functions float64 // activations computed that take the special function unit twice
	clusterK  float64 // cycles in which blocks of a cluster along K meet to add their sums
	clusterKs float64 // sums that such blocks add
	sum       splitSum

	// swapAB tiles.
	loads float64 // smallest number of cycles of a step whose fragments threads load
	again float64 // part of B that memory delivers again where several rows of tiles read it
	lines float64 // elements that threads store row by row
	waits float64 // elements that threads store row by row, with a residual

	// Packing operands.
	packLaunch     float64 // cycles of a launch that packs, before it does anything
	packBytes      float64 // bytes read and written
	transposeBytes float64 // bytes read and written where an operand is transposed
	transposeBatch float64 // the same for the operands of a batch
}

// gpus lists the GPU models, newest architecture first. A device gets the first row whose SM it
// has.
var gpus = []struct {
	sm int
	*coefficients
}{
	{90, &hopper},
	{80, &ampere},
	{0, &turing},
}

// coefficientsOf returns the row of a device.
func coefficientsOf(d *device.Info) *coefficients {
	for _, g := range gpus {
		if d.Target.SM >= g.sm {
			return g.coefficients
		}
	}
	return &turing
}
