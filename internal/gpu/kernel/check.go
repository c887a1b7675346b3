package kernel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// Reason is a reason why a kernel cannot compute a product. It becomes text only when it is read:
// the choice of a kernel refuses some hundred candidates, whose reasons are rarely read.
type Reason struct {
	format string
	args   []any
}

// Because returns the reason with a text in the format of package fmt.
func Because(format string, args ...any) *Reason { return &Reason{format, args} }

// String returns the text.
func (r *Reason) String() string { return fmt.Sprintf(r.format, r.args...) }

// refusal is the error of a kernel that cannot compute a product for a reason of its own: with a
// tile, or with any tile if it is zero.
type refusal struct {
	kernel string
	tile   Tile
	why    *Reason
}

func (e *refusal) Error() string {
	with := ""
	if e.tile != (Tile{}) {
		with = fmt.Sprintf(" with tile %v", e.tile)
	}
	return fmt.Sprintf("%v: kernel %s%s: %v", gemm.ErrUnsupported, e.kernel, with, e.why)
}

func (e *refusal) Unwrap() error { return gemm.ErrUnsupported }

// refusal returns the error for a reason, or nil for none.
func (k *Kernel) refusal(s Tile, why *Reason) error {
	if why == nil {
		return nil
	}
	return &refusal{k.Name, s, why}
}

// Check returns nil if the kernel can compute p with tile s on device d, where the matrices are
// aligned to a. The zero Tile leaves out the rules for tiles, so that nil means that the kernel
// computes p with some tile. A nil device leaves out the limits of the device. The error is
// ErrUnsupported.
func (k *Kernel) Check(p *gemm.Problem, s Tile, a Align, d *device.Info) error {
	p, a = CoreOf(p, a)
	if err := k.checkProblem(p, a); err != nil {
		return err
	}
	if d != nil && !d.Target.Has(k.Target()) {
		return fmt.Errorf("%w: kernel %s needs %v, and %s is %v", gemm.ErrUnsupported, k.Name, k.Target(), d.Name, d.Target)
	}
	if s == (Tile{}) {
		return nil
	}
	c := k.Config(p, s)
	if err := k.CheckRules(p, &c); err != nil || d == nil {
		return err
	}
	c = k.For(c, d.Target)
	return k.CheckLimits(p, &c, d)
}

// CheckLimits applies the limits of d to c, the configuration of a tile for p on the target of d.
// Check with the zero Tile and CheckRules must have returned nil.
func (k *Kernel) CheckLimits(p *gemm.Problem, c *Config, d *device.Info) error {
	if err := k.checkBlock(c, d); err != nil || p.Empty() {
		return err // no launch computes an empty C
	}
	if p.Batch.Kind == gemm.Strided && p.Batch.Count > k.MaxProducts() { // in several launches
		q := *p
		q.Batch.Count = k.MaxProducts()
		p = &q
	}
	_, _, err := k.grid(c, p, d)
	return err
}

// notNative is the error of a kernel for operands that it does not multiply in their own
// arithmetic. Its text names the precisions in which the kernel does.
type notNative struct {
	kernel *Kernel
	in     dtype.Type
}

func (e *notNative) Error() string {
	var others []string
	for _, p := range gemm.Precisions() {
		if slices.Contains(e.kernel.PrecisionTypes[p], e.in) {
			others = append(others, p.String())
		}
	}
	if others == nil {
		return fmt.Sprintf("%v: kernel %s multiplies no %v", gemm.ErrUnsupported, e.kernel.Name, e.in)
	}
	return fmt.Sprintf("%v: kernel %s multiplies %v only in precision %s", gemm.ErrUnsupported, e.kernel.Name, e.in,
		strings.Join(others, " or "))
}

func (e *notNative) Unwrap() error { return gemm.ErrUnsupported }

// checkProblem applies the rules that depend on the product alone.
func (k *Kernel) checkProblem(p *gemm.Problem, a Align) error {
	t := p.In()
	if p.Precision != gemm.Native && !slices.Contains(k.PrecisionTypes[p.Precision], t) {
		return fmt.Errorf("%w: kernel %s multiplies no %v in precision %v", gemm.ErrUnsupported, k.Name, t, p.Precision)
	}
	if p.Precision == gemm.Native && k.NativeTypes != nil && !slices.Contains(k.NativeTypes, t) {
		return &notNative{k, t}
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
		if err := k.refusal(Tile{}, k.CheckProblem(p)); err != nil {
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
	case b.Kind == gemm.Grouped && !p.Empty() && max(p.M, p.N, p.K) > math.MaxInt32:
		return fmt.Errorf("%w: groups of rows in a product of %d×%d×%d: want sizes of at most 31 bits",
			gemm.ErrUnsupported, p.M, p.N, p.K)
	}
	return k.refusal(Tile{}, k.checkPackedBatch(p, Tile{}, a))
}

// checkPackedBatch returns why the operands of a batch cannot be packed for tile s: a launch packs
// one for each product, along z. Tiles differ in the operands that they need packed.
func (k *Kernel) checkPackedBatch(p *gemm.Problem, s Tile, a Align) *Reason {
	if p.Batch.Count <= MaxGridRows {
		return nil
	}
	if _, packed := k.Repack(p, s, a); packed.Any() {
		return Because("a batch of %d products whose operands must be packed: want at most %d", p.Batch.Count, MaxGridRows)
	}
	return nil
}

// CheckRules applies the rules that depend on the product and the tile to c, the configuration of a
// tile for p. Check with the zero Tile must have returned nil.
func (k *Kernel) CheckRules(p *gemm.Problem, c *Config) error {
	s := c.Tile
	if err := k.checkTile(s); err != nil {
		return err
	}
	if s.SplitK > 1 && p.Batch.Kind != gemm.Single {
		return k.refusal(s, Because("split-K in a batch: want K whole"))
	}
	if why := k.checkPackedBatch(p, s, Align{}); why != nil {
		return k.refusal(s, why)
	}
	if k.CheckFit == nil {
		return nil
	}
	return k.refusal(s, k.CheckFit(p, c))
}

// checkTile applies the rules that depend on the tile alone. The kernels whose threads partition K
// can have parts of K in their threads and in several blocks.
func (k *Kernel) checkTile(s Tile) error {
	if k.KPerThread == 0 && s.SerialK > 1 && (s.SplitK > 1 || s.ClusterK > 1) {
		return k.refusal(s, Because("want K in parts in one way"))
	}
	if k.CheckTile == nil {
		return nil
	}
	return k.refusal(s, k.CheckTile(s))
}

// checkPowersOfTwo returns a reason unless all sizes are powers of two up to a limit.
func checkPowersOfTwo(limit int, sizes ...int) *Reason {
	for _, n := range sizes {
		if n < 1 || n > limit || n&(n-1) != 0 {
			return Because("size %d: want a power of two, at most %d", n, limit)
		}
	}
	return nil
}

// checkBlock applies the device's limits for a block.
func (k *Kernel) checkBlock(c *Config, d *device.Info) error {
	s := c.Tile
	if n := k.BlockThreads(s).Count(); n > d.MaxThreads {
		return k.refusal(s, Because("%d threads in a block: %s has at most %d", n, d.Name, d.MaxThreads))
	}
	if n := k.SharedBytes(*c); n > d.MaxShared {
		return k.refusal(s, Because("%d bytes of shared memory in a block: %s has at most %d", n, d.Name, d.MaxShared))
	}
	return nil
}
