// Package block computes with blocks of matrices that fit in a cache: it solves triangular systems,
// multiplies triangles, and factorises matrices. It calls the micro-kernels directly, without
// planning, so that even a block of a few rows is fast. Larger problems split into such blocks and
// products.
//
// Results do not depend on the number of threads, to the last bit.
package block

import (
	"context"
	"math/bits"
	"sync"
	"unsafe"

	"tilework/internal/cpu"
	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// MaxSize is the largest number of rows of a triangle, and of a matrix for [Kernels.Cholesky].
const MaxSize = 256

// Float lists the element types.
type Float interface{ float32 | float64 }

// Matrix is a view of elements: (i, j) is Data[i*Down+j*Right]. One of Down and Right is 1.
type Matrix[T Float] struct {
	Data        []T
	Rows, Cols  int
	Down, Right int
}

// sub returns the rows×cols part that starts at element (i, j).
func (m Matrix[T]) sub(i, j, rows, cols int) Matrix[T] {
	m.Rows, m.Cols = rows, cols
	if rows > 0 && cols > 0 {
		m.Data = m.Data[i*m.Down+j*m.Right:]
	}
	return m
}

// Kernels computes with the micro-kernels for one element type. Its methods are safe for concurrent
// use.
type Kernels[T Float] struct {
	micro *asm.Kernels[T]
	rooms sync.Pool // of *[]T, scratch memory
}

// New returns the kernels that this CPU runs by default.
func New[T Float]() *Kernels[T] {
	return &Kernels[T]{micro: cpu.MicroKernels[T](), rooms: sync.Pool{New: func() any { return new([]T) }}}
}

// borrow returns n elements of scratch memory. Return it to k.rooms.
func (k *Kernels[T]) borrow(n int) *[]T {
	room := k.rooms.Get().(*[]T)
	if cap(*room) < n {
		*room = make([]T, n)
	}
	*room = (*room)[:n]
	return room
}

// transpose sets to[j*ldt+i] = from[i*ldf+j] for all i < rows and j < cols.
func (k *Kernels[T]) transpose(rows, cols int, to []T, ldt int, from []T, ldf int) {
	for i := 0; i < rows; {
		n, whole := 1, 0
		if most := len(k.micro.Columns); most > 0 && cols >= 8 {
			n, whole = min(most, rows-i), cols&^7
			k.micro.Columns[n-1](whole, &to[i], ldt, &from[i*ldf], ldf)
		}
		for ; n > 0; n-- {
			for j, v := range from[i*ldf:][whole:cols] {
				to[(whole+j)*ldt+i] = v
			}
			i++
		}
	}
}

// subtract computes C ← C - A·B for a C of few rows. Element (i, p) of A is a[i*rsa+p*csa].
func (k *Kernels[T]) subtract(rows, cols, depth int, a []T, rsa, csa int, b []T, ldb int, c []T, ldc int) {
	switch {
	case len(k.micro.Direct) == 0:
		for i := range rows {
			to := c[i*ldc:][:cols]
			for p := range depth {
				s := a[i*rsa+p*csa]
				for j, v := range b[p*ldb:][:cols] {
					to[j] -= T(s * v)
				}
			}
		}
	case depth == 1 || depth == 2 || depth == 4:
		y := bits.Len(uint(depth)) - 1
		for i := 0; i < rows; {
			x := min(bits.Len(uint(rows-i)), len(k.micro.Update)) - 1
			for y >= len(k.micro.Update[x]) {
				x--
			}
			k.micro.Update[x][y](&a[i*rsa], rsa, csa, &b[0], ldb, &c[i*ldc], ldc, cols, -1, 1)
			i += 1 << x
		}
	case depth > 0:
		k.tiles(rows, cols, depth, -1, a, rsa, csa, b, ldb, 1, c, ldc)
	}
}

// rowsKernel returns the index in Solve and Multiply of the kernel for the first rows of n ≥ 1
// rows, and the number of its rows.
func (k *Kernels[T]) rowsKernel(n int) (x, rows int) {
	if n >= k.micro.MR {
		return len(k.micro.Solve) - 1, k.micro.MR
	}
	x = bits.Len(uint(n)) - 1
	return x, 1 << x
}

// sizeOf returns the size of an element in bytes.
func sizeOf[T Float]() int { return int(unsafe.Sizeof(*new(T))) }

// minFlopsPerThread is the least work that justifies another thread: about 5 µs. The limit of
// package cpu is higher, because a worker often sleeps when a single product begins. Blocks are
// computed one after the other.
const minFlopsPerThread = 25e4

// Parallel calls f(0), …, f(n-1), which take the given number of operations together, from as many
// threads as this work justifies. The first call starts first.
func Parallel(n int, flops float64, f func(i int)) {
	threads := min(n, threadCount(flops))
	if threads == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	if err := cpu.ParallelFor(context.Background(), n, threads, f); err != nil {
		panic(err) // the context never ends
	}
}

// threadCount returns the number of threads for the given number of operations.
func threadCount(flops float64) int { return max(1, min(cpu.Workers(0), int(flops/minFlopsPerThread))) }

// inParts calls f for parts of n columns, of at most most and a multiple of unit columns each. All
// parts take the given number of operations.
func inParts(n, most, unit int, flops float64, f func(first, count int)) {
	threads := threadCount(flops)
	each := ints.RoundUp(min(most, ints.CeilDiv(n, threads)), unit)
	Parallel(ints.CeilDiv(n, each), flops, func(i int) { f(i*each, min(each, n-i*each)) })
}
