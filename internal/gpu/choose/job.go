package choose

import (
	"fmt"
	"math"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/ints"
	"tilework/internal/phrase"
)

// job is a product for which candidates are listed, with the values that all predictions use.
type job struct {
	*gemm.Problem
	align  kernel.Align
	device *device.Info
	costs  *coefficients
	// sms is the number of SMs, at least 1.
	sms int
	// traffic is the number of bytes of all matrices, each counted once.
	traffic float64
	// arithmetic is that of wgmma.
	arithmetic sm90.Arithmetic
	// packings are the operands as wgmma reads them.
	packings [readings]packing
	// lowest has bit n for each height of n times [sm90.SwapABStep] that is not too high; see
	// [job.isTooHigh]. It is 0 until it is needed.
	lowest uint64
	// configs are those of the kernel whose candidates are listed.
	configs configs
	// order is the order in which candidates must add, and orderErr why there is none. They are set if
	// ordered is: for a row-invariant product, and for a part of a product.
	ordered  bool
	order    kernel.Order
	orderErr error
	// limit is a time in cycles. Candidates whose lower bound exceeds it are left out.
	limit float64
}

// packing is a product with the operands that TMA cannot read packed.
type packing struct {
	product gemm.Problem
	packed  kernel.Repacked // which operands
	done    bool
}

func newJob(p *gemm.Problem, a kernel.Align, d *device.Info) *job {
	p, a = kernel.CoreOf(p, a)
	return &job{
		Problem: p, align: a, device: d, costs: coefficientsOf(d), sms: max(d.SMs, 1), traffic: p.Traffic(),
		arithmetic: sm90.ArithmeticOf(p.In(), p.Precision), limit: math.Inf(1),
	}
}

// newOrderedJob is newJob with the order of a row-invariant product.
func newOrderedJob(p *gemm.Problem, a kernel.Align, d *device.Info) *job {
	j := newJob(p, a, d)
	if p.Ordered() {
		j.ordered = true
		j.order, j.orderErr = OrderOf(p, d)
	}
	return j
}

// readings is the number of ways in which tiles of wgmma read their operands.
const readings = 4

// reading returns the way in which tile s reads its operands. For all tiles with the same reading,
// [kernel.Repack] returns the same product.
func reading(s kernel.Tile) (n int) {
	if s.SwapAB {
		n++
	}
	if s.IsRagged() {
		n += 2
	}
	return n
}

// packing returns the product as wgmma computes it with tile s.
func (j *job) packing(s kernel.Tile) *packing {
	x := &j.packings[reading(s)]
	if !x.done {
		x.product, x.packed = kernel.Repack(j.Problem, s, j.align)
		x.done = true
	}
	return x
}

// parts returns the number of parts of K that blocks of their own multiply, and the length of the
// longest.
func (j *job) parts(s kernel.Tile) (parts, depth int) {
	parts, depth = 1, max(j.K, 1)
	if s.SplitK > 1 {
		parts = kernel.SplitBlocks(j.Problem, s)
		depth = min(kernel.SplitLen(j.Problem, s)*max(s.SerialK, 1), depth)
	}
	return parts, depth
}

// perSM returns the cycles in which every SM moves its share of n bytes, at a rate in bytes per
// cycle and SM.
func (j *job) perSM(n, rate float64) float64 { return n / rate / float64(j.sms) }

// read returns the cycles in which memory delivers n bytes, at the given part of its rate.
func (j *job) read(n, part float64) float64 { return j.perSM(n, part*j.costs.Machine.MemoryRate) }

// deliver is read for the first n bytes of a product.
func (j *job) deliver(n, part float64) float64 { return j.costs.Machine.Ramp + j.read(n, part) }

// Numbers of bytes and elements are floats, as ints of 32 bits do not hold those of large products,
// nor of 64 bits those of the largest that a problem describes.

// resultBytes returns the bytes of C.
func (j *job) resultBytes() float64 { return volume(j.Products(), j.C().Bytes()) }

// operandBytes returns the bytes of A and B.
func (j *job) operandBytes() float64 { return max(j.traffic-j.resultBytes(), 0) }

// partialSumBytes returns the bytes of the partial sums of split-K.
func (j *job) partialSumBytes(parts int) float64 {
	return volume(parts, j.M, kernel.PartialSumLD(j.Problem), j.Accum().Bytes(1))
}

// volume returns the product of sizes.
func volume(sizes ...int) float64 {
	x := 1.0
	for _, n := range sizes {
		x *= float64(n)
	}
	return x
}

// overlap returns the time of activities that overlap: that of the longest, and somewhat more if
// several take about as long. It is the 4-norm of the times.
func overlap(times ...float64) float64 {
	sum := 0.0
	for _, t := range times {
		sum += t * t * t * t
	}
	return math.Sqrt(math.Sqrt(sum))
}

// tightOverlap is [overlap] with the 8-norm: several times add less to the longest.
func tightOverlap(times ...float64) float64 {
	sum := 0.0
	for _, t := range times {
		t *= t
		sum += t * t * t * t
	}
	return math.Sqrt(math.Sqrt(math.Sqrt(sum)))
}

// norm returns the p-norm of numbers that are not negative, which is at least the largest of them.
func norm(p float64, x ...float64) float64 {
	most, sum := slices.Max(x), 0.0
	if most == 0 {
		return 0
	}
	for _, v := range x {
		sum += math.Pow(v/most, p)
	}
	return most * math.Pow(sum, 1/p)
}

// sum returns the cycles in which another launch adds the parts of K.
func (j *job) sum(c *kernel.Config, parts int) float64 {
	if parts < 2 {
		return 0
	}
	parts = kernel.SplitCount(j.Problem, c.Tile)
	second := kernel.SplitKSumConfig(*c).Tile
	return j.add(parts, ints.CeilDiv(parts, second.K*second.Stages))
}

// add is sum for a number of parts whose loads take a number of rounds.
func (j *job) add(parts, rounds int) float64 {
	n := &j.costs.Machine.Sum
	return n.Launch + n.Round*float64(rounds) + j.perSM(j.partialSumBytes(parts), n.Rate)
}

// serialParts returns the cycles in which the blocks of an SM add the sums of serial parts to their
// totals.
func (j *job) serialParts(k *kernel.Kernel, s kernel.Tile, x *prediction) float64 {
	n := &j.costs.Machine.Serial
	switch {
	case k.TMA:
		return float64(s.SerialK-1) * float64(x.rounds) * (n.Drain + n.Add)
	case k == kernel.Blocked && kernel.TotalsInShared(s, j.Accum()):
		const clear = 2 // before the first part and after the last one
		return float64(s.SerialK+clear-1) * volume(ints.CeilDiv(x.blocks, j.sms), s.M, s.N) * n.Shared
	}
	return float64(s.SerialK-1) * float64(x.rounds) * n.Add
}

// prediction is the estimated time of a configuration in clock cycles of an SM, by its parts.
type prediction struct {
	blocks int // of the grid
	rounds int // blocks of the busiest SM, divided by the number that it holds at once
	// multiply is the time of the SM with the most blocks, and load the time that memory takes
	// to deliver each matrix once. The two overlap.
	multiply, load float64
	// launch is the time from launch to end of an empty kernel, sum that of adding the parts of
	// K, and pack that of packing operands. They overlap with nothing.
	launch, sum, pack float64
}

// cycles returns the time of all parts.
func (x *prediction) cycles() float64 {
	return x.launch + max(x.multiply, x.load) + x.sum + x.pack
}

// String names the parts that matter.
func (x *prediction) String() string {
	s := phrase.Count(x.blocks, "block") + " in " + phrase.Count(x.rounds, "round")
	if x.load > x.multiply {
		s += ", bound by memory"
	}
	if x.pack > 0 {
		s += fmt.Sprintf(", %.0f cycles to pack operands", x.pack)
	}
	if x.sum > 0 {
		s += fmt.Sprintf(", %.0f cycles to add the parts of K", x.sum)
	}
	return s
}
