package testkit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
)

// Coefficient is a number that [Fit] changes, in all places that share it.
type Coefficient struct {
	Name   string
	Values []*float64
	Before float64 // before the fit
}

// Set sets the number.
func (c *Coefficient) Set(x float64) {
	for _, v := range c.Values {
		*v = x
	}
}

// Coefficients returns the numbers in v that are not 0. v must be addressable. Their names begin
// with name.
func Coefficients(name string, v reflect.Value) []Coefficient {
	return appendCoefficients(nil, name, v)
}

func appendCoefficients(list []Coefficient, name string, v reflect.Value) []Coefficient {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			list = appendCoefficients(list, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			list = appendCoefficients(list, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.Float64:
		if p := (*float64)(v.Addr().UnsafePointer()); *p != 0 {
			list = append(list, Coefficient{name, []*float64{p}, *p})
		}
	}
	return list
}

// Fit changes the coefficients so that cost falls. It changes one at a time as long as that
// improves the fit, and then several at random, tries times. It reports its progress and the
// changes with logf.
func Fit(fields []Coefficient, cost func() float64, tries int, logf func(format string, args ...any)) {
	best := cost()
	logf("%d coefficients, cost %.4f", len(fields), best)
	for improved := true; improved; {
		improved = false
		for _, f := range fields {
			for _, factor := range []float64{0.7, 0.9, 0.97, 1.03, 1.1, 1.4} {
				before := *f.Values[0]
				f.Set(before * factor)
				if c := cost(); c < best-1e-5 {
					best, improved = c, true
				} else {
					f.Set(before)
				}
			}
		}
		logf("cost %.4f", best)
	}
	// Coefficients that compensate each other improve the fit only together. Those without influence
	// are not changed.
	known := slices.DeleteFunc(slices.Clone(fields), func(f Coefficient) bool {
		before := *f.Values[0]
		defer f.Set(before)
		f.Set(before / 2)
		return cost() == best
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for range tries {
		const together = 3
		most := 0.3 * math.Pow(rng.Float64(), 3) // mostly small changes, some large ones
		var changed [together]*Coefficient
		var before [together]float64
		for i := range changed {
			changed[i] = &known[rng.IntN(len(known))]
			before[i] = *changed[i].Values[0]
			changed[i].Set(before[i] * math.Exp(most*(2*rng.Float64()-1)))
		}
		if c := cost(); c < best-1e-6 {
			best = c
			continue
		}
		for i := range changed {
			k := together - 1 - i // in reverse, for one coefficient may be changed twice
			changed[k].Set(before[k])
		}
	}
	logf("cost %.4f after %d random changes", best, tries)
	for _, f := range fields {
		if now := *f.Values[0]; now != f.Before {
			logf("%s: %.4g, was %.4g", f.Name, now, f.Before)
		}
	}
}
