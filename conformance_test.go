package tilework_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tilework"
	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/backend"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// operandKind describes a kind of operand that the tests make from matrices in host memory.
type operandKind struct {
	name string
	// batch reports whether even a single product is computed as a batch of one.
	batch, packed bool
	// device reports whether operands are uploaded.
	device bool
}

var operandKinds = []operandKind{
	{name: "Matrix"}, {name: "PackedMatrix", packed: true}, {name: "Batch", batch: true},
	{name: "DeviceMatrix", device: true}, {name: "DeviceBatch", device: true, batch: true},
}

// TestConformance runs the conformance suite on Gemm with every kind of operand, with batches and
// with groups of rows. Operands of the epilogue are on the device with A, B and C.
func TestConformance(t *testing.T) {
	dev, err := tilework.Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, kind := range operandKinds {
		impl := gemmtest.Implementation{
			Name: kind.name, Volume: 1 << 14, Cases: 200, Concurrent: true, Accuracy: accuracyOnCPU,
			Gemm: func(ctx context.Context, p *gemmtest.Problem, b gemmtest.Buffers) error {
				return gemmOf(ctx, dev, kind, p, nil, b)
			},
		}
		if kind.device {
			impl.Volume, impl.Cases, impl.Accuracy = 1<<12, 60, leastAccurate
		}
		if kind.packed {
			impl.Supports = func(p *gemmtest.Problem) bool { return !p.BlockScaled() }
		}
		if kind.device && kind.batch { // batches on a device have a bias and an activation only
			impl.Supports = func(p *gemmtest.Problem) bool { return onlyBias(p.Epilogue) && !p.BlockScaled() && !p.Shifted() }
		}
		if !kind.packed {
			impl.Batch = func(ctx context.Context, p *gemmtest.Problem, ends []int32, b gemmtest.Buffers) error {
				return gemmOf(ctx, dev, kind, p, ends, b)
			}
		}
		t.Run(kind.name, func(t *testing.T) { gemmtest.Run(t, impl) })
	}
}

// accuracyOnCPU returns the accuracy of the kernel for p on this CPU.
func accuracyOnCPU(p *gemmtest.Problem) gemm.Accuracy {
	pl, err := cpu.NewPlan(p, backend.Options{})
	if err != nil {
		return gemm.AccuracyOf(p)
	}
	return pl.Accuracy(p)
}

// leastAccurate returns the accuracy of the least accurate GPU kernel that can be chosen for p.
func leastAccurate(p *gemmtest.Problem) gemm.Accuracy {
	least := gemm.AccuracyOf(p)
	for _, k := range choose.Kernels() {
		if k.Check(p, kernel.Tile{}, kernel.Align{}, nil) != nil {
			continue
		}
		if acc := k.Accuracy(p); acc.Roundoff > least.Roundoff {
			least = acc
		}
	}
	return least
}

// onlyBias reports whether an epilogue reads no operand but a bias.
func onlyBias(e gemm.Epilogue) bool {
	return !e.RowScale && !e.ColScale && !e.Gated && !e.Residual && !e.OutScale
}

// gemmOf computes p with operands of the given kind. The row ranges of a grouped p end at ends.
func gemmOf(
	ctx context.Context, dev *tilework.Device, kind operandKind, p *gemmtest.Problem, ends []int32, b gemmtest.Buffers,
) error {
	type pair = gemmtest.Pair
	run := map[pair]func(context.Context, *tilework.Device, operandKind, *gemmtest.Problem, []int32,
		gemmtest.Buffers) error{
		{In: dtype.F64, Out: dtype.F64}:       typedGemm[float64, float64, float64],
		{In: dtype.F32, Out: dtype.F32}:       typedGemm[float32, float32, float32],
		{In: dtype.F32, Out: dtype.BF16}:      typedGemm[float32, float32, dtype.BFloat16],
		{In: dtype.F32, Out: dtype.F16}:       typedGemm[float32, float32, dtype.Float16],
		{In: dtype.F16, Out: dtype.F16}:       typedGemm[dtype.Float16, dtype.Float16, dtype.Float16],
		{In: dtype.F16, Out: dtype.F32}:       typedGemm[dtype.Float16, dtype.Float16, float32],
		{In: dtype.BF16, Out: dtype.BF16}:     typedGemm[dtype.BFloat16, dtype.BFloat16, dtype.BFloat16],
		{In: dtype.BF16, Out: dtype.F32}:      typedGemm[dtype.BFloat16, dtype.BFloat16, float32],
		{In: dtype.F8E4M3, Out: dtype.F32}:    typedGemm[dtype.Float8E4M3, dtype.Float8E4M3, float32],
		{In: dtype.F8E4M3, Out: dtype.BF16}:   typedGemm[dtype.Float8E4M3, dtype.Float8E4M3, dtype.BFloat16],
		{In: dtype.F8E4M3, Out: dtype.F16}:    typedGemm[dtype.Float8E4M3, dtype.Float8E4M3, dtype.Float16],
		{In: dtype.F8E4M3, Out: dtype.F8E4M3}: typedGemm[dtype.Float8E4M3, dtype.Float8E4M3, dtype.Float8E4M3],
		{In: dtype.F8E5M2, Out: dtype.F32}:    typedGemm[dtype.Float8E5M2, dtype.Float8E5M2, float32],
		{In: dtype.F8E5M2, Out: dtype.BF16}:   typedGemm[dtype.Float8E5M2, dtype.Float8E5M2, dtype.BFloat16],
		{In: dtype.F8E5M2, Out: dtype.F16}:    typedGemm[dtype.Float8E5M2, dtype.Float8E5M2, dtype.Float16],
		{In: dtype.F8E5M2, Out: dtype.F8E5M2}: typedGemm[dtype.Float8E5M2, dtype.Float8E5M2, dtype.Float8E5M2],
		{In: dtype.I8, Out: dtype.I32}:        typedGemm[int8, int8, int32],
		{In: dtype.I8, Out: dtype.F32}:        typedGemm[int8, int8, float32],
		{In: dtype.I8, Out: dtype.BF16}:       typedGemm[int8, int8, dtype.BFloat16],
		{In: dtype.I8, Out: dtype.F16}:        typedGemm[int8, int8, dtype.Float16],
		{In: dtype.U8, Out: dtype.I32}:        typedGemm[uint8, uint8, int32],
		{In: dtype.U8, Out: dtype.F32}:        typedGemm[uint8, uint8, float32],
		{In: dtype.U8, Out: dtype.BF16}:       typedGemm[uint8, uint8, dtype.BFloat16],
		{In: dtype.U8, Out: dtype.F16}:        typedGemm[uint8, uint8, dtype.Float16],
	}[pair{In: p.In(), Out: p.Out()}]
	if p.In() != p.B().Type {
		run = map[pair]func(context.Context, *tilework.Device, operandKind, *gemmtest.Problem, []int32,
			gemmtest.Buffers) error{
			{In: dtype.I8, Out: dtype.I32}:  typedGemm[int8, uint8, int32],
			{In: dtype.I8, Out: dtype.F32}:  typedGemm[int8, uint8, float32],
			{In: dtype.I8, Out: dtype.BF16}: typedGemm[int8, uint8, dtype.BFloat16],
			{In: dtype.I8, Out: dtype.F16}:  typedGemm[int8, uint8, dtype.Float16],
			{In: dtype.U8, Out: dtype.I32}:  typedGemm[uint8, int8, int32],
			{In: dtype.U8, Out: dtype.F32}:  typedGemm[uint8, int8, float32],
			{In: dtype.U8, Out: dtype.BF16}: typedGemm[uint8, int8, dtype.BFloat16],
			{In: dtype.U8, Out: dtype.F16}:  typedGemm[uint8, int8, dtype.Float16],
		}[pair{In: p.In(), Out: p.Out()}]
	}
	if run == nil {
		return fmt.Errorf("%w: %v as %v", tilework.ErrUnsupported, p.In(), p.Out())
	}
	return run(ctx, dev, kind, p, ends, b)
}

// matrixOf returns the matrix with layout l whose first element is memory element from.
func matrixOf[T dtype.Element](l gemm.Layout, memory []byte, from int) tilework.Matrix[T] {
	elements := dtype.View[T](memory)
	m := tilework.FromStrided(l.Rows, l.Cols, l.LD, elements[min(from, len(elements)):])
	if l.Trans {
		return m.T()
	}
	return m
}

// batchOf returns count matrices with layout l that start stride elements apart in memory.
func batchOf[T dtype.Element](l gemm.Layout, memory []byte, count, stride int) tilework.Batch[T] {
	all := make(tilework.Batch[T], count)
	for i := range all {
		all[i] = matrixOf[T](l, memory, i*stride)
	}
	return all
}

// place holds the operands of one product, on the host or on a device.
type place struct {
	dev    *tilework.Device // nil for the host
	closes []interface{ Close() error }
	err    error
}

// placed returns m as an operand on the host or device of at, uploading it if necessary.
func placed[T dtype.Element](ctx context.Context, at *place, m tilework.Matrix[T]) tilework.Operand[T] {
	if at.dev == nil {
		return m
	}
	on, err := tilework.Upload(ctx, at.dev, m)
	at.closes, at.err = append(at.closes, on), errors.Join(at.err, err)
	return on
}

// placedBatch returns a batch of count matrices on the host or device of at, uploading them if
// necessary. The matrices start stride elements apart in memory.
func placedBatch[T dtype.Element](
	ctx context.Context, at *place, l gemm.Layout, memory []byte, count, stride int,
) tilework.Operand[T] {
	b := batchOf[T](l, memory, count, stride)
	if at.dev == nil {
		return b
	}
	if len(b) == 0 {
		on, err := tilework.NewDeviceBatch[T](at.dev, 0, l.OpRows(), l.OpCols())
		at.closes, at.err = append(at.closes, on), errors.Join(at.err, err)
		return on
	}
	if stride == 0 {
		on, err := tilework.Upload(ctx, at.dev, b[0])
		at.closes, at.err = append(at.closes, on), errors.Join(at.err, err)
		return on.Batch(len(b), 0)
	}
	on, err := tilework.Upload(ctx, at.dev, b)
	at.closes, at.err = append(at.closes, on), errors.Join(at.err, err)
	return on
}

func typedGemm[T, U, R dtype.Element](
	ctx context.Context, dev *tilework.Device, kind operandKind, p *gemmtest.Problem, ends []int32, buf gemmtest.Buffers,
) (err error) {
	at := &place{}
	if kind.device {
		at.dev = dev
	}
	defer func() {
		for _, m := range at.closes {
			err = errors.Join(err, m.Close())
		}
	}()
	opts := epilogueOptions[U, R](ctx, at, p, buf)
	if !kind.device {
		opts = append(opts, tilework.WithDevice("cpu"))
	}
	count := max(p.Batch.Count, 1)
	if p.Batch.Kind == gemm.Grouped {
		count = p.Batch.Count
	}
	var a tilework.Operand[T]
	var b tilework.Operand[U]
	var c, host tilework.Operand[R]
	switch {
	case p.Batch.Kind == gemm.Grouped:
		a, host = placed(ctx, at, matrixOf[T](*p.A(), buf[gemm.A], 0)), matrixOf[R](*p.C(), buf[gemm.C], 0)
		c = placed(ctx, at, matrixOf[R](*p.C(), buf[gemm.C], 0))
		b = placedBatch[U](ctx, at, *p.B(), buf[gemm.B], count, p.Batch.Stride[gemm.B])
		opts = append(opts, tilework.WithGroups(placed(ctx, at, tilework.Vector(ends...))))
	case p.Batch.Kind == gemm.Strided || kind.batch:
		if p.Batch.Kind == gemm.Strided {
			count = p.Batch.Count
		}
		a = placedBatch[T](ctx, at, *p.A(), buf[gemm.A], count, p.Batch.Stride[gemm.A])
		b = placedBatch[U](ctx, at, *p.B(), buf[gemm.B], count, p.Batch.Stride[gemm.B])
		host, c = batchOf[R](*p.C(), buf[gemm.C], count, p.Batch.Stride[gemm.C]),
			placedBatch[R](ctx, at, *p.C(), buf[gemm.C], count, p.Batch.Stride[gemm.C])
	default:
		a, b = placed(ctx, at, matrixOf[T](*p.A(), buf[gemm.A], 0)), placed(ctx, at, matrixOf[U](*p.B(), buf[gemm.B], 0))
		host, c = matrixOf[R](*p.C(), buf[gemm.C], 0), placed(ctx, at, matrixOf[R](*p.C(), buf[gemm.C], 0))
	}
	if kind.packed {
		if b, err = tilework.Pack(ctx, matrixOf[U](*p.B(), buf[gemm.B], 0)); err != nil {
			return err
		}
	}
	if at.err != nil {
		return at.err
	}
	if err := tilework.Gemm(ctx, real(p.Alpha), a, b, real(p.Beta), c, opts...); err != nil || !kind.device {
		return err
	}
	return tilework.Copy(ctx, host, c)
}

// epilogueOptions returns the options for the epilogue of p and its block scales.
func epilogueOptions[T, R dtype.Element](
	ctx context.Context, at *place, p *gemmtest.Problem, buf gemmtest.Buffers,
) (opts []tilework.Option) {
	e := p.Epilogue
	bias := p.Layout(gemm.Bias)
	switch e.Bias {
	case gemmtest.BiasRow:
		opts = append(opts, tilework.WithRowBias(placed(ctx, at, matrixOf[R](bias, buf[gemm.Bias], 0))))
	case gemmtest.BiasCol:
		opts = append(opts, tilework.WithColBias(placed(ctx, at, matrixOf[R](bias, buf[gemm.Bias], 0))))
	}
	if p.ScaleType() == dtype.F64 {
		opts = append(opts, scaleOptions[float64](ctx, at, p, buf)...)
	} else {
		opts = append(opts, scaleOptions[float32](ctx, at, p, buf)...)
	}
	if e.Residual {
		residual := matrixOf[R](p.Layout(gemm.Residual), buf[gemm.Residual], 0)
		opts = append(opts, tilework.WithResidual(placed(ctx, at, residual)))
	}
	if e.Gated {
		up := matrixOf[T](p.Layout(gemm.Up), buf[gemm.Up], 0)
		opts = append(opts, tilework.WithGated(placed(ctx, at, up)))
	}
	if p.BlockScaled() {
		a := placed(ctx, at, matrixOf[float32](p.Layout(gemm.ScaleA), buf[gemm.ScaleA], 0))
		b := placed(ctx, at, matrixOf[float32](p.Layout(gemm.ScaleB), buf[gemm.ScaleB], 0))
		opts = append(opts, tilework.WithBlockScales(a, b))
	}
	var zeros [gemm.Operands]tilework.Operand[int32] // nil without zero points
	for _, o := range []gemm.Operand{gemm.RowZero, gemm.ColZero} {
		if e.Reads(o) {
			zeros[o] = placed(ctx, at, matrixOf[int32](p.Layout(o), buf[o], 0))
		}
	}
	opts = append(opts, tilework.WithZeroPoints(zeros[gemm.RowZero], zeros[gemm.ColZero]))
	if e.Saturate {
		opts = append(opts, tilework.WithSaturation())
	}
	activations := map[gemm.Activation]tilework.Option{
		gemm.ActReLU: tilework.WithReLU(), gemm.ActGELU: tilework.WithGELU(), gemm.ActGELUTanh: tilework.WithGELUTanh(),
		gemm.ActSiLU: tilework.WithSiLU(),
	}
	return append(opts, activations[e.Activation])
}

// scaleOptions returns the options for the scales of p, which have the type of alpha and beta.
func scaleOptions[S dtype.Element](
	ctx context.Context, at *place, p *gemmtest.Problem, buf gemmtest.Buffers,
) (opts []tilework.Option) {
	for x, option := range map[gemm.Operand]func(tilework.Operand[S]) tilework.Option{
		gemm.RowScale: tilework.WithRowScale[S], gemm.ColScale: tilework.WithColScale[S],
		gemm.OutScale: tilework.WithOutputScale[S],
	} {
		if p.Epilogue.Reads(x) {
			opts = append(opts, option(placed(ctx, at, matrixOf[S](p.Layout(x), buf[x], 0))))
		}
	}
	return opts
}
