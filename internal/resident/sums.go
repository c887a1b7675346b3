package resident

import (
	"context"
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ref"
)

// sums is the matrices of a product as its verification sees them. It implements
// [ref.Remote].
//
// All is asked of the device's own stream, behind the product, while that runs: the host has done
// its part when the product ends. A product of large matrices leaves no room for a sweep beside it.
type sums struct {
	*exec.Backend
	p      *gemm.Problem
	at     kernel.Memory
	asked  ref.Question
	memory device.Ptr // with all that follows
	// What is multiplied by, and what comes out: x, op(B)·x, op(A)·(op(B)·x), C·x, the old C·x and
	// a bias times x. A bias of rows is multiplied by totals instead.
	x, bx, ax, cx, old, bias, totals device.Ptr
	verdicts                         device.Ptr
}

// A check draws as many vectors as a sweep takes.
var _ = [1]struct{}{}[exec.SweepVectors-ref.Vectors]

// reserve reserves the memory.
func (s *sums) reserve() (err error) {
	sizes := []int{exec.SweepBytes(s.p.N), exec.SweepBytes(s.p.K), exec.SweepBytes(s.p.M), exec.SweepBytes(s.p.M), exec.SweepBytes(s.p.M),
		exec.SweepBytes(1), exec.SweepBytes(1), exec.JudgeBytes(s.p.M)}
	all := 0
	for _, n := range sizes {
		all += n
	}
	if s.memory, err = s.Device.Alloc(all); err != nil {
		return exec.Sentinel(err)
	}
	at := s.memory
	for i, p := range []*device.Ptr{&s.x, &s.bx, &s.ax, &s.cx, &s.old, &s.bias, &s.totals, &s.verdicts} {
		*p = at
		at += device.Ptr(sizes[i])
	}
	return nil
}

// close gives the memory back, when the device has done with it.
func (s *sums) close() error { return exec.Sentinel(s.Device.Free(s.memory)) }

// operands are op(A) and op(B), with their block scales.
func (s *sums) operands() (a, b exec.Swept) {
	p := s.p
	a, b = exec.Swept{At: s.at[gemm.A], Layout: p.Layouts[gemm.A]}, exec.Swept{At: s.at[gemm.B], Layout: p.Layouts[gemm.B]}
	if p.BlockScaled() {
		sideA, sideB := p.ScaleSides()
		a.Scales, a.Blocks, a.High, a.Wide = s.at[gemm.ScaleA], p.Layouts[gemm.ScaleA], sideA, gemm.ScaleBlock
		b.Scales, b.Blocks, b.High, b.Wide = s.at[gemm.ScaleB], p.Layouts[gemm.ScaleB], gemm.ScaleBlock, sideB
	}
	return a, b
}

// Expect implements [ref.Remote].
func (s *sums) Expect(ctx context.Context, q ref.Question) error {
	if s.p.Converts() {
		return fmt.Errorf("%w: integers times vectors of float64, on the device", gemm.ErrUnsupported)
	}
	if err := s.reserve(); err != nil {
		return err
	}
	s.asked = q
	if err := s.Device.CopyIn(ctx, s.x, q.Vectors, device.Whole(len(q.Vectors))); err != nil {
		return exec.Sentinel(err)
	}
	if s.p.ReadsAB() {
		a, b := s.operands()
		if err := s.Sweep(ctx, &b, s.x, s.bx, false); err != nil {
			return err
		}
		if err := s.Sweep(ctx, &a, s.bx, s.ax, true); err != nil {
			return err
		}
	}
	if s.p.Beta != 0 {
		if err := s.Sweep(ctx, &exec.Swept{At: s.at[gemm.C], Layout: s.p.Layouts[gemm.C]}, s.x, s.old, false); err != nil {
			return err
		}
	}
	switch s.p.Epilogue.Bias {
	case gemm.BiasCol:
		row := exec.Swept{At: s.at[gemm.Bias], Layout: gemm.Dense(s.p.Out(), 1, s.p.N)}
		return s.Sweep(ctx, &row, s.x, s.bias, false)
	case gemm.BiasRow:
		return s.bringTotals(ctx)
	}
	return nil
}

// bringTotals brings what a bias of rows is multiplied by.
func (s *sums) bringTotals(ctx context.Context) error {
	totals := dtype.Bytes(append(s.asked.Totals[:], math.Sqrt(float64(s.p.N))))
	if s.p.ScaleType().Info().Integer {
		var words [ref.Vectors]int32
		for n, t := range s.asked.Totals {
			words[n] = int32(uint32(t))
		}
		totals = dtype.Bytes(words[:])
	}
	return exec.Sentinel(s.Device.CopyIn(ctx, s.totals, totals, device.Whole(len(totals))))
}

// Finite implements [ref.Remote]: it judges C as it was, by limits that are not finite where
// something is not that went into them.
func (s *sums) Finite(ctx context.Context) (bool, error) {
	_, finite, err := s.judge(ctx, s.old, ref.Limits{OfSize: 1, OfNorm: 1, Least: 1})
	return finite, err
}

// Judge implements [ref.Remote].
func (s *sums) Judge(ctx context.Context, l ref.Limits) (v ref.Verdict, finite bool, err error) {
	if err := s.Sweep(ctx, &exec.Swept{At: s.at[gemm.C], Layout: s.p.Layouts[gemm.C]}, s.x, s.cx, false); err != nil {
		return v, false, err
	}
	return s.judge(ctx, s.cx, l)
}

func (s *sums) judge(ctx context.Context, c device.Ptr, l ref.Limits) (_ ref.Verdict, finite bool, err error) {
	j := exec.Judgement{
		Rows: s.p.M, Type: s.p.Out(), C: c, Alpha: s.asked.Alpha, Beta: s.asked.Beta,
		Bias: s.p.Epilogue.Bias, OfBias: s.bias, Totals: s.totals,
		OfSize: l.OfSize, OfNorm: l.OfNorm, Least: l.Least,
	}
	if s.p.ReadsAB() {
		j.Product = s.ax
	}
	if s.p.Beta != 0 {
		j.Old = s.old
	}
	if j.Bias == gemm.BiasRow {
		j.OfBias = s.at[gemm.Bias]
	}
	v, err := s.Backend.Judge(ctx, &j, s.verdicts)
	return ref.Verdict{Row: v.Row, Residual: v.Residual, Limit: v.Limit, Within: v.Within}, v.Finite, err
}

// Old implements [ref.Remote].
func (s *sums) Old(ctx context.Context) (sums [][]float64, norms []float64, err error) {
	m := s.p.M
	all := make([]float64, exec.SweepBytes(m)/8)
	if err := s.Device.CopyOut(ctx, dtype.Bytes(all), s.old, device.Whole(8*len(all))); err != nil {
		return nil, nil, exec.Sentinel(err)
	}
	for n := range exec.SweepVectors {
		sums = append(sums, all[n*m:(n+1)*m])
	}
	return sums, all[exec.SweepVectors*m:], nil
}

// Fetch implements [ref.Remote].
func (s *sums) Fetch(ctx context.Context) (b gemm.Buffers, err error) {
	p := s.p
	fetch := func(to *[]byte, at device.Ptr, l gemm.Layout) {
		if err == nil {
			*to, err = fetch(ctx, s.Device, at, l)
		}
	}
	fetch(&b[gemm.A], s.at[gemm.A], p.Layouts[gemm.A])
	fetch(&b[gemm.B], s.at[gemm.B], p.Layouts[gemm.B])
	fetch(&b[gemm.C], s.at[gemm.C], p.Layouts[gemm.C])
	fetch(&b[gemm.Bias], s.at[gemm.Bias], gemm.Dense(p.Out(), 1, p.BiasLen()))
	if p.BlockScaled() {
		fetch(&b[gemm.ScaleA], s.at[gemm.ScaleA], p.Layouts[gemm.ScaleA])
		fetch(&b[gemm.ScaleB], s.at[gemm.ScaleB], p.Layouts[gemm.ScaleB])
	}
	return b, err
}

// fetch copies a matrix to the host, where it lies as on the device.
func fetch(ctx context.Context, d device.Device, at device.Ptr, l gemm.Layout) ([]byte, error) {
	host := make([]byte, l.Bytes())
	if l.Len() == 0 {
		return host, ctx.Err()
	}
	return host, exec.Sentinel(d.CopyOut(ctx, host, at, exec.Rows(l, l)))
}
