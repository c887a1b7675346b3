// Package bench measures things that multiply, one beside the other, and keeps
// what it measured as records.
//
// [Measure] times subjects on one [Case] in turns, so that whatever disturbs the
// machine disturbs them all, and checks each result before it times anything;
// [MeasureOn] does so on matrices that are on a device, and [CountOn] counts what an
// emulated one does. A [Record] is one subject's
// measurement with all that is needed to judge and to repeat it. [Formats] is the
// table of the forms in which records are written; [ReadRecords] reads them back,
// [Summarize] sums them up, and [NewHistory] finds in them what need not be measured
// again. [ParseSizes], [ParseShapes] and [Suite] say what to
// measure.
//
// The package knows no backend: whoever calls it passes the subjects in.
package bench

import (
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Schema is the version of the records' form. A field that changes its meaning
// or goes away raises it.
const Schema = 1

// Record is one subject's measurement on one case. Where Error or Counts is set the
// subject has no times. Times are in seconds, rates in 10⁹ operations a second,
// an operation being a multiplication or an addition.
type Record struct {
	Schema int `json:"schema"`

	Subject string `json:"subject"`          // what multiplied: "openblas"
	Detail  string `json:"detail,omitempty"` // more about it: version, kernels
	Peer    bool   `json:"peer,omitempty"`   // it is what others are compared with
	Device  string `json:"device"`           // where it ran: "cpu", "gpu:0"

	// Precision is that of a subject that rounds A and B before it multiplies: "tf32".
	Precision string `json:"precision,omitempty"`

	In         string  `json:"in"` // the types of A and B, and of C
	Out        string  `json:"out"`
	M          int     `json:"m"`
	N          int     `json:"n"`
	K          int     `json:"k"`
	Products   int     `json:"products,omitempty"` // of a batch
	Groups     []int   `json:"groups,omitempty"`   // the rows of groups that have a B each
	TransA     bool    `json:"trans_a"`
	TransB     bool    `json:"trans_b"`
	LDA        int     `json:"lda"`
	LDB        int     `json:"ldb"`
	LDC        int     `json:"ldc"`
	Alpha      float64 `json:"alpha"`
	Beta       float64 `json:"beta"`
	Bias       string  `json:"bias,omitempty"` // "row" or "column"
	Activation string  `json:"activation,omitempty"`
	// Epilogue is what else is done to C's elements: "residual+saturate".
	Epilogue string `json:"epilogue,omitempty"`
	// BlockScales are the elements of A, and of B, that share a scale: "1x128+128x128".
	BlockScales string `json:"block_scales,omitempty"`

	Threads   int    `json:"threads"`   // 0: the subject's own choice
	Transfers bool   `json:"transfers"` // copies to and from the device are in the times
	Cold      bool   `json:"cold"`      // each product's operands come from memory, not from cache
	Buffers   int    `json:"buffers"`   // the sets of operands that were rotated
	Seed      uint64 `json:"seed"`      // of the operands' values

	// Intensity is how many operations the subject does for each byte of A and B that
	// its threads load, whatever answers them; see Loading.
	Intensity float64 `json:"intensity,omitempty"`
	// Setup is what a caller pays once: compiling, or trying algorithms, in seconds.
	Setup float64 `json:"setup_seconds,omitempty"`
	Steps *Steps  `json:"steps,omitempty"` // of a product with transfers
	// Reps are the timings that were kept, each the median of MedianOf timings (0 is 1)
	// of Batch products.
	Reps     int       `json:"reps"`
	MedianOf int       `json:"median_of,omitempty"`
	Batch    int       `json:"batch"`
	Seconds  Timing    `json:"seconds"` // of one product
	Samples  []float64 `json:"samples"` // see maxSamples
	// Interrupted says that it was timed less than it should have been.
	Interrupted bool    `json:"interrupted,omitempty"`
	GFLOPS      float64 `json:"gflops"` // at the median time; see Rate
	Peak        float64 `json:"peak_gflops,omitempty"`
	// Counts stand in place of times where a device is emulated.
	Counts *Counts `json:"counts,omitempty"`

	Verified   bool    `json:"verified"`    // its result was checked before it was timed
	ErrorRatio float64 `json:"error_ratio"` // the largest error, as a part of what is allowed
	Versus     []Ratio `json:"versus,omitempty"`
	Error      string  `json:"error,omitempty"`
	// Unsupported says that the error is no failure: the subject does not do such
	// products.
	Unsupported bool `json:"unsupported,omitempty"`

	Load        *Load       `json:"load,omitempty"` // the device's
	Environment Environment `json:"environment"`
}

var biasNames = [...]string{gemm.BiasNone: "", gemm.BiasRow: "row", gemm.BiasCol: "column"}

// newRecord is a record of c without a measurement.
func newRecord(c *Case) Record {
	p := &c.Problem
	r := Record{
		Schema: Schema, Device: c.Device,
		In: p.A.Type.String(), Out: p.C.Type.String(), M: p.M, N: p.N, K: p.K,
		TransA: p.A.Trans, TransB: p.B.Trans, LDA: p.A.LD, LDB: p.B.LD, LDC: p.C.LD,
		Alpha: p.Alpha, Beta: p.Beta, Bias: biasNames[p.Epilogue.Bias],
		Threads: c.Threads, Transfers: c.Transfers, Groups: c.Groups,
	}
	if p.Batch.Kind == gemm.Strided {
		r.Products = p.Batch.Count
	}
	if a := p.Epilogue.Activation; a != gemm.ActNone && !p.Epilogue.Gated {
		r.Activation = a.String()
	}
	e := p.Epilogue
	if e.Bias = gemm.BiasNone; !e.Gated {
		e.Activation = gemm.ActNone
	}
	if e != (gemm.Epilogue{}) {
		r.Epilogue = e.String()
	}
	if a, b := p.ScaleSides(); a > 0 {
		r.BlockScales = fmt.Sprintf("%dx%d+%dx%d", a, gemm.ScaleBlock, b, gemm.ScaleBlock)
	}
	return r
}

// Timed reports whether the record has times.
func (r *Record) Timed() bool { return r.Error == "" && r.Counts == nil }

// Reading is the name of the peer that reads B once and multiplies nothing. It has a bandwidth, and
// neither a rate nor a peak.
const Reading = "reading"

func (r *Record) onlyReads() bool { return r.Peer && r.Subject == Reading }

// Rate returns the rate in GFLOP/s at the median time, and whether the record has one: a failed
// or emulated product has no time, and the peer Reading does no operations.
func (r *Record) Rate() (gflops float64, ok bool) {
	return r.GFLOPS, r.Timed() && !r.onlyReads()
}

// PercentOfPeak is the rate as a part of the peak, and whether both are known.
func (r *Record) PercentOfPeak() (percent float64, known bool) {
	rate, ok := r.Rate()
	if !ok || r.Peak == 0 {
		return 0, false
	}
	return 100 * rate / r.Peak, true
}

// upgrade adds to a record the figures that earlier versions did not write, and removes
// those that they should not have written.
func (r *Record) upgrade() {
	for i := range r.Versus {
		if v := &r.Versus[i]; v.High == 0 {
			v.setInterval(r.Reps)
		}
	}
	if r.onlyReads() {
		r.GFLOPS, r.Peak = 0, 0
	}
}

// Bandwidth returns the bytes of A, B and C, each once, divided by the median time. For the
// peer Reading these are the bytes of B alone.
func (r *Record) Bandwidth() float64 {
	in, errIn := dtype.Parse(r.In)
	out, errOut := dtype.Parse(r.Out)
	if !r.Timed() || errIn != nil || errOut != nil || r.Seconds.Median == 0 {
		return 0
	}
	m, n, k := float64(r.M), float64(r.N), float64(r.K)
	as, bs := float64(max(r.Products, 1)), float64(max(r.Products, len(r.Groups), 1))
	if r.onlyReads() {
		return bs * k * n * float64(in.Size()) / r.Seconds.Median
	}
	return (as*m*k*float64(in.Size()) + bs*k*n*float64(in.Size()) + as*m*n*float64(out.Size())) / r.Seconds.Median
}

// check refuses a record that Measure cannot have written.
func (r *Record) check() error {
	if r.Schema != Schema {
		return fmt.Errorf("schema %d, want %d", r.Schema, Schema)
	}
	if r.Subject == "" {
		return fmt.Errorf("no subject")
	}
	for _, f := range []struct{ name, value string }{{"in", r.In}, {"out", r.Out}} {
		if _, err := dtype.Parse(f.value); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if r.M < 1 || r.N < 1 || r.K < 1 {
		return fmt.Errorf("shape %d×%d×%d", r.M, r.N, r.K)
	}
	if r.Error != "" {
		return nil
	}
	if r.Counts != nil {
		return r.Counts.check(r.flops())
	}
	if r.Reps < 1 || r.Batch < 1 || r.Buffers < 1 || r.MedianOf < 0 {
		return fmt.Errorf("%d reps of %d products on %d buffers, want at least one of each", r.Reps, r.Batch, r.Buffers)
	}
	s := r.Seconds
	if !(0 < s.Min && s.Min <= s.P10 && s.P10 <= s.Median && s.Median <= s.P90 && s.P90 <= s.Max && s.Spread >= 0) {
		return fmt.Errorf("seconds %+v are out of order", s)
	}
	if rate := r.flops() / s.Median / 1e9; !r.onlyReads() && math.Abs(r.GFLOPS-rate) > 1e-6*rate {
		return fmt.Errorf("gflops %v, but %d×%d×%d in %v s is %v", r.GFLOPS, r.M, r.N, r.K, s.Median, rate)
	}
	if r.Intensity < 0 {
		return fmt.Errorf("an intensity of %v operations a byte", r.Intensity)
	}
	if n := len(r.Samples); n < 1 || n > r.Reps {
		return fmt.Errorf("%d samples of %d reps", n, r.Reps)
	}
	for _, s := range r.Samples {
		if !(s > 0) {
			return fmt.Errorf("a sample of %v seconds", s)
		}
	}
	for _, v := range r.Versus {
		if v.Peer == "" || !(v.Speed > 0) || v.High != 0 && !(0 <= v.Low && v.Low <= v.Speed && v.Speed <= v.High) {
			return fmt.Errorf("versus %+v", v)
		}
	}
	return nil
}

// flops is as gemm.Problem.Flops.
func (r *Record) flops() float64 {
	products := max(r.Products, 1)
	if e, err := gemm.ParseEpilogue(r.Epilogue); err == nil && e.Gated {
		products *= 2
	}
	return 2 * float64(r.M) * float64(r.N) * float64(r.K) * float64(products)
}
