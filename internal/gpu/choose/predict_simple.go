package choose

import (
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
)

// predictNaive: each thread waits for the elements that it loads.
func predictNaive(j *job, c *kernel.Config) prediction {
	n := &j.costs.Naive
	x := prediction{blocks: kernel.TileCount(j.Problem, c.Tile)}
	x.launch = n.Launch
	wait := float64(j.K/kernel.NaiveUnroll)*n.Group + float64(j.K%kernel.NaiveUnroll)*n.Latency
	if j.Accum().Bytes(1) > 4 {
		wait = float64(j.K) * n.Latency // the loads of double precision are not in flight together
	}
	w := blockWork{wait: wait}
	x.multiply = x.oneThreadPerElement(j, &w, c.Tile) + j.perSM(j.resultBytes(), n.StoreRate)
	return x
}

// predictTiled: a block waits for the tiles of each step, and its warps share the pipeline of
// shared memory. Many small blocks are bound by the rate at which an SM starts them.
func predictTiled(j *job, c *kernel.Config) prediction {
	n, s := &j.costs.Tiled, c.Tile
	x := prediction{blocks: kernel.TileCount(j.Problem, s)}
	x.launch = n.Launch
	steps, depth := float64(kernel.Tiles(j.K, s.K)), float64(s.K)
	step := depth * n.Load
	if j.Accum().Bytes(1) > 4 {
		step *= n.Wide
	}
	w := blockWork{shared: n.Block + warpsOf(s)*steps*step, wait: steps * (n.Phase + n.Latency*depth)}
	x.multiply = x.oneThreadPerElement(j, &w, s)
	return x
}

// warpsOf returns the number of warps of a block with one thread per element of its tile.
func warpsOf(s kernel.Tile) float64 { return float64(ints.CeilDiv(s.M*s.N, frag.Lanes)) }

// oneThreadPerElement returns the time of blocks with one thread per element of C, while memory
// delivers the operands. It sets the number of rounds.
func (x *prediction) oneThreadPerElement(j *job, w *blockWork, s kernel.Tile) float64 {
	const threads, blocks = 2048, 32 // that an SM holds
	held := min(threads/(frag.Lanes*ints.CeilDiv(s.M*s.N, frag.Lanes)), blocks)
	busiest := ints.CeilDiv(x.blocks, j.sms)
	x.rounds = ints.CeilDiv(busiest, held)
	return overlap(w.rounds(busiest, held), j.perSM(j.operandBytes(), j.costs.Machine.MemoryRate))
}
