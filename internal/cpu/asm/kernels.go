// Package asm holds the assembly micro-kernels of matrix multiplication on the CPU, for each
// instruction set and element type, and the functions for packing and epilogues.
//
// A micro-kernel computes C ← α·A·B + β·C for a tile of at most MR×NR. It sums each element over k
// in order with fused multiply-adds. The same inputs thus give the same bits at any position in a
// tile and with any instruction set. Deep and Dot kernels have their own order of summation. Packed
// kernels read A and B from zero-padded panels, Direct kernels as stored. β = 0, of either sign,
// leaves the old C unread. Kernels access no memory outside the ranges in their doc comments and do
// not check their arguments.
//
// Assembly cannot be preempted, so keep a call below 100 µs: k up to some thousands.
//
// The generator in _gen writes the z files.
package asm

//go:generate go run -C _gen .

// ISA is an instruction set.
type ISA struct {
	Name      string
	Supported bool // by this CPU and its operating system
}

// Ahead is the number of steps of k after which a kernel prefetches another line, of Line bytes,
// from next. DirectAhead is the same for a [Direct].
const (
	Ahead       = 4
	DirectAhead = 2
	Line        = 64
)

// LargestMin is the least number of elements for [Kernels.Largest].
const LargestMin = 32

// Kernels holds the micro-kernels of one instruction set for one element type. Call them only if
// ISA.Supported, and those for [AMX] only after [AllowTiles].
type Kernels[T any] struct {
	ISA    ISA
	MR, NR int // the tile of C

	// Every few steps of k a kernel prefetches a line into the L2 cache, starting at next. next
	// should point to data for the following calls but need not be valid. The lines that Packed
	// prefetches are consecutive.

	// Packed computes the first m rows, 1 ≤ m ≤ MR, and n columns, 1 ≤ n ≤ NR, of a tile from k ≥ 0
	// steps of packed panels: a holds MR and b holds NR values per step. Rows of C are ldc elements
	// apart.
	Packed Packed[T]

	// WidenF16[x] and WidenBF16[x] compute tiles of r = 2x+2 rows, r ≤ MR, of a B of 16-bit elements.
	// See [Widening]. There may be none.
	WidenF16, WidenBF16 []Widening[T]

	// Direct[r-1] computes tiles of r rows, 1 ≤ r ≤ MR. See [Direct].
	Direct []Direct[T]

	// Deep[r-1] is Direct[r-1] for a C of few tiles and many steps of k. It keeps several sums for
	// each element, which steps of k use in turn, and adds them in pairs at the end. Tiles with
	// more rows than len(Deep) keep the FMA units busy with one sum per element.
	Deep []Direct[T]

	// Copy is Direct[MR-1] for one tile with n = NR, without prefetches. It writes the rows of B that
	// it reads to a panel at next: next[p*NR+j] = b[p*ldb+j].
	Copy func(k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T)

	// Stream is Direct[MR-1] for n = NR and beta = 0 with non-temporal stores: for a C that exceeds
	// the caches, which then is not read first. Rows of C start at multiples of [Line] bytes. A
	// [Fence] must follow before another thread learns of the tiles.
	Stream Direct[T]

	// Update[x][y] adds 1<<y steps of k to 1<<x rows and n ≥ 1 columns of C. It reads the matrices
	// as stored and goes along the rows of B and C. See [Update].
	Update [][]Update[T]

	// AlignedRow[k-1] computes a row of C from k steps, for beta = 0, and writes it in aligned
	// vectors. StreamRow[k-1] does so with non-temporal stores; see Stream.
	AlignedRow, StreamRow []Update[T]

	// Narrow[k-1] computes rows of a C whose columns fit in a vector from k steps, for beta = 0. See
	// [Update] for the elements.
	Narrow []Narrow[T]

	// Solve[x] and Multiply[x] solve for and multiply min(1<<x, MR) rows of a triangle. See
	// [Triangle].
	Solve, Multiply []Triangle[T]

	// Dot[r-1][s-1] computes the dot products of r rows, 1 ≤ r ≤ DotRows, with s other rows. Tall[s-1]
	// computes those of NR/2 > DotRows rows. See [Dot].
	Dot  [][]Dot[T]
	Tall []Dot[T]

	// DotF16[s-1] and DotBF16[s-1] are Dot[DotRows-1][s-1] for rows of x with 16-bit elements. There
	// may be none. See [WideningDot].
	DotF16, DotBF16 []WideningDot[T]

	// Columns[r-1] copies n columns, a multiple of eight, of r rows: dst[j*ldd+i] = src[i*lds+j].
	Columns []func(n int, dst *T, ldd int, src *T, lds int)

	// Largest returns the index of the first element with the largest absolute value of n ≥
	// [LargestMin] elements. It skips NaNs, but x[0] must not be one. It may be nil.
	Largest func(n int, x *T) int

	// Group is the number of values of K that one step multiplies: 1, or, if panels hold words of
	// 32 bits, 4 or 2 of int8 or 2 of bfloat16. Packers make such words.
	Group int

	// Block, unless 0, divides k, and panels of A consist of blocks of as many steps: word p of row
	// i is a[p/Block*Block*MR + i*Block + p%Block]. Packed then takes any number of rows, whose
	// panels are consecutive.
	Block int

	// Compensate, unless nil, computes the first NR elements of a panel of B from the k steps that
	// follow them. The sums start from these elements. Without Compensate a panel has no such row.
	Compensate func(k int, b *T)

	Epilogue[T]

	// Peak runs n ≥ 0 rounds of PeakFlops operations each, multiply-adds on registers only: the
	// maximum speed of one core.
	Peak      func(n int)
	PeakFlops int
}

// Packed is a kernel for one tile of packed panels; see [Kernels].
type Packed[T any] func(k int, a, b, c, next *T, ldc, m, n int, alpha, beta T)

// Widening is a kernel for m rows, 1 ≤ m ≤ r, and n columns, 1 ≤ n ≤ NR, of a tile of r rows: A's
// element (i, p) is a[p*lda+i], B's (p, j) is b[p*ldb+j], C's (i, j) is c[i*ldc+j]. It reads r
// elements of A and NR of B in each step of k, also if m or n is less, and prefetches a line at
// next[p*ldn].
type Widening[T any] func(k int, a *T, lda int, b, next *uint16, ldb, ldn int, c *T, ldc, m, n int, alpha, beta T)

// Direct is a kernel for tiles ≥ 1 tiles of C, one below the other, of n columns, 1 ≤ n ≤ NR. It
// reads matrices as stored: A's element (i, p) is a[i*rsa+p*csa], B's (p, j) is b[p*ldb+j], C's
// (i, j) is c[i*ldc+j]. Each tile prefetches lines from next on, ldn elements apart. A tile of few
// steps of k takes less time than a call.
type Direct[T any] func(tiles, k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T)

// Update is a kernel for few steps of k: A's element (i, p) is a[i*rsa+p*csa], B's (p, j) is
// b[p*ldb+j], C's (i, j) is c[i*ldc+j].
type Update[T any] func(a *T, rsa, csa int, b *T, ldb int, c *T, ldc, n int, alpha, beta T)

// Narrow is a kernel for rows ≥ 1 rows of a C with up to as many columns as a vector has elements.
type Narrow[T any] func(rows int, a *T, rsa, csa int, b *T, ldb int, c *T, ldc, n int, alpha T)

// Triangle is a kernel for r rows of a lower triangle, after k rows that are done. It changes r
// rows of b, which are ldb elements apart, in tiles·NR columns, tiles ≥ 1. Strides may be
// negative. For i < r, p < k and q ≤ i, a[i*rsa+p*csa] is the triangle's element (k+i, p) and
// l[q*MR+i] its element (k+i, k+q).
//
// Solve replaces row k+i of b by α times itself, less the products with all rows above it, times
// l[i*MR+i], which thus is the reciprocal of the element on the diagonal. Multiply replaces it by α
// times the sum of the products with itself and all rows above it.
type Triangle[T any] func(tiles, k int, a *T, rsa, csa int, l, b *T, ldb int, alpha T)

// Dot is a kernel for rows of two matrices stored along k: x's element (i, p) is x[i*ldx+p], y's
// (j, p) is y[j*ldy+p]. For r rows of x and s of y it stores the sum of their products over p < k
// at sums[j*max(r, DotRows)+i]. It goes on with the next r rows of x, for tiles ≥ 1 times r rows,
// and stores their sums s*max(r, DotRows) elements further each time.
//
// Each sum is computed in parallel lanes, which are then added in pairs. The number of lanes
// depends on the number of rows, so that kernels for other numbers of rows round differently.
type Dot[T any] func(tiles, k int, x *T, ldx int, y *T, ldy int, sums *T)

// WideningDot is a [Dot] for a k that is a multiple of NR/2. It widens the elements of x.
type WideningDot[T any] func(tiles, k int, x *uint16, ldx int, y *T, ldy int, sums *T)

// DotRows is the largest number of rows of x that a [Dot] reads.
const DotRows = 4

// Epilogue holds functions that change an m×n tile of C, in rows ldc elements apart, while it is in
// the cache. The result for an element does not depend on its position in the tile. A nil field
// means that the kernel has no such function.
type Epilogue[T any] struct {
	// BiasRow adds v[i] to every element of row i, BiasCol v[j] to every element of column j.
	BiasRow, BiasCol func(m, n int, c *T, ldc int, v *T)
	// ScaleRow multiplies every element of row i by v[i], ScaleCol every element of column j by
	// v[j], and Scale every element by *v.
	ScaleRow, ScaleCol, Scale func(m, n int, c *T, ldc int, v *T)
	// FromInt32 replaces every element, which holds the bits of an int32, by *v times that number.
	// It first rounds the number to T.
	FromInt32 func(m, n int, c *T, ldc int, v *T)
	// Add adds v[i*ldv+j] to element (i, j), Times multiplies element (i, j) by it.
	Add, Times func(m, n int, c *T, ldc int, v *T, ldv int)
	// The activations of package gemm. Near 0, GELU, GELUTanh and SiLU are accurate to a few
	// roundoffs of the argument. For large negative arguments their small results keep some correct
	// digits.
	ReLU, GELU, GELUTanh, SiLU func(m, n int, c *T, ldc int)
}

// Packer converts the elements of a matrix to the 32-bit words of panels. Its functions are nil if
// the CPU lacks the instructions.
type Packer struct {
	// Zip transposes n rows stored along K, a multiple of eight, into a panel r words wide. The rows
	// are ld bytes apart: dst[p*r+i] is word p of row i, for p < k. k is at least eight, or four if
	// an element takes two words.
	Zip func(k, n int, dst *uint32, r int, src *byte, ld int)
	// CopyRows copies n columns, a multiple of eight, of rows ld bytes apart: dst[p*r+j] is word p of
	// column j, for p < k.
	CopyRows func(k, n int, dst *uint32, r int, src *byte, ld int)

	// Narrow and AddOld serve a C of 16-bit elements. They process m×n elements, n a multiple of
	// eight, with ldd and lds elements between rows. Narrow rounds sums to nearest, ties to even.
	// AddOld adds beta·src to sums and rounds each product first.
	Narrow func(m, n int, dst *uint16, ldd int, src *float32, lds int)
	AddOld func(m, n int, dst *float32, ldd int, src *uint16, lds int, beta float32)
}
