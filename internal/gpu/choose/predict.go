package choose

import (
	"cmp"
	"fmt"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// prediction is what a tile, and a number of parts of K, are expected to cost: in cycles
// of an SM, from what its threads issue, what they wait for and what memory delivers. The
// constants are measured on an H200, in float32. What they are for is the order of the
// candidates.
type prediction struct {
	shape  kernel.Tile
	blocks int // of the grid
	rounds int // of as many blocks as an SM holds at once
	// What the SM with the most blocks takes to multiply, what memory takes to deliver
	// each matrix once, and what adding the parts takes.
	multiply, load, second float64
}

// cycles is what all takes: tiles are loaded while others are multiplied.
func (x *prediction) Cycles() float64 { return max(x.multiply, x.load) + x.second }

// String says what decided.
func (x *prediction) String() string {
	s := fmt.Sprintf("of its tiles this one is predicted to be the fastest: %d blocks in %d rounds, %.0f cycles", x.blocks, x.rounds, x.Cycles())
	if x.load > x.multiply {
		s += ", bound by memory"
	}
	if x.second > 0 {
		s += fmt.Sprintf(", %.0f of them to add the parts of K", x.second)
	}
	return s
}

const (
	schedulers = 4 // of an SM, each issuing one instruction a cycle
	// stepIssue is what a step issues beside products, fragments and copies, copyIssue
	// what a copy costs where there are warps enough, and copyWait where there are not.
	stepIssue, copyIssue, copyWait = 40, 10, 3
	// kWait is what each k of a step waits for fragments where nothing else fills the
	// time, and blockWait what a block takes until its first tiles are there.
	kWait, blockWait = 30, 1500
	// storeIssue is what handing over a sum issues.
	storeIssue = 6
	// loadBytes is what memory delivers to an SM in a cycle, and sumBytes the L2 cache.
	loadBytes, sumBytes = 15, 16
	// batchBytes is what tiles of batches read in a cycle of an SM while they do nothing else:
	// every product's operands are new, and those of the next are not on their way yet.
	batchBytes = 20
	// secondLaunch is what a second launch takes before it does anything, and partWait
	// what it waits for every further sumWarps·sumAhead parts.
	secondLaunch, partWait = 10000, 600
)

// slowed is how much longer products take than to issue them, by a thread's part of the
// tile: registers that lie in the same bank, and shared memory, which has to deliver more
// for each product the smaller the part. Blocks of few warps with many registers, of which
// an SM has two, leave it idle when one of them begins and ends.
func slowed(s kernel.Tile) float64 {
	switch n := s.RowsPerThread * s.ColsPerThread; {
	case n >= 128 && kernel.BlockedThreads(s) < 256:
		return 1.17
	case n >= 128:
		return 1.08
	case n >= 64:
		return 1.03
	case n >= 32:
		return 1.14
	}
	return 1.4
}

// predictBlocked is what p takes with tiles of that shape.
func PredictBlocked(c kernel.Config, p *gemm.Problem, d *device.Info) prediction {
	s := c.Tile
	threads, sms := kernel.BlockedThreads(s), max(d.SMs, 1)
	parts, depth := 1, max(p.K, 1)
	if s.SplitK > 1 {
		parts, depth = kernel.SplitCount(p, s), min(kernel.SplitLen(p.K, s), depth)
	}
	x := prediction{shape: s, blocks: kernel.TileCount(p, s) * parts}

	copies := kernel.CeilDiv(s.M*s.K/copied(c.VecA, !c.TransA), threads) + kernel.CeilDiv(s.N*s.K/copied(c.VecB, c.TransB), threads)
	rows, cols := s.RowsPerThread, s.ColsPerThread
	step := float64(s.K*(rows*cols+kernel.CeilDiv(rows+cols, kernel.VectorOf(p.Accum()))) + stepIssue)
	steps := float64(kernel.CeilDiv(depth, s.K))
	share := float64(threads) / 32 / schedulers // of a block's warps, for a scheduler
	store := float64(storeIssue * rows * cols)
	// A round of n blocks takes what they issue together, or what one of them waits.
	issue := func(n int) float64 {
		return float64(n)*share*(steps*(step+float64(copyIssue*copies))*slowed(s)+store) + blockWait
	}
	wait := max(share, 1)*(steps*(step+float64(copyWait*copies))+store) + steps*float64(kWait*s.K) + blockWait
	round := func(n int) float64 { return max(issue(n), wait) }
	busiest, held := kernel.CeilDiv(x.blocks, sms), kernel.ResidentBlocks(c)
	x.rounds = kernel.CeilDiv(busiest, held)
	x.multiply = float64(busiest/held) * round(held)
	if left := busiest % held; left > 0 {
		x.multiply += round(left)
	}
	if p.Batch.Kind != gemm.Single {
		x.multiply += float64(x.blocks*(s.M+s.N)*max(p.K, 1)*p.In().Size()) / batchBytes / float64(sms)
	}
	x.load = p.Traffic()/loadBytes/float64(sms) + blockWait
	if parts > 1 {
		x.second = secondLaunch + float64(2*kernel.PartialSumBytes(p, s))/sumBytes/float64(sms) + float64(kernel.CeilDiv(parts, kernel.SplitKSumWarps*kernel.SplitKSumLoads)*partWait)
	}
	return x
}

// copied is how many elements move at once: one where the operand's rows run along K and
// each goes to a row of its own.
func copied(vec int, along bool) int {
	if along {
		return 1
	}
	return vec
}

// cheapest orders the candidates by what they are predicted to cost: each tile, whole
// and with K in as many parts as give every SM one block, or two, and so on.
func (r *row) cheapest(p *gemm.Problem, d *device.Info) []kernel.Tile {
	var all []prediction
	for _, s := range r.Tiles {
		c := r.Config(p, s)
		all = append(all, r.predict(c, p, d))
		height, width := s.SizeInC()
		rows := kernel.CeilDiv(p.M, height)
		tiles := rows * kernel.CeilDiv(p.N, width)
		for fill := 1; fill <= maxFill && r.SplitsK && s.ClusterK < 2 && p.ReadsAB() && p.Batch.Kind == gemm.Single && rows <= kernel.MaxGridRows; fill++ {
			parts := min(fill*d.SMs/tiles, p.K/(s.K*minSteps), kernel.MaxGridRows)
			if parts > max(c.Tile.SplitK, 1) {
				c.Tile.SplitK = parts
				all = append(all, r.predict(c, p, d))
			}
		}
	}
	slices.SortStableFunc(all, func(x, y prediction) int { return cmp.Compare(x.Cycles(), y.Cycles()) })
	shapes := make([]kernel.Tile, len(all))
	for i, x := range all {
		shapes[i] = x.shape
	}
	return shapes
}

// maxFill is the most blocks of an SM that K is split for, and minSteps the fewest steps
// of a part: below that its block is busier to begin and to end.
const maxFill, minSteps = 6, 4
