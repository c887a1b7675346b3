package choose

import (
	"slices"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// predictNaive: each thread waits for every k, unless its SM has warps enough to hide that.
func predictNaive(j *job, c *kernel.Config) prediction {
	n, s := &j.costs.naive, c.Tile
	warps := kernel.CeilDiv(s.M*s.N, 32)
	x := prediction{blocks: kernel.TileCount(j.Problem, s), launch: n.launch}
	x.rounds = kernel.CeilDiv(x.blocks, j.sms)
	sectors := (1 + kernel.Naive.Limits(*c).Scatter) / 2 // of the loads of A and of B
	x.multiply = float64(j.K) * max(n.latency, n.issue*sectors*float64(x.rounds*warps))
	return x
}

// predictTiled: a block waits for the tiles of each step, and its warps take turns at shared
// memory.
func predictTiled(j *job, c *kernel.Config) prediction {
	n, s := &j.costs.tiled, c.Tile
	warps := kernel.CeilDiv(s.M*s.N, 32)
	x := prediction{blocks: kernel.TileCount(j.Problem, s), launch: n.launch}
	x.rounds = kernel.CeilDiv(x.blocks, j.sms)
	x.multiply = float64(kernel.CeilDiv(j.K, s.K)) * (n.phase + n.issue*float64(x.rounds*warps*s.K))
	return x
}

// predictBlocked: threads issue multiply-adds, copies and stores, or wait for shared memory where
// an SM has few warps.
func predictBlocked(j *job, c *kernel.Config) prediction {
	n, s := &j.costs.blocked, c.Tile
	const schedulers = 4 // of an SM, each issuing one instruction a cycle
	threads := kernel.BlockedThreads(s)
	parts, depth := j.parts(s)
	x := prediction{blocks: kernel.TileCount(j.Problem, s) * parts, launch: n.launch}

	copies := kernel.CeilDiv(s.M*s.K/elementsPerCopy(c.VecA, !c.TransA), threads) +
		kernel.CeilDiv(s.N*s.K/elementsPerCopy(c.VecB, c.TransB), threads)
	rows, cols := s.RowsPerThread, s.ColsPerThread
	step := float64(s.K*(rows*cols+kernel.CeilDiv(rows+cols, kernel.VectorOf(j.Accum())))) + n.stepIssue
	steps := float64(kernel.CeilDiv(depth, s.K))
	share := float64(threads) / 32 / schedulers // of a block's warps, for a scheduler
	store := n.storeIssue * float64(rows*cols)
	// A round of blocks takes the time to issue all their instructions, or the time that one of
	// them waits.
	issue := func(blocks int) float64 {
		return float64(blocks)*share*(steps*(step+n.copyIssue*float64(copies))*n.slow(s)+store) + n.blockWait
	}
	wait := max(share, 1)*(steps*(step+n.copyWait*float64(copies))+store) + steps*n.kWait*float64(s.K) + n.blockWait
	round := func(blocks int) float64 { return max(issue(blocks), wait) }
	busiest, held := kernel.CeilDiv(x.blocks, j.sms), kernel.ResidentBlocks(*c)
	x.rounds = kernel.CeilDiv(busiest, held)
	x.multiply = float64(busiest/held) * round(held)
	if left := busiest % held; left > 0 {
		x.multiply += round(left)
	}
	if j.Batch.Kind != gemm.Single {
		x.multiply += j.perSM(float64(j.In().Bytes(x.blocks*(s.M+s.N)*max(j.K, 1))), n.batchBytes)
	}
	x.multiply += j.perSM(float64(j.Products()*j.C().Bytes()), n.storeBytes)
	x.load = j.perSM(j.traffic, n.loadBytes) + n.blockWait
	x.sum = n.sum.cycles(j, parts)
	return x
}

// slow returns the slowdown for a tile.
func (n *blockedCosts) slow(s kernel.Tile) float64 {
	sums, threads := s.RowsPerThread*s.ColsPerThread, kernel.BlockedThreads(s)
	i := slices.IndexFunc(n.slowdown[:], func(x sumSlowdown) bool {
		return sums >= x.sums && (x.threads == 0 || threads < x.threads)
	})
	return n.slowdown[i].factor
}

// elementsPerCopy returns the number of elements that one copy moves: one where the operand is
// K-major, as each then goes to a row of its own.
func elementsPerCopy(vec int, kMajor bool) int {
	if kMajor {
		return 1
	}
	return vec
}

// predictSkinny: memory delivers the long operand once for each strip of C. Each block waits anew
// for its first elements.
func predictSkinny(j *job, c *kernel.Config) prediction {
	n, s, in := &j.costs.skinny, c.Tile, j.In()
	parts, depth := j.parts(s)
	x := prediction{blocks: kernel.TileCount(j.Problem, s) * parts, launch: n.launch}
	x.rounds = kernel.CeilDiv(x.blocks, j.sms)
	steps := kernel.CeilDiv(depth, s.K)
	x.multiply = float64(x.rounds) * (float64(in.Bytes(steps*s.K*(s.M+s.N)))/n.block + n.blockWait)
	x.load = j.perSM(float64(in.Bytes(x.blocks*min(depth, steps*s.K)*max(s.M, s.N))), n.memoryRate(s, in)) + n.blockWait
	x.sum = n.sum.cycles(j, parts)
	return x
}

// memoryRate returns the bytes per cycle and SM that memory delivers for a tile.
func (n *skinnyCosts) memoryRate(s kernel.Tile, in dtype.Type) float64 {
	rates := n.memory[in.Bits()]
	switch slim := min(s.M, s.N); {
	case slim <= 1:
		return rates[0]
	case slim <= 4:
		return rates[1]
	}
	return rates[2]
}

// mmaTiles returns the tiles of mma for the job's element type.
func mmaTiles(j *job) []kernel.Tile {
	if j.In() == dtype.F64 {
		return kernel.MMATilesF64
	}
	tiles := slices.Clone(kernel.MMATiles)
	for i := range tiles {
		tiles[i].K = j.In().Elements(tiles[i].K * 2)
	}
	return tiles
}

// predictMMA: a step multiplies while the next ones are loaded to shared memory, and memory
// delivers each matrix once.
func predictMMA(j *job, c *kernel.Config) prediction {
	n, s, in := &j.costs.mma, c.Tile, j.In()
	parts, depth := j.parts(s)
	x := prediction{blocks: kernel.TileCount(j.Problem, s) * parts, launch: n.launch}
	x.rounds = kernel.CeilDiv(x.blocks, j.sms)
	steps := float64(kernel.CeilDiv(depth, s.K))

	e, ok := n.tiles[mmaTile{j.In() == dtype.F64, s.M, s.N, s.Stages}]
	if !ok {
		e = n.other
	}
	rate, traffic := e.rate, n.traffic
	for _, l := range j.Layouts[gemm.A:gemm.C] {
		if bytes := l.Type.Bytes(kernel.CopiedElements(l)); bytes < kernel.MaxVectorBytes {
			rate -= (e.rate - e.narrow) / 2
			traffic -= (n.traffic - min(n.traffic, n.copies*float64(bytes))) / 2
		}
	}
	if x.rounds*kernel.MMAThreads(s) < 8*32 {
		rate *= n.sparse
	}
	multiply := float64(s.M*s.N*s.K) / n.rates[j.In()] / rate
	load := float64(in.Bytes((s.M+s.N)*s.K)) / min(n.alone, traffic*float64(j.sms)/float64(min(x.blocks, j.sms)))
	through := steps * max(multiply, load)
	if x.rounds == 1 { // no other block works while this one waits for steps beyond its first stages
		through = max(through, (steps-float64(s.Stages))*n.latency/float64(s.Stages-1), steps*n.step)
	}
	busy, memory := float64(x.rounds)*(through+e.edge)+j.perSM(float64(j.Products()*j.M*j.N), n.store),
		j.perSM(j.traffic, n.memory)
	x.multiply, x.load = busy+n.hidden*memory, memory+n.hidden*busy
	sum := n.sum
	sum.bytes = n.sumBytes[in.Bits()]
	x.sum = sum.cycles(j, parts)
	return x
}
