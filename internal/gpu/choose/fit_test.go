package choose

import (
	"flag"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
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
	all := allRecorded(t, "h100", "h200", "h200-models")
	var fields []testkit.Coefficient
	for _, row := range []*coefficients{&h200, &h100} {
		var own []testkit.Coefficient
		for _, name := range strings.Split(*fitted, ",") {
			v := reflect.ValueOf(row).Elem().FieldByName(name)
			if !v.IsValid() {
				t.Fatalf("-fit %s: no such kernel", name)
			}
			own = append(own, testkit.Coefficients(name, v)...)
		}
		if fields == nil {
			fields = own
			continue
		}
		for i := range own {
			if own[i].Before == fields[i].Before { // the rows share the coefficient
				fields[i].Values = append(fields[i].Values, own[i].Values...)
			} else {
				own[i].Name = "h100." + own[i].Name
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
	testkit.Fit(fields, cost, *tries, t.Logf)
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
	const weightOfLayers = 6 // they are a twelfth of the products
	if x.layer {
		f.weight *= weightOfLayers
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
