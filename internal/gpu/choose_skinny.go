package gpu

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

func checkSkinnySuited(p *gemm.Problem, d *device.Info) error {
	if p.A.Type.Size() < 4 && mma.Runs(p, d) == nil {
		return fmt.Errorf("%w: kernel skinny, where tensor cores multiply %v", gemm.ErrUnsupported, p.A.Type)
	}
	most := mostSlim
	switch {
	case p.A.Type == dtype.F64:
		most /= 2 // the sums of more take the registers in which loads would be under way
	case p.Precision == gemm.TF32:
		most = 1 // more are faster on the tensor cores
	}
	if min(p.M, p.N) > most {
		return fmt.Errorf("%w: kernel skinny is for at most %d rows or columns of %v", gemm.ErrUnsupported, most, p.A.Type)
	}
	return nil
}

// predictSkinny: memory delivers the long operand once for each strip of C, and of that
// each SM gets so many bytes a cycle. A block begins to wait anew.
func predictSkinny(c Config, p *gemm.Problem, d *device.Info) prediction {
	const (
		smBytes = 40 // in a cycle, with one block
		toBegin = 1500
	)
	s := c.Shape
	sms, size := max(d.SMs, 1), p.A.Type.Size()
	parts, depth := 1, max(p.K, 1)
	if s.Split > 1 {
		parts, depth = partsOf(p, s), min(partOf(p.K, s), depth)
	}
	x := prediction{shape: s, blocks: tilesOf(p, s) * parts}
	steps := ceilDiv(depth, s.K)
	block := float64(steps*s.K*(s.M+s.N)*size)/smBytes + toBegin
	x.rounds = ceilDiv(x.blocks, sms)
	x.multiply = float64(x.rounds) * block
	x.load = float64(x.blocks*min(depth, steps*s.K)*max(s.M, s.N)*size)/loadBytes/float64(sms) + toBegin
	if parts > 1 {
		x.second = secondLaunch + float64(2*sumsBytes(p, s))/sumBytes/float64(sms)
	}
	return x
}
