package exec

import (
	"context"
	"errors"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// Then is a product without its epilogue, and the epilogue in a launch of its own, which
// reads C and writes it again: what fusing the two is measured against. Of a gated product it is
// the two products, each rounded to C's type, and then their gate.
type Then struct {
	*Plan       // of the plain product
	up    *Plan // of a gated product's other one
	after Plan  // of the same matrices, with the epilogue
	apply kernel.Config
}

// PlanThen is [Backend.Plan] for the two launches.
func (b *Backend) PlanThen(p *gemm.Problem, opt Options) (*Then, error) {
	plain := *p
	plain.Epilogue, plain.Layouts[gemm.Residual], plain.Layouts[gemm.Up] = gemm.Epilogue{}, gemm.Layout{}, gemm.Layout{}
	pl, err := b.Plan(&plain, opt)
	if err != nil {
		return nil, err
	}
	t := &Then{Plan: pl, after: *pl}
	if p.Epilogue.Gated {
		up := plain
		up.Layouts[gemm.B], up.Layouts[gemm.C] = p.Layouts[gemm.Up], gemm.Layout{Type: p.Out(), Rows: p.M, Cols: p.N, LD: kernel.PartialSumLD(p)}
		if t.up, err = b.Plan(&up, opt); err != nil {
			return nil, err
		}
	}
	t.after.Kernel = apply
	q := &t.after.device
	q.Epilogue, q.Layouts[gemm.Residual], q.Alpha, q.Beta = p.Epilogue, p.Layouts[gemm.Residual], 1, 0
	c := apply.Config(q, kernel.Tile{})
	if p.Epilogue.Gated {
		c.Factor = p.Out()
	}
	c.Lines, c.PDL = pl.Config.Lines, b.Device.Info().Target.SM >= kernel.PDLSM
	c.VecC = kernel.VectorLen(q.Layouts[gemm.C], 4)
	c.Tile = kernel.Tile{M: applyWarps * applyRows, N: 32 * c.VecC, RowsPerThread: applyRows, ColsPerThread: c.VecC}
	t.apply = c
	return t, nil
}

// Compile compiles both.
func (t *Then) Compile(ctx context.Context) error {
	if err := t.Plan.Compile(ctx); err != nil {
		return err
	}
	if t.up != nil {
		if err := t.up.Compile(ctx); err != nil {
			return err
		}
	}
	_, err := t.backend.function(ctx, apply, t.apply.CompileKey())
	return Sentinel(err)
}

// Enqueue asks for both.
func (t *Then) Enqueue(ctx context.Context, m kernel.Memory) (err error) {
	if t.up != nil {
		d, l := t.backend.Device, t.up.device.Layouts[gemm.C]
		other := kernel.Memory{gemm.A: m[gemm.A], gemm.B: m[gemm.Up]}
		if other[gemm.C], err = d.Alloc(l.Rows * l.LD * l.Type.Size()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(other[gemm.C])) }()
		if err := t.up.Enqueue(ctx, other); err != nil {
			return err
		}
		m[gemm.Up] = other[gemm.C]
	}
	if err := t.Plan.Enqueue(ctx, m); err != nil {
		return err
	}
	return Sentinel(t.after.launch(ctx, apply, t.after.args(&t.apply, m)))
}

// apply does to C what an epilogue does to sums. A warp has a row's vectors, one in each
// lane, of several rows at once.
var apply = &kernel.Kernel{
	Name:         "apply",
	Adds:         "an epilogue to what C holds, where no kernel has done it",
	SM:           75,
	CheckTile:    func(kernel.Tile) error { return nil },
	BlockThreads: func(kernel.Tile) device.Dim3 { return device.Dim3{X: 32, Y: applyWarps, Z: 1} },
	Write:        writeApply,
}

const applyWarps, applyRows = 8, 4

func writeApply(k *build.Kernel, c kernel.Config) {
	g := kernel.DeclareParams(k, c)
	k.Threads(32, applyWarps, 1)
	row0, col0 := g.TileOrigin()
	col := k.Mad(k.ThreadIdx(build.X), c.VecC, col0)
	var rows, cols []build.Reg
	var loaded [][]build.Reg
	for i := range applyRows {
		row := k.Add(row0, k.Mad(i, applyWarps, k.ThreadIdx(build.Y)))
		rows, cols = append(rows, row), append(cols, col)
		loaded = append(loaded, g.C.At(row, col).LoadVecOr0(g.C.InBounds(row, col), c.VecC))
	}
	for _, vector := range loaded {
		for i, x := range vector {
			vector[i] = g.ToEpilogueType(x)
		}
	}
	g.StoreAll(rows, cols, loaded)
}
