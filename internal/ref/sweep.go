package ref

import (
	"context"
	"math"
	"runtime"
	"sync"
)

// number is what a Freivalds check computes in; uint32 wraps as int32 does.
type number interface{ float64 | uint32 }

// numberOf is v in T: itself, or a whole number modulo 2^32.
func numberOf[T number](v float64) T {
	if wraps[T]() {
		return T(word(v))
	}
	return T(v)
}

func wraps[T number]() bool { return T(0)-1 > 0 }

// magnitude is how far from zero a difference is.
func magnitude[T number](d T) float64 {
	if wraps[T]() {
		return math.Abs(float64(int32(d)))
	}
	return math.Abs(float64(d))
}

// sweep multiplies op(matrix) by several vectors in one reading of its memory, row
// after row of it. Each output is summed by one goroutine and in one order, so
// that the result does not depend on how many there are.
type sweep[T number] struct {
	*operand
	in, out [][]T

	// size is the Euclidean norm of each row of op(matrix), whose elements are multiplied by weight
	// if that is not nil.
	weight, size []float64

	// nonfinite is told where NaN and infinities stand in op(matrix); they
	// count as zero. Calls for different rows of op(matrix) may run at once.
	nonfinite func(i, j int)
}

func newSweep[T number](o *operand, in [][]T) *sweep[T] {
	rows := o.layout.OpRows()
	return &sweep[T]{operand: o, in: in, out: zeros[T](len(in), rows).rows(), size: make([]float64, rows)}
}

// run fills out and size.
func (s *sweep[T]) run(ctx context.Context) error {
	if s.layout.Len() == 0 {
		return ctx.Err()
	}
	n := s.layout.OpRows()
	workers := min(runtime.GOMAXPROCS(0), (n+63)/64)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { s.part(ctx, n*w/workers, n*(w+1)/workers) })
	}
	wg.Wait()
	for i, squares := range s.size {
		s.size[i] = math.Sqrt(squares)
	}
	return ctx.Err()
}

// part computes outputs lo to hi: whole rows of memory, or a strip of each where
// the matrix stands transposed.
func (s *sweep[T]) part(ctx context.Context, lo, hi int) {
	l := s.layout
	first, last, from, to := lo, hi, 0, l.Cols
	if l.Trans {
		first, last, from, to = 0, l.Rows, lo, hi
	}
	row := make([]float64, to-from)
	as, shared := any(row).([]T) // the same memory where T is float64
	if !shared {
		as = make([]T, to-from)
	}
	for r := first; r < last && ctx.Err() == nil; r++ {
		l.Type.Load(row, s.data[(r*l.LD+from)*l.Type.Size():])
		if !l.Trans && shared {
			s.addFloats(r, row)
			continue
		}
		s.clean(r, from, row)
		if !shared {
			for j, x := range row {
				as[j] = numberOf[T](x)
			}
		}
		if l.Trans {
			s.addColumn(r, lo, hi, row, as)
		} else {
			s.addRow(r, as)
		}
	}
}

// clean takes what is not finite out of a part, from column from on, of a row of memory.
func (s *sweep[T]) clean(r, from int, row []float64) {
	for j, x := range row {
		if finite(x) {
			continue
		}
		row[j] = 0
		if s.layout.Trans {
			s.nonfinite(from+j, r)
		} else {
			s.nonfinite(r, from+j)
		}
	}
}

// addFloats is addRow for float64. What is not finite is looked for only where it shows:
// it makes the row's size so, as infinity times any weight is infinite or NaN.
func (s *sweep[T]) addFloats(i int, row []float64) {
	in, out := any(s.in).([][]float64), any(s.out).([][]float64)
	add := func() {
		for n := 0; n < len(in); n += 4 {
			var y [4][]float64
			for k := range y {
				y[k] = in[min(n+k, len(in)-1)]
			}
			sums := dots(row, y, s.weight)
			for k := n; k < min(n+4, len(in)); k++ {
				out[k][i] = sums[k-n]
			}
			s.size[i] = sums[4]
		}
	}
	if add(); !finite(s.size[i]) {
		s.clean(i, 0, row)
		add()
	}
}

// addRow adds row i of op(matrix), of whole numbers, whose size nobody needs: they are
// checked exactly.
func (s *sweep[T]) addRow(i int, as []T) {
	for n, in := range s.in {
		s.out[n][i] = dot(as, in)
	}
}

// dotsGo is Σx·y for four y, and Σ(x·w)² or, without w, Σx².
func dotsGo(x []float64, y [4][]float64, w []float64) [5]float64 {
	var s0, s1, s2, s3, size float64
	y0, y1, y2, y3 := y[0][:len(x)], y[1][:len(x)], y[2][:len(x)], y[3][:len(x)]
	for j, v := range x {
		s0 += v * y0[j]
		s1 += v * y1[j]
		s2 += v * y2[j]
		s3 += v * y3[j]
		if w != nil {
			v *= w[j]
		}
		size += v * v
	}
	return [5]float64{s0, s1, s2, s3, size}
}

// dot keeps four sums, as one would wait for its own last addition.
func dot[T number](x, y []T) T {
	var s0, s1, s2, s3 T
	y = y[:len(x)]
	for len(x) >= 4 && len(y) >= 4 {
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		s0 += v * y[i]
	}
	return s0 + s1 + (s2 + s3)
}

// addColumn adds column j of op(matrix), its rows lo to hi.
func (s *sweep[T]) addColumn(j, lo, hi int, column []float64, as []T) {
	for n, in := range s.in {
		out, f := s.out[n][lo:hi], in[j]
		for i, x := range as {
			out[i] += x * f
		}
	}
	size := s.size[lo:hi]
	weight := 1.0
	if s.weight != nil {
		weight = s.weight[j]
	}
	for i, x := range column {
		size[i] += (x * weight) * (x * weight)
	}
}
