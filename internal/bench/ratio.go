package bench

import (
	"fmt"
	"math"
	"slices"
)

// Ratio compares a subject with a peer that took turns with it. Speed is the median, over the
// rounds of both, of the peer's time divided by the subject's time in the same round. The subject
// is faster if Speed is above 1.
//
// A disturbance that lasts for several rounds, such as a drifting clock rate or another program,
// slows both subjects and cancels. It does not cancel in the quotient of two medians: if times have
// two modes, the two medians may fall into different modes. Speed can therefore differ from that
// quotient. Every table, summary and page shows Speed.
type Ratio struct {
	Peer  string  `json:"peer"`
	Speed float64 `json:"speed"`
	P10   float64 `json:"p10"` // percentiles of the ratios of the rounds
	P90   float64 `json:"p90"`
	// Low and High bound a 95 % confidence interval of Speed; both are 0 if there
	// are fewer than three rounds. See interval.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
}

// These texts are footnotes of tables and charts; see Footnotes.
const (
	RatioNote = "× is the peer's time divided by the kernel's in the same round, as a median over all rounds. " +
		"Disturbances of both cancel, so it can differ from the quotient of the medians."
	UncertainNote = UncertainMark + " marks a figure whose 95 % confidence interval is wider than ±10 %, or that has " +
		"fewer than three timings."
	UncertainMark = "?"
)

// maxUncertainty is the largest half-width of a confidence interval, relative to the median, of a
// figure that is not marked as uncertain.
const maxUncertainty = 0.10

// Uncertain reports whether the confidence interval of Speed is wider than ±10 % or missing.
func (v Ratio) Uncertain() bool { return uncertain(v.Low, v.Speed, v.High) }

// Uncertain reports whether the confidence interval of the median time, and thus of the rates
// computed from it, is wider than ±10 % or missing. The ratios of the same record may be certain,
// because noise that slows all subjects cancels in them.
func (r *Record) Uncertain() bool {
	low, high := interval(r.Seconds.P10, r.Seconds.Median, r.Seconds.P90, r.Reps)
	return r.Timed() && uncertain(low, r.Seconds.Median, high)
}

func uncertain(low, median, high float64) bool {
	return high == 0 || high-low > 2*maxUncertainty*median
}

// Marked returns text, followed by UncertainMark if uncertain is true.
func Marked(text string, uncertain bool) string {
	if uncertain {
		return text + UncertainMark
	}
	return text
}

// Text returns Speed with two decimals, or two significant digits below 0.1, marked if uncertain.
func (v Ratio) Text() string {
	format := "%.2f"
	if v.Speed < 0.1 {
		format = "%.2g"
	}
	return Marked(fmt.Sprintf(format, v.Speed), v.Uncertain())
}

// Footnotes returns RatioNote and UncertainNote if a table of the records needs them.
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

// ratioText returns the text of the record's ratio to a peer, or the empty string if it has none.
func (r *Record) ratioText(peer string) string {
	if v, ok := r.RatioTo(peer); ok {
		return v.Text()
	}
	return ""
}

// versus compares times with peerTimes round by round, over the rounds of both.
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
// percentiles. It returns zeros if n < 3.
//
// The standard error of a normal sample's median is 1.2533 σ/√n, and P90 − P10 is 2.5631 σ. The
// factor n/(n−2) corrects for the percentiles of few values, which underestimate the spread, and
// for Student's t; TestInterval measures the coverage. Consecutive timings are correlated, so more
// than maxSamples of them count as maxSamples independent ones.
func interval(p10, median, p90 float64, n int) (low, high float64) {
	n = min(n, maxSamples)
	if n < 3 {
		return 0, 0
	}
	half := 1.96 * 1.2533 / 2.5631 * (p90 - p10) * math.Sqrt(float64(n)) / float64(n-2)
	return max(0, median-half), median + half
}
