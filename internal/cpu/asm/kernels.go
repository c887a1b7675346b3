// Package asm holds the assembly micro-kernels of matrix multiplication on the
// CPU: for each instruction set and element type, the innermost tile of C.
//
// A micro-kernel computes C ← α·A·B + β·C for a tile of at most MR×NR, summing
// over k in order with fused multiply-adds, each element by itself: the same
// inputs give the same bits whatever the tile they stand in and whatever the
// instruction set. (Deep and Dot kernels sum in orders of their own.) Packed kernels read A and B from zero-padded panels, direct
// ones from where they lie. β = 0, of either sign, leaves the old C unread. No
// kernel reads or writes memory outside the ranges in its doc comment, and none
// checks them.
//
// Assembly cannot be preempted, so one call should stay below 100 µs: k up to
// some thousands.
//
// The z files are written by the generator in _gen.
package asm

//go:generate go run -C _gen .

// ISA is an instruction set.
type ISA struct {
	Name      string
	Supported bool // by this processor and its operating system
}

// Ahead is how many steps of k pass before a kernel fetches another line, of Line bytes,
// of what is read next, DirectAhead how many if it is a [Direct].
const (
	Ahead       = 4
	DirectAhead = 2
	Line        = 64
)

// Kernels is the micro-kernels of one instruction set for one element type. They
// are only to be called where ISA.Supported, those for [AMX] after [AllowTiles].
type Kernels[T any] struct {
	ISA    ISA
	MR, NR int // the tile of C

	// Each kernel has a line fetched into the L2 cache for every few steps of k, that at
	// next first: it is to be read soon, and need not be. For Packed they follow each other.

	// Packed computes the first m rows, 1 ≤ m ≤ MR, and n columns, 1 ≤ n ≤ NR, of
	// a tile from k ≥ 0 steps of packed panels: a holds MR and b holds NR values
	// for each step. C's rows are ldc elements apart.
	Packed func(k int, a, b, c, next *T, ldc, m, n int, alpha, beta T)

	// PackedF16 and PackedBF16, where they are not nil, are Packed with halves in b.
	PackedF16, PackedBF16 func(k int, a, b, c, next *T, ldc, m, n int, alpha, beta T)

	// Direct[r-1] computes r rows of a tile, 1 ≤ r ≤ MR. See [Direct].
	Direct []Direct[T]

	// Deep[r-1] is Direct[r-1] for C of few tiles and many steps of k: it keeps several sums for
	// each element, over which steps of k take turns, and adds them in pairs at the end. More rows
	// than it has kernels for keep the units busy with one sum.
	Deep []Direct[T]

	// Copy is Direct[MR-1] for n = NR that fetches nothing and makes a panel at next of the
	// rows of B that it reads: next[p*NR+j] = b[p*ldb+j].
	Copy Direct[T]

	// Stream is Direct[MR-1] for whole tiles that overwrite C, n = NR and beta = 0, around
	// the caches: for a C that outgrows them, which is then not read first. C's rows start
	// at multiples of [Line] bytes. Before others are told of the tiles there is a [Fence].
	Stream Direct[T]

	// Update[x][y] computes 1<<x rows and n ≥ 1 columns of C from 1<<y steps of k, all
	// where they lie: it goes along the rows of B and C. See [Update].
	Update [][]Update[T]

	// Dot[r-1][s-1] computes the products of r rows, 1 ≤ r ≤ DotRows, with s other rows. See [Dot].
	Dot [][]Dot[T]

	// Group is how many values of K one step multiplies: 1, or where panels hold words of
	// 32 bits, 4 or 2 of int8, or 2 of bfloat16. Forms make such words.
	Group int

	// Block, where it is not 0, is what k is a multiple of, and what A's panels are cut into:
	// word p of row i is a[p/Block*Block*MR + i*Block + p%Block]. Packed then takes any number
	// of rows, whose panels follow each other.
	Block int

	// Start, where it is not nil, writes what sums start from into the first NR
	// elements of a panel of B, whose k steps follow. Without it a panel has no such row.
	Compensate func(k int, b *T)

	Epilogue[T]

	// Peak runs n ≥ 0 rounds of PeakFlops operations each, multiply-adds in
	// registers only: the most that one core can do.
	Peak      func(n int)
	PeakFlops int
}

// Direct is a kernel for n columns of a tile, 1 ≤ n ≤ NR, from matrices: A's element (i, p) is
// a[i*rsa+p*csa], B's (p, j) is b[p*ldb+j], C's (i, j) is c[i*ldc+j]. The lines that it fetches
// from next on are ldn elements apart.
type Direct[T any] func(k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldn, ldc, n int, alpha, beta T)

// Update is a kernel for few steps of k: A's element (i, p) is a[i*rsa+p*csa], B's (p, j)
// is b[p*ldb+j], C's (i, j) is c[i*ldc+j].
type Update[T any] func(a *T, rsa, csa int, b *T, ldb int, c *T, ldc, n int, alpha, beta T)

// Dot is a kernel for rows of two matrices that lie along k: x's element (i, p) is
// x[i*ldx+p], y's (j, p) is y[j*ldy+p]. It stores the sum of their products over p < k at
// sums[j*DotRows+i]. Each sum is taken in parallel lanes, which are then added in pairs. Their
// number depends on the number of rows, so that kernels for other numbers round differently.
type Dot[T any] func(k int, x *T, ldx int, y *T, ldy int, sums *T)

// DotRows is the largest number of rows of x that a [Dot] reads.
const DotRows = 4

// Finish is what is done to an m×n tile of C, whose rows are ldc elements apart, while
// it is in the cache. An element's bits do not depend on where in a tile it stands.
// Functions that there are not are nil.
type Epilogue[T any] struct {
	// BiasRow adds v[i] to every element of row i, BiasCol v[j] to every one of column j.
	BiasRow, BiasCol func(m, n int, c *T, ldc int, v *T)
	// ScaleRow multiplies every element of row i by v[i], ScaleCol every one of column j by v[j].
	// Scale every one by *v.
	ScaleRow, ScaleCol, Scale func(m, n int, c *T, ldc int, v *T)
	// FromInt32 replaces every element, which holds an int32 in its bits, by *v times that
	// number, which is rounded to T first.
	FromInt32 func(m, n int, c *T, ldc int, v *T)
	// Add adds v[i*ldv+j] to the element (i, j), Times multiplies it by that.
	Add, Times func(m, n int, c *T, ldc int, v *T, ldv int)
	// The activations of package gemm. Near 0 GELU and the two after it are within a few
	// roundoffs of the argument, on the left they keep some digits of what is small.
	ReLU, GELU, GELUTanh, SiLU func(m, n int, c *T, ldc int)
}

// Form is how the elements of a matrix become the words of 32 bits that panels hold.
// Its functions are nil where the processor lacks the instructions.
type Packer struct {
	// Zip copies eight rows that run along K, ld bytes apart, to a panel r words wide:
	// dst[p*r+i] is word p of row i, for p < k. k is a multiple of eight.
	Zip func(k int, dst *uint32, r int, src *byte, ld int)
	// Lay copies n columns, a multiple of eight, of rows that are ld
	// bytes apart: dst[p*r+j] is word p of column j, for p < k.
	Lay func(k, n int, dst *uint32, r int, src *byte, ld int)

	// For a C of 16 bits, m×n of its elements, n a multiple of eight, with ldd and lds
	// elements from row to row: Narrow rounds sums to them, to nearest with ties to even;
	// AddOld adds beta·src to sums, products rounded first.
	Narrow func(m, n int, dst *uint16, ldd int, src *float32, lds int)
	AddOld func(m, n int, dst *float32, ldd int, src *uint16, lds int, beta float32)
}
