package verify

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// freivalds is a checker that computes in T: in float64, or modulo 2^32.
type freivalds[T number] struct {
	p       *gemm.Problem
	a, b, c operand // c is the old C
	bias    []byte
	// zeroA and zeroB are the zero points of the rows of op(A) and of the columns of op(B), or nil.
	zeroA, zeroB []int32
	opt          Options
	// old, unless nil, returns C·x and ‖c‖₂ of the old C, which has been overwritten.
	old func(ctx context.Context) ([][]T, []float64, error)

	x     [][]T     // the vectors, N values each; 0 in columns that are left out
	want  [][]T     // the expected C·x, M values each
	terms []float64 // norm of each row's terms: |α|·√Σ(a·‖b‖₂)² + |β|·‖c‖₂ + ‖bias‖₂

	rowBad, colBad []bool    // a row of op(A) or a column of op(B), or its bias, is not finite
	oldBad         []int     // number of non-finite elements in each row of the old C
	oldTerms       []float64 // |β|·‖c‖₂ of each row of the old C
	oldRows        oldRows
	threshold      Threshold
}

// operand is a matrix in the host's memory.
type operand struct {
	layout gemm.Layout
	data   []byte
}

func (o *operand) at(i, j int) float64 { return o.layout.Type.At(o.data, o.layout.Index(i, j)) }

func newFreivalds[T number](p *gemm.Problem, buf gemm.Buffers, opt Options) *freivalds[T] {
	a, b := operand{p.Layouts[gemm.A], buf[gemm.A]}, operand{p.Layouts[gemm.B], buf[gemm.B]}
	if p.BlockScaled() && p.ReadsAB() {
		fa, fb := ref.Factors(p, buf)
		a = operand{gemm.Dense(dtype.F64, p.M, p.K), dtype.Bytes(fa)}
		b = operand{gemm.Dense(dtype.F64, p.K, p.N), dtype.Bytes(fb)}
	}
	return &freivalds[T]{
		p: p, a: a, b: b, c: operand{p.Layouts[gemm.C], buf[gemm.C]}, bias: buf[gemm.Bias], opt: opt,
		zeroA: dtype.View[int32](buf[gemm.RowZero]), zeroB: dtype.View[int32](buf[gemm.ColZero]),
		want: zeros[T](NumVectors, p.M).rows(), terms: make([]float64, p.M),
		rowBad: make([]bool, p.M), colBad: make([]bool, p.N),
		oldBad: make([]int, p.M), oldTerms: make([]float64, p.M),
		threshold: newThreshold(p, opt.Accuracy),
	}
}

// vectors holds vectors of one size in sequence.
type vectors[T number] struct {
	all  []T
	size int
}

func zeros[T number](n, size int) vectors[T] { return vectors[T]{make([]T, n*size), size} }

func (x vectors[T]) rows() [][]T {
	var rows [][]T
	for at := 0; at < len(x.all); at += x.size {
		rows = append(rows, x.all[at:at+x.size])
	}
	return rows
}

// draw returns [NumVectors] random vectors of the given size.
func draw[T number](seed uint64, size int) vectors[T] {
	rng := rand.New(rand.NewPCG(seed, 0))
	drawn := zeros[T](NumVectors, size)
	for n, x := range drawn.rows() {
		if n > 0 && wraps[T]() {
			for j := range x {
				x[j] = T(rng.Uint32())
			}
			continue
		}
		var bits uint64
		for j := range x { // ±1
			if j%64 == 0 {
				bits = rng.Uint64()
			}
			x[j] = 1 - 2*T(bits&1)
			bits >>= 1
		}
	}
	return drawn
}

// expect implements checker. It computes want and terms.
func (f *freivalds[T]) expect(ctx context.Context) error {
	p := f.p
	f.x = draw[T](f.opt.Seed, p.N).rows()
	alpha, beta := real(p.Alpha), real(p.Beta)
	bias := f.readBias()
	if p.ReadsAB() {
		bx, err := f.timesB(ctx)
		if err != nil {
			return err
		}
		f.subtractColZeros(bx.out)
		ax := newProduct(&f.a, bx.out)
		unit := scaleDown(bx.norms) // so that the squares of products of norms do not overflow
		ax.weight = bx.norms
		ax.nonfinite = func(i, _ int) { f.rowBad[i] = true }
		if err := ax.run(ctx); err != nil {
			return err
		}
		f.subtractRowZeros(ax.out, bx.out)
		f.gather(alpha, ax.out)
		for i, s := range ax.norms {
			f.terms[i] += math.Abs(alpha) * s * unit
		}
	}
	if p.Beta != 0 {
		out, norms, err := f.oldSums(ctx)
		if err != nil {
			return err
		}
		f.gather(beta, out)
		for i, s := range norms {
			f.oldTerms[i] = math.Abs(beta) * s
			f.terms[i] += f.oldTerms[i]
		}
		f.keepOld()
	}
	if p.Epilogue.Bias != gemm.BiasNone {
		f.addBias(bias)
	}
	for i := range f.rowBad {
		f.rowBad[i] = f.rowBad[i] || p.ReadsAB() && !isFinite(alpha) || !isFinite(beta)
	}
	return nil
}

// subtractColZeros changes B·x to the product of x and the elements of B less the zero points of
// their columns.
func (f *freivalds[T]) subtractColZeros(bx [][]T) {
	for n, x := range f.x {
		var total T
		for j, z := range f.zeroB {
			total += T(z) * x[j]
		}
		for k := range bx[n] {
			bx[n][k] -= total
		}
	}
}

// subtractRowZeros changes A·y to the product of y and the elements of A less the zero points of
// their rows.
func (f *freivalds[T]) subtractRowZeros(ay, ys [][]T) {
	for n, y := range ys {
		var total T
		for _, v := range y {
			total += v
		}
		for i, z := range f.zeroA {
			ay[n][i] -= T(z) * total
		}
	}
}

// oldSums returns C·x of the old C, and ‖c‖₂ of each row.
func (f *freivalds[T]) oldSums(ctx context.Context) ([][]T, []float64, error) {
	if f.old != nil {
		return f.old(ctx)
	}
	v := newProduct(&f.c, f.x)
	v.nonfinite = func(i, _ int) { f.oldBad[i]++ }
	return v.out, v.norms, v.run(ctx)
}

// timesB returns B·x and ‖b‖₂ of each row of op(B). If it finds columns that are not finite, it
// removes them from x and starts again.
func (f *freivalds[T]) timesB(ctx context.Context) (*product[T], error) {
	for {
		var found atomic.Bool
		bad := make([]atomic.Bool, f.p.N)
		v := newProduct(&f.b, f.x)
		v.nonfinite = func(_, j int) { bad[j].Store(true); found.Store(found.Load() || !f.colBad[j]) }
		if err := v.run(ctx); err != nil {
			return nil, err
		}
		if !found.Load() {
			return v, nil
		}
		for j := range bad {
			f.colBad[j] = f.colBad[j] || bad[j].Load()
		}
		f.leaveOut()
	}
}

// leaveOut sets the vectors to 0 in the columns that are not finite.
func (f *freivalds[T]) leaveOut() {
	for j, bad := range f.colBad {
		if bad {
			for _, x := range f.x {
				x[j] = 0
			}
		}
	}
}

// readBias returns the bias. It marks NaN and infinities in rowBad or colBad, and replaces them by
// 0.
func (f *freivalds[T]) readBias() []float64 {
	p := f.p
	bias := make([]float64, p.BiasLen())
	p.Out().Load(bias, f.bias)
	bad := f.rowBad
	if p.Epilogue.Bias == gemm.BiasCol {
		bad = f.colBad
	}
	for k, b := range bias {
		if !isFinite(b) {
			bad[k], bias[k] = true, 0
		}
	}
	f.leaveOut()
	return bias
}

// addBias adds the bias to want and terms.
func (f *freivalds[T]) addBias(bias []float64) {
	p := f.p
	squares := dot(bias, bias)
	for i := range p.M {
		if p.Epilogue.Bias == gemm.BiasRow {
			squares = float64(p.N) * bias[i] * bias[i]
		}
		f.terms[i] += math.Sqrt(squares)
	}
	values := make([]T, len(bias))
	for k, b := range bias {
		values[k] = numberOf[T](b)
	}
	for n, x := range f.x {
		var sum T
		if p.Epilogue.Bias == gemm.BiasCol {
			sum = dot(values, x)
		} else {
			for _, v := range x {
				sum += v
			}
		}
		for i := range f.want[n] {
			switch p.Epilogue.Bias {
			case gemm.BiasRow:
				f.want[n][i] += sum * values[i]
			case gemm.BiasCol:
				f.want[n][i] += sum
			}
		}
	}
}

// gather adds factor·sums to want.
func (f *freivalds[T]) gather(factor float64, sums [][]T) {
	t := numberOf[T](factor)
	for n, want := range f.want {
		for i, s := range sums[n] {
			want[i] += t * s
		}
	}
}

// scaleDown divides norms by a power of two, which it returns, so that the largest is about 1.
func scaleDown(norms []float64) float64 {
	largest := slices.Max(append(norms, 0))
	if largest == 0 || !isFinite(largest) {
		return 1
	}
	_, exp := math.Frexp(largest)
	for k := range norms {
		norms[k] = math.Ldexp(norms[k], -exp)
	}
	return math.Ldexp(1, exp)
}

// check implements checker.
func (f *freivalds[T]) check(ctx context.Context, data []byte) (Report, error) {
	p, c := f.p, operand{f.p.Layouts[gemm.C], data}
	report := newReport(p, f.opt.Seed)
	expected := 0 // number of columns that must not be finite
	for _, bad := range f.colBad {
		if bad {
			expected++
		}
	}
	found := make([]int, p.M)         // non-finite elements of those columns in each row
	unexpected := make([][2]int, p.M) // number of other non-finite elements, and the column of the first
	v := newProduct(&c, f.x)
	v.nonfinite = func(i, j int) {
		if f.colBad[j] {
			found[i]++
			return
		}
		if u := &unexpected[i]; u[0] == 0 {
			u[1] = j
		}
		unexpected[i][0]++
	}
	if err := v.run(ctx); err != nil {
		return report, err
	}
	var first error
	total := 0 // of non-finite elements
	for i := range p.M {
		bad := found[i] + unexpected[i][0]
		total += bad
		var err error
		switch {
		case f.rowBad[i] && bad < p.N, found[i] < expected, bad < f.oldBad[i]:
			err = fmt.Errorf("%w: row %d of C is finite where an operand is not", gemm.ErrVerify, i)
		case f.rowBad[i] || f.oldBad[i] > 0:
			report.Unsummed++
		case unexpected[i][0] > 0:
			err = f.checkNonfinite(i, unexpected[i][1], c)
			report.Unsummed++
		default:
			f.addResidual(&report, i, v.out, v.norms[i])
		}
		if first == nil {
			first = err
		}
	}
	if first == nil && total > 0 {
		first = f.checkAllNonfinite(ctx, total, c)
	}
	if first == nil && report.Worst > 1 && !report.Exact {
		explained, err := f.explained(ctx, report.Row, c)
		if err != nil {
			return report, err
		}
		report.raise(explained)
	}
	if first == nil {
		first = report.err(accepted(p, f.opt.Within), max(f.terms[report.Row], v.norms[report.Row]))
	}
	return report, first
}

// addResidual adds row i to the report. out is C·x, and norm that of C's row.
func (f *freivalds[T]) addResidual(report *Report, i int, out [][]T, norm float64) {
	threshold := f.threshold.of(f.terms[i], norm)
	if !isFinite(threshold) {
		report.Unsummed++
		return
	}
	var off [NumVectors]float64
	for n := range f.x {
		off[n] = magnitude(out[n][i] - f.want[n][i])
	}
	row := RowResidual{Row: i, Residual: rootMeanSquare(off[:]), Threshold: threshold}
	row.Within = f.threshold.within(row.ratio(), f.terms[i], norm)
	report.add(row)
}

// rootMeanSquare returns the root mean square of values. Squares do not overflow.
func rootMeanSquare(values []float64) float64 {
	largest := slices.Max(values)
	if largest == 0 || !isFinite(largest) {
		return largest
	}
	squares := 0.0
	for _, v := range values {
		squares += (v / largest) * (v / largest)
	}
	return largest * math.Sqrt(squares/float64(len(values)))
}
