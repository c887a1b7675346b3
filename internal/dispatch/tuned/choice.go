package tuned

import (
	"fmt"
	"math"
	"time"

	"tilework/dtype"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
)

// Choice is how a product is computed, as far as that is a choice.
type Choice struct {
	Kernel string     `json:"kernel"`
	Shape  string     `json:"shape,omitempty"` // of the tiles of a GPU's kernel
	Config cpu.Config `json:"config,omitzero"` // of a kernel of the processor's
}

// String is the choice in words: "blocked:64x64x8/8x4/4", "avx2, KC 256, packing B".
func (c Choice) String() string {
	if c.Shape != "" {
		return c.Kernel + ":" + c.Shape
	}
	s := c.Kernel
	for _, x := range []struct {
		name  string
		value int
	}{{"MC", c.Config.MC}, {"KC", c.Config.KC}, {"threads", c.Config.Threads}} {
		if x.value > 0 {
			s += fmt.Sprintf(", %s %d", x.name, x.value)
		}
	}
	if c.Config.Packing != "" {
		s += ", packing " + string(c.Config.Packing)
	}
	return s
}

// Form is what a choice is tuned for: products of dense matrices, whatever their
// factors and their epilogue. How many threads the caller allows is no part of it, so
// that the bits of a result do not depend on that.
type Form struct {
	M      int        `json:"m"`
	N      int        `json:"n"`
	K      int        `json:"k"`
	In     dtype.Type `json:"in"`
	Out    dtype.Type `json:"out"`
	TransA bool       `json:"trans_a,omitempty"`
	TransB bool       `json:"trans_b,omitempty"`
	// Precision is the arithmetic, where that is not the elements' own.
	Precision gemm.Precision `json:"precision,omitempty"`
}

// FormOf is p without what choices do not depend on.
func FormOf(p *gemm.Problem) Form {
	return Form{p.M, p.N, p.K, p.In(), p.Out(), p.A().Trans, p.B().Trans, p.Precision}
}

// String is "4096x4096x4096 float32", with the operands that are transposed.
func (p Form) String() string {
	s := fmt.Sprintf("%dx%dx%d %v", p.M, p.N, p.K, p.In)
	if p.Out != p.In {
		s += " → " + p.Out.String()
	}
	if p.TransA {
		s += " Aᵀ"
	}
	if p.TransB {
		s += " Bᵀ"
	}
	if p.Precision != gemm.Native {
		s += " in " + p.Precision.String()
	}
	return s
}

// Problem is the plain product, of dense matrices. The errors are those of [gemm.New].
func (p Form) Problem() (gemm.Problem, error) {
	operand := func(rows, cols int, trans bool) gemm.Layout {
		if trans {
			return gemm.Dense(p.In, cols, rows).T()
		}
		return gemm.Dense(p.In, rows, cols)
	}
	problem, _, err := gemm.New(1, operand(p.M, p.K, p.TransA), operand(p.K, p.N, p.TransB), 0, gemm.Dense(p.Out, p.M, p.N), gemm.Epilogue{})
	if err != nil {
		return problem, err
	}
	return problem.WithPrecision(p.Precision)
}

// Tuned is a choice that was measured to be faster than the default one.
type Tuned struct {
	Form
	Choice  `json:"choice"`
	Device  string  `json:"device"`            // what it was measured on: the processor's or the GPU's name
	Threads int     `json:"threads,omitempty"` // that were allowed, on the processor
	Default Choice  `json:"default"`           // what it was measured against
	Seconds float64 `json:"seconds"`           // of a product, the median
	Before  float64 `json:"default_seconds"`
	// Gain is how many times faster than the default it was: the median of the rounds'
	// own ratios, and their 10th and 90th percentiles.
	Gain float64   `json:"gain"`
	P10  float64   `json:"gain_p10"`
	P90  float64   `json:"gain_p90"`
	Date time.Time `json:"date"`
}

// valid refuses what no tuning keeps.
func (t *Tuned) valid() bool {
	return min(t.M, t.N, t.K) > 0 && t.In.Valid() && t.Out.Valid() && t.Precision.Check(t.In) == nil && t.Kernel != "" && t.Gain > 1 && !math.IsInf(t.Gain, 0)
}

// why is what a plan says of it.
func (t *Tuned) Why() string {
	return fmt.Sprintf("tuned on %s: %.2f × as fast as the default, %v", t.Date.Format(time.DateOnly), t.Gain, t.Default)
}
