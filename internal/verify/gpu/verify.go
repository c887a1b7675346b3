// Package gpu verifies products of matrices in the memory of a GPU, real or emulated, with two
// kernels: the Freivalds product of a matrix and random vectors, and the check of the residuals.
// The host receives a few numbers. Package verify describes the method, and when it fetches the
// matrices and checks them on the host instead.
package gpu

import (
	"context"
	"errors"
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/verify"
)

// RunVerified computes the product of a plan and verifies it, and waits for both. within is
// [verify.Options.Within]. The error is ErrVerify for a wrong product, and ErrUnsupported for a
// product that cannot be verified on a device.
func RunVerified(ctx context.Context, pl *exec.Plan, m kernel.Memory, within float64) (err error) {
	if err := pl.Compile(ctx); err != nil {
		return err
	}
	checks, err := newChecks(ctx, pl, m)
	if err != nil {
		return err
	}
	for i := range checks {
		defer func() { err = device.Join(err, checks[i].remote.close()) }()
		if err := checks[i].prepare(ctx, pl, within); err != nil {
			return err
		}
	}
	if err := pl.Enqueue(ctx, m); err != nil {
		return err
	}
	for i := range checks {
		switch _, err := checks[i].verifier.Check(ctx); {
		case err != nil && len(checks) > 1:
			return fmt.Errorf("product %d of the batch: %w", i, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// productCheck is the verification of a single product or of one product of a batch.
type productCheck struct {
	gemm.Problem
	at       kernel.Memory
	verifier *verify.RemoteVerifier
	remote   remote
}

// newChecks returns a check for each product of a plan. It fetches the ends of the groups of a
// grouped product.
func newChecks(ctx context.Context, pl *exec.Plan, m kernel.Memory) (checks []productCheck, err error) {
	p := pl.Problem()
	if p.Batch.Kind != gemm.Grouped {
		for n := range p.Products() {
			one, by := p.Product(n)
			checks = append(checks, productCheck{Problem: one, at: offset(m, by)})
		}
		return checks, nil
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
		at := offset(m, by)
		at[gemm.Bias] += device.Ptr(bias)
		checks = append(checks, productCheck{Problem: group, at: at})
		from = to
	}
	return checks, nil
}

// offset returns m with A, B and C moved by the given numbers of bytes.
func offset(m kernel.Memory, by [gemm.C + 1]int) kernel.Memory {
	for o, n := range by {
		m[o] += device.Ptr(n)
	}
	return m
}

// prepare creates the verifier. It must be called before the product runs.
func (c *productCheck) prepare(ctx context.Context, pl *exec.Plan, within float64) (err error) {
	p := &c.Problem
	c.remote = remote{backend: pl.Backend(), p: p, at: c.at}
	options := verify.Options{Seed: verify.NewSeed(), Accuracy: pl.Kernel.Accuracy(p), Within: within}
	c.verifier, err = verify.NewRemote(ctx, p, &c.remote, options)
	if errors.Is(err, gemm.ErrUnsupported) {
		return fmt.Errorf("%w: multiply without that, or on the host", err)
	}
	return err
}
