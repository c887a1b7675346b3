package kernel

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Order is the order in which a kernel adds the products of an element of C, with the roundings on
// the way. On GPUs of one architecture, equal orders give equal bits, in all kernels, tiles and
// layouts. The zero Order is that of integers, whose sums are exact in every order.
type Order struct {
	// Terms is the number of products along K that one instruction adds to a sum: 1 for fused
	// multiply-add. A truncating instruction aligns them and the sum at the largest, with Bits bits
	// after its first one.
	Terms, Bits int
	// Chunk is the number of elements along K after which a sum is promoted to float32; 0 means
	// never.
	Chunk int
	// Part is the length of the parts of K. Each has a sum of its own, and these sums are added in
	// ascending order to zero. 0 means that K is one part.
	Part int
	// Shares is the number of warps that share the parts in the second launch of split-K. Warp i adds
	// parts i, i+Shares and so on, and the sums of the warps are added in their order. 0 means that
	// one thread adds all parts.
	Shares int
}

// fusedOrder is the order of kernels that execute a fused multiply-add per product along K.
func fusedOrder(*gemm.Problem, int) Order { return Order{Terms: 1} }

// String describes the order in words.
func (o Order) String() string {
	if o == (Order{}) {
		return "exact sums"
	}
	s := "one product after the other"
	if o.Terms > 1 {
		s = fmt.Sprintf("%d products at a time in %d bits", o.Terms, o.Bits+1)
	}
	if o.Chunk > 0 {
		s += fmt.Sprintf(", promoted every %d of K", o.Chunk)
	}
	if o.Part > 0 {
		s += fmt.Sprintf(", in parts of %d of K", o.Part)
	}
	if o.Shares > 0 {
		s += fmt.Sprintf(" that %d warps add", o.Shares)
	}
	return s
}

// Order returns the order in which the kernel computes p with tile s on architecture sm. It is not
// ok if the order depends on the layouts of the operands, as where threads partition K step by
// step.
func (k *Kernel) Order(p *gemm.Problem, s Tile, sm int) (o Order, ok bool) {
	switch {
	case p.Accum() == dtype.I32:
		return Order{}, true
	case k.KPerThread > 0 && s.SerialK < 2:
		return Order{}, false
	}
	o = k.OrderFor(p, sm)
	if s.PartsOfK() > 1 && SplitCount(p, s) > 1 {
		o.Part = SplitLen(p, s)
		if warps := splitKSumWarps(s, p.Invariance != gemm.NotInvariant); s.SplitK > 1 && warps > 1 {
			o.Shares = warps
		}
	}
	return o, true
}
