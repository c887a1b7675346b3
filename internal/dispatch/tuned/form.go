package tuned

import (
	"fmt"
	"math"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// Form is the class of products for which a choice is tuned: products of dense matrices with any
// alpha, beta and epilogue. It excludes the number of threads, so that the bits of a result do not
// depend on that.
type Form struct {
	M      int        `json:"m"`
	N      int        `json:"n"`
	K      int        `json:"k"`
	In     dtype.Type `json:"in"`
	Out    dtype.Type `json:"out"`
	TransA bool       `json:"trans_a,omitempty"`
	TransB bool       `json:"trans_b,omitempty"`
	// Precision is the arithmetic, unless it is the element type's own.
	Precision gemm.Precision `json:"precision,omitempty"`
}

// FormOf returns the form of p.
func FormOf(p *gemm.Problem) Form {
	return Form{p.M, p.N, p.K, p.In(), p.Out(), p.A().Trans, p.B().Trans, p.Precision}
}

// String returns the form as "4096x4096x4096 float32", with the transposed operands.
func (f Form) String() string {
	s := fmt.Sprintf("%dx%dx%d %v", f.M, f.N, f.K, f.In)
	if f.Out != f.In {
		s += " → " + f.Out.String()
	}
	if f.TransA {
		s += " Aᵀ"
	}
	if f.TransB {
		s += " Bᵀ"
	}
	if f.Precision != gemm.Native {
		s += " in " + f.Precision.String()
	}
	return s
}

// Problem returns the product of dense matrices without an epilogue. The errors are those of
// [gemm.New].
func (f Form) Problem() (gemm.Problem, error) {
	operand := func(rows, cols int, trans bool) gemm.Layout {
		if trans {
			return gemm.Dense(f.In, cols, rows).T()
		}
		return gemm.Dense(f.In, rows, cols)
	}
	a, b := operand(f.M, f.K, f.TransA), operand(f.K, f.N, f.TransB)
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(f.Out, f.M, f.N), gemm.Epilogue{})
	if err != nil {
		return p, err
	}
	return p.WithPrecision(f.Precision)
}

// Tuned is a choice that was measured to be faster than the default one: by tuning or, if Repeated
// is set, in calls of a product that a GPU repeated.
type Tuned struct {
	Form
	backend.Choice `json:"choice"`
	Device         string         `json:"device"`            // the name of the CPU or GPU
	Threads        int            `json:"threads,omitempty"` // the allowed number, on the CPU
	Default        backend.Choice `json:"default"`
	Seconds        float64        `json:"seconds"` // the median time of a product
	Before         float64        `json:"default_seconds"`
	// Gain is the speed relative to the default: the median of the ratios of the rounds. P10 and P90
	// are their 10th and 90th percentiles. Of repeated products, Gain is the ratio of the shortest
	// times, and there are no percentiles.
	Gain float64   `json:"gain"`
	P10  float64   `json:"gain_p10"`
	P90  float64   `json:"gain_p90"`
	Date time.Time `json:"date"`
	// Repeated choices are used only where they have the bits of the default choice.
	Repeated bool `json:"repeated,omitempty"`
}

// valid reports whether tuning can have stored t.
func (t *Tuned) valid() bool {
	return min(t.M, t.N, t.K) > 0 && t.In.Valid() && t.Out.Valid() && t.Precision.Check(t.In) == nil &&
		t.Kernel != "" && t.Gain > 1 && !math.IsInf(t.Gain, 0)
}

// Why returns the reason for a plan with the choice.
func (t *Tuned) Why() string {
	how := "tuned"
	if t.Repeated {
		how = "found in repeated calls"
	}
	return fmt.Sprintf("%s on %s: %.2f × as fast as the default, %v", how, t.Date.Format(time.DateOnly), t.Gain,
		t.Default)
}

// Reason explains the choice of a plan for which a tuned choice may exist.
type Reason struct {
	*Tuned       // nil if nothing is tuned for the product
	Unfit  error // why the plan does not use the tuned choice, or nil
}

// Why returns the reason for the plan. The argument is the backend's own reason.
func (r Reason) Why(own string) string {
	switch {
	case r.Unfit != nil:
		return fmt.Sprintf("%s; the choice tuned for it is not possible: %v", own, r.Unfit)
	case r.Tuned != nil:
		return r.Tuned.Why()
	}
	return own
}
