package bench

import (
	"fmt"
	"math"
	"slices"
)

// Ratio compares a subject with a peer that was timed in turns with it. Speed is the median, over
// the rounds that both ran, of the peer's time divided by the subject's time in the same round:
// above 1 the subject is faster.
//
// A disturbance that lasts for several rounds, such as a drifting clock or another program, slows
// both and cancels. It does not cancel in the quotient of two medians: where times have two modes,
// each subject's median falls into either of them. So Speed can differ from that quotient, and
// it is Speed that every table, summary and page shows.
type Ratio struct {
	Peer  string  `json:"peer"`
	Speed float64 `json:"speed"`
	P10   float64 `json:"p10"` // percentiles of the rounds' ratios
	P90   float64 `json:"p90"`
	// Low and High bound a 95 % confidence interval of Speed; both are 0 if there
	// are fewer than three rounds. See interval.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
}

// Texts under a table or chart that shows ratios or marks figures as uncertain; see Footnotes.
const (
	RatioNote = "× is the peer's time divided by the kernel's in the same round, as a median over all rounds. " +
		"Disturbances of both cancel, so it can differ from the quotient of the two medians."
	UncertainNote = UncertainMark + " marks a figure whose 95 % confidence interval is wider than ±10 %, or that has fewer than three timings."
	UncertainMark = "?"
)

// maxUncertainty is half the width, relative to the median, that a confidence interval may have
// before the figure is marked as uncertain.
const maxUncertainty = 0.10

// Uncertain reports whether Speed is too uncertain to rely on: its confidence interval is wider
// than ±10 %, or there is none.
func (v Ratio) Uncertain() bool { return uncertain(v.Low, v.Speed, v.High) }

// Uncertain reports whether the median time, and the rates computed from it, are too uncertain to
// rely on, by the same criterion as for a ratio. The ratios of the same record may be certain:
// noise that slows all subjects alike cancels in them.
func (r *Record) Uncertain() bool {
	low, high := interval(r.Seconds.P10, r.Seconds.Median, r.Seconds.P90, r.Reps)
	return r.Timed() && uncertain(low, r.Seconds.Median, high)
}

func uncertain(low, median, high float64) bool {
	return high == 0 || high-low > 2*maxUncertainty*median
}

// Marked returns text, with UncertainMark after it if uncertain.
func Marked(text string, uncertain bool) string {
	if uncertain {
		return text + UncertainMark
	}
	return text
}

// Text returns Speed with two decimals, or two digits below 0.1, marked if it is uncertain.
func (v Ratio) Text() string {
	format := "%.2f"
	if v.Speed < 0.1 {
		format = "%.2g"
	}
	return Marked(fmt.Sprintf(format, v.Speed), v.Uncertain())
}

// Footnotes returns those of RatioNote and UncertainNote that a table of records needs.
func Footnotes(records []Record) (notes []string) {
	ratios, doubts := false, false
	for i := range records {
		ratios = ratios || len(records[i].Versus) > 0
		doubts = doubts || records[i].Uncertain() || slices.ContainsFunc(records[i].Versus, Ratio.Uncertain)
	}
	if ratios {
		notes = append(notes, RatioNote)
	}
	if doubts {
		notes = append(notes, UncertainNote)
	}
	return notes
}

// RatioTo returns the record's ratio to a peer, and whether it has one.
func (r *Record) RatioTo(peer string) (v Ratio, ok bool) {
	i := slices.IndexFunc(r.Versus, func(v Ratio) bool { return v.Peer == peer })
	if i < 0 {
		return Ratio{}, false
	}
	return r.Versus[i], true
}

// versus compares times with a peer's round by round, over the rounds that both ran.
func versus(peer string, times, peerTimes []float64) Ratio {
	ratios := make([]float64, min(len(times), len(peerTimes)))
	for i := range ratios {
		ratios[i] = peerTimes[i] / times[i]
	}
	slices.Sort(ratios)
	v := Ratio{Peer: peer, Speed: quantile(ratios, 0.5), P10: quantile(ratios, 0.1), P90: quantile(ratios, 0.9)}
	v.setInterval(len(ratios))
	return v
}

func (v *Ratio) setInterval(rounds int) { v.Low, v.High = interval(v.P10, v.Speed, v.P90, rounds) }

// interval returns a 95 % confidence interval of a median of n values, given their 10th and 90th
// percentiles, and zeros if n < 3.
//
// The standard error of a normal sample's median is 1.2533 σ/√n, and P90 − P10 is 2.5631 σ. The
// factor n/(n−2) makes up for the percentiles of few values, which underestimate the spread, and for
// Student's t; TestInterval measures the coverage. Timings that follow each other are correlated,
// so that more than maxSamples count as maxSamples independent stretches.
func interval(p10, median, p90 float64, n int) (low, high float64) {
	n = min(n, maxSamples)
	if n < 3 {
		return 0, 0
	}
	half := 1.96 * 1.2533 / 2.5631 * (p90 - p10) * math.Sqrt(float64(n)) / float64(n-2)
	return max(0, median-half), median + half
}
