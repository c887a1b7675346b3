package gemm

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/dtype"
)

// Epilogue is what happens to each element x of α·op(A)·op(B) + β·C before it is
// rounded to C's type, in the type that the product is summed in and in the order of
// the fields:
//
//	x ← f((act(rowScale[i]·colScale[j]·x + bias) + residual[i, j])·outScale)
//
// The zero value does nothing. [Problem.Finish] is the definition.
type Epilogue struct {
	RowScale, ColScale bool // whether rows and columns are multiplied by numbers of their own
	Bias               BiasDim
	Activation         Activation
	Residual           bool // whether a matrix is added
	OutScale           bool // whether all is multiplied by one more number
	// Function is one of the caller's own that is applied behind all that, and Flipped says
	// that it is told an element's row for its column.
	Function Function
	Flipped  bool
	// Saturate has what is larger than C's type can hold become its largest value, and no
	// infinity.
	Saturate bool
}

// Function is a function of elements that some backend can compute. Two are the same where
// they are equal; a backend refuses those that are not its own.
type Function interface {
	fmt.Stringer
	// Reads reports whether it reads data of its own.
	Reads() bool
}

// Extra names an operand that a product reads besides A, B, C and the bias.
type Extra uint8

const (
	RowScale Extra  = iota // M numbers of the type that is summed in
	ColScale               // N of them
	Residual               // M×N elements of C's type
	OutScale               // a number of the type that is summed in
	Data                   // what Function reads, numbers of that type
	ScaleA                 // block scales of A, which are no part of the epilogue: see [Problem.Scaled]
	ScaleB                 // and of B
	Extras   = iota        // how many there are
)

var extraNames = [Extras]string{
	RowScale: "row-scale", ColScale: "col-scale", Residual: "residual", OutScale: "out-scale", Data: "data",
	ScaleA: "block scales of A", ScaleB: "block scales of B",
}

func (x Extra) String() string { return extraNames[x] }

// flags are the fields that say whether the epilogue reads an operand, of those that have one.
func (e *Epilogue) flags() [Extras]*bool {
	return [Extras]*bool{RowScale: &e.RowScale, ColScale: &e.ColScale, Residual: &e.Residual, OutScale: &e.OutScale}
}

// Has reports whether the epilogue reads x.
func (e Epilogue) Has(x Extra) bool {
	if flag := e.flags()[x]; flag != nil {
		return *flag
	}
	return x == Data && e.Function != nil && e.Function.Reads()
}

// Has reports whether the product reads x.
func (p *Problem) Has(x Extra) bool {
	if x == ScaleA || x == ScaleB {
		return p.BlockScaled()
	}
	return p.Epilogue.Has(x)
}

// readsExtras reports whether it reads any.
func (p *Problem) readsExtras() bool {
	e := &p.Epilogue
	return e.RowScale || e.ColScale || e.Residual || e.OutScale || e.Function != nil || p.BlockScaled()
}

// Read has the epilogue read x, one of those that have a flag.
func (e *Epilogue) Read(x Extra) { *e.flags()[x] = true }

// OnlyBias reports whether the epilogue does nothing but to add a bias, if that.
func (e Epilogue) OnlyBias() bool { return e == Epilogue{Bias: e.Bias} }

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
	if !out.Info().Integer {
		return nil
	}
	switch {
	case !e.Activation.Info().Integer:
		return fmt.Errorf("%w: activation %v on a product in %v", ErrUnsupported, e.Activation, out)
	case e.RowScale || e.ColScale || e.OutScale:
		return fmt.Errorf("%w: a product in %v with scales", ErrUnsupported, out)
	case e.Saturate:
		return fmt.Errorf("%w: a product in %v that saturates: its sums wrap", ErrUnsupported, out)
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
	e.RowScale, e.ColScale = e.ColScale, e.RowScale
	e.Flipped = e.Function != nil && !e.Flipped
	return e
}

// Transposed is the operand of the transposed product that x is of the product.
func (x Extra) Transposed() Extra {
	switch x {
	case RowScale:
		return ColScale
	case ColScale:
		return RowScale
	case ScaleA:
		return ScaleB
	case ScaleB:
		return ScaleA
	}
	return x
}

// Plus is p with a residual of that layout, which otherwise lies without padding. It must
// be stored as C is: where C was given as a transpose and New has swapped the matrices, l
// is the transpose too. The errors are ErrShape and ErrUnsupported.
func (p Problem) Plus(l Layout) (Problem, error) {
	if err := l.Check("the residual"); err != nil {
		return p, err
	}
	switch {
	case !p.Epilogue.Residual:
		return p, fmt.Errorf("%w: a residual for an epilogue without one", ErrUnsupported)
	case l.OpRows() != p.M || l.OpCols() != p.N:
		return p, fmt.Errorf("%w: the residual is %d×%d, want %d×%d like C", ErrShape, l.OpRows(), l.OpCols(), p.M, p.N)
	case l.Type != p.C.Type:
		return p, fmt.Errorf("%w: a residual of %v for a result of %v", ErrUnsupported, l.Type, p.C.Type)
	case l.Trans:
		return p, fmt.Errorf("%w: a residual that is stored by columns for a C by rows, or the other way round", ErrUnsupported)
	}
	p.Residual = l
	return p, nil
}

// Extra is the layout of such an operand; of one that is not read it is empty.
func (p *Problem) Extra(x Extra) Layout {
	switch {
	case !p.Has(x):
		return Layout{}
	case x == ScaleA:
		return p.ScaleA
	case x == ScaleB:
		return p.ScaleB
	case x == RowScale:
		return Dense(p.Accum(), 1, p.M)
	case x == ColScale:
		return Dense(p.Accum(), 1, p.N)
	case x == OutScale:
		return Dense(p.Accum(), 1, 1)
	case x == Data:
		return Dense(p.Accum(), 1, p.DataLen)
	}
	return p.Residual
}

// Finish is what the epilogue makes of x, element (i, j) of α·op(A)·op(B) + β·C, before it
// is rounded. b has the operands that the epilogue reads. A Function is left out.
func (p *Problem) Finish(b *Buffers, i, j int, x float64) float64 {
	e := &p.Epilogue
	extra := func(n Extra, i, j int) float64 {
		l := p.Extra(n)
		return l.Type.At(b.Extras[n], l.Index(i, j))
	}
	if e.RowScale {
		x *= extra(RowScale, 0, i)
	}
	if e.ColScale {
		x *= extra(ColScale, 0, j)
	}
	switch e.Bias {
	case BiasRow:
		x += p.C.Type.At(b.Bias, i)
	case BiasCol:
		x += p.C.Type.At(b.Bias, j)
	}
	x = e.Activation.Info().F(p.wrapped(x))
	if e.Residual {
		x = p.wrapped(x + extra(Residual, i, j))
	}
	if e.OutScale {
		x *= extra(OutScale, 0, 0)
	}
	if e.Saturate {
		x = Saturated(p.C.Type, x)
	}
	return x
}

// wrapped is x as the type of the sums holds it, if that is one of whole numbers.
func (p *Problem) wrapped(x float64) float64 {
	if p.C.Type.Info().Integer {
		return float64(int32(int64(x)))
	}
	return x
}

// Saturated is x, or the value of type t that is nearest to it where it is too large. NaN
// stays NaN.
func Saturated(t dtype.Type, x float64) float64 {
	largest := t.Info().Max
	switch {
	case x > largest:
		return largest
	case x < -largest:
		return -largest
	}
	return x
}

// parts are what an epilogue is made of, in its order, by their names.
var parts = func() []part {
	extra := func(x Extra) part {
		return part{x.String(), func(e Epilogue) bool { return e.Has(x) }, func(e *Epilogue) { e.Read(x) }}
	}
	list := []part{extra(RowScale), extra(ColScale)}
	for dim, name := range []string{BiasRow: "bias-row", BiasCol: "bias-col"} {
		if name != "" {
			list = append(list, part{name, func(e Epilogue) bool { return e.Bias == BiasDim(dim) }, func(e *Epilogue) { e.Bias = BiasDim(dim) }})
		}
	}
	for _, a := range Activations()[1:] {
		list = append(list, part{a.String(), func(e Epilogue) bool { return e.Activation == a }, func(e *Epilogue) { e.Activation = a }})
	}
	return append(list, extra(Residual), extra(OutScale),
		part{"saturate", func(e Epilogue) bool { return e.Saturate }, func(e *Epilogue) { e.Saturate = true }})
}()

type part struct {
	name string
	has  func(Epilogue) bool
	set  func(*Epilogue)
}

const noEpilogue = "none"

// String is the epilogue as ParseEpilogue reads it: "bias-col+gelu", or "none".
func (e Epilogue) String() string {
	var names []string
	for _, p := range parts {
		if p.has(e) {
			names = append(names, p.name)
		}
	}
	if e.Function != nil {
		names = append(names, e.Function.String())
	}
	if names == nil {
		return noEpilogue
	}
	return strings.Join(names, "+")
}

// EpilogueParts lists the names that [ParseEpilogue] takes.
func EpilogueParts() []string {
	names := []string{noEpilogue}
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// ParseEpilogue reads what an epilogue does, with a + between, or "none".
func ParseEpilogue(text string) (e Epilogue, err error) {
	if text == noEpilogue {
		return e, nil
	}
	for name := range strings.SplitSeq(text, "+") {
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if at < 0 {
			return Epilogue{}, fmt.Errorf("epilogue %q does no %q (want %s, with a + between)", text, name, strings.Join(EpilogueParts(), ", "))
		}
		parts[at].set(&e)
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
