package model

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"tilework/internal/phrase"
)

// Text returns [Occupancy.Summary] followed by [Occupancy.Advice], for readers who know threads and
// blocks.
func (o *Occupancy) Text() string { return o.Summary() + o.Advice() }

// Summary returns the needs of the block, the limits of the SM, the number of blocks that each
// resource allows, and the resource that binds.
func (o *Occupancy) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A block of %s,\non %s.\n\n", o.Launch, o.Arch.describe())

	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, limit := range o.Limits {
		mark := ""
		if limit.Blocks == o.Blocks {
			mark = "← binds"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", limit.Resource, phrase.Count(limit.Blocks, "block"), mark, limit.Why)
	}
	w.Flush() // a strings.Builder does not fail

	binding := make([]string, len(o.Binding))
	for i, r := range o.Binding {
		binding[i] = string(r)
	}
	fmt.Fprintf(&b, "\n%s per SM, bound by %s: %s of %s, occupancy %s.\n",
		phrase.Count(o.Blocks, "block"), strings.Join(binding, " and "),
		phrase.Count(o.Threads, "thread"), phrase.Commas(o.Arch.MaxThreadsPerSM), percent(o.Fraction))
	if o.WarpFraction != o.Fraction {
		fmt.Fprintf(&b, "NVIDIA's tools count warps: %s of %s, %s. The last warp of each block has %s of %d.\n",
			phrase.Commas(o.Warps), phrase.Commas(o.Arch.MaxWarpsPerSM()), percent(o.WarpFraction),
			phrase.Count(o.Launch.Threads%o.Arch.WarpSize, "thread"), o.Arch.WarpSize)
	}
	return b.String()
}

// percent formats a fraction with four digits, such as "78.12 %". Only 1 is "100 %".
func percent(part float64) string {
	text := fmt.Sprintf("%.4g", 100*part)
	if part < 1 && text == "100" {
		text = "99.99"
	}
	return text + " %"
}

// Advice returns a sentence on whether a second block fits, and which single change would make it
// fit.
func (o *Occupancy) Advice() string {
	if o.Blocks >= 2 {
		return "While one block waits at a barrier, another can work.\n"
	}
	var changes []string
	for _, limit := range o.Limits {
		most, ok := o.Arch.Largest(o.Launch, limit.Resource, 2)
		if !ok {
			continue
		}
		switch limit.Resource {
		case Threads:
			changes = append(changes, fmt.Sprintf("at most %s per block", phrase.Count(most, "thread")))
		case Registers:
			changes = append(changes, fmt.Sprintf("at most %s per thread", phrase.Count(most, "register")))
		case Shared:
			changes = append(changes, fmt.Sprintf("at most %s of shared memory per block", phrase.Count(most, "byte")))
		}
	}
	text := "Only one block fits: while its threads wait at a barrier, the SM is idle.\n"
	if len(changes) > 0 {
		text += "Two would fit with " + strings.Join(changes, ", or with ") + ".\n"
	}
	return text
}

// String returns the resources of a block as text.
func (l Launch) String() string {
	s := phrase.Count(l.Threads, "thread")
	if l.SharedBytes > 0 {
		s += ", " + phrase.Count(l.SharedBytes, "byte") + " of shared memory"
	}
	if l.RegsPerThread > 0 {
		s += ", " + phrase.Count(l.RegsPerThread, "register") + " per thread"
	}
	return s
}

// describe returns the limits of an SM as text.
func (a *Arch) describe() string {
	name := "a textbook SM"
	if a.SM != 0 {
		name = fmt.Sprintf("an SM of %v (%s)", a, a.Title)
	}
	has := []string{phrase.Count(a.MaxThreadsPerSM, "thread")}
	if a.RegistersPerSM > 0 {
		has = append(has, phrase.Count(a.RegistersPerSM, "register"))
	}
	if a.SharedPerSM > 0 {
		has = append(has, phrase.Count(a.SharedPerSM, "byte")+" of shared memory")
	}
	if a.MaxBlocksPerSM > 0 {
		has = append(has, phrase.Count(a.MaxBlocksPerSM, "block"))
	}
	return name + " with " + strings.Join(has, ", ")
}

// square formats n, followed by its square root if n is a square: 1,089 threads are most likely a
// tile of 33×33.
func square(n int) string {
	if r := int(math.Sqrt(float64(n))); r*r == n {
		return fmt.Sprintf("%s (%d×%d)", phrase.Commas(n), r, r)
	}
	return phrase.Commas(n)
}
