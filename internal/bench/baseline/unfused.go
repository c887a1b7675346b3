package baseline

import (
	"context"
	"errors"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/build"
)

// Unfused is a product without its epilogue, followed by a launch that reads C, applies the
// epilogue and writes C again. A gated product takes three launches: the two products, each rounded
// to C's type, and the gate.
type Unfused struct {
	*exec.Plan            // of the product without epilogue
	up         *exec.Plan // of the second product of a gated one
	epilogue   gemm.Problem
	config     kernel.Config // of applyEpilogue
}

// PlanUnfused is [exec.Backend.Plan] for an unfused epilogue.
func PlanUnfused(b *exec.Backend, p *gemm.Problem, opt exec.Options) (*Unfused, error) {
	plain := *p
	plain.Epilogue, plain.Layouts[gemm.Residual], plain.Layouts[gemm.Up] = gemm.Epilogue{}, gemm.Layout{}, gemm.Layout{}
	pl, err := b.Plan(&plain, opt)
	if err != nil {
		return nil, err
	}
	u := &Unfused{Plan: pl, epilogue: *pl.Problem()}
	if p.Epilogue.Gated {
		up := plain
		up.Layouts[gemm.B] = p.Layouts[gemm.Up]
		up.Layouts[gemm.C] = gemm.Layout{Type: p.Out(), Rows: p.M, Cols: p.N, LD: kernel.PartialSumLD(p)}
		if u.up, err = b.Plan(&up, opt); err != nil {
			return nil, err
		}
	}
	q := &u.epilogue
	q.Epilogue, q.Layouts[gemm.Residual], q.Alpha, q.Beta = p.Epilogue, p.Layouts[gemm.Residual], 1, 0
	c := applyEpilogue.Config(q, kernel.Tile{})
	if p.Epilogue.Gated {
		c.Factor = p.Out()
	}
	c.Lines, c.PDL = pl.Config.Lines, b.Device.Info().Target.SM >= kernel.PDLSM
	c.VecC = kernel.VectorLen(q.Layouts[gemm.C], 4)
	c.Tile = kernel.Tile{
		M: applyWarps * rowsPerThread, N: 32 * c.VecC,
		RowsPerThread: rowsPerThread, ColsPerThread: c.VecC,
	}
	u.config = c
	return u, nil
}

// Compile compiles all launches.
func (u *Unfused) Compile(ctx context.Context) error {
	if err := u.Plan.Compile(ctx); err != nil {
		return err
	}
	if u.up != nil {
		if err := u.up.Compile(ctx); err != nil {
			return err
		}
	}
	_, err := u.function(ctx)
	return err
}

func (u *Unfused) function(ctx context.Context) (device.Function, error) {
	return u.Backend().Function(ctx, applyEpilogue, u.config.CompileKey())
}

// Enqueue enqueues all launches on matrices in the device's memory, and does not wait for them.
func (u *Unfused) Enqueue(ctx context.Context, m kernel.Memory) (err error) {
	if u.up != nil {
		d, l := u.Backend().Device, u.up.Problem().Layouts[gemm.C]
		other := kernel.Memory{gemm.A: m[gemm.A], gemm.B: m[gemm.Up]}
		if other[gemm.C], err = d.Alloc(l.Type.Bytes(l.Rows * l.LD)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(other[gemm.C])) }()
		if err := u.up.Enqueue(ctx, other); err != nil {
			return err
		}
		m[gemm.Up] = other[gemm.C]
	}
	if err := u.Plan.Enqueue(ctx, m); err != nil {
		return err
	}
	return u.enqueueEpilogue(ctx, m)
}

func (u *Unfused) enqueueEpilogue(ctx context.Context, m kernel.Memory) error {
	f, err := u.function(ctx)
	if err != nil {
		return err
	}
	l, err := applyEpilogue.Launch(kernel.Args{Config: &u.config, Problem: &u.epilogue, Memory: m},
		u.Backend().Device)
	if err != nil {
		return err
	}
	return u.Backend().Device.Launch(ctx, f, l)
}

// applyEpilogue applies an epilogue to C. Each lane of a warp loads one vector of a row, of several
// rows at once.
var applyEpilogue = &kernel.Kernel{
	Name:         "apply",
	Adds:         "an epilogue to what C holds, where no kernel has done it",
	SM:           75,
	BlockThreads: func(kernel.Tile) device.Dim3 { return device.Dim3{X: 32, Y: applyWarps, Z: 1} },
	Write:        writeApplyEpilogue,
}

const applyWarps, rowsPerThread = 8, 4

func writeApplyEpilogue(k *build.Kernel, c kernel.Config) {
	g := kernel.DeclareParams(k, c)
	k.Threads(32, applyWarps, 1)
	row0, col0 := g.TileOrigin()
	col := k.Mad(k.ThreadIdx(build.X), c.VecC, col0)
	var rows, cols []build.Reg
	var loaded [][]build.Reg
	for i := range rowsPerThread {
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
