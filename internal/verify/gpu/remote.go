package gpu

import (
	"context"
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/verify"
)

// remote implements [verify.Remote] for matrices in the memory of a device.
//
// All work is enqueued in the device's own stream, after the product and while it runs, so the host
// has done its part when the product ends. A product of large matrices occupies the whole device,
// so another stream would gain nothing.
type remote struct {
	backend *exec.Backend
	p       *gemm.Problem
	at      kernel.Memory
	probe   verify.Probe
	memory  device.Ptr // allocation that holds all of the following
	// Inputs and outputs of Freivalds products: x, op(B)·x, op(A)·(op(B)·x), C·x, C·x of the old C,
	// and a column bias times x. totals is the input for a row bias.
	x, bx, ax, cx, old, bias, totals device.Ptr
	results                          device.Ptr // of the residual check
}

// alloc allocates the memory.
func (r *remote) alloc() (err error) {
	p := r.p
	sizes := []int{vectorBytes(p.N), vectorBytes(p.K), vectorBytes(p.M), vectorBytes(p.M), vectorBytes(p.M),
		vectorBytes(1), vectorBytes(1), resultBytes(p.M)}
	total := 0
	for _, n := range sizes {
		total += n
	}
	if r.memory, err = r.backend.Device.Alloc(total); err != nil {
		return err
	}
	at := r.memory
	for i, ptr := range []*device.Ptr{&r.x, &r.bx, &r.ax, &r.cx, &r.old, &r.bias, &r.totals, &r.results} {
		*ptr = at
		at += device.Ptr(sizes[i])
	}
	return nil
}

// close frees the memory once the device has finished using it.
func (r *remote) close() error { return r.backend.Device.Free(r.memory) }

// operands returns op(A) and op(B), with their block scales.
func (r *remote) operands() (a, b matrix) {
	p := r.p
	a, b = matrix{at: r.at[gemm.A], layout: p.Layouts[gemm.A]}, matrix{at: r.at[gemm.B], layout: p.Layouts[gemm.B]}
	if p.BlockScaled() {
		sideA, sideB := p.ScaleSides()
		a.scales, a.blocks, a.high, a.wide = r.at[gemm.ScaleA], p.Layouts[gemm.ScaleA], sideA, gemm.ScaleBlock
		b.scales, b.blocks, b.high, b.wide = r.at[gemm.ScaleB], p.Layouts[gemm.ScaleB], gemm.ScaleBlock, sideB
	}
	return a, b
}

// c returns C.
func (r *remote) c() *matrix { return &matrix{at: r.at[gemm.C], layout: r.p.Layouts[gemm.C]} }

// Expect implements [verify.Remote].
func (r *remote) Expect(ctx context.Context, probe verify.Probe) error {
	switch {
	case r.p.Converts():
		return fmt.Errorf("%w: integers times vectors of float64, on the device", gemm.ErrUnsupported)
	case r.p.Shifted():
		return fmt.Errorf("%w: zero points or uint8 times vectors, on the device", gemm.ErrUnsupported)
	}
	if err := r.alloc(); err != nil {
		return err
	}
	r.probe = probe
	if err := r.backend.Device.CopyIn(ctx, r.x, probe.Vectors, device.Whole(len(probe.Vectors))); err != nil {
		return err
	}
	if r.p.ReadsAB() {
		a, b := r.operands()
		if err := multiply(ctx, r.backend, &b, r.x, r.bx, false); err != nil {
			return err
		}
		if err := multiply(ctx, r.backend, &a, r.bx, r.ax, true); err != nil {
			return err
		}
	}
	if r.p.Beta != 0 {
		if err := multiply(ctx, r.backend, r.c(), r.x, r.old, false); err != nil {
			return err
		}
	}
	switch r.p.Epilogue.Bias {
	case gemm.BiasCol:
		row := matrix{at: r.at[gemm.Bias], layout: gemm.Dense(r.p.Out(), 1, r.p.N)}
		return multiply(ctx, r.backend, &row, r.x, r.bias, false)
	case gemm.BiasRow:
		return r.copyTotals(ctx)
	}
	return nil
}

// copyTotals copies the totals to the device.
func (r *remote) copyTotals(ctx context.Context) error {
	totals := dtype.Bytes(append(r.probe.Totals[:], math.Sqrt(float64(r.p.N))))
	if r.p.ScaleType().Info().Integer {
		var words [verify.NumVectors]int32
		for n, t := range r.probe.Totals {
			words[n] = int32(uint32(t))
		}
		totals = dtype.Bytes(words[:])
	}
	return r.backend.Device.CopyIn(ctx, r.totals, totals, device.Whole(len(totals)))
}

// Finite implements [verify.Remote]. It checks the old C with coefficients of 1, so that a
// threshold is finite only if everything that it depends on is.
func (r *remote) Finite(ctx context.Context) (bool, error) {
	_, finite, err := r.checkResiduals(ctx, r.old, verify.Threshold{OfTerms: 1, OfNorm: 1, Min: 1})
	return finite, err
}

// CheckResiduals implements [verify.Remote].
func (r *remote) CheckResiduals(
	ctx context.Context, t verify.Threshold,
) (worst verify.RowResidual, finite bool, err error) {
	if err := multiply(ctx, r.backend, r.c(), r.x, r.cx, false); err != nil {
		return worst, false, err
	}
	return r.checkResiduals(ctx, r.cx, t)
}

func (r *remote) checkResiduals(
	ctx context.Context, c device.Ptr, t verify.Threshold,
) (worst verify.RowResidual, finite bool, err error) {
	rs := residuals{
		rows: r.p.M, typ: r.p.Out(), c: c, alpha: r.probe.Alpha, beta: r.probe.Beta,
		biasDim: r.p.Epilogue.Bias, bias: r.bias, totals: r.totals, threshold: t, results: r.results,
	}
	if r.p.ReadsAB() {
		rs.ab = r.ax
	}
	if r.p.Beta != 0 {
		rs.old = r.old
	}
	if rs.biasDim == gemm.BiasRow {
		rs.bias = r.at[gemm.Bias]
	}
	return rs.check(ctx, r.backend)
}

// Old implements [verify.Remote].
func (r *remote) Old(ctx context.Context) (sums [][]float64, norms []float64, err error) {
	m := r.p.M
	all := make([]float64, vectorBytes(m)/8)
	if err := r.backend.Device.CopyOut(ctx, dtype.Bytes(all), r.old, device.Whole(8*len(all))); err != nil {
		return nil, nil, err
	}
	for n := range verify.NumVectors {
		sums = append(sums, all[n*m:(n+1)*m])
	}
	return sums, all[verify.NumVectors*m:], nil
}

// Fetch implements [verify.Remote].
func (r *remote) Fetch(ctx context.Context) (b gemm.Buffers, err error) {
	p := r.p
	fetch := func(to *[]byte, at device.Ptr, l gemm.Layout) {
		if err == nil {
			*to, err = fetch(ctx, r.backend.Device, at, l)
		}
	}
	fetch(&b[gemm.A], r.at[gemm.A], p.Layouts[gemm.A])
	fetch(&b[gemm.B], r.at[gemm.B], p.Layouts[gemm.B])
	fetch(&b[gemm.C], r.at[gemm.C], p.Layouts[gemm.C])
	fetch(&b[gemm.Bias], r.at[gemm.Bias], gemm.Dense(p.Out(), 1, p.BiasLen()))
	for _, o := range []gemm.Operand{gemm.RowZero, gemm.ColZero} {
		if p.Uses(o) {
			fetch(&b[o], r.at[o], p.Layout(o))
		}
	}
	if p.BlockScaled() {
		fetch(&b[gemm.ScaleA], r.at[gemm.ScaleA], p.Layouts[gemm.ScaleA])
		fetch(&b[gemm.ScaleB], r.at[gemm.ScaleB], p.Layouts[gemm.ScaleB])
	}
	return b, err
}

// fetch copies a matrix to the host, in its layout on the device.
func fetch(ctx context.Context, d device.Device, at device.Ptr, l gemm.Layout) ([]byte, error) {
	host := make([]byte, l.Bytes())
	if l.Len() == 0 {
		return host, ctx.Err()
	}
	return host, d.CopyOut(ctx, host, at, exec.Rows(l, l))
}
