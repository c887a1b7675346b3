package choose

import (
	"flag"
	"testing"

	"tilework/internal/fit"
)

var (
	fitModel = flag.String("fit", "", "the model, such as h100, whose coefficients TestFit fits")
	fitFrom  = flag.String("from", "", "the model with which TestFit begins; by default that of -fit")
	tries    = flag.Int("tries", 10000, "number of random changes of several coefficients in TestFit")
	every    = flag.Int("every", 1, "TestFit uses one of so many products")
	offset   = flag.Int("offset", 0, "the first product that TestFit uses")
	penalty  = flag.Float64("penalty", Penalty, "cost of a coefficient that TestFit changes")
)

// TestFit fits the coefficients of the model of -fit to the products of TestTimes and prints those
// that changed, and how well they predict products that were not fitted.
func TestFit(t *testing.T) {
	if *fitModel == "" {
		t.Skip("no -fit")
	}
	var files []string
	for _, file := range []string{*fitModel, *fitModel + "-models"} {
		if hasTimes(file) {
			files = append(files, file)
		}
	}
	var all []Timed
	recorded := allRecorded(t, files...)
	for i := *offset; i < len(recorded); i += *every {
		all = append(all, recorded[i].timed())
	}
	from := *fitModel
	if *fitFrom != "" {
		from = *fitFrom
	}
	f, err := Fit(t.Context(), recorded[0].gpu, from, all, fit.Options{Penalty: *penalty, Tries: *tries,
		Progress: func(cost float64) { t.Logf("cost %.4f", cost) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range f.Changed {
		t.Logf("%s: %.4g, was %.4g", n.Name, n.After, n.Before)
	}
	t.Logf("fitted to %d products; others before %+v, after %+v", f.Products, f.Before, f.After)
}

// timed returns the product for a fit. Layers count more, because there are few.
func (x *recorded) timed() Timed {
	const weightOfLayers = 6
	p := Timed{Problem: x.problem, Cycles: map[string]float64{}}
	if x.layer {
		p.Weight = weightOfLayers
	}
	for spec, us := range x.micros {
		p.Cycles[spec] = us * recordedMHz
	}
	return p
}
