package verify

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"tilework/internal/ref"
)

const (
	// maxColumns limits the columns of a row whose sums are recomputed, and maxTerms their terms in
	// all, but at least minColumns columns are recomputed.
	maxColumns, maxTerms, minColumns = 256, 1 << 24, 8
	// largestColumns is the number of columns chosen for their large elements. The others are
	// chosen at random.
	largestColumns = 32
	// explainedSigmas is [sigmas] with a margin, because the kernel's summation order is unknown.
	explainedSigmas = 1.2 * sigmas
)

// explained returns a threshold for the residual of row i that follows from the row's data. It
// recomputes the sums of some elements in the arithmetic that the kernel declares, and scales their
// errors up to the row. The check calls it when a residual exceeds the threshold for typical data.
// Three kinds of data can explain such a residual: equal terms, which have equal errors; partial
// sums that grow and cancel; and many terms of one sign in a truncating accumulator.
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
	var sums [len(orders) + 1]float64 // squared errors: of each summation order, and of repeated terms
	result := 0.0                     // squared errors of rounding to C's type
	for n, j := range columns {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		var exact ref.DoubleDouble
		repeats, partial, before := 0.0, 0.0, 0.0
		for k := range b {
			b[k] = f.b.at(k, j)
			term := a[k] * b[k]
			exact = exact.Plus(ref.DoubleDouble{High: a[k]}.Times(b[k]))
			partial += math.Abs(exact.High)
			if term == before && term != 0 {
				repeats++
			}
			before = term
		}
		exact = exact.Normalize()
		for o, sum := range KernelSums(acc, p.Accum(), a, b) {
			e := real(p.Alpha) * (sum - exact.High - exact.Low)
			sums[o] += weights[n] * e * e
		}
		// Equal terms have equal errors. Whether these cancel depends on the order, so all of them
		// count in full.
		e := real(p.Alpha) * repeats / float64(p.K) * acc.Roundoff * partial
		sums[len(orders)] += weights[n] * e * e
		value := real(p.Alpha)*exact.High + ref.BiasAt(p, bias, i, j)
		e = p.Out().Round(value) - value
		if p.Beta != 0 { // the old C has been overwritten
			e = p.Out().Info().Roundoff * c.at(i, j)
		}
		result += weights[n] * e * e
	}
	return explainedSigmas*math.Sqrt(slices.Max(sums[:])) +
		min(sigmas, math.Sqrt(float64(p.N)))*math.Sqrt(result) + f.threshold.Min, nil
}

// sample chooses columns of row i. weights[n] is the number of columns that columns[n] represents.
func (f *freivalds[T]) sample(i int, c operand) (columns []int, weights []float64) {
	for j, bad := range f.colBad {
		if !bad {
			columns = append(columns, j)
		}
	}
	most := max(minColumns, min(maxColumns, maxTerms/max(f.p.K, 1)))
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
