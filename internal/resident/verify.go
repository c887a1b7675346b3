package resident

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/ref"
)

// verified computes a product and checks it by Freivalds' method, which waits for it. The
// matrices are multiplied by the vectors on the device; package ref says what comes to
// the host for it.
func verified(ctx context.Context, pl *gpu.Plan, m gpu.Memory) error {
	if err := pl.Compile(ctx); err != nil {
		return err
	}
	parts, err := products(ctx, pl, m)
	if err != nil {
		return err
	}
	verifiers := make([]*ref.Verifier, len(parts))
	for i, part := range parts {
		if verifiers[i], err = part.verifier(ctx, pl); err != nil {
			return err
		}
	}
	if err := pl.Enqueue(ctx, m); err != nil {
		return err
	}
	for i, v := range verifiers {
		switch _, err := v.CheckRemote(ctx); {
		case err != nil && len(parts) > 1:
			return fmt.Errorf("product %d of the batch: %w", i, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// part is one product of a batch, or the only one.
type part struct {
	gemm.Problem
	at gpu.Memory
}

// products are those of a plan. Where groups end is fetched for it.
func products(ctx context.Context, pl *gpu.Plan, m gpu.Memory) (parts []part, err error) {
	p := pl.Problem()
	if p.Batch.Kind != gemm.Grouped {
		for n := range p.Products() {
			one, by := p.Product(n)
			at := m
			at.A, at.B, at.C = at.A+device.Ptr(by[0]), at.B+device.Ptr(by[1]), at.C+device.Ptr(by[2])
			parts = append(parts, part{one, at})
		}
		return parts, nil
	}
	ends, err := (&remote{pl.Backend(), m.Ends, gemm.Dense(dtype.I32, 1, p.Batch.Count)}).Fetch(ctx, 0, 0, 1, p.Batch.Count)
	if err != nil {
		return nil, err
	}
	from := 0
	for n, end := range dtype.View[int32](ends) {
		to := min(max(int(uint32(end)), from), p.M)
		group, by := p.Product(n)
		group.M, group.A.Rows, group.C.Rows = to-from, to-from, to-from
		at := m
		at.A += device.Ptr(from * p.A.LD * p.A.Type.Size())
		at.B += device.Ptr(by[1])
		at.C += device.Ptr(from * p.C.LD * p.C.Type.Size())
		if p.Epilogue.Bias == gemm.BiasRow {
			at.Bias += device.Ptr(from * p.C.Type.Size())
		}
		parts = append(parts, part{group, at})
		from = to
	}
	return parts, nil
}

// verifier prepares the check of a part's result, before that is there.
func (x *part) verifier(ctx context.Context, pl *gpu.Plan) (*ref.Verifier, error) {
	p, backend := &x.Problem, pl.Backend()
	far := func(at device.Ptr, l gemm.Layout) ref.Remote { return &remote{backend, at, l} }
	bias, err := (&remote{backend, x.at.Bias, gemm.Dense(p.C.Type, 1, p.BiasLen())}).Fetch(ctx, 0, 0, 1, p.BiasLen())
	if err != nil {
		return nil, err
	}
	// The seed differs from run to run, so that no wrong result passes for good; the
	// error names it.
	options := ref.VerifyOptions{Seed: uint64(time.Now().UnixNano()), Accuracy: pl.Kernel.Accuracy(p)}
	v, err := ref.NewRemoteVerifier(ctx, p, far(x.at.A, p.A), far(x.at.B, p.B), far(x.at.C, p.C), bias, options)
	if errors.Is(err, gemm.ErrUnsupported) {
		return nil, fmt.Errorf("%w: multiply without that, or on the host", err)
	}
	return v, err
}

// remote is a matrix on a device as a verification sees it.
type remote struct {
	backend *gpu.Backend
	at      device.Ptr
	layout  gemm.Layout
}

// Sweep implements [ref.Remote].
func (r *remote) Sweep(ctx context.Context, vectors [][]float64, weights []float64) ([][]float64, []float64, error) {
	return r.backend.Sweep(ctx, r.at, r.layout, vectors, weights)
}

// Fetch implements [ref.Remote].
func (r *remote) Fetch(ctx context.Context, row, col, rows, cols int) ([]byte, error) {
	l := gemm.Dense(r.layout.Type, rows, cols)
	host := make([]byte, l.Bytes())
	if l.Len() == 0 {
		return host, ctx.Err()
	}
	at := r.at + device.Ptr((row*r.layout.LD+col)*l.Type.Size())
	return host, gpu.Sentinel(r.backend.Device.CopyOut(ctx, host, at, gpu.Rows(l, r.layout)))
}
