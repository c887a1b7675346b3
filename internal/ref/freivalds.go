package ref

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// freivalds is a Verifier that computes in T: float64, or words modulo 2^32.
type freivalds[T number] struct {
	p       *gemm.Problem
	a, b, c operand // c as it was
	bias    []byte
	opt     VerifyOptions
	// old, unless it is nil, is C·x and ‖c‖₂ of C as it was, which is overwritten.
	old func(ctx context.Context) ([][]T, []float64, error)

	x    [][]T     // the vectors, N values each; 0 in columns left out
	want [][]T     // C·x as it should be, M values each
	size []float64 // norm of each row's terms: |α|·√Σ(a·‖b‖₂)² + |β|·‖c‖₂ + ‖bias‖₂

	rowBad, colBad []bool    // op(A) or the bias, op(B) or the bias is not finite there
	oldBad         []int     // of each row of the old C: how many are not finite
	oldSize        []float64 // and |β|·‖c‖₂
	limits         Limits
}

// operand is a matrix of a product that is verified.
type operand struct {
	layout gemm.Layout
	data   []byte
}

func (o *operand) at(i, j int) float64 { return o.layout.Type.At(o.data, o.layout.Index(i, j)) }

func newFreivalds[T number](p *gemm.Problem, buf gemm.Buffers, opt VerifyOptions) *freivalds[T] {
	a, b := operand{p.Layouts[gemm.A], buf[gemm.A]}, operand{p.Layouts[gemm.B], buf[gemm.B]}
	if p.BlockScaled() && p.ReadsAB() {
		fa, fb := Factors(p, buf)
		a = operand{gemm.Dense(dtype.F64, p.M, p.K), dtype.Bytes(fa)}
		b = operand{gemm.Dense(dtype.F64, p.K, p.N), dtype.Bytes(fb)}
	}
	return &freivalds[T]{
		p: p, a: a, b: b, c: operand{p.Layouts[gemm.C], buf[gemm.C]}, bias: buf[gemm.Bias], opt: opt,
		want: zeros[T](Vectors, p.M).rows(), size: make([]float64, p.M),
		rowBad: make([]bool, p.M), colBad: make([]bool, p.N),
		oldBad: make([]int, p.M), oldSize: make([]float64, p.M),
		limits: limits(p, opt.Accuracy),
	}
}

// vectors are some of one size, one behind the other.
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

// draw draws the vectors, which have some values.
func draw[T number](seed uint64, size int) vectors[T] {
	rng := rand.New(rand.NewPCG(seed, 0))
	drawn := zeros[T](Vectors, size)
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

// expect implements checker: it computes want and size.
func (f *freivalds[T]) expect(ctx context.Context) error {
	p := f.p
	f.x = draw[T](f.opt.Seed, p.N).rows()
	alpha, beta := p.ScaleType().Round(p.Alpha), p.ScaleType().Round(p.Beta)
	bias := f.readBias()
	if p.ReadsAB() {
		bx, err := f.timesB(ctx)
		if err != nil {
			return err
		}
		ax := newSweep(&f.a, bx.out)
		unit := scaleDown(bx.size) // the squares of sizes that are multiplied must not overflow
		ax.weight = bx.size
		ax.nonfinite = func(i, _ int) { f.rowBad[i] = true }
		if err := ax.run(ctx); err != nil {
			return err
		}
		f.gather(alpha, ax.out)
		for i, s := range ax.size {
			f.size[i] += math.Abs(alpha) * s * unit
		}
	}
	if p.Beta != 0 {
		out, norms, err := f.oldSums(ctx)
		if err != nil {
			return err
		}
		f.gather(beta, out)
		for i, s := range norms {
			f.oldSize[i] = math.Abs(beta) * s
			f.size[i] += f.oldSize[i]
		}
	}
	if p.Epilogue.Bias != gemm.BiasNone {
		f.addBias(bias)
	}
	for i := range f.rowBad {
		f.rowBad[i] = f.rowBad[i] || p.ReadsAB() && !finite(alpha) || !finite(beta)
	}
	return nil
}

// oldSums is C·x of C as it was, and ‖c‖₂ of each row.
func (f *freivalds[T]) oldSums(ctx context.Context) ([][]T, []float64, error) {
	if f.old != nil {
		return f.old(ctx)
	}
	s := newSweep(&f.c, f.x)
	s.nonfinite = func(i, _ int) { f.oldBad[i]++ }
	return s.out, s.size, s.run(ctx)
}

// timesB is B·x, with ‖b‖₂ of each row of op(B) in size. Columns that are not finite
// come to light on the way; then x changes and the sweep is made again.
func (f *freivalds[T]) timesB(ctx context.Context) (*sweep[T], error) {
	for {
		var found atomic.Bool
		bad := make([]atomic.Bool, f.p.N)
		s := newSweep(&f.b, f.x)
		s.nonfinite = func(_, j int) { bad[j].Store(true); found.Store(found.Load() || !f.colBad[j]) }
		if err := s.run(ctx); err != nil {
			return nil, err
		}
		if !found.Load() {
			return s, nil
		}
		for j := range bad {
			f.colBad[j] = f.colBad[j] || bad[j].Load()
		}
		f.leaveOut()
	}
}

// leaveOut takes the columns that are not finite out of the vectors.
func (f *freivalds[T]) leaveOut() {
	for j, bad := range f.colBad {
		if bad {
			for _, x := range f.x {
				x[j] = 0
			}
		}
	}
}

// readBias is the bias, with what is not finite noted and replaced by zero.
func (f *freivalds[T]) readBias() []float64 {
	p := f.p
	bias := make([]float64, p.BiasLen())
	p.Out().Load(bias, f.bias)
	bad := f.rowBad
	if p.Epilogue.Bias == gemm.BiasCol {
		bad = f.colBad
	}
	for k, b := range bias {
		if !finite(b) {
			bad[k], bias[k] = true, 0
		}
	}
	f.leaveOut()
	return bias
}

// addBias adds the bias's share to want and size.
func (f *freivalds[T]) addBias(bias []float64) {
	p := f.p
	squares := dot(bias, bias)
	for i := range p.M {
		if p.Epilogue.Bias == gemm.BiasRow {
			squares = float64(p.N) * bias[i] * bias[i]
		}
		f.size[i] += math.Sqrt(squares)
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

// scaleDown divides sizes by a power of two, which it returns, so that the largest is about 1.
func scaleDown(sizes []float64) float64 {
	largest := slices.Max(append(sizes, 0))
	if largest == 0 || !finite(largest) {
		return 1
	}
	_, exp := math.Frexp(largest)
	for k := range sizes {
		sizes[k] = math.Ldexp(sizes[k], -exp)
	}
	return math.Ldexp(1, exp)
}

// check implements checker.
func (f *freivalds[T]) check(ctx context.Context, data []byte) (VerifyReport, error) {
	p, c := f.p, operand{f.p.Layouts[gemm.C], data}
	report := newReport(p, f.opt.Seed)
	expected := 0 // columns that must not be finite
	for _, bad := range f.colBad {
		if bad {
			expected++
		}
	}
	found := make([]int, p.M)         // of those, in each row
	unforeseen := make([][2]int, p.M) // other elements that are not finite, and the first
	s := newSweep(&c, f.x)
	s.nonfinite = func(i, j int) {
		if f.colBad[j] {
			found[i]++
			return
		}
		if u := &unforeseen[i]; u[0] == 0 {
			u[1] = j
		}
		unforeseen[i][0]++
	}
	if err := s.run(ctx); err != nil {
		return report, err
	}
	var first error
	for i := range p.M {
		bad := found[i] + unforeseen[i][0]
		var err error
		switch {
		case f.rowBad[i] && bad < p.N, found[i] < expected, bad < f.oldBad[i]:
			err = fmt.Errorf("%w: row %d of C is finite where an operand is not", gemm.ErrVerify, i)
		case f.rowBad[i] || f.oldBad[i] > 0:
			report.Unsummed++
		case unforeseen[i][0] > 0:
			err = f.overflow(i, unforeseen[i][1], c)
			report.Unsummed++
		default:
			f.residual(&report, i, s.out, s.size[i])
		}
		if first == nil {
			first = err
		}
	}
	if first == nil && report.Worst > 1 && !report.Exact {
		explained, err := f.explained(ctx, report.Row, c)
		if err != nil {
			return report, err
		}
		report.raise(explained)
	}
	if first == nil {
		first = report.err(accepted(p, f.opt.Within), max(f.size[report.Row], s.size[report.Row]))
	}
	return report, first
}

// residual adds row i to the report. C·x is out, and norm that of C's row.
func (f *freivalds[T]) residual(report *VerifyReport, i int, out [][]T, norm float64) {
	limit := f.limits.of(f.size[i], norm)
	if !finite(limit) {
		report.Unsummed++
		return
	}
	var off [Vectors]float64
	for n := range f.x {
		off[n] = magnitude(out[n][i] - f.want[n][i])
	}
	v := Verdict{Row: i, Residual: rootMeanSquare(off[:]), Limit: limit}
	v.Within = f.limits.within(v.ratio(), f.size[i], norm)
	report.add(v)
}

// rootMeanSquare does not overflow.
func rootMeanSquare(values []float64) float64 {
	largest := slices.Max(values)
	if largest == 0 || !finite(largest) {
		return largest
	}
	squares := 0.0
	for _, v := range values {
		squares += (v / largest) * (v / largest)
	}
	return largest * math.Sqrt(squares/float64(len(values)))
}

// overflow computes element (i, j) afresh, to tell whether it should be out of range.
func (f *freivalds[T]) overflow(i, j int, c operand) error {
	p := f.p
	got := c.at(i, j)
	var sum, abs float64
	if p.ReadsAB() {
		for k := range p.K {
			t := f.a.at(i, k) * f.b.at(k, j)
			sum += t
			abs += math.Abs(t)
		}
	}
	// abs before α makes it smaller is what the accumulator may have held.
	held := max(1, math.Abs(p.Alpha))*abs + f.oldSize[i]
	if !(held < p.ScaleType().Info().Max/2) {
		return nil
	}
	bias := make([]float64, p.BiasLen())
	p.Out().Load(bias, f.bias)
	value := p.Alpha*sum + biasAt(p, bias, i, j)
	slack := f.oldSize[i] + gamma(roundings(p, f.opt.Accuracy), f.opt.Accuracy.Roundoff)*(held+math.Abs(value))
	if (overflown(p.Out(), got, value) || overflown(p.Out(), got, -value) && slack > math.Abs(value)) &&
		math.Abs(value)+slack > p.Out().Info().Max {
		return nil
	}
	return fmt.Errorf("%w: C(%d,%d) is %v, where about %.3g is wanted", gemm.ErrVerify, i, j, got, value)
}
