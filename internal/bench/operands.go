package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// unknownCache stands for the size of the last-level cache where the system does
// not tell it.
const unknownCache = 64 << 20

// operands holds a problem's matrices: one set of them for times from warm
// caches, and for cold ones as many sets, equal in value, as outgrow the caches,
// which are handed out in an order that no prefetcher guesses.
type operands struct {
	sets  []gemm.Buffers
	order []int
	at    int
	old   []byte // C as it was before any product
}

// newOperands fills the matrices: A, B and the bias with values that are uniform
// in [-1, 1], or in ±127 for integers; C too if it is read, and otherwise with
// what no product leaves there, NaN or the least integer. A working set above 0
// asks for sets of that many bytes together, and one more.
func newOperands(p *gemm.Problem, seed uint64, workingSet, memory int64) (*operands, error) {
	sizes := [...]int{p.A.Bytes(), p.B.Bytes(), p.C.Bytes(), p.BiasLen() * p.C.Type.Size()}
	var bytes float64 // which, unlike integers, cannot overflow
	for _, s := range sizes {
		bytes += float64(s) + align
	}
	n := 1.0
	if workingSet > 0 {
		n = max(2, math.Ceil(float64(workingSet)/bytes)+1)
	}
	if limit := float64(memory); memory > 0 && n*bytes > limit {
		return nil, fmt.Errorf("%w: the matrices of %v take %.1f GiB, the machine has %.1f", gemm.ErrOutOfMemory, p, n*bytes/(1<<30), limit/(1<<30))
	}

	rng := rand.New(rand.NewPCG(seed, 0))
	o := &operands{sets: make([]gemm.Buffers, int(n)), order: rng.Perm(int(n))}
	for i := range o.sets {
		o.sets[i] = gemm.Buffers{A: aligned(sizes[0]), B: aligned(sizes[1]), C: aligned(sizes[2]), Bias: aligned(sizes[3])}
	}
	first := &o.sets[0]
	fill(rng, p.A.Type, first.A)
	fill(rng, p.B.Type, first.B)
	fill(rng, p.C.Type, first.Bias)
	if p.Beta != 0 {
		fill(rng, p.C.Type, first.C)
	} else {
		poison(p.C.Type, first.C)
	}
	for _, s := range o.sets[1:] {
		copy(s.A, first.A)
		copy(s.B, first.B)
		copy(s.C, first.C)
		copy(s.Bias, first.Bias)
	}
	o.old = slices.Clone(first.C)
	return o, nil
}

// next is the set for the next product.
func (o *operands) next() gemm.Buffers {
	b := o.sets[o.order[o.at]]
	if o.at++; o.at == len(o.order) {
		o.at = 0
	}
	return b
}

// fresh is the first set, its C as it was before any product.
func (o *operands) fresh() gemm.Buffers {
	copy(o.sets[0].C, o.old)
	return o.sets[0]
}

// before is what Verify gets: the first set with the old C.
func (o *operands) before() gemm.Buffers {
	b := o.sets[0]
	b.C = o.old
	return b
}

// align is a cache line: rows that straddle two would favour nobody in particular.
const align = 64

func aligned(n int) []byte {
	b := make([]byte, n+align)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (align - 1))
	return b[skip : skip+n : skip+n]
}

func fill(rng *rand.Rand, t dtype.Type, b []byte) {
	in := t.Info()
	top := int(min(in.Exact, math.MaxInt8))
	for i := range len(b) / in.Size {
		if in.Integer {
			t.Set(b, i, float64(rng.IntN(2*top+1)-top))
		} else {
			t.Set(b, i, 2*rng.Float64()-1)
		}
	}
}

func poison(t dtype.Type, b []byte) {
	v := math.NaN()
	if t.Info().Integer {
		v = -t.Info().Max - 1
	}
	for i := range len(b) / t.Size() {
		t.Set(b, i, v)
	}
}
