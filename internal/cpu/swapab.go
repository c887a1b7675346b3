package cpu

import "tilework/internal/gemm"

// flipped is a product whose transpose goes direct: with A transposed, rows of A in memory are
// rows of what that one has for its B, and lie as tiles want them. It is computed beside C and
// then turned, as the last phase; C is small beside what is read.
type swapAB[T scalar] struct {
	direct[T]
	problem gemm.Problem // the transposed one
	plan    Plan
	sums    []T // its C, N×M
	to      target[T]
	beta    T
}

// flippedRows is how many rows of C an item turns.
const transposeRows = 64

// flips reports whether p is better computed as the transposed product.
func (mk *microKernel[T]) usesDirectSwapAB(p *gemm.Problem) bool {
	if !p.A.Trans || !mk.native(p) || p.K <= smallK {
		return false
	}
	q := transposed(p)
	if !p.B.Trans && mk.isLatencyBound(&q) && mk.vectors(&q) < mk.vectors(p) {
		return true
	}
	return mk.usesStrips(&q) || p.B.Trans && p.K >= 2*p.M && mk.usesDirect(&q)
}

// vectors returns the number of vectors that C has in registers.
func (mk *microKernel[T]) vectors(p *gemm.Problem) int { return p.M * ceilDiv(p.N, mk.lanes()) }

// transposed is the product Cᵀ ← α·op(B)ᵀ·op(A)ᵀ.
func transposed(p *gemm.Problem) gemm.Problem {
	return gemm.Problem{M: p.N, N: p.M, K: p.K, A: p.B.T(), B: p.A.T(), C: gemm.Dense(p.C.Type, p.N, p.M), Alpha: p.Alpha}
}

// prepare lays out the product for an f of zeros.
func (f *swapAB[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	f.problem = transposed(pl.Problem)
	f.plan = Plan{Problem: &f.problem, Kernel: pl.Kernel, Threads: pl.Threads}
	f.direct.prepare(&f.plan, mk, &gemm.Buffers{A: b.B, B: b.A})
	f.to.prepare(pl, mk, b, true)
	f.beta = T(pl.Problem.Beta)
}

func (f *swapAB[T]) reset() { *f = swapAB[T]{} }

func (f *swapAB[T]) bytes() int { return f.direct.bytes() + allocBytes[T](f.m*f.n) }

func (f *swapAB[T]) bind(m *workspace, states []phaseState) {
	f.direct.bind(m, states)
	f.c = alloc[T](m, f.m*f.n)
	f.sums = f.c
}

func (f *swapAB[T]) phases() int { return f.direct.phases() + 1 }

func (f *swapAB[T]) enter(phase, worker int) (tasks int) {
	if phase < f.direct.phases() {
		f.states[worker].transposing = false
		return f.direct.enter(phase, worker)
	}
	f.states[worker].transposing = true
	return ceilDiv(f.n, transposeRows)
}

func (f *swapAB[T]) do(task, worker int) {
	if !f.states[worker].transposing {
		f.direct.do(task, worker)
		return
	}
	i := task * transposeRows
	rows := min(transposeRows, f.n-i)
	for j := range f.m {
		f.to.add(j, i, f.sums[j*f.n+i:][:rows], 1, f.beta)
	}
	f.to.finish(0, i, f.m, rows, nil)
}
