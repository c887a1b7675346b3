package bench

import (
	"fmt"
	"math"
	"slices"

	"tilework/dtype"
)

// Class is a class of products whose speed has the same limit.
type Class struct {
	Name string // in a few words
	has  func(r *Record) bool
}

// rowAlignment is the number of bytes that the copies of a GPU require rows to be multiples of.
const rowAlignment = 16

const (
	smallFlops = 1e8  // below it, starting the product takes most of the time
	largeFlops = 1e10 // from here on, arithmetic does
)

// classes partitions the products: each product has the first class that has it.
var classes = []Class{
	{"below 0.1 GFLOP", func(r *Record) bool { return r.Flops() < smallFlops }},
	{"from 0.1 GFLOP, unaligned rows", func(r *Record) bool { return !r.aligned() }},
	{"0.1 to 10 GFLOP, aligned rows", func(r *Record) bool { return r.Flops() < largeFlops }},
	{"from 10 GFLOP, aligned rows", func(*Record) bool { return true }},
}

// class returns the index of the record's class in classes.
func (r *Record) class() int {
	return slices.IndexFunc(classes, func(c Class) bool { return c.has(r) })
}

// aligned reports whether the rows of A, B and C are multiples of rowAlignment bytes.
func (r *Record) aligned() bool {
	in, errIn := dtype.Parse(r.In)
	out, errOut := dtype.Parse(r.Out)
	return errIn == nil && errOut == nil && r.LDA*in.Size()%rowAlignment == 0 && r.LDB*in.Size()%rowAlignment == 0 &&
		r.LDC*out.Size()%rowAlignment == 0
}

// ClassSummary compares a subject with a peer over the cases of a class.
type ClassSummary struct {
	Class  *Class
	Cases  int
	Slower int     // cases whose speed is below 1
	Mean   float64 // geometric, of the speeds over the peer
	Worst  float64 // speed over the peer
	Rate   float64 // median, in GFLOP/s
	Peak   float64 // median, in percent of the device's peak; 0 if it is unknown
}

// classCases collects the cases of a class.
type classCases struct{ speeds, rates, peaks []float64 }

func (c *classCases) add(r *Record, speed float64) {
	c.speeds = append(c.speeds, speed)
	if rate, ok := r.Rate(); ok {
		c.rates = append(c.rates, rate)
	}
	if percent, known := r.PercentOfPeak(); known {
		c.peaks = append(c.peaks, percent)
	}
}

func (c *classCases) summary(of *Class) ClassSummary {
	s := ClassSummary{Class: of, Cases: len(c.speeds), Worst: slices.Min(c.speeds), Rate: median(c.rates),
		Peak: median(c.peaks)}
	for _, speed := range c.speeds {
		s.Mean += math.Log(speed)
		if speed < 1 {
			s.Slower++
		}
	}
	s.Mean = math.Exp(s.Mean / float64(s.Cases))
	return s
}

// String returns the summary in a line.
func (s ClassSummary) String() string {
	text := fmt.Sprintf("%s: geometric mean %.3f, slower in %d of %d, worst %.3f; median %.4g GFLOP/s", s.Class.Name,
		s.Mean, s.Slower, s.Cases, s.Worst, s.Rate)
	if s.Peak > 0 {
		text += fmt.Sprintf(", %.3g %% of the peak", s.Peak)
	}
	return text
}

// median returns the median of values in any order, or 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return quantile(slices.Sorted(slices.Values(values)), 0.5)
}

// summarizeClasses returns a summary for each class with cases.
func summarizeClasses(cases []classCases) (all []ClassSummary) {
	for i := range cases {
		if len(cases[i].speeds) > 0 {
			all = append(all, cases[i].summary(&classes[i]))
		}
	}
	return all
}
