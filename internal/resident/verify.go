package resident

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	p := pl.Problem()
	backend := pl.Backend()
	far := func(at device.Ptr, l gemm.Layout) ref.Remote { return &remote{backend, at, l} }
	bias, err := (&remote{backend, m.Bias, gemm.Dense(p.C.Type, 1, p.BiasLen())}).Fetch(ctx, 0, 0, 1, p.BiasLen())
	if err != nil {
		return err
	}
	// The seed differs from run to run, so that no wrong result passes for good; the
	// error names it.
	options := ref.VerifyOptions{Seed: uint64(time.Now().UnixNano()), Accuracy: pl.Kernel.Accuracy(p)}
	v, err := ref.NewRemoteVerifier(ctx, p, far(m.A, p.A), far(m.B, p.B), far(m.C, p.C), bias, options)
	if err != nil {
		if errors.Is(err, gemm.ErrUnsupported) {
			return fmt.Errorf("%w: multiply without that, or on the host", err)
		}
		return err
	}
	if err := pl.Enqueue(ctx, m); err != nil {
		return err
	}
	_, err = v.CheckRemote(ctx)
	return err
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
