package choose

import (
	"math"

	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
)

// streamedToo holds the tiles of wgmma, and after those that can have stream-K the same with it.
var streamedToo = func() map[int][]kernel.Tile {
	all := map[int][]kernel.Tile{}
	for k, tiles := range sm90.Tiles {
		for _, s := range tiles {
			all[k] = append(all[k], s)
			if s.StreamK = true; sm90.WGMMA.CheckTile(s) == nil {
				all[k] = append(all[k], s)
			}
		}
	}
	return all
}()

// streamsInVain reports whether stream-K with tile s gains nothing. With up to 64 rows of C memory
// limits the product. If the last round is full there is nothing to divide. If it is more than half
// full, or if columns of tiles have no gangs, blocks are at steps so far apart that the L2 cache
// holds no operands for several of them.
func (j *job) streamsInVain(s kernel.Tile) bool {
	if j.M <= sm90.WarpgroupRows {
		return true
	}
	work, _, gangs := j.streamed(s)
	_, last := math.Modf(work)
	return !gangs || work < 1 || last == 0 || last > 0.5
}

// streamed returns the number of tiles of each SM with stream-K, the number of SMs that have
// some, and whether all tiles of a column have a gang.
func (j *job) streamed(s kernel.Tile) (work, sms float64, gangs bool) {
	blocks := s.ClusterBlocks()
	tiles := kernel.TileCount(j.Problem, s) / blocks // or clusters of them
	clusters := min(sm90.ClustersAtOnce(j.device.SMs, blocks), tiles)
	height, _ := kernel.SwapAB(s, s.M*s.BlocksM(), s.N*s.BlocksN())
	gang := kernel.Tiles(j.M, height)
	if gangs = gang <= sm90.MaxGang(s, clusters); !gangs {
		gang = 1
	}
	count := clusters / gang
	return float64(tiles/gang) / float64(count), float64(count * gang * blocks), gangs
}

// lastLoop returns the cycles of the main loop of the last tile of the busiest SM, where those of
// the others take the given ones. With stream-K, the last one to two rounds take longer, as SMs
// load different parts of K at a time. The last loop includes the difference.
func (t *wgmmaTile) lastLoop(loop float64) float64 {
	switch {
	case t.s.StreamK:
		even := math.Floor(t.work) - 1
		apart := *t
		apart.apart = t.n.Apart
		return loop + (t.work-even)*(apart.loop(t.active)-loop)
	case t.last != t.active:
		return t.loop(t.last)
	}
	return loop
}

// handOver returns the cycles in which a block hands the accumulators of a tile over and takes
// others over, with stream-K. Meanwhile it neither multiplies nor, when the stages are full, loads.
func (t *wgmmaTile) handOver() float64 {
	if !t.s.StreamK {
		return 0
	}
	return t.n.HandOver + volume(2, t.s.M, t.s.N, t.Accum().Bytes(1))/t.costs.Machine.L2Rate
}
