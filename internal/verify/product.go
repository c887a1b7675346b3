package verify

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"

	"tilework/internal/mapping"
)

// number is the arithmetic of a check. uint32 wraps as int32 does.
type number interface{ float64 | uint32 }

// numberOf converts v to T, a whole number modulo 2^32.
func numberOf[T number](v float64) T {
	if wraps[T]() {
		return T(int64(v))
	}
	return T(v)
}

// wraps reports whether T is an integer type.
func wraps[T number]() bool { return T(0)-1 > 0 }

// magnitude returns |d|. An integer d is signed modulo 2^32.
func magnitude[T number](d T) float64 {
	if wraps[T]() {
		return math.Abs(float64(int32(d)))
	}
	return math.Abs(float64(d))
}

// product multiplies op(matrix) by several vectors, and reads the matrix once, row by row. One
// goroutine sums each output in a fixed order, so the result does not depend on the number of
// goroutines.
type product[T number] struct {
	*operand
	in, out [][]T

	// norms[i] is the Euclidean norm of row i of op(matrix), with column j multiplied by weight[j]
	// unless weight is nil. Integers have no norms.
	weight, norms []float64

	// nonfinite is called for each NaN and infinity of op(matrix), which count as zero. Calls for
	// different rows of op(matrix) may be concurrent.
	nonfinite func(i, j int)
}

func newProduct[T number](o *operand, in [][]T) *product[T] {
	rows := o.layout.OpRows()
	return &product[T]{operand: o, in: in, out: zeros[T](len(in), rows).rows(), norms: make([]float64, rows)}
}

// run computes out and norms.
func (v *product[T]) run(ctx context.Context) error {
	if v.layout.Len() == 0 {
		return ctx.Err()
	}
	n := v.layout.OpRows()
	workers := min(runtime.GOMAXPROCS(0), (n+63)/64)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			errs[w] = mapping.Access(func() { v.part(ctx, n*w/workers, n*(w+1)/workers) })
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, squares := range v.norms {
		v.norms[i] = math.Sqrt(squares)
	}
	return ctx.Err()
}

// part computes outputs lo to hi. They depend on whole rows of memory or, for a transposed matrix,
// on a strip of each row.
func (v *product[T]) part(ctx context.Context, lo, hi int) {
	l := v.layout
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
		l.Type.Load(row, v.data[l.Type.Bytes(r*l.LD+from):])
		if !l.Trans && shared {
			v.addFloats(r, row)
			continue
		}
		v.clean(r, from, row)
		if !shared {
			for j, x := range row {
				as[j] = numberOf[T](x)
			}
		}
		if l.Trans {
			v.addColumn(r, lo, hi, row, as)
		} else {
			v.addRow(r, as)
		}
	}
}

// clean replaces NaN and infinities by 0 in row r of memory, whose columns start at from.
func (v *product[T]) clean(r, from int, row []float64) {
	for j, x := range row {
		if isFinite(x) {
			continue
		}
		row[j] = 0
		if v.layout.Trans {
			v.nonfinite(from+j, r)
		} else {
			v.nonfinite(r, from+j)
		}
	}
}

// addFloats is addRow for float64. It searches a row for NaN and infinities only if its norm is not
// finite: an infinity times any weight is infinite or NaN.
func (v *product[T]) addFloats(i int, row []float64) {
	in, out := any(v.in).([][]float64), any(v.out).([][]float64)
	add := func() {
		for n := 0; n < len(in); n += 4 {
			var y [4][]float64
			for k := range y {
				y[k] = in[min(n+k, len(in)-1)]
			}
			sums := dots(row, y, v.weight)
			for k := n; k < min(n+4, len(in)); k++ {
				out[k][i] = sums[k-n]
			}
			v.norms[i] = sums[4]
		}
	}
	if add(); !isFinite(v.norms[i]) {
		v.clean(i, 0, row)
		add()
	}
}

// addRow adds row i of an integer op(matrix). It needs no norm, because integers are checked
// exactly.
func (v *product[T]) addRow(i int, as []T) {
	for n, in := range v.in {
		v.out[n][i] = dot(as, in)
	}
}

// dotsGo returns Σx·y for four y, and Σ(x·w)² or, without w, Σx².
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

// dot returns Σx·y. It keeps four sums to hide the latency of the addition.
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

// addColumn adds rows lo to hi of column j of op(matrix).
func (v *product[T]) addColumn(j, lo, hi int, column []float64, as []T) {
	for n, in := range v.in {
		out, f := v.out[n][lo:hi], in[j]
		for i, x := range as {
			out[i] += x * f
		}
	}
	norms := v.norms[lo:hi]
	weight := 1.0
	if v.weight != nil {
		weight = v.weight[j]
	}
	for i, x := range column {
		norms[i] += (x * weight) * (x * weight)
	}
}

// isFinite reports whether v is neither NaN nor an infinity.
func isFinite(v float64) bool { return v-v == 0 }
