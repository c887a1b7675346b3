package gemm

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/dtype"
	"tilework/internal/names"
)

// Epilogue describes the operations on each element x of α·op(A)·op(B) + β·C before it is rounded
// to C's type. Like alpha and beta they are computed in [Problem.ScaleType], in the order of the
// fields:
//
//	x ← f((act(rowScale[i]·colScale[j]·x + bias)·up[i, j] + residual[i, j])·outScale)
//
// where up is 1, or α·op(A)·op(Up) for a gated product. The zero value does nothing.
// [Problem.Finish] is the definition, except of the zero points, which change the sums before alpha
// multiplies them: Σ(a − rowZero[i])·(b − colZero[j]).
type Epilogue struct {
	RowZero, ColZero   bool // whether rows of op(A) and columns of op(B) have zero points
	RowScale, ColScale bool // whether rows and columns are multiplied by numbers of their own
	Bias               BiasDim
	Activation         Activation
	// Gated reports whether there is a second B, Up, whose product is multiplied element by element by
	// the activated product of B: SwiGLU and its variants (Shazeer, "GLU variants improve
	// transformer", 2020).
	Gated    bool
	Residual bool // whether a matrix is added
	OutScale bool // whether all is multiplied by one more number
	// Function is a function of the caller that is applied after all of the above. Flipped reports
	// whether it receives the row of an element as its column and vice versa.
	Function Function
	Flipped  bool
	// Saturate replaces values that overflow C's type by its largest value instead of an infinity.
	Saturate bool
}

// Function is a function of elements that some backend can compute. Equal Functions are the same
// function. A backend returns ErrUnsupported for the Functions of another one.
type Function interface {
	fmt.Stringer
	// Reads reports whether it reads data of its own.
	Reads() bool
}

// OnlyBias reports whether the epilogue does nothing to the product with its zero points except,
// perhaps, add a bias.
func (e Epilogue) OnlyBias() bool { return e.WithoutZeros() == Epilogue{Bias: e.Bias} }

// BiasDim is the dimension of C along which a bias or another vector of the epilogue extends.
type BiasDim uint8

const (
	BiasNone BiasDim = iota
	BiasRow          // M values: one for each row of C
	BiasCol          // N values: one for each column of C
)

// Activation is a function that is applied to each element.
type Activation uint8

const (
	ActNone Activation = iota
	ActReLU
	ActGELU
	ActGELUTanh
	ActSiLU
)

// ActivationInfo describes an activation.
type ActivationInfo struct {
	Name    string
	Formula string
	F       func(float64) float64
	// Slope bounds |F′|, the factor by which F can magnify an error of its argument.
	Slope   float64
	Integer bool // whether it maps integers to integers
	// Gated is the name of a gated product with the activation.
	Gated string
}

var activations = [...]ActivationInfo{
	ActNone: {Name: "none", Formula: "x", F: func(x float64) float64 { return x }, Slope: 1, Integer: true,
		Gated: "bilinear"},
	ActReLU: {Name: "relu", Formula: "max(x, 0)", F: relu, Slope: 1, Integer: true, Gated: "reglu"},
	ActGELU: {Name: "gelu", Formula: "x·Φ(x) = x/2·(1 + erf(x/√2))", F: gelu, Slope: 1.13, Gated: "geglu"},
	ActGELUTanh: {Name: "gelu-tanh", Formula: "x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))", F: geluTanh, Slope: 1.13,
		Gated: "geglu-tanh"},
	ActSiLU: {Name: "silu", Formula: "x/(1 + e⁻ˣ)", F: silu, Slope: 1.1, Gated: "swiglu"},
}

// relu propagates NaN, which the opposite comparison would not.
func relu(x float64) float64 {
	if x < 0 {
		return 0
	}
	return x
}

// The following three tend to 0 at −∞, where their formulas give 0·∞.

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

// Activations returns all activations.
func Activations() []Activation {
	all := make([]Activation, len(activations))
	for i := range all {
		all[i] = Activation(i)
	}
	return all
}

// Info returns the description of a.
func (a Activation) Info() *ActivationInfo { return &activations[a] }

func (a Activation) String() string { return activations[a].Name }

// ParseActivation returns the activation of a name.
func ParseActivation(name string) (Activation, error) {
	i, err := names.Find("activation", name, activations[:], func(a *ActivationInfo) string { return a.Name })
	return Activation(i), err
}

func (p *Problem) checkEpilogue() error {
	e := &p.Epilogue
	if int(e.Activation) >= len(activations) {
		return fmt.Errorf("%w: no activation %d", ErrUnsupported, e.Activation)
	}
	if e.Bias > BiasCol {
		return fmt.Errorf("%w: no bias dimension %d", ErrUnsupported, e.Bias)
	}
	if e.Gated && (e.Bias != BiasNone || e.RowScale || e.ColScale) {
		return fmt.Errorf("%w: a gated product with a bias or with scales of rows or columns, of which it would need two",
			ErrUnsupported)
	}
	if err := p.checkZeros(); err != nil || !p.scalesIntegers() {
		return err
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s on a result of %v: want zero points, bias, relu and residual alone%s",
			ErrUnsupported, fmt.Sprintf(format, args...), p.Out(), p.orFloat())
	}
	switch {
	case e.Gated:
		return refuse("a gate")
	case !e.Activation.Info().Integer:
		return refuse("activation %v", e.Activation)
	case e.RowScale || e.ColScale || e.OutScale:
		return refuse("scales")
	case e.Saturate:
		return refuse("saturation")
	}
	return nil
}

// transposed returns the epilogue of the transposed product.
func (e Epilogue) transposed() Epilogue {
	switch e.Bias {
	case BiasRow:
		e.Bias = BiasCol
	case BiasCol:
		e.Bias = BiasRow
	}
	e.RowScale, e.ColScale = e.ColScale, e.RowScale
	e.RowZero, e.ColZero = e.ColZero, e.RowZero
	e.Flipped = e.Function != nil && !e.Flipped
	return e
}

// checkResidual checks the residual, which must be stored like C, by rows or by columns. Without a
// layout it gets the one of a matrix without padding.
func (p *Problem) checkResidual() error {
	l := &p.Layouts[Residual]
	if l.Type == dtype.Invalid {
		*l = Dense(p.Out(), p.C().Rows, p.C().Cols)
	}
	if err := l.Check("the residual"); err != nil {
		return err
	}
	switch {
	case l.OpRows() != p.M || l.OpCols() != p.N:
		return fmt.Errorf("%w: the residual is %d×%d, want %d×%d like C", ErrShape, l.OpRows(), l.OpCols(), p.M, p.N)
	case l.Type != p.Out():
		return fmt.Errorf("%w: a residual of %v for a result of %v", ErrUnsupported, l.Type, p.Out())
	case l.Trans:
		return fmt.Errorf("%w: a residual that is stored by columns for a C by rows, or the other way round", ErrUnsupported)
	}
	l.Conj = false
	return nil
}

// checkGated checks a gated product and its second B, which must be stored like B, by rows or by
// columns. Without a layout it gets the one of a matrix without padding. swapped reports whether
// the caller's C is transposed.
func (p *Problem) checkGated(swapped bool) error {
	switch {
	case swapped:
		return fmt.Errorf("%w: a gated product with a transposed C", ErrUnsupported)
	case p.Beta != 0:
		return fmt.Errorf("%w: a gated product with a beta of %v, want 0", ErrUnsupported, real(p.Beta))
	}
	l := &p.Layouts[Up]
	if l.Type == dtype.Invalid {
		*l = Dense(p.B().Type, p.B().Rows, p.B().Cols)
		l.Trans = p.B().Trans
	}
	if err := l.Check("up"); err != nil {
		return err
	}
	switch {
	case l.OpRows() != p.K || l.OpCols() != p.N:
		return fmt.Errorf("%w: up is %d×%d, want %d×%d like B", ErrShape, l.OpRows(), l.OpCols(), p.K, p.N)
	case l.Type != p.B().Type:
		return fmt.Errorf("%w: up holds %v and B holds %v: convert one of them", ErrUnsupported, l.Type, p.B().Type)
	case l.Trans != p.B().Trans:
		return fmt.Errorf("%w: an up that is stored by columns for a B by rows, or the other way round", ErrUnsupported)
	}
	l.Conj = false
	return nil
}

// Other returns the second product of a gated one: α·op(A)·op(Up), in ScaleType and without
// padding.
func (p *Problem) Other() Problem {
	q := *p
	q.Layouts[B], q.Layouts[Up], q.Layouts[Residual], q.Epilogue = p.Layouts[Up], Layout{}, Layout{}, Epilogue{}
	q.Layouts[C] = Dense(p.ScaleType(), p.M, p.N)
	return q
}

// Columns returns the number of columns of B, or of both B of a gated product.
func (p *Problem) Columns() int {
	if p.Epilogue.Gated {
		return 2 * p.N
	}
	return p.N
}

// Finish applies the epilogue to x, element (i, j) of α·op(A)·op(B) + β·C, without the final
// rounding. up is the same element of [Problem.Other] if p is gated. b holds the operands that the
// epilogue reads. Finish does not apply a Function.
func (p *Problem) Finish(b *Buffers, i, j int, x, up float64) float64 {
	e := &p.Epilogue
	if e.RowScale {
		x *= p.element(b, RowScale, 0, i)
	}
	if e.ColScale {
		x *= p.element(b, ColScale, 0, j)
	}
	switch e.Bias {
	case BiasRow:
		x += p.Out().At(b[Bias], i)
	case BiasCol:
		x += p.Out().At(b[Bias], j)
	}
	x = e.Activation.Info().F(p.inScale(x))
	if e.Gated {
		x *= up
	}
	if e.Residual {
		x = p.inScale(x + p.element(b, Residual, i, j))
	}
	if e.OutScale {
		x *= p.element(b, OutScale, 0, 0)
	}
	if e.Saturate {
		x = Saturated(p.Out(), x)
	}
	return x
}

// Magnitudes holds the magnitudes of the operands that the epilogue applies to one element. Error
// bounds follow from them.
type Magnitudes struct {
	Scale float64 // factor before the bias
	Bias  float64
	// Added is the sum of the terms that are added after the activation, and Factor the factor
	// after these. LateOps is the number of these operations.
	Added, Factor float64
	LateOps       int
}

// Magnitudes returns the magnitudes of the operands in b that [Problem.Finish] applies to element
// (i, j).
func (p *Problem) Magnitudes(b *Buffers, i, j int) Magnitudes {
	e := &p.Epilogue
	m := Magnitudes{Scale: 1, Factor: 1}
	if e.RowScale {
		m.Scale *= math.Abs(p.element(b, RowScale, 0, i))
	}
	if e.ColScale {
		m.Scale *= math.Abs(p.element(b, ColScale, 0, j))
	}
	switch e.Bias {
	case BiasRow:
		m.Bias = math.Abs(p.element(b, Bias, 0, i))
	case BiasCol:
		m.Bias = math.Abs(p.element(b, Bias, 0, j))
	}
	if e.Residual {
		m.Added += math.Abs(p.element(b, Residual, i, j))
		m.LateOps++
	}
	if e.OutScale {
		m.Factor = math.Abs(p.element(b, OutScale, 0, 0))
		m.LateOps++
	}
	return m
}

// element returns element (i, j) of an operand.
func (p *Problem) element(b *Buffers, o Operand, i, j int) float64 {
	l := p.Layout(o)
	return l.Type.At(b[o], l.Index(i, j))
}

// inScale returns x wrapped, if the epilogue is computed in int32.
func (p *Problem) inScale(x float64) float64 {
	if p.scalesIntegers() {
		return p.Wrapped(x)
	}
	return x
}

// Saturated returns x, or the nearest finite value of type t if x overflows it. NaN stays NaN.
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

// parts lists the operations of an epilogue by name, in order.
var parts = func() []part {
	reads := func(o Operand) part {
		return part{
			o.String(),
			func(e Epilogue) bool { return *e.ReadFlag(o) },
			func(e *Epilogue) { *e.ReadFlag(o) = true },
		}
	}
	list := []part{reads(RowZero), reads(ColZero), reads(RowScale), reads(ColScale)}
	for dim, name := range []string{BiasRow: "bias-row", BiasCol: "bias-col"} {
		if name != "" {
			list = append(list, part{name, func(e Epilogue) bool { return e.Bias == BiasDim(dim) },
				func(e *Epilogue) { e.Bias = BiasDim(dim) }})
		}
	}
	for _, a := range Activations()[1:] {
		list = append(list, part{a.String(), func(e Epilogue) bool { return e.Activation == a && !e.Gated },
			func(e *Epilogue) { e.Activation = a }})
	}
	for _, a := range Activations() {
		list = append(list, part{a.Info().Gated, func(e Epilogue) bool { return e.Activation == a && e.Gated },
			func(e *Epilogue) { e.Activation, e.Gated = a, true }})
	}
	return append(list, reads(Residual), reads(OutScale),
		part{"saturate", func(e Epilogue) bool { return e.Saturate }, func(e *Epilogue) { e.Saturate = true }})
}()

type part struct {
	name string
	has  func(Epilogue) bool
	set  func(*Epilogue)
}

const noEpilogue = "none"

// String returns the epilogue in the syntax of ParseEpilogue: "bias-col+gelu", or "none".
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

// EpilogueParts returns the names that [ParseEpilogue] accepts.
func EpilogueParts() []string {
	names := []string{noEpilogue}
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// ParseEpilogue parses a list of operations with a + between them, or "none".
func ParseEpilogue(text string) (e Epilogue, err error) {
	if text == noEpilogue {
		return e, nil
	}
	for name := range strings.SplitSeq(text, "+") {
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if at < 0 {
			return Epilogue{}, names.Unknown("operation", name, EpilogueParts())
		}
		parts[at].set(&e)
	}
	return e, nil
}

// BiasLen returns the number of elements, of C's type, in the problem's bias vector.
func (p *Problem) BiasLen() int {
	switch p.Epilogue.Bias {
	case BiasRow:
		return p.M
	case BiasCol:
		return p.N
	}
	return 0
}
