package choose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// Considered is a way to compute a product, or a kernel as a whole, and what became of
// it in a choice.
type Considered struct {
	Kernel string
	Shape  kernel.Tile // zero for a kernel as a whole
	Cycles float64     // predicted; 0 where the kernel predicts nothing
	In     bool        // it is chosen, or one of those to be measured
	Why    string      // the rule that decided, in words
	// rule is Why without figures, where it has some: what a rule says of many ways.
	rule string
}

// Spec names the way as --kernel takes it: "blocked:64x64x8/8x4/4".
func (c Considered) Spec() string {
	if c.Shape == (kernel.Tile{}) {
		return c.Kernel
	}
	return c.Kernel + ":" + c.Shape.String()
}

// List lists every way to compute p, whose matrices are aligned to a, on a device: the fastest
// kernel first, and each kernel's tiles in their order. One is in, the choice of [Best].
func List(p *gemm.Problem, a kernel.Align, d *device.Info) []Considered {
	var all []Considered
	chosen := ""
	for _, k := range slices.Backward(rows) {
		if chosen != "" {
			all = append(all, Considered{Kernel: k.Name, Why: "slower than " + chosen + ", which can compute it"})
			continue
		}
		ways := k.consider(p, a, d)
		if at := firstIn(ways); at >= 0 {
			chosen = k.Name
			for j := range ways {
				ways[j].settle(j == at, ways[at])
			}
		}
		all = append(all, ways...)
	}
	return all
}

// settle says what a choice, which fell on that one, made of c.
func (c *Considered) settle(chosen bool, best Considered) {
	switch {
	case chosen:
		c.Why = "the first in the kernel's order of preference"
		if c.Cycles > 0 {
			c.Why = "predicted to take the fewest cycles"
		}
	case !c.In: // the reason is there
	case c.Cycles > 0 && best.Cycles > 0:
		c.Why = fmt.Sprintf("predicted to take %.2f × the cycles of the chosen one", c.Cycles/best.Cycles)
		c.rule = "predicted to take more cycles than the chosen one"
	default:
		c.Why = "behind the chosen one in the kernel's order of preference"
	}
	c.In = chosen
}

func firstIn(ways []Considered) int {
	return slices.IndexFunc(ways, func(c Considered) bool { return c.In })
}

// consider lists the kernel's ways to compute p, at addresses of that alignment, on a device; those that the device
// can run are in.
func (r *row) consider(p *gemm.Problem, a kernel.Align, d *device.Info) []Considered {
	if err := cmp.Or(r.Runs(p, d), r.Unsuited(p, a, d)); err != nil {
		return []Considered{{Kernel: r.Name, Why: reason(err)}}
	}
	var ways []Considered
	for _, s := range r.ordered(p, d) {
		c := r.For(r.Config(p, s), d.Target)
		way := Considered{Kernel: r.Name, Shape: s, In: true}
		if err := r.CheckDevice(c, p, d); err != nil {
			way.In, way.Why, way.rule = false, reason(err), "more than a thread or a block can have"
		} else if r.predict != nil && !p.Empty() {
			x := r.predict(c, p, d)
			way.Cycles = x.Cycles()
		}
		ways = append(ways, way)
	}
	return ways
}

// reason is an error without its sentinel.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), gemm.ErrUnsupported.Error()+": ")
}

// What is worth measuring, by the rules of [Candidates].
const (
	mostKernels   = 2   // the fastest of the list that can compute the product
	mostSlower    = 1.5 // times the cycles of the kernel's best
	mostPreferred = 8   // of a kernel that predicts nothing
	mostOfSecond  = 3   // of every kernel but the fastest
)

// Candidates is [List] for tuning: what is worth measuring is in, and all
// else has the rule that put it aside. With everything all that the device can run is in.
func Candidates(p *gemm.Problem, a kernel.Align, d *device.Info, everything bool) []Considered {
	var all []Considered
	used := 0
	for _, k := range slices.Backward(rows) {
		if used == mostKernels && !everything {
			all = append(all, Considered{Kernel: k.Name, Why: fmt.Sprintf("%d faster kernels can compute it", mostKernels)})
			continue
		}
		ways := k.consider(p, a, d)
		kept, best := 0, math.Inf(1)
		for j := range ways {
			if w := &ways[j]; w.In {
				if w.Why = "to be measured"; !everything {
					w.prune(kept, used, best)
				}
				if w.In {
					kept, best = kept+1, min(best, w.Cycles)
				}
			}
		}
		if kept > 0 {
			used++
		}
		all = append(all, ways...)
	}
	return all
}

// prune decides about a way that the device can run: so many of the kernel's are in
// already, the best with so many cycles, and so many kernels before it.
func (c *Considered) prune(kept, kernelsBefore int, best float64) {
	switch {
	case c.Cycles > mostSlower*best:
		c.In, c.Why = false, fmt.Sprintf("predicted to take more than %.1f × the cycles of the kernel's best", mostSlower)
	case kernelsBefore > 0 && kept >= mostOfSecond:
		c.In, c.Why = false, fmt.Sprintf("behind %d others of a kernel that is not the fastest", mostOfSecond)
	case c.Cycles == 0 && kept >= mostPreferred:
		c.In, c.Why = false, fmt.Sprintf("behind %d others of a kernel that predicts nothing", mostPreferred)
	}
}

// Reasoning is the list as text, a line for each way, with ways that one rule put aside
// together where there are many.
func Reasoning(all []Considered) string {
	const apart = 4 // of a kernel, before they are counted together
	var lines []string
	for i := 0; i < len(all); {
		c, same := all[i], 1
		if first := slices.IndexFunc(all, func(x Considered) bool { return x.Kernel == c.Kernel }); i >= first+apart {
			for i+same < len(all) && all[i+same].like(c) {
				same++
			}
		}
		cycles := ""
		if c.Cycles > 0 {
			cycles = fmt.Sprintf("%.0f cycles: ", c.Cycles)
		}
		mark := "-"
		if c.In {
			mark = "+"
		}
		line := fmt.Sprintf("%s %-32s %s%s", mark, c.Spec(), cycles, c.Why)
		if same > 1 {
			line = fmt.Sprintf("%s %-32s %s", mark, fmt.Sprintf("%s: %d more", c.Kernel, same), cmp.Or(c.rule, c.Why))
			if last := all[i+same-1]; last.Cycles > 0 {
				line += fmt.Sprintf(", from %.0f to %.0f cycles", c.Cycles, last.Cycles)
			}
		}
		lines = append(lines, line)
		i += same
	}
	return strings.Join(lines, "\n")
}

// like says that one rule put both aside, tiles of one kernel.
func (c Considered) like(other Considered) bool {
	return !c.In && !other.In && c.Kernel == other.Kernel && c.rule == other.rule && (c.rule != "" || c.Why == other.Why)
}
