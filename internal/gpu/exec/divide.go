package exec

import (
	"fmt"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
	"tilework/internal/split"
)

// order returns the order of the sums. It is not ok if the order depends on the vectors that the
// kernel loads, too.
func (pl *Plan) order() (o kernel.Order, ok bool) {
	p, _ := pl.core()
	return pl.Kernel.Order(p, pl.Config.Tile, pl.backend.Info().Target.SM)
}

// SameOrder lists the candidates for the first rows and columns of C that add in the order of the
// plan, so that their results have its bits. It lists none if the order depends on the vectors that
// the kernel loads. Only row-invariant products have candidates of other kernels: the others also
// depend on how the kernel converts elements.
func (pl *Plan) SameOrder(rows, cols int) []choose.Candidate {
	if pl.selected && pl.device.Ordered() {
		return pl.inOrder(nil, rows, cols)
	}
	return pl.inOrder(pl.Kernel, rows, cols)
}

// SameBits lists the candidates for the product that have the bits of the plan: those of
// [Plan.SameOrder] and, of sums that are exact or of 16-bit elements, which tensor cores do not
// convert, those of other kernels.
func (pl *Plan) SameBits() []choose.Candidate {
	p := &pl.device
	o, _ := pl.order()
	if exact := o == (kernel.Order{}); p.Epilogue.Activation <= gemm.ActReLU && p.Precision == gemm.Native &&
		(exact || o.Terms > 1 && p.In().Bits() == 16) {
		return pl.inOrder(nil, p.M, p.N)
	}
	return pl.SameOrder(p.M, p.N)
}

// inOrder is [Plan.SameOrder] with the candidates of kernel k, or of all kernels if it is nil.
func (pl *Plan) inOrder(k *kernel.Kernel, rows, cols int) []choose.Candidate {
	o, ok := pl.order()
	part, err := corner(&pl.device, rows, cols)
	if !ok || err != nil {
		return nil
	}
	all := choose.InOrder(k, o, &part, pl.align, pl.backend.Info())
	if pl.device.Epilogue.Activation > gemm.ActReLU && !pl.device.Ordered() {
		// The second launch of split-K may evaluate an activation in another way than the kernel.
		all = slices.DeleteFunc(all, func(c choose.Candidate) bool {
			return (c.Config.Tile.SplitK > 1) != (pl.Config.Tile.SplitK > 1)
		})
	}
	if o.Terms > 1 || o.Part > 0 || pl.device.Ordered() {
		return all
	}
	// The fused multiply-adds of products that underflow can sum to -0. The zeros with which a tile
	// fills its last step then make it +0, as does every kernel in a row-invariant product.
	fills := func(s kernel.Tile) bool { return s.K > 0 && pl.device.K%s.K > 0 }
	return slices.DeleteFunc(all, func(c choose.Candidate) bool {
		return fills(c.Config.Tile) != fills(pl.Config.Tile)
	})
}

// checkSameBits returns ErrUnsupported unless the plan has the bits of the automatic choice.
func (pl *Plan) checkSameBits() error {
	standard, err := pl.backend.Plan(&pl.device, Options{KeepLayout: true, Align: pl.align})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(standard.SameBits(), func(c choose.Candidate) bool { return c.Spec() == pl.Spec() }) {
		return fmt.Errorf("%w: %s adds in another order than the default choice, %s", gemm.ErrUnsupported, pl.Spec(),
			standard.Spec())
	}
	return nil
}

// corner returns the product of the first rows and columns of C.
func corner(p *gemm.Problem, rows, cols int) (part gemm.Problem, err error) {
	part = *p
	part.M, part.N = rows, cols
	for _, x := range []struct {
		o          gemm.Operand
		rows, cols int
	}{{gemm.A, rows, p.K}, {gemm.B, p.K, cols}, {gemm.Up, p.K, cols}, {gemm.C, rows, cols}, {gemm.Residual, rows, cols}} {
		if p.Uses(x.o) && err == nil {
			part.Layouts[x.o], _, err = p.Layouts[x.o].Sub(0, 0, x.rows, x.cols)
		}
	}
	return part, err
}

// With returns the plan of the same product with the kernel and the tile of a candidate.
func (pl *Plan) With(c *choose.Candidate) (*Plan, error) {
	return pl.backend.Plan(&pl.device, Options{Kernel: c.Kernel.Name, Tile: c.Config.Tile.String(), KeepLayout: true,
		Align: pl.align})
}

// Units returns the rows and columns of C at whose multiples tiles begin, and that are multiples of
// grain, a power of two.
func (pl *Plan) Units(grain int) (rows, cols int) {
	rows, cols = pl.Config.Tile.SizeInC()
	for _, n := range []*int{&rows, &cols} {
		for *n%grain != 0 {
			*n *= 2
		}
	}
	return rows, cols
}

// TilesAtOnce returns the number of tiles that the GPU computes at once, with one block per SM.
func (pl *Plan) TilesAtOnce() int {
	t := pl.Config.Tile
	return max(pl.backend.Info().SMs/(max(t.SplitK, 1)*t.BlocksK()), 1)
}

// Grain returns the number of rows and columns of C at whose multiples it may be cut, so that the
// parts have the bits of the whole.
func (pl *Plan) Grain() int {
	if pl.device.BlockScaled() {
		return gemm.ScaleBlock
	}
	if _, ok := pl.order(); !ok {
		return split.Align
	}
	return 1
}

// Order describes the order of the sums. Plans of equal products with equal orders compute equal
// bits. Only tensor cores of the same architecture add alike.
func (pl *Plan) Order() string {
	return fmt.Sprintf("kernel %s, tile %v on %v", pl.Kernel.Name, pl.Config.Tile, pl.backend.Info().Target)
}

// Seconds predicts the time of the plan on its GPU.
func (pl *Plan) Seconds() float64 { return pl.CyclesToSeconds(pl.Cycles) }

// SecondsOf predicts the time of the first rows and columns of C with the tile of the plan.
func (pl *Plan) SecondsOf(rows, cols int) float64 {
	part, err := corner(&pl.device, rows, cols)
	if err != nil {
		return pl.Seconds()
	}
	return pl.CyclesToSeconds(choose.Cycles(pl.Kernel, pl.Config.Tile, &part, pl.align, pl.backend.Info()))
}

// CyclesToSeconds returns the time of a number of clock cycles of the GPU.
func (pl *Plan) CyclesToSeconds(cycles float64) float64 {
	clock := 1.5e9 // a usual one, for unknown GPUs
	if m, err := model.Lookup(pl.backend.Info().Name); err == nil && !m.Generic() {
		clock = m.ClockHz
	}
	return cycles / clock
}
