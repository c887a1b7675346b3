package kernel

import (
	"fmt"
	"math"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
)

// Check returns nil if the kernel can compute p with tile s on device d, where the matrices are
// aligned to a. The zero Tile leaves out the rules for tiles, so that nil means that the kernel
// computes p with some tile. A nil device leaves out the limits of the device. The error is
// ErrUnsupported.
func (k *Kernel) Check(p *gemm.Problem, s Tile, a Align, d *device.Info) error {
	if err := k.checkProblem(p, a); err != nil {
		return err
	}
	if d != nil && !d.Target.Has(k.Target()) {
		return fmt.Errorf("%w: kernel %s needs %v, and %s is %v", gemm.ErrUnsupported, k.Name, k.Target(), d.Name, d.Target)
	}
	if s == (Tile{}) {
		return nil
	}
	if err := k.checkFit(p, s); err != nil || d == nil {
		return err
	}
	return k.checkBlock(p, s, d)
}

// checkProblem applies the rules that depend on the product alone.
func (k *Kernel) checkProblem(p *gemm.Problem, a Align) error {
	t := p.In()
	if p.Precision != gemm.Native && !slices.Contains(k.PrecisionTypes[p.Precision], t) {
		return fmt.Errorf("%w: kernel %s multiplies no %v in precision %v", gemm.ErrUnsupported, k.Name, t, p.Precision)
	}
	if p.Precision == gemm.Native && k.NativeTypes != nil && !slices.Contains(k.NativeTypes, t) {
		return fmt.Errorf("%w: kernel %s multiplies no %v", gemm.ErrUnsupported, k.Name, t)
	}
	if act := p.Epilogue.Activation; act != gemm.ActNone && activations[act] == nil {
		return fmt.Errorf("%w: kernel %s has no activation %v", gemm.ErrUnsupported, k.Name, act)
	}
	if err := k.checkScales(p); err != nil {
		return err
	}
	if err := checkFunction(p); err != nil {
		return err
	}
	if k.CheckProblem != nil {
		if err := k.CheckProblem(p); err != nil {
			return err
		}
	}
	return k.checkBatch(p, a)
}

// checkBatch applies the rules for batches, which are one launch.
func (k *Kernel) checkBatch(p *gemm.Problem, a Align) error {
	b := p.Batch
	switch {
	case b.Kind == gemm.Single:
		return nil
	case b.Kind == gemm.Grouped && max(p.M, p.N, p.K) > math.MaxInt32:
		return fmt.Errorf("%w: groups of rows in a product of %d×%d×%d: want sizes of at most 31 bits",
			gemm.ErrUnsupported, p.M, p.N, p.K)
	}
	if _, is := k.Repack(p, Tile{}, a); is.Any() && b.Count > MaxGridRows {
		return fmt.Errorf("%w: kernel %s on a batch of %d products whose operands must be packed: want at most %d products",
			gemm.ErrUnsupported, k.Name, b.Count, MaxGridRows)
	}
	return nil
}

// checkFit applies the rules that depend on the product and the tile.
func (k *Kernel) checkFit(p *gemm.Problem, s Tile) error {
	if err := k.CheckTile(s); err != nil {
		return err
	}
	if s.SplitK > 1 && p.Batch.Kind != gemm.Single {
		return fmt.Errorf("%w: a batch with tile %v: want no split-K", gemm.ErrUnsupported, s)
	}
	if k.CheckFit == nil {
		return nil
	}
	return k.CheckFit(p, s)
}

// checkBlock applies the device's limits for a block.
func (k *Kernel) checkBlock(p *gemm.Problem, s Tile, d *device.Info) error {
	if n := k.BlockThreads(s).Count(); n > d.MaxThreads {
		return fmt.Errorf("%w: kernel %s with tile %v has %d threads in a block: %s has at most %d", gemm.ErrUnsupported,
			k.Name, s, n, d.Name, d.MaxThreads)
	}
	if k.SharedFor == nil {
		return nil
	}
	if n := k.SharedBytes(k.For(k.Config(p, s), d.Target)); n > d.MaxShared {
		return fmt.Errorf("%w: kernel %s with tile %v takes %d bytes of shared memory in a block: %s has at most %d",
			gemm.ErrUnsupported, k.Name, s, n, d.Name, d.MaxShared)
	}
	return nil
}
