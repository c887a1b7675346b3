package gemm

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/dtype"
)

// Epilogue is what happens to each element of α·op(A)·op(B) + β·C before it is
// rounded to C's type: a bias is added, then an activation applied, both in the
// type that the product is summed in. The zero value does nothing.
type Epilogue struct {
	Bias       BiasDim
	Activation Activation
}

// BiasDim says what a bias vector runs along.
type BiasDim uint8

const (
	BiasNone BiasDim = iota
	BiasRow          // M values: one for each row of C
	BiasCol          // N values: one for each column of C
)

// Activation names a function that is applied to each element.
type Activation uint8

const (
	ActNone Activation = iota
	ActReLU
	ActGELU
	ActGELUTanh
	ActSiLU
)

// ActivationInfo is an activation's row of the table.
type ActivationInfo struct {
	Name    string
	Formula string
	F       func(float64) float64
	// Slope bounds |F′|, and so how much F can magnify an error of its argument.
	Slope   float64
	Integer bool // whether it maps integers to integers
}

var activations = [...]ActivationInfo{
	ActNone:     {Name: "none", Formula: "x", F: func(x float64) float64 { return x }, Slope: 1, Integer: true},
	ActReLU:     {Name: "relu", Formula: "max(x, 0)", F: relu, Slope: 1, Integer: true},
	ActGELU:     {Name: "gelu", Formula: "x·Φ(x) = x/2·(1 + erf(x/√2))", F: gelu, Slope: 1.13},
	ActGELUTanh: {Name: "gelu-tanh", Formula: "x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))", F: geluTanh, Slope: 1.13},
	ActSiLU:     {Name: "silu", Formula: "x/(1 + e⁻ˣ)", F: silu, Slope: 1.1},
}

// relu lets a NaN through, as a comparison written the other way round would not.
func relu(x float64) float64 {
	if x < 0 {
		return 0
	}
	return x
}

// The three below tend to 0 at −∞, where the formulas as written give 0·∞.

func gelu(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x / 2 * math.Erfc(-x/math.Sqrt2)
}

func geluTanh(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func silu(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x / (1 + math.Exp(-x))
}

// Activations lists the activations in the order of the table.
func Activations() []Activation {
	all := make([]Activation, len(activations))
	for i := range all {
		all[i] = Activation(i)
	}
	return all
}

// Info returns a's row of the table.
func (a Activation) Info() *ActivationInfo { return &activations[a] }

func (a Activation) String() string { return activations[a].Name }

// ParseActivation reads an activation's name.
func ParseActivation(name string) (Activation, error) {
	names := make([]string, len(activations))
	for i := range activations {
		if activations[i].Name == name {
			return Activation(i), nil
		}
		names[i] = activations[i].Name
	}
	return 0, fmt.Errorf("unknown activation %q (want one of %s)", name, strings.Join(names, ", "))
}

func (e Epilogue) check(out dtype.Type) error {
	if int(e.Activation) >= len(activations) {
		return fmt.Errorf("%w: no activation %d", ErrUnsupported, e.Activation)
	}
	if e.Bias > BiasCol {
		return fmt.Errorf("%w: no bias dimension %d", ErrUnsupported, e.Bias)
	}
	if out.Info().Integer && !e.Activation.Info().Integer {
		return fmt.Errorf("%w: activation %v on a product in %v", ErrUnsupported, e.Activation, out)
	}
	return nil
}

// transposed is the epilogue of the transposed product.
func (e Epilogue) transposed() Epilogue {
	switch e.Bias {
	case BiasRow:
		e.Bias = BiasCol
	case BiasCol:
		e.Bias = BiasRow
	}
	return e
}

// String is the epilogue as ParseEpilogue reads it: "bias-col+gelu", or "none".
func (e Epilogue) String() string {
	var parts []string
	if e.Bias != BiasNone {
		parts = append(parts, biasNames[e.Bias])
	}
	if e.Activation != ActNone || len(parts) == 0 {
		parts = append(parts, e.Activation.String())
	}
	return strings.Join(parts, "+")
}

var biasNames = [...]string{BiasRow: "bias-row", BiasCol: "bias-col"}

// ParseEpilogue reads what an epilogue does, with a + between: a bias and an activation.
func ParseEpilogue(text string) (e Epilogue, err error) {
	for part := range strings.SplitSeq(text, "+") {
		if dim := slices.Index(biasNames[:], part); dim > 0 {
			e.Bias = BiasDim(dim)
			continue
		}
		if e.Activation, err = ParseActivation(part); err != nil {
			return Epilogue{}, fmt.Errorf("%w; or %s", err, strings.Join(biasNames[1:], ", "))
		}
	}
	return e, nil
}

// BiasLen is the number of elements, of C's type, in the problem's bias vector.
func (p *Problem) BiasLen() int {
	switch p.Epilogue.Bias {
	case BiasRow:
		return p.M
	case BiasCol:
		return p.N
	}
	return 0
}
