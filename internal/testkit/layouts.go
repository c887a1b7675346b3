package testkit

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// Layouts returns products of an m×k and a k×n matrix of type t, with all combinations of
// transposed operands and even or odd leading dimensions. The names are of the form "A odd, B
// transposed".
func Layouts(tb testing.TB, t dtype.Type, m, n, k int) iter.Seq2[string, *gemm.Problem] {
	tb.Helper()
	const transposed, odd = 1, 2
	operand := func(name string, rows, cols, flags int) (gemm.Layout, string) {
		trans := flags&transposed != 0
		if trans {
			rows, cols = cols, rows
			name += " transposed"
		}
		l := gemm.Dense(t, rows, cols)
		l.LD, l.Trans = (cols+1)/2*2, trans
		if flags&odd != 0 {
			l.LD++
			name += " odd"
		}
		return l, name
	}
	return func(yield func(string, *gemm.Problem) bool) {
		for flags := range 16 {
			a, nameA := operand("A", m, k, flags)
			b, nameB := operand("B", k, n, flags>>2)
			p, _, err := gemm.New(1, a, b, 0, gemm.Dense(t, m, n), gemm.Epilogue{})
			if err != nil {
				tb.Fatal(err)
			}
			if !yield(fmt.Sprintf("%s, %s", nameA, nameB), &p) {
				return
			}
		}
	}
}

// Product returns the plain product of dense m×k and k×n matrices of type in, with a C of type out.
func Product(tb testing.TB, in, out dtype.Type, m, n, k int) *gemm.Problem {
	tb.Helper()
	p, _, err := gemm.New(1, gemm.Dense(in, m, k), gemm.Dense(in, k, n), 0, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err != nil {
		tb.Fatal(err)
	}
	return &p
}

// BlockScaled returns the product of an m×k and a K-major k×n matrix of float8_e4m3fn with block
// scales, each for rowsA rows of A or colsB columns of B.
func BlockScaled(tb testing.TB, m, n, k int, out dtype.Type, rowsA, colsB int) gemm.Problem {
	tb.Helper()
	a, b := gemm.Dense(dtype.F8E4M3, m, k), gemm.Dense(dtype.F8E4M3, n, k).T()
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), gemm.Epilogue{})
	if err == nil {
		steps := gemm.ScaleBlocks(k)
		p.Layouts[gemm.ScaleA] = gemm.Dense(dtype.F32, ints.CeilDiv(m, rowsA), steps)
		p.Layouts[gemm.ScaleB] = gemm.Dense(dtype.F32, steps, ints.CeilDiv(n, colsB))
		_, err = p.Complete()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Filled returns buffers for p with random elements from -2 to 2.
func Filled(rng *rand.Rand, p *gemm.Problem) (b gemm.Buffers) {
	for o := range gemm.Operands {
		if p.Uses(o) {
			l := p.Layout(o)
			b[o] = make([]byte, l.Bytes())
			for i := range l.Type.Elements(len(b[o])) {
				l.Type.Set(b[o], i, 4*rng.Float64()-2)
			}
		}
	}
	return b
}
