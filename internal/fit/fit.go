// Package fit changes the numbers of a model so that its predictions come close to measurements.
package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
)

// Number is a number of a model.
type Number struct {
	Name string
	Base float64 // before any fit
	at   *float64
}

// Value returns the number.
func (n *Number) Value() float64 { return *n.at }

// Changed reports whether the number is another one than before any fit.
func (n *Number) Changed() bool { return *n.at != n.Base }

// Numbers returns the numbers in v, which must be addressable. Their names begin with name.
func Numbers(name string, v reflect.Value) []Number { return appendNumbers(nil, name, v) }

func appendNumbers(list []Number, name string, v reflect.Value) []Number {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			if name != "" {
				field = name + "." + field
			}
			list = appendNumbers(list, field, v.Field(i))
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			list = appendNumbers(list, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.Float64:
		at := (*float64)(v.Addr().UnsafePointer())
		list = append(list, Number{name, *at, at})
	}
	return list
}

// Options control [Minimize].
type Options struct {
	// Penalty is the cost of a changed number; a number changed by a factor of 2 costs three times
	// as much. Numbers that lower the cost by less keep their base.
	Penalty float64
	// Tries is the number of random changes of three numbers, after the changes of one.
	Tries int
	// Progress, if not nil, is called with the cost of each improvement, penalties included.
	Progress func(cost float64)
}

// Minimize multiplies the numbers by factors so that cost falls. It changes one at a time as long
// as that helps, and then three at a time at random, in each run with the same random numbers. When
// ctx ends, the numbers keep the best values found, and Minimize returns the error of ctx. Changed
// numbers have four significant digits.
func Minimize(ctx context.Context, numbers []Number, cost func() float64, o Options) error {
	m := minimizer{numbers: numbers, cost: cost, Options: o}
	m.best = m.total()
	m.alone(ctx)
	m.together(ctx)
	for i := range numbers {
		if n := &numbers[i]; n.Changed() {
			*n.at = rounded(*n.at)
		}
	}
	return ctx.Err()
}

// rounded returns x with four significant digits.
func rounded(x float64) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	if err != nil {
		panic(err)
	}
	return x
}

type minimizer struct {
	Options
	numbers []Number
	cost    func() float64
	best    float64
}

// total returns the cost with penalties.
func (m *minimizer) total() float64 {
	penalties := 0.0
	for i := range m.numbers {
		if n := &m.numbers[i]; n.Changed() {
			d := math.Log2(n.Value() / n.Base)
			penalties += 1 + 2*d*d
		}
	}
	return m.cost() + m.Penalty*penalties
}

// keeps reports whether the numbers are better than the best so far, by more than the least gain.
func (m *minimizer) keeps(least float64) bool {
	c := m.total()
	if !(c < m.best-least) { // NaN is no improvement
		return false
	}
	m.best = c
	if m.Progress != nil {
		m.Progress(c)
	}
	return true
}

// alone changes one number at a time, also back to its base, as long as that improves the fit.
func (m *minimizer) alone(ctx context.Context) {
	const least = 1e-5
	for improved := true; improved; {
		improved = false
		for i := range m.numbers {
			n := &m.numbers[i]
			try := func(x float64) {
				before := n.Value()
				if *n.at = x; x == before || !m.keeps(least) {
					*n.at = before
				} else {
					improved = true
				}
			}
			for _, factor := range []float64{0.7, 0.9, 0.97, 1.03, 1.1, 1.4} {
				if ctx.Err() != nil {
					return
				}
				try(n.Value() * factor)
			}
			try(n.Base)
		}
	}
}

// together changes several numbers at random, because some improve the fit only together. Numbers
// without influence are left out.
func (m *minimizer) together(ctx context.Context) {
	const most, least = 3, 1e-6 // numbers at a time, and gain
	now := m.cost()
	known := slices.DeleteFunc(slices.Clone(m.numbers), func(n Number) bool {
		before := n.Value()
		defer func() { *n.at = before }()
		*n.at = before / 2
		return m.cost() == now
	})
	if len(known) == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range m.Tries {
		if ctx.Err() != nil {
			return
		}
		reach := 0.3 * math.Pow(rng.Float64(), 3) // mostly small changes, some large ones
		var changed [most]*Number
		var before [most]float64
		for i := range changed {
			changed[i] = &known[rng.IntN(len(known))]
			before[i] = changed[i].Value()
			*changed[i].at = before[i] * math.Exp(reach*(2*rng.Float64()-1))
		}
		if m.keeps(least) {
			continue
		}
		for i := range slices.Backward(changed[:]) { // in reverse, for one may be changed twice
			*changed[i].at = before[i]
		}
	}
}
