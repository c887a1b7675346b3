package ref

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// sampledColumns is the most columns of a row in which its sums are repeated, and sampledTerms
	// the most terms that these have together, unless that is fewer than leastColumns columns.
	sampledColumns, sampledTerms, leastColumns = 256, 1 << 24, 8
	// largestColumns is the number of columns that are chosen for their large elements. The others
	// are random.
	largestColumns = 32
	// explainedSigmas is [sigmas] with a margin: the kernel's own order of summation is unknown.
	explainedSigmas = 1.2 * sigmas
)

// explained returns a threshold for the residual of row i that is derived from the row's own
// data: the sums of some of its elements are repeated in the arithmetic that the kernel declares,
// and the errors of these scaled up to the row. It is for rows whose residual exceeds the
// threshold for typical data. Equal terms, whose errors are equal too, partial sums that grow and
// cancel, and many terms of one sign that a truncating accumulator cuts off can explain that.
func (f *freivalds[T]) explained(ctx context.Context, i int, c operand) (float64, error) {
	p, acc := f.p, f.opt.Accuracy
	if !p.ReadsAB() {
		return 0, nil
	}
	a, b := make([]float64, p.K), make([]float64, p.K)
	for k := range a {
		a[k] = f.a.at(i, k)
	}
	bias := make([]float64, p.BiasLen())
	p.Out().Load(bias, f.bias)
	columns, weights := f.sample(i, c)
	var sums [len(orders) + 1]float64 // squares of the errors, in each order and of repeated terms
	result := 0.0                     // and of those of rounding to C's type
	for n, j := range columns {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		var exact twice
		repeats, partial, before := 0.0, 0.0, 0.0
		for k := range b {
			b[k] = f.b.at(k, j)
			term := a[k] * b[k]
			exact = exact.plus(twice{high: a[k]}.times(b[k]))
			partial += math.Abs(exact.high)
			if term == before && term != 0 {
				repeats++
			}
			before = term
		}
		exact = exact.normal()
		for o, sum := range KernelSums(acc, p.Accum(), a, b) {
			e := p.Alpha * (sum - exact.high - exact.low)
			sums[o] += weights[n] * e * e
		}
		// Equal terms make equal errors. Their sum depends on the order by chance, so that all of them
		// count in full.
		e := p.Alpha * repeats / float64(p.K) * acc.Roundoff * partial
		sums[len(orders)] += weights[n] * e * e
		value := p.Alpha*exact.high + biasAt(p, bias, i, j)
		e = p.Out().Round(value) - value
		if p.Beta != 0 { // the old C is gone
			e = p.Out().Info().Roundoff * c.at(i, j)
		}
		result += weights[n] * e * e
	}
	return explainedSigmas*math.Sqrt(slices.Max(sums[:])) +
		min(sigmas, math.Sqrt(float64(p.N)))*math.Sqrt(result) + f.limits.Least, nil
}

// sample chooses columns of row i, and the number of columns that each stands for.
func (f *freivalds[T]) sample(i int, c operand) (columns []int, weights []float64) {
	for j, bad := range f.colBad {
		if !bad {
			columns = append(columns, j)
		}
	}
	most := max(leastColumns, min(sampledColumns, sampledTerms/max(f.p.K, 1)))
	if len(columns) <= most {
		return columns, slices.Repeat([]float64{1}, len(columns))
	}
	row := make([]float64, f.p.N)
	for j := range row {
		row[j] = math.Abs(c.at(i, j))
	}
	slices.SortFunc(columns, func(j, k int) int {
		switch {
		case row[j] > row[k]:
			return -1
		case row[j] < row[k]:
			return 1
		}
		return j - k
	})
	largest := min(largestColumns, most/2)
	others := columns[largest:]
	rng := rand.New(rand.NewPCG(f.opt.Seed, 1))
	rng.Shuffle(len(others), func(j, k int) { others[j], others[k] = others[k], others[j] })
	weights = slices.Repeat([]float64{float64(len(others)) / float64(most-largest)}, most)
	for n := range largest {
		weights[n] = 1
	}
	return columns[:most], weights
}
