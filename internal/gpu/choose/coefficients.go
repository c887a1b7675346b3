package choose

import "tilework/dtype"

// coefficients are the costs from which the time of a candidate is predicted, for one GPU model.
// Cycles are clock cycles of an SM, and rates are per cycle and SM while all SMs work, unless the
// comment says otherwise. The folder models has a file of their values for each GPU model, with
// their sources. Most were fitted to testdata/times, the times of some thousand candidates with
// cold caches.
type coefficients struct {
	Machine machine
	Naive   naiveCosts
	Tiled   tiledCosts
	Blocked blockedCosts
	Skinny  skinnyCosts
	MMA     mmaCosts
	WGMMA   wgmmaCosts

	fitted bool // by Fit on a GPU of this machine
}

// machine holds the coefficients that all kernels share.
type machine struct {
	MemoryRate float64 // bytes that memory delivers to a copy of a large matrix
	Ramp       float64 // cycles until memory delivers that many
	L2Bytes    float64 // size of the L2 cache in bytes
	L2Rate     float64 // bytes that the L2 cache delivers to TMA while all SMs load
	Sum        splitSum
	Serial     serialParts
}

// splitSum is the cost of the launch that adds the parts of K.
type splitSum struct {
	Launch float64 // cycles before it does anything
	Round  float64 // cycles for each group of parts whose loads are in flight together
	Rate   float64 // bytes of partial sums
}

// serialParts is the cost of each part of K but the first.
type serialParts struct {
	Add    float64 // cycles of a block to add its sums to totals in registers
	Shared float64 // cycles of an SM to add a sum to a total in shared memory
	Drain  float64 // cycles of a block until the tensor cores have finished a part
}

// naiveCosts are those of the kernel naive.
type naiveCosts struct {
	Launch    float64 // cycles of an empty launch, with PDL
	Group     float64 // cycles that a thread waits for the loads of an unrolled group of iterations
	Latency   float64 // cycles that a thread waits for the loads of one iteration
	StoreRate float64 // bytes of C
}

// tiledCosts are those of the kernel tiled.
type tiledCosts struct {
	Launch  float64 // cycles of an empty launch, with PDL
	Block   float64 // cycles of an SM to start a block
	Phase   float64 // cycles that a block waits for the tiles of a step, and at its barriers
	Latency float64 // cycles that a warp waits for each k
	Load    float64 // cycles of the pipeline of shared memory for a warp and each k: two loads
	Wide    float64 // factor of load for elements of 8 bytes
}

// blockedCosts are those of the kernel blocked.
type blockedCosts struct {
	Launch      float64 // cycles of an empty launch, with PDL
	MultiplyAdd float64 // cycles to issue a multiply-add of a warp, per 4 bytes of an accumulator
	CopyIssue   float64 // cycles to issue a copy of a warp, where a scheduler has only two warps
	StepWait    float64 // cycles that a warp waits at the barrier of a step
	CopyWait    float64 // cycles until an asynchronous copy has arrived
	LoadWait    float64 // cycles of a step that a warp waits for elements that pass through registers
	Convert     float64 // cycles to issue the instructions of a warp for one such element per thread
	Fragment    float64 // cycles of the pipeline of shared memory for a vector of fragments of a warp
	Line        float64 // cycles of that pipeline for a line of the L1 cache that a copy touches
	StoreIssue  float64 // cycles to issue the instructions of a store
	StoreWait   float64 // cycles that a warp waits for each of its stores
	StoreRate   float64 // bytes of C
	L2Rate      float64 // bytes that the L2 cache delivers
	Memory      float64 // factor of memory's rate
	// ShortRun is the number of sectors that memory delivers in vain for one sector of a K-major
	// operand.
	ShortRun float64
}

// skinnyCosts are those of the kernel skinny.
type skinnyCosts struct {
	Launch       float64 // cycles of an empty launch
	Block        float64 // cycles to start and end a block
	Exposed      float64 // cycles that a warp waits between two instructions, while one block works
	PartExposed  float64 // the same where each thread along K has a part of its own
	Latency      float64 // cycles until a load from memory returns
	Memory       float64 // factor of memory's rate
	CacheLatency float64 // cycles until a load from the L2 cache returns
	L2Rate       float64 // bytes that an SM reads from the L2 cache
	Sector       float64 // cycles of the L1 cache for a sector that an instruction accesses
	Line         float64 // the same for a line
	Single       float64 // the same for a line that only one lane reads
	ShortRow     float64 // bytes that memory delivers for nothing, for each that a row is short of a line
}

// mmaCosts are those of the kernel mma.
type mmaCosts struct {
	Launch float64 // cycles of a launch until its blocks start, and after they end
	Block  float64 // cycles to start a block and to load its first elements
	Later  float64 // part of the waits of a round of blocks that later rounds have
	Rates  mmaRates

	// Instructions of a warp.
	Fill       float64 // of a stage besides its copies
	CopyIssue  float64 // of a copy with cp.async
	Multiply   float64 // to multiply a stage, besides fragments and mma.sync
	StoreIssue float64 // to store a vector of C
	RowIssue   float64 // the same where the lanes of a warp store whole rows
	RowWait    float64 // cycles of a warp besides, for each of these vectors
	Exchange   float64 // to write or read a vector of accumulators in shared memory

	// A step.
	Step        float64 // cycles besides issuing the instructions: the barrier and the first fragments
	StepExposed float64 // part of a step's latency that is not hidden, for one warp per scheduler
	CopyExposed float64 // part of the shorter of multiplying and copying that is not hidden
	Copy        float64 // cycles in which an SM executes a warp's copies with cp.async
	ByteRun     float64 // cycles that a warp waits for each of its byteRuns, alone on its scheduler
	Single      float64 // cycles in which an SM executes a warp's copies of single elements
	SingleWait  float64 // cycles that a stage waits for single elements, which nothing hides
	L2Rate      float64 // bytes that the L2 cache delivers

	// The whole product.
	Memory       float64 // factor of memory's rate: some of an operand is left in the L2 cache
	StoreRate    float64 // sectors of C that the L2 cache receives
	ShortRow     float64 // bytes of a tile's row of C for which it receives sectors at half of that rate
	StoreExposed float64 // part of the shorter of storing and all else that other blocks do not hide
	RowExposed   float64 // the same where the lanes of a warp store whole rows
}

// mmaRates are the multiply-adds of the tensor cores for each type of the operands.
type mmaRates struct{ F64, TF32, Half, Float8, Int8 float64 }

// of returns the rate for operands of type t.
func (r *mmaRates) of(t dtype.Type) float64 {
	switch {
	case t == dtype.F64:
		return r.F64
	case t == dtype.F32:
		return r.TF32
	case t.Info().Integer:
		return r.Int8
	case t.Bits() == 16:
		return r.Half
	}
	return r.Float8
}

// wgmmaCosts are those of the kernel wgmma.
type wgmmaCosts struct {
	Launch float64 // cycles from the end of a launch to the end of an empty one
	Crowd  float64 // further cycles of launch where no SM is free for the blocks of the next one
	Fill   float64 // cycles until the first stage is there
	// Restart is the number of cycles from the end of a block to the first stage of the next one.
	Restart  float64
	HandOver float64 // cycles in which a block hands accumulators over and takes others over, besides their bytes
	Exposed  float64 // part of the shorter of computing and memory that is not hidden

	// A step along K.
	Rate      float64 // elements of C that the tensor cores multiply by 128 bytes of K
	Issue     float64 // cycles of a step besides; half of that with 128 rows per warpgroup
	Latency   float64 // cycles from the request for a stage to its arrival
	Meet      float64 // cycles in which the blocks of a cluster return a stage
	Together  float64 // factor of a step of a cluster, whose blocks wait for the slowest
	Fragments float64 // smallest number of cycles of a step whose fragments a warpgroup loads
	Further   float64 // the same for each further warpgroup
	Promote   float64 // cycles in which threads add a promotion to their sums
	Part      float64 // cycles for 64 columns of 8-bit floats' sums that are not hidden
	PartAlone float64 // the same where only one warpgroup multiplies at a time
	Scales    float64 // cycles with block scales
	Owners    float64 // cycles with block scales of each column

	// Power. Long products run at a lower clock rate, 1.4 to 1.6 GHz in 16 and 8 bits, while the
	// rates of the L2 cache and of memory do not change.
	Power     float64 // relative increase of the time of a cycle in the longest products
	Sustained float64 // cycles of the tensor cores with half of that increase

	// Loads.
	Alone   float64 // relative increase of the L2 cache's rate for an SM that loads alone
	Skewed  float64 // factor of a load where rows begin within lines of the L2 cache
	Sectors float64 // factor of a load where rows begin within lines, at whole sectors
	Apart   float64 // factor of a load with stream-K, as SMs load different parts of K at a time
	Outside float64 // cycles of TMA for a row of a box outside of the matrix
	Few     float64 // part of these cycles where each SM has one tile, and most tiles are inside
	Tail    float64 // cycles of TMA for a row of a box that ends outside of the matrix along K
	Memory  float64 // factor of memory's rate: some of an operand is left in the L2 cache
	Paired  float64 // factor of memory's rate for an SM at most, if the other SM of its TPC loads too
	// Missed is the part of the repeated loads of operands that the L2 cache misses, where the
	// operands are many times its size. Blocks that share an operand do not load it at the same
	// time.
	Missed float64

	// Epilogue.
	End            float64 // cycles of a tile's epilogue besides its sums
	Subtile        float64 // cycles of a warpgroup for a subtile that TMA stores
	ByWarps        float64 // cycles of a warpgroup for a subtile that warps copy to C
	Shifted        float64 // the same if rows of C may begin in the middle of a word
	Rows           float64 // cycles of a warp out of eight for 32 columns of a row of 4-byte elements
	NarrowRows     float64 // cycles of a warp out of eight for 32 columns of a row of smaller elements
	ResidualRate   float64 // elements that threads of swapAB tiles store row by row, with a residual
	Torn           float64 // factor of the bytes of C where rows begin within sectors
	Edge           float64 // bytes that the end of a tile's row takes there besides
	ActivationRate float64 // activations computed that take the special function unit twice
	ClusterMeet    float64 // cycles in which blocks of a cluster along K meet to add their sums
	ClusterRate    float64 // sums that such blocks add
	Pair           float64 // cycles of a warp to store a pair of partial sums of each thread
	Partials       float64 // part of the partial sums that memory takes

	// Packing operands.
	PackLaunch    float64 // cycles of a launch that packs, before it does anything
	CopyRate      float64 // bytes copied
	TransposeRate float64 // elements transposed
	BatchRate     float64 // bytes read and written to transpose the operands of a batch
}
