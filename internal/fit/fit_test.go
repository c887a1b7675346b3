package fit

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"

	"tilework/internal/testkit"
)

// costs are numbers of a model.
type costs struct {
	rate   float64
	waits  [2]float64
	nested struct{ unused float64 }
	none   float64
	fitted bool // no number
}

func newCosts() *costs {
	return &costs{rate: 10, waits: [2]float64{3, 5}, nested: struct{ unused float64 }{7}, fitted: true}
}

// distance is 0 for a rate of 17 and waits of 3 and 1.25.
func (c *costs) distance() float64 {
	sum := 0.0
	for _, r := range []float64{c.rate / 17, c.waits[0] / 3, c.waits[1] / 1.25} {
		sum += math.Log(r) * math.Log(r)
	}
	return sum
}

func numbersOf(c *costs) []Number { return Numbers("", reflect.ValueOf(c).Elem()) }

// TestMinimize checks that the numbers that matter are found, and that the others keep their base.
func TestMinimize(t *testing.T) {
	c := newCosts()
	numbers := numbersOf(c)
	improved := 0
	o := Options{Penalty: 1e-3, Tries: 2000, Progress: func(float64) { improved++ }}
	if err := Minimize(t.Context(), numbers, c.distance, o); err != nil {
		t.Fatal(err)
	}
	if math.Abs(c.rate-17) > 0.5 || math.Abs(c.waits[1]-1.25) > 0.05 || improved < 2 {
		t.Errorf("after %d improvements %+v", improved, c)
	}
	if c.waits[0] != 3 || c.nested.unused != 7 || c.none != 0 {
		t.Errorf("%+v: numbers that need no change are changed", c)
	}
	var names []string
	for _, n := range numbers {
		if n.Changed() {
			names = append(names, n.Name)
		}
		if n.Value() != rounded(n.Value()) {
			t.Errorf("%s is %v: want four digits", n.Name, n.Value())
		}
	}
	if want := []string{"rate", "waits[1]"}; !reflect.DeepEqual(names, want) {
		t.Errorf("changed %v, want %v", names, want)
	}
	again := newCosts()
	if err := Minimize(t.Context(), numbersOf(again), again.distance, o); err != nil || *again != *c {
		t.Errorf("the same fit gives %+v, and then %+v, %v", c, again, err)
	}
}

// TestPenalty checks that a number that buys less than the penalty returns to its base.
func TestPenalty(t *testing.T) {
	c := newCosts()
	numbers := numbersOf(c)
	c.waits[0] = 3.3 // changed before
	if err := Minimize(t.Context(), numbers, c.distance, Options{Penalty: 10}); err != nil || *c != *newCosts() {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestNaN checks that a cost that is not a number ends, and changes nothing.
func TestNaN(t *testing.T) {
	c := newCosts()
	if err := Minimize(t.Context(), numbersOf(c), math.NaN, Options{Tries: 20}); err != nil || *c != *newCosts() {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestCancelled ends a fit at each of its steps. The numbers are then no worse than before.
func TestCancelled(t *testing.T) {
	testkit.CancelEverywhere(60, func(ctx *testkit.CountdownContext) {
		c := newCosts()
		before := c.distance()
		err := Minimize(ctx, numbersOf(c), c.distance, Options{Tries: 20})
		if ctx.Ended() != errors.Is(err, context.Canceled) || c.distance() > before*1.001 {
			t.Errorf("error %v, %+v", err, c)
		}
	})
}
