package choose

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tilework/internal/gpu/kernel"
)

var tries = flag.Int("tries", 10000, "number of random changes of several coefficients in TestFit")

var fitted = flag.String("fit", "", "kernels whose coefficients TestFit fits, such as skinny,blocked; machine is for "+
	"the coefficients that they share")

// TestFit fits the coefficients of the kernels of -fit to the products of TestTimes, in the rows
// of an H200 and an H100, and prints those that changed. It changes one coefficient at a time, as
// long as that improves the fit, and then several at random.
func TestFit(t *testing.T) {
	if *fitted == "" {
		t.Skip("no -fit")
	}
	all := allRecorded(t)
	var fields []coefficient
	for _, row := range []*coefficients{&h200, &h100} {
		var own []coefficient
		for _, name := range strings.Split(*fitted, ",") {
			v := reflect.ValueOf(row).Elem().FieldByName(name)
			if !v.IsValid() {
				t.Fatalf("-fit %s: no such kernel", name)
			}
			own = appendFields(own, name, v)
		}
		if fields == nil {
			fields = own
			continue
		}
		for i := range own {
			if *own[i].values[0] == fields[i].before { // the rows share the coefficient
				fields[i].values = append(fields[i].values, own[i].values...)
			} else {
				own[i].name = "h100." + own[i].name
				fields = append(fields, own[i])
			}
		}
	}
	var products []*fittedProduct
	for _, x := range all {
		products = append(products, newFitted(x, strings.Split(*fitted, ",")))
	}
	cost := func() float64 {
		sum, weights := 0.0, 0.0
		for _, x := range products {
			sum, weights = sum+x.weight*x.cost(), weights+x.weight
		}
		return sum / weights
	}
	best := cost()
	t.Logf("%d coefficients, cost %.4f", len(fields), best)
	for improved := true; improved; {
		improved = false
		for _, f := range fields {
			for _, factor := range []float64{0.7, 0.9, 0.97, 1.03, 1.1, 1.4} {
				before := *f.values[0]
				f.set(before * factor)
				if c := cost(); c < best-1e-5 {
					best, improved = c, true
				} else {
					f.set(before)
				}
			}
		}
		t.Logf("cost %.4f", best)
	}
	// Coefficients that compensate each other improve the fit only together. Those without influence
	// on any product are not changed.
	known := slices.DeleteFunc(slices.Clone(fields), func(f coefficient) bool {
		before := *f.values[0]
		defer f.set(before)
		f.set(before / 2)
		return cost() == best
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for range *tries {
		const together, most = 3, 0.2
		var changed [together]*coefficient
		var before [together]float64
		for i := range changed {
			changed[i] = &known[rng.IntN(len(known))]
			before[i] = *changed[i].values[0]
			changed[i].set(before[i] * math.Exp(most*(2*rng.Float64()-1)))
		}
		if c := cost(); c < best-1e-6 {
			best = c
			continue
		}
		for i := range changed {
			k := together - 1 - i // in reverse, for one coefficient may be changed twice
			changed[k].set(before[k])
		}
	}
	t.Logf("cost %.4f after %d random changes", best, *tries)
	for _, f := range fields {
		if now := *f.values[0]; now != f.before {
			t.Logf("%s: %.4g, was %.4g", f.name, now, f.before)
		}
	}
}

// fittedProduct is a product with its measured candidates.
type fittedProduct struct {
	*recorded
	weight     float64
	job        *job
	candidates []Candidate
	rows       []*row // of the candidates; nil for those of kernels that are not fitted
}

func newFitted(x *recorded, kernels []string) *fittedProduct {
	f := &fittedProduct{recorded: x, weight: 1, job: newJob(&x.problem, kernel.Align{}, x.gpu)}
	const large, weightOfLarge = 2e11, 5 // few products are as large, and their times matter most
	if x.problem.Flops() >= large {
		f.weight = weightOfLarge
	}
	for _, r := range rows {
		fits := r
		if !slices.Contains(kernels, r.Name) && !slices.Contains(kernels, "machine") {
			fits = nil
		}
		for _, c := range CandidatesOf(r.Kernel, &x.problem, kernel.Align{}, x.gpu) {
			if _, ok := x.micros[c.Spec()]; ok && c.Rejected == nil {
				f.candidates, f.rows = append(f.candidates, c), append(f.rows, fits)
			}
		}
	}
	return f
}

// cost returns the mean square error of the predictions, in logarithms, plus the loss of the
// choice, whose part above a tenth counts four times.
func (f *fittedProduct) cost() float64 {
	square, first, loss := 0.0, math.Inf(1), 0.0
	for i := range f.candidates {
		c, us := &f.candidates[i], f.micros[f.candidates[i].Spec()]
		if r := f.rows[i]; r != nil {
			r.estimate(c, f.job)
		}
		l := math.Log(c.Cycles / recordedMHz / us)
		square += l * l
		if c.Cycles < first {
			first, loss = c.Cycles, us/f.least-1
		}
	}
	return square/float64(max(len(f.candidates), 1)) + loss + 3*max(loss-0.1, 0)
}

// coefficient is a number that TestFit changes, in all rows that have it.
type coefficient struct {
	name   string
	values []*float64
	before float64
}

func (c *coefficient) set(x float64) {
	for _, v := range c.values {
		*v = x
	}
}

// appendFields appends the numbers in v that are not 0.
func appendFields(list []coefficient, name string, v reflect.Value) []coefficient {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			list = appendFields(list, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			list = appendFields(list, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.Float64:
		if p := (*float64)(v.Addr().UnsafePointer()); *p != 0 {
			list = append(list, coefficient{name, []*float64{p}, *p})
		}
	}
	return list
}
