package bench

import (
	"math"
	"math/rand/v2"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// unknownCache is the assumed size in bytes of a last-level cache that the system does not report.
const unknownCache = 64 << 20

// operands holds the initial matrices of a problem.
type operands struct {
	gemm.Buffers
	order *rand.Rand
}

// newOperands fills A, B and the epilogue's operands with uniform random values in [-1, 1], or in
// ±127 for integers. C is filled in the same way if the product reads it, and otherwise with NaN or
// the least integer, which no product stores. All groups have an equal B, each at its own address,
// so that one ungrouped product can verify them.
func newOperands(c *Case, seed uint64) *operands {
	p := &c.Problem
	o := &operands{order: rand.New(rand.NewPCG(seed, 0))}
	for x, n := range p.Bytes() {
		o.Buffers[x] = aligned(n)
	}
	copy(o.Buffers[gemm.GroupEnds], dtype.Bytes(c.ends()))
	for x := range gemm.GroupEnds {
		if x != gemm.C && p.Uses(x) {
			fill(seed, uint64(x), p.Layout(x).Type, o.Buffers[x])
		}
	}
	if apart := p.B().Type.Bytes(p.Batch.Stride[gemm.B]); p.Batch.Kind == gemm.Grouped && apart > 0 {
		for at := apart; at < len(o.Buffers[gemm.B]); at += apart {
			copy(o.Buffers[gemm.B][at:], o.Buffers[gemm.B][:p.B().Bytes()])
		}
	}
	if p.Beta != 0 {
		fill(seed, uint64(gemm.C), p.Out(), o.Buffers[gemm.C])
	} else {
		poison(p.Out(), o.Buffers[gemm.C])
	}
	return o
}

// copies returns the number of operand sets, of the given size, that a measurement rotates through.
// It is 1 for a warm cache. For a cold one the sets together exceed the cache size twice, plus one
// set.
func copies(bytes float64, cold bool, cache int64) int {
	if !cold {
		return 1
	}
	if cache == 0 {
		cache = unknownCache
	}
	return int(max(2, math.Ceil(2*float64(cache)/bytes)+1))
}

// rotation cycles through the numbers below n in a random order, which no prefetcher predicts.
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

// align is the size of a cache line. Matrices start at multiples of it, so that all subjects have
// the same alignment.
const align = 64

func aligned(n int) []byte {
	b := make([]byte, n+align)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (align - 1))
	return b[skip : skip+n : skip+n]
}

// fillGrain is the number of elements drawn from one random sequence, so that the values do not
// depend on the number of threads.
const fillGrain = 1 << 16

// fill sets b, the memory of matrix number m, to random values.
func fill(seed, m uint64, t dtype.Type, b []byte) {
	in := t.Info()
	top := int(min(in.Exact, math.MaxInt8))
	n := len(b) / in.Size
	parallel(ints.CeilDiv(n, fillGrain), func(from, to int) {
		values := make([]float64, loaded)
		for grain := from; grain < to; grain++ {
			rng := rand.New(rand.NewPCG(seed, m<<48|uint64(grain)))
			for i := grain * fillGrain; i < min((grain+1)*fillGrain, n); i += len(values) {
				part := values[:min(len(values), n-i)]
				for j := range part {
					if in.Integer {
						part[j] = float64(rng.IntN(2*top+1) - top)
					} else {
						part[j] = 2*rng.Float64() - 1
					}
				}
				t.Store(b[t.Bytes(i):], part)
			}
		}
	})
}

// poison fills b with NaN, or with the least integer.
func poison(t dtype.Type, b []byte) {
	v := math.NaN()
	if t.Info().Integer {
		v = -t.Info().Max - 1
	}
	if len(b) == 0 {
		return
	}
	t.Set(b, 0, v)
	for n := t.Bytes(1); n < len(b); n *= 2 { // doubles the filled part
		copy(b[n:], b[:n])
	}
}
