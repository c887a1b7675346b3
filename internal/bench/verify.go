package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Verifier prepares the check of results of p: in holds what the product reads,
// with C as it is before the product.
type Verifier func(p *gemm.Problem, in gemm.Buffers) (Check, error)

// Check tells how far a result, C's memory after the product, is off: the largest
// error as a part of what is allowed, so that above 1, or NaN, it is wrong. The
// subject has changed elements of A and B by as much as roundoff, relative to them,
// before it multiplied them.
type Check func(got []byte, roundoff float64) (ratio float64, err error)

// thorough is what verifies where nobody says what should: all of C where that takes less
// than timing the product does, and otherwise 8 rows and columns of it.
func thorough(seed uint64) Verifier {
	const enough = 1 << 24 // multiplications
	return func(p *gemm.Problem, in gemm.Buffers) (Check, error) {
		n := 8
		if float64(p.M)*float64(p.N)*float64(p.K) <= enough {
			n = max(n, p.M)
		}
		return Sampled(n, seed)(p, in)
	}
}

// ofBatch verifies some products of a batch as v does one, and looks for NaN in all. Groups,
// whose B are equal here, are one product.
func ofBatch(v Verifier, seed uint64) Verifier {
	return func(p *gemm.Problem, in gemm.Buffers) (Check, error) {
		switch p.Batch.Kind {
		case gemm.Single:
			return v(p, in)
		case gemm.Grouped:
			one, _ := p.Product(0)
			return v(&one, in)
		}
		const some = 4
		chosen := choose(rand.New(rand.NewPCG(seed, 2)), p.Batch.Count, some)
		checks := make([]Check, len(chosen))
		for i, n := range chosen {
			one, at := p.Product(n)
			var err error
			if checks[i], err = v(&one, gemm.Buffers{A: in.A[at[0]:], B: in.B[at[1]:], C: in.C[at[2]:], Bias: in.Bias}); err != nil {
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
				worst = max(worst, ratio) // NaN wins
			}
			for n := range p.Batch.Count {
				if _, at := p.Product(n); hasNaN(p.C, got[at[2]:]) {
					worst = math.NaN()
				}
			}
			return worst, nil
		}, nil
	}
}

// Sampled verifies n random rows and n random columns of C, all of them where
// there are no more, against sums in twice float64's precision, and looks for NaN
// in the rest. An element may be off by
//
//	γ(k+3)·(|α|·|A|·|B| + |β|·|C| + |bias|) + u·|c|
//
// where γ(n) = n·u′/(1 − n·u′), u′ is the roundoff of the type that is summed in
// and u that of C (Higham, Accuracy and Stability, §3.1); by what an activation
// can make of that; and by what underflow loses. Integers have to be equal, modulo
// 2³².
func Sampled(n int, seed uint64) Verifier {
	return func(p *gemm.Problem, in gemm.Buffers) (Check, error) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var want []element
		rows := choose(rng, p.M, n)
		scaleA, scaleB := p.ScalesOf(&in)
		a, b := factor{p.A, in.A, scaleA}, factor{p.B.T(), in.B, scaleB}
		up := factor{Layout: p.Up.T(), data: in.Extras[gemm.Up]} // of a gated product
		other := make([]sum, p.N*len(rows))
		if p.Epilogue.Gated {
			other = rowSums(p, a, up, rows)
		}
		for at, s := range rowSums(p, a, b, rows) {
			want = append(want, expect(p, in, rows[at%len(rows)], at/len(rows), s, other[at]))
		}
		// A column of C is a row of Cᵀ = op(B)ᵀ·op(A)ᵀ.
		var cols []int
		if len(rows) < p.M {
			cols = choose(rng, p.N, n)
		}
		other = make([]sum, p.M*len(cols))
		if p.Epilogue.Gated {
			other = rowSums(p, up, a, cols)
		}
		for at, s := range rowSums(p, b, a, cols) {
			want = append(want, expect(p, in, at/len(cols), cols[at%len(cols)], s, other[at]))
		}
		c := p.C
		return func(got []byte, roundoff float64) (float64, error) {
			worst := 0.0
			for _, e := range want {
				worst = max(worst, e.ratio(c.Type.At(got, e.index), roundoff)) // NaN wins
			}
			if hasNaN(c, got) {
				worst = math.NaN()
			}
			return worst, nil
		}, nil
	}
}

// element is what one element of C must be, and how far it may be off.
type element struct {
	index       int
	want, bound float64
	products    float64 // by how much more for each unit of the operands' roundoff
	most        float64 // the largest finite value of C's type
}

func (e element) ratio(got, roundoff float64) float64 {
	if got == e.want || e.overflows() && math.IsInf(got, int(math.Copysign(1, e.want))) {
		return 0
	}
	return math.Abs(got-e.want) / (e.bound + roundoff*e.products)
}

// overflows reports whether the element may be an infinity in C's type.
func (e element) overflows() bool { return math.Abs(e.want)+e.bound > e.most }

// sum is a sum of products, hi + lo, and the sum of their magnitudes.
type sum struct{ hi, lo, abs float64 }

// add adds x·y, and to lo what float64 rounds off (Ogita, Rump and Oishi,
// "Accurate sum and dot product", algorithm 5.3).
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

// factor is op(A) or op(B)ᵀ, whose rows lie along K, with its block scales.
type factor struct {
	gemm.Layout
	data   []byte
	scales gemm.BlockScales
}

func (f *factor) at(i, k int) float64 {
	v := f.Type.At(f.data, f.Index(i, k))
	if f.scales.Any() {
		v *= float64(f.scales.At(i, k))
	}
	return v
}

// rowSums computes the given rows of X·Yᵀ: element (rows[s], j) is at j·len(rows) + s. It
// reads Y once, in the order of its memory.
func rowSums(p *gemm.Problem, x, y factor, rows []int) []sum {
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
		if !y.Trans { // a row of Y is one of its memory
			for j := from; j < to; j++ {
				for q := range p.K {
					addProducts(sums[j*n:(j+1)*n], xs[q*n:], y.at(j, q))
				}
			}
			return
		}
		for q := range p.K {
			for j := from; j < to; j++ {
				addProducts(sums[j*n:(j+1)*n], xs[q*n:], y.at(j, q))
			}
		}
	})
	return sums
}

// expect is element (i, j) of C, of the sum s of products and, if p is gated, that of the other one.
func expect(p *gemm.Problem, in gemm.Buffers, i, j int, s, other sum) element {
	acc, out, act := p.ScaleType().Info(), p.C.Type.Info(), p.Epilogue.Activation.Info()
	extra := func(x gemm.Extra, i, j int) float64 {
		l := p.Extra(x)
		return l.Type.At(in.Extras[x], l.Index(i, j))
	}
	terms := float64(p.K) // that are rounded
	if p.Converts() {
		terms = 1 // the conversion
		s, other = wrapped(p, s), wrapped(p, other)
	}
	e := element{index: p.C.Index(i, j), most: out.Max}
	v := p.Alpha * (s.hi + s.lo)
	magnitude := math.Abs(p.Alpha) * s.abs
	if p.Beta != 0 {
		old := p.Beta * p.C.Type.At(in.C, e.index)
		v, magnitude = v+old, magnitude+math.Abs(old)
	}
	up := p.Alpha * (other.hi + other.lo)
	e.want = p.Finish(&in, i, j, v, up)
	if acc.Integer {
		return e
	}
	short := p.A.Type.Size() == 1 && !p.Converts()
	// How much an error of v is magnified, and what is added to it.
	weight, gain, late := 1.0, 1.0, 0.0
	if p.Epilogue.RowScale {
		weight *= math.Abs(extra(gemm.RowScale, 0, i))
	}
	if p.Epilogue.ColScale {
		weight *= math.Abs(extra(gemm.ColScale, 0, j))
	}
	if p.Epilogue.OutScale {
		gain = math.Abs(extra(gemm.OutScale, 0, 0))
	}
	if p.Epilogue.Residual {
		late = math.Abs(extra(gemm.Residual, i, j))
	}
	// Two factors, each off by its roundoff.
	e.products = gain * weight * act.Slope * 2 * math.Abs(p.Alpha) * s.abs
	magnitude *= weight
	switch p.Epilogue.Bias {
	case gemm.BiasRow:
		magnitude += math.Abs(p.C.Type.At(in.Bias, i))
	case gemm.BiasCol:
		magnitude += math.Abs(p.C.Type.At(in.Bias, j))
	}
	k := terms + 3
	for x := range gemm.Extra(gemm.Extras) {
		if p.Has(x) {
			k++
		}
	}
	behind := magnitude // how large the element is behind the activation, at the most
	if p.Epilogue.Gated {
		behind *= math.Abs(p.Alpha) * other.abs
	}
	if p.Epilogue.Residual || p.Epilogue.OutScale { // rounded again there
		e.bound = gain * (2*acc.Roundoff*(late+behind) + acc.Tiny)
	}
	gamma := math.Inf(1)
	if k*acc.Roundoff < 1 {
		gamma = k * acc.Roundoff / (1 - k*acc.Roundoff)
	}
	if p.Epilogue.Activation != gemm.ActNone {
		e.bound += 8 * acc.Roundoff * (math.Abs(e.want) + gain*late) // its own evaluation
	}
	if p.Epilogue.Gated {
		// Each factor is off by its error, and magnifies the other's.
		size := math.Abs(p.Alpha) * other.abs
		off := gamma*size + k*acc.Tiny
		if short {
			off += shortSums * size
		}
		gate := gain * math.Abs(act.F(v))
		e.bound += gate * (off + acc.Roundoff*math.Abs(up))
		e.products = e.products*math.Abs(up) + gate*2*size
		gain *= math.Abs(up) + off
	}
	u64 := dtype.F64.Info().Roundoff // of the reference's own last steps
	e.bound += gain*act.Slope*(gamma*magnitude+k*max(1, weight)*acc.Tiny) +
		(out.Roundoff+4*u64)*math.Abs(e.want) + 4*u64*magnitude + out.Tiny
	if short {
		e.bound += gain * act.Slope * shortSums * magnitude
	}
	return e
}

// wrapped returns an integer sum as the product holds it before it is converted: exactly.
func wrapped(p *gemm.Problem, s sum) sum {
	w := p.Wrapped(s.hi + s.lo)
	return sum{hi: w, abs: math.Abs(w)}
}

// shortSums is what tensor cores leave off that sum up 8-bit floats in 14 bits, 128 of them at the
// least.
const shortSums = 0x1p-12

// choose returns min(n, of) of the numbers below of, in order.
func choose(rng *rand.Rand, of, n int) []int {
	if of <= n {
		all := make([]int, of)
		for i := range all {
			all[i] = i
		}
		return all
	}
	var chosen []int
	for len(chosen) < n {
		if i := rng.IntN(of); !slices.Contains(chosen, i) {
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
		for i := from; i < to; i++ {
			for j := range l.Cols {
				if v := l.Type.At(b, i*l.LD+j); v != v {
					found.Store(true)
					return
				}
			}
		}
	})
	return found.Load()
}
