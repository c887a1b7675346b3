package cpu

import (
	"context"

	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// swapAB computes a product as the direct product of its transpose. If A is transposed, then A is
// the B of that product and stored as its tiles read it. The transposed C goes to scratch memory,
// and a last phase transposes it. It is small in comparison with the operands.
type swapAB[T scalar] struct {
	direct[T]     // of the transposed product
	sums      []T // the N×M transposed C
	to        target[T]
	beta      T
}

// transposeRows is the number of rows of the transposed C per task of the last phase.
const transposeRows = 64

// pageBytes is the size of a page of virtual memory.
const pageBytes = 4 << 10

// transposed returns the problem Cᵀ ← α·op(B)ᵀ·op(A)ᵀ.
func transposed(p *gemm.Problem) gemm.Problem {
	return gemm.Problem{M: p.N, N: p.M, K: p.K, Layouts: gemm.Layouts{gemm.A: p.B().T(), gemm.B: p.A().T(),
		gemm.C: gemm.Dense(p.Out(), p.N, p.M)},
		Alpha: p.Alpha, Invariance: p.Invariance}
}

// prepare sets up the product. s must be zero.
func (s *swapAB[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	q := transposed(pl.Problem)
	s.direct.prepare(&q, pl, mk, &gemm.Buffers{gemm.A: b[gemm.B], gemm.B: b[gemm.A]})
	s.direct.onTile = nil // for tiles of the sums
	s.to.prepare(pl, mk, b, true)
	s.beta = T(real(pl.Problem.Beta))
}

func (s *swapAB[T]) reset() { *s = swapAB[T]{} }

func (s *swapAB[T]) bytes() int { return s.direct.bytes() + allocBytes[T](s.m*s.n) }

func (s *swapAB[T]) bind(m *workspace, states []phaseState) {
	s.direct.bind(m, states)
	s.c = alloc[T](m, s.m*s.n)
	s.sums = s.c
}

// runSerial computes the product on the calling goroutine, without an [execution].
func (s *swapAB[T]) runSerial(ctx context.Context) error {
	m := getWorkspace(s.bytes())
	defer m.put()
	s.bind(&m, nil)
	if err := s.runTasks(ctx); err != nil {
		return err
	}
	s.transpose(0, s.n)
	return nil
}

func (s *swapAB[T]) phases() int { return s.direct.phases() + 1 }

func (s *swapAB[T]) enter(phase, worker int) (tasks int) {
	if phase < s.direct.phases() {
		s.states[worker].transposing = false
		return s.direct.enter(phase, worker)
	}
	s.states[worker].transposing = true
	return ints.CeilDiv(s.n, transposeRows)
}

func (s *swapAB[T]) do(task, worker int) {
	if !s.states[worker].transposing {
		s.direct.do(task, worker)
		return
	}
	i := task * transposeRows
	s.transpose(i, min(transposeRows, s.n-i))
}

// transpose stores rows of C, from row i on, and completes them.
func (s *swapAB[T]) transpose(i, rows int) {
	s.to.addRows(0, i, s.m, rows, s.sums[i:], s.n, s.beta)
	s.to.finish(0, i, s.m, rows, nil)
}
