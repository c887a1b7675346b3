package bench

import (
	"math"
	"math/rand/v2"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// unknownCache stands for the size of the last-level cache where the system does
// not tell it.
const unknownCache = 64 << 20

// operands are a problem's matrices as they are before any product.
type operands struct {
	gemm.Buffers
	ends  []byte // of groups, as int32
	order *rand.Rand
}

// newOperands fills the matrices: A, B and what the epilogue reads with values that are uniform
// in [-1, 1], or in ±127 for integers; C too if it is read, and otherwise with
// what no product leaves there, NaN or the least integer. Groups have equal B, each in its
// own memory, so that they can be compared with one product.
func newOperands(c *Case, seed uint64) *operands {
	p := &c.Problem
	o := &operands{order: rand.New(rand.NewPCG(seed, 0)), ends: dtype.Bytes(c.ends())}
	sizes := matrixBytes(p)
	for i, to := range []*[]byte{&o.A, &o.B, &o.C, &o.Bias} {
		*to = aligned(sizes[i])
	}
	fill(seed, 0, p.A.Type, o.A)
	fill(seed, 1, p.B.Type, o.B)
	if apart := p.Batch.B * p.B.Type.Size(); p.Batch.Kind == gemm.Grouped && apart > 0 {
		for at := apart; at < len(o.B); at += apart {
			copy(o.B[at:], o.B[:p.B.Bytes()])
		}
	}
	fill(seed, 2, p.C.Type, o.Bias)
	for x := range gemm.Extra(gemm.Extras) {
		o.Extras[x] = aligned(p.Extra(x).Bytes())
		if p.Has(x) {
			fill(seed, 4+uint64(x), p.Extra(x).Type, o.Extras[x])
		}
	}
	if p.Beta != 0 {
		fill(seed, 3, p.C.Type, o.C)
	} else {
		poison(p.C.Type, o.C)
	}
	return o
}

// matrixBytes are the sizes of A, B, C, the bias and what else the epilogue reads.
func matrixBytes(p *gemm.Problem) [4 + gemm.Extras]int {
	of := p.Bytes()
	sizes := [...]int{of[0], of[1], of[2], p.BiasLen() * p.C.Type.Size(), 3 + gemm.Extras: 0}
	for x := range gemm.Extra(gemm.Extras) {
		sizes[4+x] = p.Extra(x).Bytes()
	}
	return sizes
}

// copies is how many sets of operands, of so many bytes each, a measurement hands out
// in turns: one for times from warm caches, and for cold ones as many as outgrow a
// cache twice, and one more.
func copies(bytes float64, cold bool, cache int64) int {
	if !cold {
		return 1
	}
	if cache == 0 {
		cache = unknownCache
	}
	return int(max(2, math.Ceil(2*float64(cache)/bytes)+1))
}

// rotation hands out the numbers below n, in an order that no prefetcher guesses.
type rotation struct {
	order []int
	at    int
}

func (o *operands) rotation(n int) *rotation { return &rotation{order: o.order.Perm(n)} }

func (r *rotation) next() int {
	i := r.order[r.at]
	if r.at++; r.at == len(r.order) {
		r.at = 0
	}
	return i
}

// align is a cache line: rows that straddle two would favour nobody in particular.
const align = 64

func aligned(n int) []byte {
	b := make([]byte, n+align)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (align - 1))
	return b[skip : skip+n : skip+n]
}

// fillGrain is how many elements come from one random sequence, so that the values
// do not depend on how many threads draw them.
const fillGrain = 1 << 16

// fill draws the elements of matrix number m.
func fill(seed, m uint64, t dtype.Type, b []byte) {
	in := t.Info()
	top := int(min(in.Exact, math.MaxInt8))
	n := len(b) / in.Size
	parallel((n+fillGrain-1)/fillGrain, func(from, to int) {
		for grain := from; grain < to; grain++ {
			rng := rand.New(rand.NewPCG(seed, m<<48|uint64(grain)))
			for i := grain * fillGrain; i < min((grain+1)*fillGrain, n); i++ {
				if in.Integer {
					t.Set(b, i, float64(rng.IntN(2*top+1)-top))
				} else {
					t.Set(b, i, 2*rng.Float64()-1)
				}
			}
		}
	})
}

func poison(t dtype.Type, b []byte) {
	v := math.NaN()
	if t.Info().Integer {
		v = -t.Info().Max - 1
	}
	if len(b) == 0 {
		return
	}
	t.Set(b, 0, v)
	for n := t.Size(); n < len(b); n *= 2 { // doubling what is there already
		copy(b[n:], b[:n])
	}
}
