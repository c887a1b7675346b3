package cpu

import (
	"context"
	"sync"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// splitK computes a product with a small C and a long K. It cuts K into pieces that fit L2, each a
// product of its own with the algorithm for its shape.
//
// The first phase computes parts, runs of consecutive pieces, each into sums of its own. The second
// phase adds the sums of the parts in order. The cuts, and with them the bits of C, depend on the
// shape alone.
type splitK[T scalar] struct {
	mk           *microKernel[T]
	kernel       *Kernel
	piece        gemm.Problem // the first piece
	method       method       // of each piece
	k            int
	a, b         []byte
	stepA, stepB int // elements from one step of K to the next
	deep, parts  int // steps of K per part, and the number of parts
	sums         []T // M×N for each part
	c            target[T]
	alpha, beta  T
	scratch      []T // epilogueCols elements for each worker
	threads      int
	states       []phaseState
}

const (
	pieceBytes = 1 << 20 // of A and B in a piece
	minPieces  = 2       // a product of at most this many pieces is not split
	maxParts   = 64      // the maximum number of parts, which need memory for their sums
	splitSides = 128     // the largest M + N
	splitRows  = 16      // rows of C that a task of the second phase adds
)

// splits reports whether p is cut along K.
func splits(p *gemm.Problem) bool {
	return p.M+p.N <= splitSides && !p.Ordered() && p.ReadsAB() && !p.BlockScaled() &&
		p.K*stepBytes(p) > minPieces*pieceBytes
}

// stepBytes returns the size of the elements of A and B in a step of K.
func stepBytes(p *gemm.Problem) int { return (p.M + p.N) * p.In().Size() }

// pieceDepth returns the number of steps of K in a piece of p, a multiple of the block of every
// micro-kernel.
func pieceDepth(p *gemm.Problem) int { return equalParts(p.K, pieceBytes/stepBytes(p), 64) }

// pieceOf returns the first k steps of p, without the epilogue, as a product of the accumulator
// type.
func pieceOf(p *gemm.Problem, k int) gemm.Problem {
	q := gemm.Problem{M: p.M, N: p.N, Layouts: gemm.Layouts{gemm.A: p.Layouts[gemm.A], gemm.B: p.Layouts[gemm.B],
		gemm.C: gemm.Dense(p.Accum(), p.M, p.N)}, Alpha: 1}
	setDepth(&q, k)
	return q
}

// setDepth cuts p to its first k steps of K.
func setDepth(p *gemm.Problem, k int) {
	p.K = k
	alongA, alongB := &p.A().Cols, &p.B().Rows
	if p.A().Trans {
		alongA = &p.A().Rows
	}
	if p.B().Trans {
		alongB = &p.B().Cols
	}
	*alongA, *alongB = k, k
}

// prepare sets up the product. d must be zero.
func (d *splitK[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	p := pl.Problem
	depth := pieceDepth(p)
	d.mk, d.kernel, d.k, d.alpha, d.threads = mk, pl.Kernel, p.K, alphaOf[T](p), pl.Threads
	d.piece = pieceOf(p, depth)
	d.method = mk.method(&d.piece)
	d.a, d.stepA = b[gemm.A], 1
	if p.A().Trans {
		d.stepA = p.A().LD
	}
	d.b, d.stepB = b[gemm.B], 1
	if !p.B().Trans {
		d.stepB = p.B().LD
	}
	d.c.prepare(pl, mk, b, false)
	d.beta = d.c.betaForSums(T(real(p.Beta)))
	d.deep = ints.CeilDiv(ints.CeilDiv(p.K, depth), maxParts) * depth
	d.parts = ints.CeilDiv(p.K, d.deep)
}

func (d *splitK[T]) reset() { *d = splitK[T]{} }

func (d *splitK[T]) bytes() int {
	m, n := d.piece.M, d.piece.N
	return allocBytes[T](d.parts*m*n) + d.c.bytes(m, n) + allocBytes[T](d.threads*epilogueCols)
}

func (d *splitK[T]) bind(m *workspace, states []phaseState) {
	d.states = states
	d.sums = alloc[T](m, d.parts*d.piece.M*d.piece.N)
	d.c.bind(m, d.piece.M, d.piece.N)
	d.scratch = alloc[T](m, d.threads*epilogueCols)
}

func (d *splitK[T]) phases() int { return 2 }

func (d *splitK[T]) enter(phase, worker int) (tasks int) {
	d.states[worker].computing = phase == 0
	if phase == 0 {
		return d.parts
	}
	return ints.CeilDiv(d.piece.M, splitRows)
}

func (d *splitK[T]) do(task, worker int) {
	if d.states[worker].computing {
		d.sum(task)
	} else {
		d.add(task*splitRows, d.scratch[worker*epilogueCols:][:epilogueCols])
	}
}

// piece is the product of one piece. It is pooled because its plan points to its problem.
type piece struct {
	problem gemm.Problem
	plan    Plan
	buffers gemm.Buffers
}

var pieces = sync.Pool{New: func() any { return new(piece) }}

// sum computes the sums of a part, one piece after the other.
func (d *splitK[T]) sum(part int) {
	q := pieces.Get().(*piece)
	defer pieces.Put(q)
	q.problem = d.piece
	q.plan = Plan{Problem: &q.problem, Kernel: d.kernel, Threads: 1, method: d.method}
	size := d.piece.M * d.piece.N
	q.buffers[gemm.C] = dtype.Bytes(d.sums[part*size:][:size])
	first, end := part*d.deep, min((part+1)*d.deep, d.k)
	for p := first; p < end; p += d.piece.K {
		setDepth(&q.problem, min(d.piece.K, end-p))
		in := d.piece.In()
		q.buffers[gemm.A], q.buffers[gemm.B] = d.a[in.Bytes(p*d.stepA):], d.b[in.Bytes(p*d.stepB):]
		_ = q.plan.multiply(context.Background(), &q.buffers) // nil: the context never ends
		q.problem.Beta = 1
	}
	*q = piece{} // drops references to the caller's memory
}

// add adds the sums of all parts for splitRows rows of C from row i on.
func (d *splitK[T]) add(i int, tmp []T) {
	rows, n := min(splitRows, d.piece.M-i), d.piece.N
	sums := d.sums[i*n:][:rows*n]
	for part := 1; part < d.parts; part++ {
		d.accumulate(sums, d.sums[(part*d.piece.M+i)*n:][:rows*n])
	}
	for r := range rows {
		d.c.add(i+r, 0, sums[r*n:][:n], d.alpha, d.beta)
	}
	d.c.finish(i, 0, rows, n, tmp)
}

// accumulate adds src to dst.
func (d *splitK[T]) accumulate(dst, src []T) {
	if d.mk.Add != nil {
		d.mk.Add(1, len(dst), &dst[0], len(dst), &src[0], len(src))
		return
	}
	for i, v := range src {
		dst[i] += v
	}
}
