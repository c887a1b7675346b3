// Package bench times matrix products of several implementations side by side and stores the
// measurements as records.
//
// [Measure] times subjects (kernels and peers) on one [Case]. The subjects take turns, so that a
// disturbance of the machine affects all of them, and each result is checked before it is timed.
// [MeasureOn] does the same with matrices in the memory of a device, and [CountOn] collects the
// counters of an emulated device instead of times. A [Record] holds the measurement of one subject
// with the data needed to judge and repeat it. [Formats] lists the output formats, [ReadRecords]
// reads records back, [Summarize] computes geometric means, and [NewHistory] finds cases that need
// no second measurement. [ParseSizes], [ParseShapes] and [Suite] return the shapes to measure.
//
// The package depends on no backend: the caller passes the subjects in.
package bench

import (
	"fmt"
	"math"

	"tilework/dtype"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
)

// Schema is the version of the record format. It increases when a field changes its meaning or is
// removed. Version 1 had the environment in each record.
const Schema = 2

// Record is the measurement of one subject on one case. A record with Error or Counts set has no
// times. Times are in seconds. Rates are in 10⁹ operations per second, where a multiplication and
// an addition are one operation each.
type Record struct {
	Schema int `json:"schema"`

	Subject string `json:"subject"`          // the implementation: "openblas"
	Detail  string `json:"detail,omitempty"` // its version or the kernels it used
	Peer    bool   `json:"peer,omitempty"`   // the others are compared with it
	Device  string `json:"device"`           // "cpu", "gpu:0"

	// Precision is the type that the subject rounds A and B to before it multiplies them: "tf32".
	Precision string `json:"precision,omitempty"`

	In         string  `json:"in"`  // type of A and B
	Out        string  `json:"out"` // type of C
	M          int     `json:"m"`
	N          int     `json:"n"`
	K          int     `json:"k"`
	Products   int     `json:"products,omitempty"` // products of a strided batch
	Groups     []int   `json:"groups,omitempty"`   // rows of each group of a grouped product
	TransA     bool    `json:"trans_a"`
	TransB     bool    `json:"trans_b"`
	LDA        int     `json:"lda"`
	LDB        int     `json:"ldb"`
	LDC        int     `json:"ldc"`
	Alpha      float64 `json:"alpha"`
	Beta       float64 `json:"beta"`
	Bias       string  `json:"bias,omitempty"` // "row" or "column"
	Activation string  `json:"activation,omitempty"`
	// Epilogue lists the other operations of the epilogue: "residual+saturate".
	Epilogue string `json:"epilogue,omitempty"`
	// BlockScales holds the block sizes of A and B that share one scale: "1x128+128x128".
	BlockScales string `json:"block_scales,omitempty"`
	// RowInvariant reports that the product is row-invariant, except for the peers.
	RowInvariant bool `json:"row_invariant,omitempty"`

	Threads   int    `json:"threads"`   // 0: chosen by the subject
	Transfers bool   `json:"transfers"` // times include copies to and from the device
	Cold      bool   `json:"cold"`      // each product reads its operands from memory, not from a cache
	Buffers   int    `json:"buffers"`   // sets of operands that the products rotate through
	Seed      uint64 `json:"seed"`      // of the random operands

	// Intensity is the number of operations per byte of A and B that the subject's threads load,
	// whether from a cache or from memory; see IntensityReporter.
	Intensity float64 `json:"intensity,omitempty"`
	// Predicted is the time that the subject predicts, in clock cycles of the device; see Predictor.
	Predicted float64 `json:"predicted_cycles,omitempty"`
	// PredictedSeconds is the predicted time of a subject that predicts seconds; see TimePredictor.
	PredictedSeconds float64 `json:"predicted_seconds,omitempty"`
	// Setup is the one-time cost in seconds, such as compiling a kernel or trying algorithms.
	Setup float64 `json:"setup_seconds,omitempty"`
	Steps *Steps  `json:"steps,omitempty"` // only of a product with transfers
	// Breakdown describes the time on each GPU of a product that is none of the timed ones.
	Breakdown []timeline.Breakdown `json:"breakdown,omitempty"`
	// Reps is the number of timings that the record sums up. Each is the median of MedianOf timings
	// (0 means 1) of Batch products.
	Reps     int       `json:"reps"`
	MedianOf int       `json:"median_of,omitempty"`
	Batch    int       `json:"batch"`
	Seconds  Timing    `json:"seconds"` // of one product
	Samples  []float64 `json:"samples"` // see maxSamples
	// Interrupted reports that the subject was timed for less than the options require.
	Interrupted bool    `json:"interrupted,omitempty"`
	GFLOPS      float64 `json:"gflops"` // at the median time; see Rate
	Peak        float64 `json:"peak_gflops,omitempty"`
	// Burst and Sustained are the times of one product in seconds when the subject runs alone, in a
	// queue after idling and for seconds, and Joules is the energy of one in the sustained run. They
	// are 0 if they were not measured.
	Burst     float64 `json:"burst_seconds,omitempty"`
	Sustained float64 `json:"sustained_seconds,omitempty"`
	Joules    float64 `json:"joules,omitempty"`
	// Counts replace the times if the device is emulated.
	Counts *Counts `json:"counts,omitempty"`

	Verified   bool    `json:"verified"`    // the result was checked
	ErrorRatio float64 `json:"error_ratio"` // largest error divided by its bound
	Versus     []Ratio `json:"versus,omitempty"`
	Error      string  `json:"error,omitempty"`
	// Unsupported reports that Error is not a failure: the subject does not support the problem.
	Unsupported bool `json:"unsupported,omitempty"`

	Load *Load `json:"load,omitempty"` // of the device
	// Environment is left out in a file if it equals that of the record before.
	Environment Environment `json:"environment,omitzero"`
}

var biasNames = [...]string{gemm.BiasNone: "", gemm.BiasRow: "row", gemm.BiasCol: "column"}

// newRecord returns a record that describes c and holds no measurement.
func newRecord(c *Case) Record {
	p := &c.Problem
	r := Record{
		Schema: Schema, Device: c.Device,
		In: p.In().String(), Out: p.Out().String(), M: p.M, N: p.N, K: p.K,
		TransA: p.A().Trans, TransB: p.B().Trans, LDA: p.A().LD, LDB: p.B().LD, LDC: p.C().LD,
		Alpha: real(p.Alpha), Beta: real(p.Beta), Bias: biasNames[p.Epilogue.Bias],
		Threads: c.Threads, Transfers: c.Transfers, Groups: c.Groups,
		RowInvariant: p.Invariance != gemm.NotInvariant,
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

// Dense reports whether the rows of A, B and C follow each other without space.
func (r *Record) Dense() bool {
	a, b, c := r.denseLDs()
	return r.LDA == a && r.LDB == b && r.LDC == c
}

// denseLDs returns the leading dimensions of A, B and C without space between rows.
func (r *Record) denseLDs() (a, b, c int) {
	a, b = r.K, r.N
	if r.TransA {
		a = r.M
	}
	if r.TransB {
		b = r.K
	}
	return a, b, r.N
}

// Timed reports whether the record has times.
func (r *Record) Timed() bool { return r.Error == "" && r.Counts == nil }

// Reading is the name of the peer that reads B once and multiplies nothing. It has a bandwidth, but
// no rate and no peak.
const Reading = "reading"

func (r *Record) onlyReads() bool { return r.Peer && r.Subject == Reading }

// Rate returns the rate in GFLOP/s at the median time, and whether the record has one: a failed
// or emulated product has no time, and the peer Reading does no operations.
func (r *Record) Rate() (gflops float64, ok bool) {
	return r.GFLOPS, r.Timed() && !r.onlyReads()
}

// PercentOfPeak returns the rate in percent of the peak, and whether both are known.
func (r *Record) PercentOfPeak() (percent float64, known bool) {
	rate, ok := r.Rate()
	if !ok || r.Peak == 0 {
		return 0, false
	}
	return 100 * rate / r.Peak, true
}

// upgrade computes the values that earlier versions did not record, and clears those that they
// should not have recorded.
func (r *Record) upgrade() {
	r.Schema = Schema
	for i := range r.Versus {
		if v := &r.Versus[i]; v.High == 0 {
			v.setInterval(r.Reps)
		}
	}
	if r.onlyReads() {
		r.GFLOPS, r.Peak = 0, 0
	}
}

// Bytes returns the bytes of A, B and C. They include all products of a batch, and both B of a
// gated product.
func (r *Record) Bytes() (a, b, c float64) {
	in, errIn := dtype.Parse(r.In)
	out, errOut := dtype.Parse(r.Out)
	if errIn != nil || errOut != nil {
		return 0, 0, 0
	}
	m, n, k := float64(r.M), float64(r.N), float64(r.K)
	products := float64(max(r.Products, 1))
	bs := products * float64(max(len(r.Groups), 1))
	if r.gated() {
		bs *= 2
	}
	input, output := float64(in.Size()), float64(out.Size())
	return products * m * k * input, bs * k * n * input, products * m * n * output
}

// Bandwidth returns the bytes of A, B and C, each counted once, divided by the median time. For the
// peer Reading it counts the bytes of B alone.
func (r *Record) Bandwidth() float64 {
	if !r.Timed() || r.Seconds.Median == 0 {
		return 0
	}
	a, b, c := r.Bytes()
	if r.onlyReads() {
		a, c = 0, 0
	}
	return (a + b + c) / r.Seconds.Median
}

// check returns an error if Measure cannot have written r.
func (r *Record) check() error {
	if r.Schema != Schema && r.Schema != 1 {
		return fmt.Errorf("schema %d, want %d", r.Schema, Schema)
	}
	if r.Subject == "" {
		return fmt.Errorf("no subject")
	}
	if err := r.checkProduct(); err != nil {
		return err
	}
	if r.Error != "" {
		return nil
	}
	if r.Counts != nil {
		return r.Counts.check(r.Flops())
	}
	if err := r.checkTimes(); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"intensity", r.Intensity}, {"burst_seconds", r.Burst}, {"sustained_seconds", r.Sustained}, {"joules", r.Joules},
		{"peak_gflops", r.Peak}, {"setup_seconds", r.Setup}} {
		if f.value < 0 {
			return fmt.Errorf("%s %v: want at least 0", f.name, f.value)
		}
	}
	for _, v := range r.Versus {
		if v.Peer == "" || !(0 < v.P10 && v.P10 <= v.Speed && v.Speed <= v.P90) ||
			v.High != 0 && !(0 <= v.Low && v.Low <= v.Speed && v.Speed <= v.High) {
			return fmt.Errorf("versus %+v: want a peer, 0 < p10 ≤ speed ≤ p90, and low ≤ speed ≤ high", v)
		}
	}
	if s := r.Steps; s != nil && !(min(s.Allocate, s.Upload, s.Download) >= 0 && s.Compute > 0) {
		return fmt.Errorf("steps %+v: want positive times", *s)
	}
	return r.checkBreakdown()
}

// checkProduct checks the types and sizes.
func (r *Record) checkProduct() error {
	for _, f := range []struct{ name, value string }{{"in", r.In}, {"out", r.Out}} {
		if _, err := dtype.Parse(f.value); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if r.M < 1 || r.N < 1 || r.K < 1 {
		return fmt.Errorf("shape %d×%d×%d: want sizes of at least 1", r.M, r.N, r.K)
	}
	if r.Products < 0 {
		return fmt.Errorf("products %d: want at least 0", r.Products)
	}
	rows := 0
	for _, n := range r.Groups {
		if n < 0 || n > r.M-rows { // the sum can overflow
			return fmt.Errorf("a group of %d rows: want 0 to %d, the other rows of C", n, r.M-rows)
		}
		rows += n
	}
	if len(r.Groups) > 0 && rows != r.M {
		return fmt.Errorf("groups of %d rows: want %d, the rows of C", rows, r.M)
	}
	return nil
}

// checkTimes checks the times, their number, and the rate.
func (r *Record) checkTimes() error {
	if r.Reps < 1 || r.Batch < 1 || r.Buffers < 1 || r.MedianOf < 0 {
		return fmt.Errorf("reps %d, batch %d, buffers %d: want at least 1 each", r.Reps, r.Batch, r.Buffers)
	}
	s := r.Seconds
	if !(0 < s.Min && s.Min <= s.P10 && s.P10 <= s.Median && s.Median <= s.P90 && s.P90 <= s.Max && s.Spread >= 0) {
		return fmt.Errorf("seconds %+v: want 0 < min ≤ p10 ≤ median ≤ p90 ≤ max", s)
	}
	if rate := r.Flops() / s.Median / 1e9; !r.onlyReads() && math.Abs(r.GFLOPS-rate) > 1e-6*rate {
		return fmt.Errorf("gflops %v: want %v for %d×%d×%d in %v s", r.GFLOPS, rate, r.M, r.N, r.K, s.Median)
	}
	if n := len(r.Samples); n < 1 || n > r.Reps {
		return fmt.Errorf("%d samples: want 1 to %d, the number of reps", n, r.Reps)
	}
	for _, s := range r.Samples {
		if !(s > 0) {
			return fmt.Errorf("sample of %v s: want a positive time", s)
		}
	}
	return nil
}

// Flops returns the operations of all products of the record, as gemm.Problem.Flops counts them.
func (r *Record) Flops() float64 {
	products := max(r.Products, 1)
	if r.gated() {
		products *= 2
	}
	return 2 * float64(r.M) * float64(r.N) * float64(r.K) * float64(products)
}

// gated reports whether the product is gated, which multiplies A by two matrices.
func (r *Record) gated() bool {
	if r.Epilogue == "" {
		return false
	}
	e, err := gemm.ParseEpilogue(r.Epilogue)
	return err == nil && e.Gated
}
