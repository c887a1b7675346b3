package choose

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

func CheckSkinnySuited(p *gemm.Problem, d *device.Info) error {
	if p.In().Size() < 4 && kernel.MMA.Runs(p, d) == nil {
		return fmt.Errorf("%w: kernel skinny, where tensor cores multiply %v", gemm.ErrUnsupported, p.In())
	}
	most := kernel.MaxSkinny
	switch {
	case p.In() == dtype.F64:
		most /= 2 // the sums of more take the registers in which loads would be under way
	case p.Precision == gemm.TF32:
		most = 1 // more are faster on the tensor cores
	}
	if min(p.M, p.N) > most {
		return fmt.Errorf("%w: kernel skinny is for at most %d rows or columns of %v", gemm.ErrUnsupported, most, p.In())
	}
	return nil
}

// predictSkinny: memory delivers the long operand once for each strip of C, and of that
// each SM gets so many bytes a cycle. A block begins to wait anew.
func predictSkinny(c kernel.Config, p *gemm.Problem, d *device.Info) prediction {
	const (
		smBytes = 40 // in a cycle, with one block
		toBegin = 1500
	)
	s := c.Tile
	sms, size := max(d.SMs, 1), p.In().Size()
	parts, depth := 1, max(p.K, 1)
	if s.SplitK > 1 {
		parts, depth = kernel.SplitCount(p, s), min(kernel.SplitLen(p.K, s), depth)
	}
	x := prediction{shape: s, blocks: kernel.TileCount(p, s) * parts}
	steps := kernel.CeilDiv(depth, s.K)
	block := float64(steps*s.K*(s.M+s.N)*size)/smBytes + toBegin
	x.rounds = kernel.CeilDiv(x.blocks, sms)
	x.multiply = float64(x.rounds) * block
	x.load = float64(x.blocks*min(depth, steps*s.K)*max(s.M, s.N)*size)/loadBytes/float64(sms) + toBegin
	if parts > 1 {
		x.second = secondLaunch + float64(2*kernel.PartialSumBytes(p, s))/sumBytes/float64(sms)
	}
	return x
}
