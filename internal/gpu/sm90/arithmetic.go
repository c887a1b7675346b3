package sm90

import (
	"slices"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
)

// Arithmetic describes how wgmma multiplies elements of a type in a precision: the instruction's
// type, the split of the operands into terms, and the promotion of accumulators.
type Arithmetic struct {
	Elem ptx.Type // operand type of the instruction
	// Terms are the terms of the operand split, in the order in which they are loaded, each into
	// its own stage. Without a split the only term is 0, the operand itself.
	Terms []int
	// Promotions are the partial sums of one step along K that CUDA cores add to the float32
	// accumulators, with rounding to nearest. It is empty if the tensor cores accumulate over all
	// of K.
	Promotions []Promotion
}

// Promotion is a partial sum of one step along K: products of terms with the same magnitude.
type Promotion struct {
	Pairs  [][2]int // terms of A and B to multiply
	Scale  float64  // factor on promotion
	Passes int      // equal parts of the step along K, each promoted on its own
}

// The terms and promotions of [ArithmeticOf].
//
// bf16x3 has six of the nine products of terms. The other three are at most 2⁻²⁴ times the first.
// Truncation in the tensor cores matters most for the largest products, so those of term 0 are
// promoted after 32 elements along K. Term 0 is part of every promotion. It is loaded last, which
// leaves the most time to load it for the next step.
var (
	unsplit          = []int{0}
	everyStep        = []Promotion{{[][2]int{{0, 0}}, 1, 1}}
	bf16x3           = []int{1, 2, 0}
	bf16x3Promotions = []Promotion{
		{[][2]int{{1, 1}, {2, 0}, {0, 2}}, 1. / (kernel.SplitTermScale * kernel.SplitTermScale), 1},
		{[][2]int{{1, 0}, {0, 1}}, 1. / kernel.SplitTermScale, 1},
		{[][2]int{{0, 0}}, 1, 2},
	}
)

// ArithmeticOf returns the arithmetic for elements of type in at a precision.
func ArithmeticOf(in dtype.Type, precision gemm.Precision) Arithmetic {
	r := Arithmetic{Elem: kernel.PTXTypes[in], Terms: unsplit}
	switch {
	case precision == gemm.F32x3:
		r.Elem, r.Terms, r.Promotions = ptx.BF16, bf16x3, bf16x3Promotions
	case precision == gemm.TF32:
		r.Elem = ptx.TF32
	case r.Elem.Bits() == 8 && r.Elem != ptx.S8 && precision != gemm.Fast:
		r.Promotions = everyStep // fp8 accumulators have 14 bits
	}
	return r
}

// storedType returns the element type in shared memory.
func (r Arithmetic) storedType() ptx.Type {
	if r.Elem == ptx.TF32 {
		return ptx.F32
	}
	return r.Elem
}

// accuracy returns the error model of the kernel for p. The tensor cores truncate when they align
// the products with the accumulator, and truncate the result to float32 or, for 8-bit floats, to
// 14 bits. The partial sums of F32x3 are so short that truncation costs less than rounding in
// float32 arithmetic.
func accuracy(p *gemm.Problem) gemm.Accuracy {
	acc := gemm.AccuracyOf(p)
	if p.Accum() != dtype.F32 || p.Precision == gemm.F32x3 {
		return acc
	}
	r := ArithmeticOf(p.In(), p.Precision)
	acc.Truncates, acc.Terms, acc.Bits = true, kernel.WGMMABytesK*8/r.Elem.Bits(), kernel.F32SumBits
	if r.Elem.Bits() > 8 {
		acc.Roundoff *= 4
		return acc
	}
	acc.Roundoff, acc.Bits, acc.Exact = 0x1p-13, kernel.FP8SumBits, 0x1p13
	if len(r.Promotions) > 0 {
		acc.Chunk = frag.SwizzleBytes / r.Elem.Bytes()
	}
	return acc
}

// order returns the order of summation of the kernel. That of the terms of F32x3 is the same in
// every chunk.
func order(p *gemm.Problem, _ int) kernel.Order {
	r := ArithmeticOf(p.In(), p.Precision)
	o := kernel.Order{Terms: kernel.WGMMABytesK * 8 / r.Elem.Bits(), Bits: kernel.F32SumBits}
	if r.Elem.Bits() == 8 {
		o.Bits = kernel.FP8SumBits
	}
	if len(r.Promotions) > 0 {
		o.Chunk = frag.SwizzleBytes / r.Elem.Bytes()
	}
	return o
}

// PromotesEveryStep reports whether each step has a single promotion of one pair in one pass, as
// that of 8-bit floats.
func (r Arithmetic) PromotesEveryStep() bool {
	return len(r.Promotions) == 1 && len(r.Promotions[0].Pairs) == 1 && r.Promotions[0].Passes == 1
}

// hasColumns reports whether wgmma multiplies n columns, a multiple of 8.
func (r Arithmetic) hasColumns(n int) bool { return r.Elem != ptx.S8 || n <= 32 || n%16 == 0 }

// lastUses returns the terms that promotion n multiplies and no later one of the step.
func (r Arithmetic) lastUses(n int) (terms []int) {
	for _, term := range r.Terms {
		usesTerm := func(p Promotion) bool { return p.uses(term) }
		if usesTerm(r.Promotions[n]) && !slices.ContainsFunc(r.Promotions[n+1:], usesTerm) {
			terms = append(terms, term)
		}
	}
	return terms
}

// uses reports whether the promotion multiplies a term of A or of B.
func (r Promotion) uses(term int) bool {
	return slices.ContainsFunc(r.Pairs, func(pair [2]int) bool { return pair[0] == term || pair[1] == term })
}
