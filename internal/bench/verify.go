package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Verifier prepares a check of the results of p. in holds the operands, with C as it is before the
// product. It stops early with ctx's error.
type Verifier func(ctx context.Context, p *gemm.Problem, in gemm.Buffers) (Check, error)

// Check returns the largest error of a result divided by its bound. The result is wrong if the
// ratio exceeds 1 or is NaN. got is C's memory after the product. roundoff is the largest relative
// change of an element of A or B by the subject's own rounding.
type Check func(got []byte, roundoff float64) (ratio float64, err error)

// defaultVerifier returns the Verifier for a nil Options.Verify. It checks all of C for small
// problems, and 8 rows and 8 columns of C for others, where checking all of C would take longer
// than timing the product. Of the largest it checks 2 rows and 2 columns, in some seconds.
func defaultVerifier(seed uint64) Verifier {
	const maxMultiplications, maxElements = 1 << 24, 1 << 31
	return func(ctx context.Context, p *gemm.Problem, in gemm.Buffers) (Check, error) {
		n := 8
		switch m, n1, k := float64(p.M), float64(p.N), float64(p.K); {
		case m*n1*k <= maxMultiplications:
			n = max(n, p.M)
		case (m+n1)*k > maxElements:
			n = 2
		}
		return Sampled(n, seed)(ctx, p, in)
	}
}

// batchVerifier returns a Verifier that applies v to some products of a batch and searches all
// products for NaN. It verifies groups, whose B are equal here, as one product.
func batchVerifier(v Verifier, seed uint64) Verifier {
	return func(ctx context.Context, p *gemm.Problem, in gemm.Buffers) (Check, error) {
		switch p.Batch.Kind {
		case gemm.Single:
			return v(ctx, p, in)
		case gemm.Grouped:
			one, _ := p.Product(0)
			return v(ctx, &one, in)
		}
		const some = 4
		chosen := choose(rand.New(rand.NewPCG(seed, 2)), p.Batch.Count, some)
		checks := make([]Check, len(chosen))
		for i, n := range chosen {
			one, at := p.Product(n)
			var err error
			if checks[i], err = v(ctx, &one, gemm.Buffers{gemm.A: in[gemm.A][at[0]:], gemm.B: in[gemm.B][at[1]:],
				gemm.C: in[gemm.C][at[2]:], gemm.Bias: in[gemm.Bias]}); err != nil {
				return nil, err
			}
		}
		return func(got []byte, roundoff float64) (worst float64, err error) {
			for i, n := range chosen {
				_, at := p.Product(n)
				ratio, err := checks[i](got[at[2]:], roundoff)
				if err != nil {
					return 0, err
				}
				worst = max(worst, ratio) // max returns NaN if either is NaN
			}
			for n := range p.Batch.Count {
				if _, at := p.Product(n); hasNaN(p.Layouts[gemm.C], got[at[2]:]) {
					worst = math.NaN()
				}
			}
			return worst, nil
		}, nil
	}
}

// Sampled verifies n random rows and n random columns of C, or all of C if it has no more than
// that, against sums in twice the precision of float64. It searches the rest of C for NaN. The
// bound of an element's error is
//
//	γ(k+3)·(|α|·|A|·|B| + |β|·|C| + |bias|) + u·|c|
//
// where γ(n) = n·u′/(1 − n·u′), u′ is the roundoff of the accumulator type and u the roundoff of
// C's type (Higham, Accuracy and Stability, §3.1). The bound is scaled by the steepest slope of the
// activation and increased by the error of underflow. Integers must be equal modulo 2³².
func Sampled(n int, seed uint64) Verifier {
	return func(ctx context.Context, p *gemm.Problem, in gemm.Buffers) (Check, error) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var want []element
		rows := choose(rng, p.M, n)
		scaleA, scaleB := p.ScalesOf(&in)
		a, b := factor{p.Layouts[gemm.A], in[gemm.A], scaleA}, factor{p.B().T(), in[gemm.B], scaleB}
		up := factor{Layout: p.Layouts[gemm.Up].T(), data: in[gemm.Up]} // only of a gated product
		other := make([]sum, p.N*len(rows))
		if p.Epilogue.Gated {
			other = rowSums(ctx, p, a, up, rows)
		}
		for at, s := range rowSums(ctx, p, a, b, rows) {
			want = append(want, expect(p, in, rows[at%len(rows)], at/len(rows), s, other[at]))
		}
		// A column of C is a row of Cᵀ = op(B)ᵀ·op(A)ᵀ.
		var cols []int
		if len(rows) < p.M {
			cols = choose(rng, p.N, n)
		}
		other = make([]sum, p.M*len(cols))
		if p.Epilogue.Gated {
			other = rowSums(ctx, p, up, a, cols)
		}
		for at, s := range rowSums(ctx, p, b, a, cols) {
			want = append(want, expect(p, in, at/len(cols), cols[at%len(cols)], s, other[at]))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := p.Layouts[gemm.C]
		return func(got []byte, roundoff float64) (float64, error) {
			worst := 0.0
			for _, e := range want {
				worst = max(worst, e.ratio(c.Type.At(got, e.index), roundoff)) // max returns NaN if either is NaN
			}
			if hasNaN(c, got) {
				worst = math.NaN()
			}
			return worst, nil
		}, nil
	}
}

// element is the expected value of one element of C, with the bound of its error.
type element struct {
	index       int
	want, bound float64
	products    float64 // additional error per unit of the operands' roundoff
	max         float64 // largest finite value of C's type
}

func (e element) ratio(got, roundoff float64) float64 {
	if got == e.want || e.overflows() && math.IsInf(got, int(math.Copysign(1, e.want))) {
		return 0
	}
	return math.Abs(got-e.want) / (e.bound + roundoff*e.products)
}

// overflows reports whether the element may be infinite in C's type.
func (e element) overflows() bool { return math.Abs(e.want)+e.bound > e.max }

// sum is a sum of products, hi + lo, with the sum of their magnitudes.
type sum struct{ hi, lo, abs float64 }

// add adds x·y. It adds the rounding errors of float64 to lo (Ogita, Rump and Oishi, "Accurate sum
// and dot product", algorithm 5.3).
func (s *sum) add(x, y float64) {
	p := x * y
	hi := s.hi + p
	z := hi - s.hi
	s.lo += (s.hi - (hi - z)) + (p - z) + math.FMA(x, y, -p)
	s.hi = hi
	s.abs += math.Abs(p)
}

// addProducts adds x[s]·y to each sum s.
func addProducts(sums []sum, x []float64, y float64) {
	for s := range sums {
		sums[s].add(x[s], y)
	}
}

// factor is op(A) or op(B)ᵀ, with K as its columns, and its block scales.
type factor struct {
	gemm.Layout
	data   []byte
	scales gemm.BlockScales
}

// load loads elements of row i, from column k on, or of column k, from row i on if the factor is
// transposed: those that are contiguous in memory.
func (f *factor) load(values []float64, i, k int) {
	f.Type.Load(values, f.data[f.Type.Bytes(f.Index(i, k)):])
	if !f.scales.Any() {
		return
	}
	for n := range values {
		if f.Trans {
			values[n] *= float64(f.scales.At(i+n, k))
		} else {
			values[n] *= float64(f.scales.At(i, k+n))
		}
	}
}

func (f *factor) at(i, k int) float64 {
	v := f.Type.At(f.data, f.Index(i, k))
	if f.scales.Any() {
		v *= float64(f.scales.At(i, k))
	}
	return v
}

// rowSums computes the given rows of X·Yᵀ. Element (rows[s], j) is at index j·len(rows) + s. It
// reads Y once, in memory order. It leaves the sums incomplete if ctx is cancelled.
func rowSums(ctx context.Context, p *gemm.Problem, x, y factor, rows []int) []sum {
	n := len(rows)
	sums := make([]sum, y.OpRows()*n)
	if !p.ReadsAB() {
		return sums
	}
	xs := make([]float64, p.K*n)
	for q := range p.K {
		for s, i := range rows {
			xs[q*n+s] = x.at(i, q)
		}
	}
	parallel(y.OpRows(), func(from, to int) {
		values := make([]float64, loaded)
		if !y.Trans { // rows of Y are contiguous
			for j := from; j < to && ctx.Err() == nil; j++ {
				for q := 0; q < p.K; q += loaded {
					part := values[:min(loaded, p.K-q)]
					y.load(part, j, q)
					for i, v := range part {
						addProducts(sums[j*n:(j+1)*n], xs[(q+i)*n:], v)
					}
				}
			}
			return
		}
		for q := 0; q < p.K && ctx.Err() == nil; q++ {
			for j := from; j < to; j += loaded {
				part := values[:min(loaded, to-j)]
				y.load(part, j, q)
				for i, v := range part {
					addProducts(sums[(j+i)*n:(j+i+1)*n], xs[q*n:], v)
				}
			}
		}
	})
	return sums
}

// loaded is the number of elements that are loaded at a time.
const loaded = 1 << 10

// expect returns the expected element (i, j) of C, given the sum s of its products and, for a gated
// problem, the sum other of the products with Up.
func expect(p *gemm.Problem, in gemm.Buffers, i, j int, s, other sum) element {
	acc, out, act := p.ScaleType().Info(), p.Out().Info(), p.Epilogue.Activation.Info()
	terms := float64(p.K) // rounded terms
	if p.Converts() {
		terms = 1 // the conversion
		s, other = wrapped(p, s), wrapped(p, other)
	}
	e := element{index: p.C().Index(i, j), max: out.Max}
	v := real(p.Alpha) * (s.hi + s.lo)
	magnitude := math.Abs(real(p.Alpha)) * s.abs
	if p.Beta != 0 {
		old := real(p.Beta) * p.Out().At(in[gemm.C], e.index)
		v, magnitude = v+old, magnitude+math.Abs(old)
	}
	up := real(p.Alpha) * (other.hi + other.lo)
	e.want = p.Finish(&in, i, j, v, up)
	if acc.Integer {
		return e
	}
	short := p.In().Bits() == 8 && !p.Converts()
	// weight and gain magnify an error of v before and after the activation; late is added after it.
	operands := p.Magnitudes(&in, i, j)
	weight, gain, late := operands.Scale, operands.Factor, operands.Added
	// Each factor of a product has its own roundoff, hence 2.
	e.products = gain * weight * act.Slope * 2 * math.Abs(real(p.Alpha)) * s.abs
	magnitude = magnitude*weight + operands.Bias
	k := terms + 3
	for o := gemm.Residual; o < gemm.GroupEnds; o++ {
		if o != gemm.Bias && p.Uses(o) {
			k++
		}
	}
	activated := magnitude // bound of the element after the activation
	if p.Epilogue.Gated {
		activated *= math.Abs(real(p.Alpha)) * other.abs
	}
	if n := operands.LateOps; n > 0 { // each rounds once more
		e.bound = gain * (max(2, float64(n))*acc.Roundoff*(late+activated) + acc.Tiny)
	}
	gamma := math.Inf(1)
	if k*acc.Roundoff < 1 {
		gamma = k * acc.Roundoff / (1 - k*acc.Roundoff)
	}
	if p.Epilogue.Activation != gemm.ActNone {
		e.bound += 8 * acc.Roundoff * (math.Abs(e.want) + gain*late) // error of evaluating the activation
	}
	if p.Epilogue.Gated {
		// The error of each factor is magnified by the other factor.
		size := math.Abs(real(p.Alpha)) * other.abs
		off := gamma*size + k*acc.Tiny
		if short {
			off += shortSums * size
		}
		gate := gain * math.Abs(act.F(v))
		e.bound += gate * (off + acc.Roundoff*math.Abs(up))
		e.products = e.products*math.Abs(up) + gate*2*size
		gain *= math.Abs(up) + off
	}
	u64 := dtype.F64.Info().Roundoff // for the last steps of the reference
	e.bound += gain*act.Slope*(gamma*magnitude+k*max(1, weight)*acc.Tiny) +
		(out.Roundoff+4*u64)*math.Abs(e.want) + 4*u64*magnitude + out.Tiny
	if short {
		e.bound += gain * act.Slope * shortSums * magnitude
	}
	return e
}

// wrapped returns an integer sum with the value that the accumulator holds before the conversion.
// It is exact.
func wrapped(p *gemm.Problem, s sum) sum {
	w := p.Wrapped(s.hi + s.lo)
	return sum{hi: w, abs: math.Abs(w)}
}

// shortSums bounds the relative error of tensor cores that accumulate products of 8-bit floats with
// 14 bits. They accumulate 128 products or more in this way.
const shortSums = 0x1p-12

// choose returns min(n, total) different numbers below total in increasing order.
func choose(rng *rand.Rand, total, n int) []int {
	if total <= n {
		all := make([]int, total)
		for i := range all {
			all[i] = i
		}
		return all
	}
	var chosen []int
	for len(chosen) < n {
		if i := rng.IntN(total); !slices.Contains(chosen, i) {
			chosen = append(chosen, i)
		}
	}
	slices.Sort(chosen)
	return chosen
}

func hasNaN(l gemm.Layout, b []byte) bool {
	if l.Type.Info().Integer {
		return false
	}
	var found atomic.Bool
	parallel(l.Rows, func(from, to int) {
		values := make([]float64, loaded)
		for i := from; i < to && !found.Load(); i++ {
			for j := 0; j < l.Cols; j += loaded {
				part := values[:min(loaded, l.Cols-j)]
				l.Type.Load(part, b[l.Type.Bytes(i*l.LD+j):])
				for _, v := range part {
					if v != v {
						found.Store(true)
					}
				}
			}
		}
	})
	return found.Load()
}
