package choose

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/memo"
	"tilework/ptx"
)

// A row-invariant product has one order of summation, which depends on K, the length of the rows of
// C, the type and the architecture, but not on the number of rows. It is the order with the
// smallest loss of time over several numbers of rows, as predicted for one GPU of the architecture.
// Only candidates with that order compute the product.

// referenceRows are the numbers of rows for which the cost of an order is predicted: from decoding
// one token to training.
var referenceRows = []int{1, 8, 64, 512, 4096}

// referenceSMs is the number of SMs of the GPU of every architecture for which it is predicted, and
// referenceThreads the maximum number of threads of a block there.
const referenceSMs, referenceThreads = 132, 1024

// partsOfK are the numbers of parts of K of the orders to choose from.
var partsOfK = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}

// orderKey holds all that the order of a row-invariant product depends on.
type orderKey struct {
	width, k  int
	in        dtype.Type
	precision gemm.Precision
	side      int // columns that share a block scale, or 0
	target    ptx.Target
	maxShared int
}

var orders memo.Table[orderKey, kernel.Order]

// OrderOf returns the order of summation of a row-invariant p on GPUs of the architecture of d. The
// error is ErrUnsupported.
func OrderOf(p *gemm.Problem, d *device.Info) (kernel.Order, error) {
	key := orderKey{width: p.InvariantWidth(), k: p.K, in: p.In(), precision: p.Precision, target: d.Target,
		maxShared: d.MaxShared}
	side, sideB := p.ScaleSides()
	if key.side = sideB; p.Invariance == gemm.InvariantColumns {
		key.side = side
	}
	return orders.Get(key, key.cheapest)
}

// orderTimes holds the predicted times of the fastest candidates with an order.
type orderTimes struct {
	kernel.Order
	cycles []float64 // by referenceRows
}

// cheapest returns the order with the least cost.
func (key *orderKey) cheapest() (best kernel.Order, err error) {
	all, fastest, err := key.orderTimes()
	if err != nil {
		return best, err
	}
	least := math.Inf(1)
	for _, x := range all {
		cost := 0.0
		for n := range fastest {
			loss := math.Log(x.cycles[n] / fastest[n])
			cost += loss * loss
		}
		if cost < least {
			least, best = cost, x.Order
		}
	}
	if math.IsInf(least, 1) {
		return best, fmt.Errorf("%w: no kernel computes row-invariant products of %v in precision %v on %v",
			gemm.ErrUnsupported, key.in, key.precision, key.target)
	}
	return best, nil
}

// orderTimes returns the orders in which the product can be computed, and the predicted time of the
// fastest candidate, both by referenceRows. It leaves out numbers of rows for which a matrix would
// be too large.
func (key *orderKey) orderTimes() (all []orderTimes, fastest []float64, err error) {
	d := &device.Info{SMs: referenceSMs, MaxThreads: referenceThreads, MaxShared: key.maxShared, Target: key.target}
	for n, m := range referenceRows {
		p, err := key.product(m)
		if err != nil && n > 0 {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		fastest = append(fastest, math.Inf(1))
		j := newJob(&p, kernel.Align{}, d)
		for _, r := range rows {
			r.orders(j, func(o kernel.Order) *float64 {
				i := slices.IndexFunc(all, func(x orderTimes) bool { return x.Order == o })
				if i < 0 {
					i = len(all)
					all = append(all, orderTimes{o, slices.Repeat([]float64{math.Inf(1)}, len(referenceRows))})
				}
				return &all[i].cycles[n]
			})
		}
		for _, x := range all {
			fastest[n] = min(fastest[n], x.cycles[n])
		}
	}
	return all, fastest, nil
}

// product returns the product of m rows for which costs are predicted. Operands of 8 bits are
// K-major, as tensor cores read them.
func (key *orderKey) product(m int) (gemm.Problem, error) {
	a, b := gemm.Dense(key.in, m, key.k), gemm.Dense(key.in, key.k, key.width)
	if key.in.Bits() == 8 {
		b = gemm.Dense(key.in, key.width, key.k).T()
	}
	c := gemm.Dense(key.in.Info().Results[0], m, key.width)
	p, _, err := gemm.New(1, gemm.Padded(a), gemm.Padded(b), 0, gemm.Padded(c), gemm.Epilogue{})
	if err == nil && key.side > 0 {
		blocks := gemm.ScaleBlocks(key.k)
		p.Layouts[gemm.ScaleA] = gemm.Dense(dtype.F32, m, blocks)
		p.Layouts[gemm.ScaleB] = gemm.Dense(dtype.F32, blocks, ints.CeilDiv(key.width, key.side))
		_, err = p.Complete()
	}
	p.Precision, p.Invariance = key.precision, gemm.InvariantRows
	return p, err
}

// orders lowers the time of each order to the predicted times of the candidates for j with it. The
// function timeOf returns the time of an order.
func (r *row) orders(j *job, timeOf func(kernel.Order) *float64) {
	if r.Check(j.Problem, kernel.Tile{}, j.align, j.device) != nil {
		return
	}
	c, tiles := Candidate{Kernel: r.Kernel}, r.orderedTiles(j)
	for _, parts := range partsOfK {
		if parts > 1 && !r.dividesK(j) {
			return
		}
		for config := range tiles.inParts(parts) {
			o, ok := r.Order(j.Problem, config.Tile, j.device.Target.SM)
			if !ok || parts > 1 && o.Part == 0 {
				continue
			}
			least := timeOf(o)
			if j.limit = *least; tiles.least(config.Tile) > j.limit {
				continue
			}
			if r.judge(&c, j, config); c.Rejected == nil {
				*least = min(*least, c.Cycles)
			}
		}
	}
}

// dividesK reports whether the kernel can compute the product with K in parts.
func (r *row) dividesK(j *job) bool { return r.SplitsK && j.ReadsAB() }

// orderedTiles holds the tiles for row-invariant products, without parts of K.
type orderedTiles struct {
	*configs
	all []kernel.Tile
	// whole is the number of those for K as a whole. The others are for K in parts.
	whole int
}

func (r *row) orderedTiles(j *job) orderedTiles {
	tiles := slices.DeleteFunc(slices.Clone(r.tilesFor(j)), func(s kernel.Tile) bool { return r.isNeedless(j, s) })
	x := orderedTiles{r.configs(j), tiles, len(tiles)}
	if r.dividesK(j) && r.partTiles != nil {
		x.all = slices.Concat(tiles, r.partTiles(j))
	}
	return x
}

// inParts ranges over the configurations for an order of summation with K in a number of parts:
// by split-K, by serial parts or both. The Config is valid until the next one.
func (x orderedTiles) inParts(parts int) iter.Seq[*kernel.Config] {
	divided := parts > 1 && x.row.dividesK(x.job)
	if !divided {
		x.all = x.all[:x.whole]
	}
	return func(yield func(*kernel.Config) bool) {
		var tiles []kernel.Tile
		for _, s := range x.all {
			tiles = append(tiles[:0], s)
			if divided && s.ClusterK < 2 {
				if perThread := x.row.KPerThread; perThread > 0 {
					tiles = appendPartsInThreads(tiles[:0], s, parts, s.K/perThread)
				} else {
					tiles = append(tiles, s)
					tiles[0].SplitK, tiles[1].SerialK = parts, parts
				}
			}
			for _, s := range tiles {
				if !yield(x.of(s)) {
					return
				}
			}
		}
	}
}

// appendPartsInThreads appends the variants of tile s with parts of K in the threads of as few
// blocks as possible, of twice and of four times as many. A block has the given number of threads
// along K.
func appendPartsInThreads(all []kernel.Tile, s kernel.Tile, parts, threads int) []kernel.Tile {
	fewest := ints.CeilDiv(parts, threads)
	for blocks := fewest; blocks <= min(4*fewest, parts/2); blocks *= 2 {
		s.SerialK = ints.CeilDiv(parts, blocks)
		if blocks > 1 {
			s.SplitK = ints.CeilDiv(parts, s.SerialK)
		}
		all = append(all, s)
	}
	return all
}

// orderedCandidates yields the candidates for the job's order, and reports whether there may be
// more.
func (r *row) orderedCandidates(c *Candidate, j *job, yield func(*Candidate) bool) bool {
	parts := 1
	if j.order.Part > 0 {
		parts = kernel.Tiles(j.K, j.order.Part)
	}
	tiles := r.orderedTiles(j)
	for config := range tiles.inParts(parts) {
		if tiles.least(config.Tile) > j.limit {
			continue
		}
		if r.judge(c, j, config); !yield(c) {
			return false
		}
	}
	return true
}

// orderText returns the end of a reason that names the order of a row-invariant product.
func (j *job) orderText() string {
	if !j.ordered {
		return ""
	}
	return fmt.Sprintf(", with the row-invariant order of %v", j.order)
}

// checkOrder returns why a kernel with tile s does not compute the job's product, or nil. A product
// that is empty, or does not read A and B, has no sums.
func (r *row) checkOrder(j *job, s kernel.Tile) error {
	if j.Empty() || !j.ReadsAB() {
		return nil
	}
	if j.orderErr != nil {
		return j.orderErr
	}
	if o, ok := r.Order(j.Problem, s, j.device.Target.SM); !ok || o != j.order {
		return &otherOrder{r.Kernel, s, ok, o, j.order}
	}
	return nil
}

// otherOrder is the rejection of a candidate that sums in another order than a row-invariant
// product wants. It becomes text only when it is read, as most rejections are not.
type otherOrder struct {
	kernel *kernel.Kernel
	tile   kernel.Tile
	// known reports whether the candidate has an order, which does not depend on the layouts.
	known      bool
	have, want kernel.Order
}

func (e *otherOrder) Error() string {
	text := fmt.Sprintf("%v: kernel %s with tile %v in a row-invariant product", gemm.ErrUnsupported, e.kernel.Name,
		e.tile)
	if !e.known {
		return text + ": its order of summation depends on the layouts"
	}
	return fmt.Sprintf("%s sums %v: want %v", text, e.have, e.want)
}

func (e *otherOrder) Unwrap() error { return gemm.ErrUnsupported }
