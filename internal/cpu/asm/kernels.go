// Package asm holds the assembly micro-kernels of matrix multiplication on the
// CPU: for each instruction set and element type, the innermost tile of C.
//
// A micro-kernel computes C ← α·A·B + β·C for a tile of at most MR×NR, summing
// over k in order with fused multiply-adds, each element by itself: the same
// inputs give the same bits whatever the tile they stand in and whatever the
// instruction set. Packed kernels read A and B from zero-padded panels, direct
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

// Ahead is how many steps of k pass before a kernel fetches another line of Line bytes
// of what is read next.
const (
	Ahead = 4
	Line  = 64
)

// Kernels is the micro-kernels of one instruction set for one element type. They
// are only to be called where ISA.Supported.
type Kernels[T any] struct {
	ISA    ISA
	MR, NR int // the tile of C

	// Each kernel has a line of memory from next on fetched into the L2 cache for every
	// [Ahead] steps of k: it is to be read soon, and need not be.

	// Packed computes the first m rows, 1 ≤ m ≤ MR, and n columns, 1 ≤ n ≤ NR, of
	// a tile from k ≥ 0 steps of packed panels: a holds MR and b holds NR values
	// for each step. C's rows are ldc elements apart.
	Packed func(k int, a, b, c, next *T, ldc, m, n int, alpha, beta T)

	// Direct[r-1] computes r rows, 1 ≤ r ≤ MR, and n columns, 1 ≤ n ≤ NR, of a tile
	// from matrices: A's element (i, p) is a[i*rsa+p*csa], B's (p, j) is b[p*ldb+j].
	Direct []func(k int, a *T, rsa, csa int, b *T, ldb int, c, next *T, ldc, n int, alpha, beta T)

	// Group is how many values of K one step multiplies: 1, or for int8, whose panels
	// hold words of 32 bits, 4 or 2. Forms make such words.
	Group int

	// Start, where it is not nil, writes what sums start from into the first NR
	// elements of a panel of B, whose k steps follow. Without it a panel has no such row.
	Start func(k int, b *T)

	// Peak runs n ≥ 0 rounds of PeakFlops operations each, multiply-adds in
	// registers only: the most that one core can do.
	Peak      func(n int)
	PeakFlops int
}

// Form is how the elements of a matrix become the words of 32 bits that panels hold.
// Its functions are nil where the processor lacks the instructions.
type Form struct {
	// Zip copies eight rows that run along K, ld bytes apart, to a panel r words wide:
	// dst[p*r+i] is word p of row i, for p < k. k is a multiple of eight.
	Zip func(k int, dst *uint32, r int, src *byte, ld int)
	// Lay copies n columns, a multiple of eight, of rows that are ld
	// bytes apart: dst[p*r+j] is word p of column j, for p < k.
	Lay func(k, n int, dst *uint32, r int, src *byte, ld int)
}
