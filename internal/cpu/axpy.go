package cpu

import (
	"context"
	"math/bits"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// axpy computes a product with few rows, which takes as long as reading B. It is a fused AXPY
// (BLIS: axpyf): it goes along the rows of B and C and adds a few steps of K at a time, with the
// elements of A for these steps in registers. Memory is thus read sequentially. Tiles of C would
// instead read a few columns of many rows of B and touch another page with every step of K.
//
// A B of 16-bit elements is read in strips of a few rows, with tiles that widen the elements in
// registers: see [axpy.sumTiles].
//
// A product with few columns is computed as its transpose, which swaps A and B. The rows of the
// transposed C are not contiguous in memory, so their sums go to scratch memory first.
type axpy[T scalar] struct {
	mk          *microKernel[T]
	m, n, k     int
	small       operand[T] // A as stored
	layout      *gemm.Layout
	swapped     bool       // whether A is the transposed B
	a           strided[T] // all of A, widened if necessary
	b           operand[T]
	alpha, beta T
	betaOfSums  T // beta, or 0 if the sums do not go to C
	partial     partial[T]
	c           target[T]
	nc          int              // columns of C per task
	depth       int              // steps of K that one pass over C adds
	tiles       wideningTiles[T] // without kernels if B is widened first, or not at all
	panels      []T              // for tiles, A packed in panels of all of K, instead of a
	threads     int
	scratch     []T // for each worker; see scratchSizes
}

const (
	axpyRows        = 16        // the maximum number of rows of C
	axpyDepth       = 8         // the steps of K that one pass over C adds
	axpyCBytes      = 256 << 10 // bytes of C per task, which each pass reads again: they stay in L2
	axpySums        = 4096      // elements of C per task if their sums go to scratch memory
	axpyWidenedCols = 2048      // elements of a row of B widened at a time: axpyDepth such rows stay in L2
)

// prepare sets up the product, or with swapAB its transpose. d must be zero.
func (d *axpy[T]) prepare(pl *Plan, mk *microKernel[T], b *gemm.Buffers) {
	p, threads, swapped := pl.Problem, pl.Threads, pl.method.swapAB
	d.mk, d.k, d.alpha, d.threads = mk, p.K, alphaOf[T](p), threads
	small, large := gemm.A, gemm.B
	d.m, d.n, d.swapped = p.M, p.N, swapped
	if swapped {
		small, large = large, small
		d.m, d.n = p.N, p.M
	}
	d.layout = &p.Layouts[small]
	mk.describeStored(&d.small, d.layout, b[small])
	mk.describeStored(&d.b, &p.Layouts[large], b[large])
	d.c.prepare(pl, mk, b, swapped)
	d.beta = d.c.betaForSums(T(real(p.Beta)))
	if d.c.cs == 1 {
		d.betaOfSums = d.beta
	}
	whole := 1 // steps of K that a kernel always adds at once
	if d.tiles, d.depth = mk.axpyTiles(p.In(), d.m, d.k), axpyDepth; d.tiles.kernels != nil {
		d.depth = d.tiles.depth(d.m)
		whole = d.depth
	}
	d.partial.deferAlpha(p, d.k <= whole, &d.alpha, &d.betaOfSums)
	d.nc = equalParts(d.n, axpyCBytes/dtype.Of[T]().Bytes(d.m), d.mk.NR)
	if d.c.cs != 1 {
		d.nc = equalParts(d.n, axpySums/d.m, d.mk.NR)
	}
	if d.b.widen != nil {
		d.nc = equalParts(d.n, min(d.nc, axpyWidenedCols), d.mk.NR)
	}
	if threads > 1 {
		d.nc = equalParts(d.n, min(d.nc, max(d.n/(4*threads), 512)), d.mk.NR)
	}
}

func (d *axpy[T]) reset() { *d = axpy[T]{} }

// runSerial computes the product on the calling goroutine, without an [execution].
func (d *axpy[T]) runSerial(ctx context.Context) error {
	m := getWorkspace(d.bytes())
	defer m.put()
	d.bind(&m, nil)
	return runPhase(ctx, d.enter(0, 0), d.do)
}

func (d *axpy[T]) phases() int                { return 1 }
func (d *axpy[T]) enter(_, _ int) (tasks int) { return ints.CeilDiv(d.n, d.nc) }

// scratchSizes returns the elements of scratch memory per worker: for sums of a C without
// contiguous rows, for elements of B that are widened or copied, and for the epilogue.
func (d *axpy[T]) scratchSizes() (sums, piece, spare int) {
	if d.c.cs != 1 {
		sums = axpySums
	}
	switch {
	case d.tiles.kernels != nil:
		piece = d.depth * d.tiles.cols
	case d.b.widen != nil:
		piece = d.depth * d.nc
	}
	if d.c.scratch {
		spare = epilogueCols
	}
	return sums, piece, spare
}

func (d *axpy[T]) bytes() int {
	sums, piece, spare := d.scratchSizes()
	small := widenedBytes[T](d.layout)
	if d.tiles.kernels != nil {
		small = allocBytes[T](d.panelElems()) + allocBytes[T](d.k)
	}
	return small + d.c.bytes(d.m, d.n) + allocBytes[T](d.threads*(sums+piece+spare)) + d.partial.bytes()
}

func (d *axpy[T]) bind(m *workspace, _ []phaseState) {
	sums, piece, spare := d.scratchSizes()
	if d.tiles.kernels != nil {
		d.packSmall(m)
	} else if d.a = d.small.widenAll(d.layout, m); d.swapped {
		d.a = d.a.t()
	}
	d.c.bind(m, d.m, d.n)
	d.scratch = alloc[T](m, d.threads*(sums+piece+spare))
	d.partial.bind(m)
}

func (d *axpy[T]) do(task, worker int) {
	j0 := task * d.nc
	cols := min(d.nc, d.n-j0)
	ofSums, ofPiece, spare := d.scratchSizes()
	memory := d.scratch[worker*(ofSums+ofPiece+spare):][:ofSums+ofPiece+spare]
	sums, piece, tmp := memory[:ofSums], memory[ofSums:][:ofPiece], memory[ofSums+ofPiece:]
	if d.c.cs == 1 {
		d.sum(j0, cols, d.c.data[j0:], d.c.rs, piece)
	} else {
		d.sum(j0, cols, sums, cols, piece)
		d.c.addRows(0, j0, d.m, cols, sums, cols, d.beta)
	}
	d.c.finish(0, j0, d.m, cols, tmp)
}

// sum stores the product of A and cols columns of B in c, or adds it if C is there. piece is memory
// for elements of B.
func (d *axpy[T]) sum(j0, cols int, c []T, ldc int, piece []T) {
	if d.tiles.kernels != nil {
		d.sumTiles(j0, cols, c, ldc, piece)
	} else {
		d.sumRows(j0, cols, c, ldc, piece)
	}
	d.partial.finish(d.mk, d.m, cols, c, ldc)
}

// sumRows is sum with kernels that add a few rows of B to a few rows of C.
func (d *axpy[T]) sumRows(j0, cols int, c []T, ldc int, piece []T) {
	beta := d.betaOfSums
	for p0 := 0; p0 < d.k; p0 += d.depth {
		depth := min(d.depth, d.k-p0)
		b, ldb := d.b.readBlock(p0, j0, depth, cols, piece)
		for i := 0; i < d.m; {
			x := min(bits.Len(uint(d.m-i)), len(d.mk.Update)) - 1
			beta := beta
			for p := p0; p < p0+depth; {
				y := min(bits.Len(uint(p0+depth-p)), len(d.mk.Update[x])) - 1
				d.mk.Update[x][y](d.a.at(i, p), d.a.rs, d.a.cs, &slice(b, (depth-1)*ldb+cols)[(p-p0)*ldb], ldb,
					&c[i*ldc], ldc, cols, d.alpha, beta)
				beta = 1
				p += 1 << y
			}
			i += 1 << x
		}
		beta = 1
	}
}
