package cpu

import "tilework/internal/gemm"

// flipped is a product whose transpose goes direct: with A transposed, rows of A in memory are
// rows of what that one has for its B, and lie as tiles want them. It is computed beside C and
// then turned, as the last phase; C is small beside what is read.
type flipped[T scalar] struct {
	direct[T]
	problem gemm.Problem // the transposed one
	plan    Plan
	sums    []T // its C, N×M
	to      target[T]
	beta    T
}

// flippedRows is how many rows of C an item turns.
const flippedRows = 64

// flips reports whether p is better computed as the transposed product.
func (mk *micro[T]) flips(p *gemm.Problem) bool {
	if !p.A.Trans || !mk.native(p) || p.K <= flatDepth {
		return false
	}
	q := transposed(p)
	if !p.B.Trans && mk.starves(&q) && mk.vectors(&q) < mk.vectors(p) {
		return true
	}
	return mk.goesInStrips(&q) || p.B.Trans && p.K >= 2*p.M && mk.goesDirect(&q)
}

// vectors returns the number of vectors that C has in registers.
func (mk *micro[T]) vectors(p *gemm.Problem) int { return p.M * ceilDiv(p.N, mk.lanes()) }

// transposed is the product Cᵀ ← α·op(B)ᵀ·op(A)ᵀ.
func transposed(p *gemm.Problem) gemm.Problem {
	return gemm.Problem{M: p.N, N: p.M, K: p.K, A: p.B.T(), B: p.A.T(), C: gemm.Dense(p.C.Type, p.N, p.M), Alpha: p.Alpha}
}

// prepare lays out the product for an f of zeros.
func (f *flipped[T]) prepare(pl *Plan, mk *micro[T], b *gemm.Buffers) {
	f.problem = transposed(pl.Problem)
	f.plan = Plan{Problem: &f.problem, Kernel: pl.Kernel, Threads: pl.Threads}
	f.direct.prepare(&f.plan, mk, &gemm.Buffers{A: b.B, B: b.A})
	f.to.prepare(pl, mk, b, true)
	f.beta = T(pl.Problem.Beta)
}

func (f *flipped[T]) reset() { *f = flipped[T]{} }

func (f *flipped[T]) bytes() int { return f.direct.bytes() + bytesFor[T](f.m*f.n) }

func (f *flipped[T]) use(m *memory, places []place) {
	f.direct.use(m, places)
	f.c = take[T](m, f.m*f.n)
	f.sums = f.c
}

func (f *flipped[T]) phases() int { return f.direct.phases() + 1 }

func (f *flipped[T]) enter(phase, slot int) (items int) {
	if phase < f.direct.phases() {
		f.places[slot].turning = false
		return f.direct.enter(phase, slot)
	}
	f.places[slot].turning = true
	return ceilDiv(f.n, flippedRows)
}

func (f *flipped[T]) do(item, slot int) {
	if !f.places[slot].turning {
		f.direct.do(item, slot)
		return
	}
	i := item * flippedRows
	rows := min(flippedRows, f.n-i)
	for j := range f.m {
		f.to.add(j, i, f.sums[j*f.n+i:][:rows], 1, f.beta)
	}
	f.to.done(0, i, f.m, rows, nil)
}
