package choose

import (
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/ints"
)

// The choice needs only the fastest candidate. A lower bound of a candidate's time takes a fraction
// of the work of a prediction. If it exceeds the time of the fastest candidate so far, as it mostly
// does, the candidate is neither checked nor predicted.

// floor holds costs that are part of all predictions of a kernel for a job.
type floor struct {
	launch  float64 // cycles of the launches, except for the one that adds the parts of K
	memory  float64 // cycles in which memory delivers A and B at its full rate
	rate    float64 // multiply-adds of an SM per cycle
	side    int     // rows and columns that an instruction multiplies at least
	exposed float64 // part of the shorter of multiplying and memory that is not hidden

	wgmma *wgmmaCosts // nil for other kernels
	terms float64     // of an operand split, in wgmma
}

// least returns a lower bound of the predicted time of a candidate with tile s: that of the busiest
// SM, which does nothing but multiply, or that of memory.
func (f *floor) least(j *job, s kernel.Tile) float64 {
	parts, depth := j.parts(s)
	blocks := kernel.TileCount(j.Problem, s) * parts * s.BlocksK()
	rounds, active := float64(ints.CeilDiv(blocks, max(j.sms, s.ClusterBlocks()))), float64(min(blocks, j.sms))
	if s.StreamK {
		rounds, active, _ = j.streamed(s)
	}
	step := volume(max(s.M, f.side), max(s.N, f.side), s.K) / f.rate
	launch, ends := f.launch, 0.0
	if n := f.wgmma; n != nil {
		active /= float64(j.sms)
		lines := float64(s.M)/float64(s.BlocksN()) + float64(s.N)/float64(s.BlocksM())
		l2 := j.costs.Machine.L2Rate * (1 + n.Power) * (1 + n.Alone*(1-active))
		step = max(step, f.terms*n.Latency/float64(s.Stages), f.terms*frag.SwizzleBytes*lines/l2)
		if s.Multicasts() {
			step = n.Together * max(step, f.terms*n.Meet)
		}
		launch += n.Crowd * max(2*active-1, 0)
		ends = n.Fill + n.End
	}
	multiply := ends + rounds*float64(ints.CeilDiv(depth, s.BlocksK()))/float64(s.K)*step
	t := launch + max(multiply+f.exposed*f.memory, f.memory+f.exposed*multiply)
	if parts > 1 {
		t += j.add(parts, 1)
	}
	return t
}

// floorBlocked: schedulers issue the multiply-adds.
func floorBlocked(j *job, _ kernel.Tile) floor {
	n := &j.costs.Blocked
	issue := n.MultiplyAdd * float64(j.Accum().Bytes(1)) / 4
	return floor{launch: n.Launch, memory: j.read(j.operandBytes(), n.Memory), rate: schedulers * frag.Lanes / issue}
}

// floorMMA: tensor cores multiply.
func floorMMA(j *job, _ kernel.Tile) floor {
	n := &j.costs.MMA
	return floor{launch: n.Launch, memory: j.read(j.operandBytes(), n.Memory), rate: n.Rates.of(j.In())}
}

// floorWGMMA: tensor cores multiply all products of terms. Memory delivers the operands that are
// not packed. The L2 cache may still hold the others.
func floorWGMMA(j *job, s kernel.Tile) floor {
	n, bytes := &j.costs.WGMMA, 0.0
	t := wgmmaTile{job: j, n: n, s: s, x: j.packing(s)}
	for o := range gemm.C {
		if !t.x.packed[o] {
			bytes += t.loadedBytes(o)
		}
	}
	products, _ := t.promotions()
	return floor{
		launch: n.Launch + t.pack(), memory: j.read(bytes, n.Memory*(1+n.Power)),
		rate: n.Rate * float64(swizzleK(j)) / products, side: sm90.WarpgroupRows, exposed: n.Exposed,
		wgmma: n, terms: float64(len(j.arithmetic.Terms)),
	}
}

// floorSkinny: schedulers issue the multiply-adds.
func floorSkinny(j *job, _ kernel.Tile) floor {
	n := &j.costs.Skinny
	return floor{launch: n.Launch, memory: j.read(j.operandBytes(), n.Memory), rate: schedulers * frag.Lanes}
}
