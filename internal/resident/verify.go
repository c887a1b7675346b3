package resident

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ref"
)

// verified computes a product and checks it by Freivalds' method, which waits for it. The
// matrices are multiplied by the vectors on the device, and the sums compared there; package ref
// says when they come to the host instead.
func verified(ctx context.Context, pl *exec.Plan, m kernel.Memory, within float64) (err error) {
	if err := pl.Compile(ctx); err != nil {
		return err
	}
	parts, err := products(ctx, pl, m)
	if err != nil {
		return err
	}
	for i := range parts {
		defer func() { err = device.Join(err, parts[i].sums.close()) }()
		if err := parts[i].prepare(ctx, pl, within); err != nil {
			return err
		}
	}
	if err := pl.Enqueue(ctx, m); err != nil {
		return err
	}
	for i := range parts {
		switch _, err := parts[i].verifier.Check(ctx); {
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
	at       kernel.Memory
	verifier *ref.RemoteVerifier
	sums     sums
}

// products are those of a plan. Where groups end is fetched for it.
func products(ctx context.Context, pl *exec.Plan, m kernel.Memory) (parts []part, err error) {
	p := pl.Problem()
	if p.Batch.Kind != gemm.Grouped {
		for n := range p.Products() {
			one, by := p.Product(n)
			at := m
			at[gemm.A], at[gemm.B], at[gemm.C] = at[gemm.A]+device.Ptr(by[0]), at[gemm.B]+device.Ptr(by[1]), at[gemm.C]+device.Ptr(by[2])
			parts = append(parts, part{Problem: one, at: at})
		}
		return parts, nil
	}
	d := pl.Backend().Device
	ends, err := fetch(ctx, d, m[gemm.GroupEnds], gemm.Dense(dtype.I32, 1, p.Batch.Count))
	if err != nil {
		return nil, err
	}
	from := 0
	for n, end := range dtype.View[int32](ends) {
		to := min(max(int(uint32(end)), from), p.M)
		group, by, bias := p.Group(n, from, to)
		at := m
		at[gemm.A], at[gemm.B], at[gemm.C], at[gemm.Bias] = at[gemm.A]+device.Ptr(by[0]), at[gemm.B]+device.Ptr(by[1]), at[gemm.C]+device.Ptr(by[2]), at[gemm.Bias]+device.Ptr(bias)
		parts = append(parts, part{Problem: group, at: at})
		from = to
	}
	return parts, nil
}

// prepare prepares the check of a part's result, before that is there.
func (x *part) prepare(ctx context.Context, pl *exec.Plan, within float64) (err error) {
	p := &x.Problem
	x.sums = sums{Backend: pl.Backend(), p: p, at: x.at}
	// The seed differs from run to run, so that no wrong result passes for good; the
	// error names it.
	options := ref.VerifyOptions{Seed: uint64(time.Now().UnixNano()), Accuracy: pl.Kernel.Accuracy(p), Within: within}
	x.verifier, err = ref.NewRemoteVerifier(ctx, p, &x.sums, options)
	if errors.Is(err, gemm.ErrUnsupported) {
		return fmt.Errorf("%w: multiply without that, or on the host", err)
	}
	return err
}
