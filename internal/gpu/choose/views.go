package choose

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// compare orders candidates by predicted time, rejected ones last.
func compare(x, y Candidate) int {
	switch {
	case x.Rejected == nil && y.Rejected == nil:
		return cmp.Compare(x.Cycles, y.Cycles)
	case x.Rejected == nil:
		return -1
	case y.Rejected == nil:
		return 1
	}
	return 0
}

// ranked returns the candidates of each kernel by predicted time, and the kernels by their
// fastest.
func ranked(all []Candidate) []Candidate {
	var kernels [][]Candidate
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Kernel == all[0].Kernel {
			n++
		}
		group := slices.Clone(all[:n])
		slices.SortStableFunc(group, compare)
		kernels, all = append(kernels, group), all[n:]
	}
	slices.SortStableFunc(kernels, func(x, y []Candidate) int { return compare(x[0], y[0]) })
	return slices.Concat(kernels...)
}

// Considered returns the candidates ranked, with the choice of [Best] first and all others
// rejected.
func Considered(all []Candidate) []Candidate {
	all = ranked(all)
	for i := range all {
		if c := &all[i]; i > 0 && c.Rejected == nil {
			c.Rejected = slower(c.Cycles / all[0].Cycles)
		}
	}
	return all
}

// Near returns the candidates whose predicted time is at most ratio times that of the fastest, the
// fastest first.
func Near(all []Candidate, ratio float64) []Candidate {
	best := Fastest(all)
	near := slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool {
		return c.Rejected != nil || c.Cycles > ratio*best.Cycles
	})
	slices.SortStableFunc(near, compare)
	return near
}

// mostTrials is the number of candidates that repeated calls try besides the choice. With the
// coefficients of an A100 on an H200, the fastest of 5 and the choice loses 0.2 % against all
// candidates with the order of the choice.
const mostTrials = 5

// Trials returns the candidates that repeated calls of a product try besides its choice, the
// fastest first. All must have the bits of the choice.
func Trials(choice *Choice, all []Candidate) []Candidate {
	others := slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool {
		return c.Rejected != nil || c.Cycles > measuredRatio*choice.Cycles || c.Spec() == choice.Spec()
	})
	slices.SortStableFunc(others, compare)
	return others[:min(len(others), mostTrials)]
}

// slower is the rejection of a candidate: its predicted time divided by that of the chosen one.
type slower float64

func (s slower) Error() string {
	return fmt.Sprintf("predicted to take %.2f × the cycles of the chosen one", float64(s))
}

// The candidates that are worth measuring. Predictions of one kernel's tiles are closer than those
// of different kernels, so that a few tiles of the second kernel are measured in any case.
const (
	measuredRatio  = 1.5 // times the cycles of the kernel's fastest
	measuredFirst  = 36  // candidates of the kernel that is predicted to be the fastest
	measuredSecond = 3   // candidates of the next kernel
)

// Measurable returns the candidates ranked, with those rejected that tuning need not measure.
func Measurable(all []Candidate) []Candidate {
	all = ranked(all)
	limits := []int{measuredFirst, measuredSecond, 0} // of the kernel and of those after it
	kept, best := 0, 0.0
	for i := range all {
		c := &all[i]
		if i == 0 || c.Kernel != all[i-1].Kernel {
			kept, best = 0, c.Cycles
			if i > 0 && len(limits) > 1 {
				limits = limits[1:]
			}
		}
		limit := limits[0]
		switch {
		case c.Rejected != nil:
		case limit == 0:
			c.Rejected = errors.New("two other kernels are predicted to be faster")
		case kept == limit:
			c.Rejected = fmt.Errorf("%d others of the kernel are predicted to be faster", limit)
		case c.Cycles > measuredRatio*best:
			c.Rejected = fmt.Errorf("predicted to take more than %.1f × the cycles of the kernel's fastest", measuredRatio)
		default:
			kept++
		}
	}
	return all
}

// Reasoning returns the ranked candidates as text, a line for each. Further candidates of a kernel
// that one rule rejected share a line.
func Reasoning(all []Candidate) string {
	var lines []string
	listed := 0 // lines of the kernel
	for i := 0; i < len(all); {
		c, same := all[i], 1
		if i > 0 && c.Kernel != all[i-1].Kernel {
			listed = 0
		}
		most := 1
		if c.Kernel == all[0].Kernel {
			most = 4
		}
		for listed >= most && i+same < len(all) && c.shares(all[i+same]) {
			same++
		}
		lines = append(lines, describe(all[i:i+same]))
		listed++
		i += same
	}
	return strings.Join(lines, "\n")
}

// describe returns the line for candidates that share it.
func describe(same []Candidate) string {
	c, last := same[0], same[len(same)-1]
	if len(same) > 1 {
		line := fmt.Sprintf("- %-32s %s", fmt.Sprintf("%s: %d more", c.Kernel.Name, len(same)), c.rule())
		if last.Cycles > 0 {
			line += fmt.Sprintf(", from %.0f to %.0f cycles", c.Cycles, last.Cycles)
		}
		return line
	}
	mark, why := "-", ""
	if c.Cycles > 0 {
		why = fmt.Sprintf("%.0f cycles: ", c.Cycles)
	}
	if c.Rejected == nil {
		mark = "+"
		why += c.prediction.String()
	} else {
		why += reason(c.Rejected)
	}
	return fmt.Sprintf("%s %-32s %s", mark, c.Spec(), why)
}

// shares reports whether one rule rejected two candidates of a kernel.
func (c Candidate) shares(x Candidate) bool {
	return c.Kernel == x.Kernel && c.Rejected != nil && x.Rejected != nil && c.rule() == x.rule()
}

// rule returns the reason for a rejection without figures.
func (c Candidate) rule() string {
	var s slower
	var o *otherOrder
	switch {
	case errors.As(c.Rejected, &s):
		return "predicted to take more cycles than the chosen one"
	case errors.As(c.Rejected, &o):
		return "their order of summation is another one"
	case errors.Is(c.Rejected, gemm.ErrUnsupported) && c.Config.Tile != (kernel.Tile{}):
		return "more than a thread, a block or a grid can have"
	}
	return reason(c.Rejected)
}

// reason returns the text of an error without its sentinel.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), gemm.ErrUnsupported.Error()+": ")
}
