// Package gemm defines the plain data that all backends share: the product ([Problem]), its
// operands ([Operand]), their layouts ([Layout]) and memory ([Buffers]), and the operations on each
// element of the result ([Epilogue]).
//
// A product is
//
//	C ← epilogue(α·op(A)·op(B) + β·C)
//
// with op(A) of M×K, op(B) of K×N and C of M×N, all row-major. With α = 0 or K = 0, A and B are not
// read. With β = 0, the old C is not read but overwritten.
package gemm

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/ints"
)

// The sentinel errors of every backend. The messages that wrap them state the argument, the value
// found and the value wanted.
var (
	ErrShape       = errors.New("shapes do not fit")
	ErrOverlap     = errors.New("matrices overlap")
	ErrUnsupported = errors.New("not supported")
	ErrVerify      = errors.New("verification failed")
)

// Layout describes the storage of a matrix: Rows×Cols elements in row-major order, with LD elements
// from the start of a row to that of the next. Trans reports whether the product
// uses the transpose, and Conj whether it uses the complex conjugates of the elements. All element
// types are real, so Conj has no effect: [Problem.Complete] clears it, and no backend sees it.
type Layout struct {
	Type       dtype.Type
	Rows, Cols int
	LD         int
	Trans      bool
	Conj       bool
}

// Dense returns the layout of a rows×cols matrix without padding.
func Dense(t dtype.Type, rows, cols int) Layout {
	return Layout{Type: t, Rows: rows, Cols: cols, LD: max(cols, 1)}
}

// rowAlign is the size of the longest vector that a GPU loads, in bytes.
const rowAlign = 16

// Padded returns the layout of a matrix in memory of its own on a device: its rows begin at
// multiples of 16 bytes. A column stays contiguous.
func Padded(l Layout) Layout {
	if l.Cols == 1 {
		l.LD = 1
		return l
	}
	unit := l.Type.Elements(rowAlign)
	l.LD = max(ints.RoundUp(l.Cols, unit), unit)
	return l
}

// IsVector reports whether the matrix has one row or one column.
func (l Layout) IsVector() bool { return l.Rows == 1 || l.Cols == 1 }

// Row returns the layout of the elements of a vector as one row, and reports whether the vector's
// memory has that layout. It does not if the vector is a column of a wider matrix.
func (l Layout) Row() (row Layout, contiguous bool) {
	return Dense(l.Type, 1, l.Rows*l.Cols), l.Rows <= 1 || l.LD == 1
}

// T returns the layout of the transpose in the same memory.
func (l Layout) T() Layout {
	l.Trans = !l.Trans
	return l
}

// H returns the layout of the conjugate transpose in the same memory.
func (l Layout) H() Layout {
	l = l.T()
	l.Conj = !l.Conj
	return l
}

// OpRows returns the number of rows of op(matrix).
func (l Layout) OpRows() int {
	if l.Trans {
		return l.Cols
	}
	return l.Rows
}

// OpCols returns the number of columns of op(matrix).
func (l Layout) OpCols() int {
	if l.Trans {
		return l.Rows
	}
	return l.Cols
}

// Len returns the number of elements from the first of the matrix to its last, including the
// padding between rows. Check ensures that it fits an int.
func (l Layout) Len() int { return l.span() }

// span is Len without a copy of the layout. For a small product, a copy of a layout that has just
// been written stalls.
func (l *Layout) span() int {
	if l.Rows == 0 || l.Cols == 0 {
		return 0
	}
	return (l.Rows-1)*l.LD + l.Cols
}

// Bytes returns Len in bytes.
func (l Layout) Bytes() int { return l.Type.Bytes(l.Len()) }

// Index returns the offset of element (i, j) of op(matrix), in elements.
func (l Layout) Index(i, j int) int {
	if l.Trans {
		i, j = j, i
	}
	return i*l.LD + j
}

// Sub returns the layout of the rows×cols part of op(matrix) that starts at element (i, j), and the
// offset of that element in memory, in elements. The offset of an empty part is 0. The error is
// ErrShape.
func (l Layout) Sub(i, j, rows, cols int) (part Layout, offset int, err error) {
	if i < 0 || j < 0 || rows < 0 || cols < 0 || rows > l.OpRows()-i || cols > l.OpCols()-j {
		return Layout{}, 0, fmt.Errorf("%w: a %d×%d part from (%d, %d) of a %d×%d matrix", ErrShape, rows, cols, i, j,
			l.OpRows(), l.OpCols())
	}
	if rows > 0 && cols > 0 {
		offset = l.Index(i, j)
	}
	if l.Rows, l.Cols = rows, cols; l.Trans {
		l.Rows, l.Cols = cols, rows
	}
	return l, offset, nil
}

// String returns the shape of op(matrix) and its type, operation and padding: "3×4 float32".
func (l Layout) String() string {
	s := fmt.Sprintf("%d×%d %v", l.OpRows(), l.OpCols(), l.Type)
	switch {
	case l.Trans && l.Conj:
		s += " conjugate transposed"
	case l.Trans:
		s += " transposed"
	case l.Conj:
		s += " conjugated"
	}
	if l.LD > max(l.Cols, 1) {
		s += fmt.Sprintf(" (leading dimension %d)", l.LD)
	}
	return s
}

// Check returns an error if the layout is not that of a matrix, or if its size in bytes overflows
// an int. name is the name of the matrix in the message.
func (l *Layout) Check(name string) error {
	switch {
	case !l.Type.Valid():
		return fmt.Errorf("%w: %s has no element type", ErrUnsupported, name)
	case l.Rows < 0 || l.Cols < 0:
		return fmt.Errorf("%w: %s is %d×%d", ErrShape, name, l.Rows, l.Cols)
	case l.LD < max(l.Cols, 1):
		return fmt.Errorf("%w: %s has leading dimension %d, want at least %d", ErrShape, name, l.LD, max(l.Cols, 1))
	}
	elements, length := bits.Mul64(uint64(l.Rows), uint64(l.LD))
	bytes, length := bits.Mul64(length, uint64(l.Type.Bytes(1)))
	if elements != 0 || bytes != 0 || length > math.MaxInt {
		return fmt.Errorf("%w: %s of %d×%d %v elements is more bytes than %d bits count", ErrShape, name, l.Rows, l.LD,
			l.Type, strconv.IntSize-1)
	}
	return nil
}

// Problem describes a product without its data. It is comparable, so it can be the key of a map.
// Make it with [Problem.Complete] or [New], which check it.
type Problem struct {
	M, N, K     int
	Layouts     Layouts
	Alpha, Beta complex128 // real and rounded to ScaleType; backends use their real parts
	Epilogue    Epilogue
	DataLen     int // the count of numbers that the epilogue's function reads
	Precision   Precision
	Batch       Batch
	Invariance  Invariance
}

// New returns the product of matrices with these layouts, as [Problem.Complete] makes it.
func New(alpha complex128, a, b Layout, beta complex128, c Layout, e Epilogue) (p Problem, swapped bool, err error) {
	p = Problem{Layouts: Layouts{A: a, B: b, C: c}, Alpha: alpha, Beta: beta, Epilogue: e}
	if swapped, err = p.Complete(); err != nil {
		return Problem{}, false, err
	}
	return p, swapped, nil
}

// Complete checks the product that its caller describes, and makes it one that backends take. The
// caller sets all fields but M, N and K: of the layouts those of A, B and C, of block scales if
// there are any, and of a residual and a second B, which by default have no padding. Complete
// rounds the factors to the type in which they apply.
//
// The C of a complete problem is never transposed. A transposed C makes it the equal product
// Cᵀ ← op(B)ᵀ·op(A)ᵀ, and swapped true: each operand is then [Operand.Transposed] of the caller's,
// and each matrix transposed. A complete problem may be changed and completed again.
//
// The errors are ErrShape and ErrUnsupported. Complete works in place, because copying a Problem
// takes as long as a product of 16×16.
func (p *Problem) Complete() (swapped bool, err error) {
	if err := p.checkProduct(); err != nil {
		return false, err
	}
	p.roundFactors()
	if err := p.checkEpilogue(); err != nil {
		return false, err
	}
	if swapped = p.C().Trans; swapped {
		p.transpose()
	}
	if p.A().Conj || p.B().Conj || p.C().Conj { // without the test, copies of the layouts wait for the stores
		p.A().Conj, p.B().Conj, p.C().Conj = false, false, false
	}
	p.M, p.N, p.K = p.A().OpRows(), p.B().OpCols(), p.A().OpCols()
	if p.Precision != Native {
		err = p.Precision.Check(p.In())
	}
	if err == nil && p.BlockScaled() {
		err = p.checkScales(swapped)
	}
	if err == nil && p.Batch.Kind != Single {
		err = p.checkBatch(swapped)
	}
	if err == nil && p.Epilogue.Residual {
		err = p.checkResidual()
	}
	if err == nil && p.Epilogue.Gated {
		err = p.checkGated(swapped)
	}
	return swapped, err
}

// checkProduct checks A, B, C and the factors.
func (p *Problem) checkProduct() error {
	if err := p.A().Check("A"); err != nil {
		return err
	}
	if err := p.B().Check("B"); err != nil {
		return err
	}
	if err := p.C().Check("C"); err != nil {
		return err
	}
	switch {
	case p.A().OpCols() != p.B().OpRows():
		return fmt.Errorf("%w: A is %d×%d and B is %d×%d: want a B of %d×%d", ErrShape, p.A().OpRows(),
			p.A().OpCols(), p.B().OpRows(), p.B().OpCols(), p.A().OpCols(), p.B().OpCols())
	case p.C().OpRows() != p.A().OpRows() || p.C().OpCols() != p.B().OpCols():
		return fmt.Errorf("%w: C is %d×%d, want %d×%d as A is %d×%d and B is %d×%d",
			ErrShape, p.C().OpRows(), p.C().OpCols(), p.A().OpRows(), p.B().OpCols(), p.A().OpRows(), p.A().OpCols(),
			p.B().OpRows(), p.B().OpCols())
	case p.In().Signed() != p.B().Type.Signed():
		return fmt.Errorf("%w: A holds %v and B holds %v: convert one of them", ErrUnsupported, p.In(), p.B().Type)
	}
	return p.checkTypes()
}

// transpose makes p the product of the transposes, Cᵀ ← op(B)ᵀ·op(A)ᵀ.
func (p *Problem) transpose() {
	l := p.Layouts
	for o := range Bias {
		if l[o].Type != dtype.Invalid {
			p.Layouts[o.Transposed()] = l[o].T()
		}
	}
	p.Epilogue = p.Epilogue.transposed()
	p.Batch.Stride[A], p.Batch.Stride[B] = p.Batch.Stride[B], p.Batch.Stride[A]
	if p.Invariance == InvariantRows {
		p.Invariance = InvariantColumns
	}
}

// either returns a list such as "float32 or float16".
func either(types []dtype.Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, " or ")
}

func (p *Problem) checkTypes() error {
	in, out, info := p.In(), p.Out(), p.In().Info()
	results := info.Results
	if len(results) == 0 {
		return fmt.Errorf("%w: matrices of %v cannot be multiplied", ErrUnsupported, in)
	}
	ok := false
	for _, r := range results {
		ok = ok || r == out
	}
	if !ok {
		return fmt.Errorf("%w: a product of %v matrices as %v (want %s)", ErrUnsupported, in, out, either(results))
	}
	if !info.Integer && imag(p.Alpha) == 0 && imag(p.Beta) == 0 {
		return nil
	}
	if err := p.checkFactor("alpha", p.Alpha); err != nil {
		return err
	}
	return p.checkFactor("beta", p.Beta)
}

// checkFactor returns an error if the value of alpha or beta is not real or, for an integer result,
// not a whole number.
func (p *Problem) checkFactor(name string, value complex128) error {
	if imag(value) != 0 {
		return fmt.Errorf("%w: %s = %v for elements of %v: want a real number", ErrUnsupported, name, value, p.In())
	}
	if x := real(value); p.scalesIntegers() && (x != math.Trunc(x) || math.Abs(x) > math.MaxInt32) {
		return fmt.Errorf("%w: %s = %v for a result of %v: want a whole number up to ±%d%s", ErrUnsupported, name, x,
			p.Out(), math.MaxInt32, p.orFloat())
	}
	return nil
}

// roundFactors rounds alpha and beta to ScaleType, so that all backends agree on whether a factor
// is 0. Factors that passed checkFactor need no rounding for an integer type.
func (p *Problem) roundFactors() {
	if p.ScaleType() == dtype.F32 {
		p.Alpha, p.Beta = complex128(complex64(p.Alpha)), complex128(complex64(p.Beta))
	}
}

// orFloat returns the result types that allow fractions, as the end of an error message: ", or a
// result of float32 or bfloat16 or float16".
func (p *Problem) orFloat() string {
	floats := slices.DeleteFunc(slices.Clone(p.In().Info().Results), func(t dtype.Type) bool { return t == p.Out() })
	return ", or a result of " + either(floats)
}

// WithPrecision returns a complete p in another precision than the element type's native one. The
// error is ErrUnsupported.
func (p Problem) WithPrecision(precision Precision) (Problem, error) {
	p.Precision = precision
	return p, precision.Check(p.In())
}

// Accum returns the type of the accumulators.
func (p *Problem) Accum() dtype.Type { return p.In().Info().Accum }

// ScaleType returns the type of alpha, beta and the epilogue; see [dtype.Info.ScaleType].
func (p *Problem) ScaleType() dtype.Type { return p.In().Info().ScaleType(p.Out()) }

// scalesIntegers reports whether ScaleType is an integer type. It is faster for floats, which have
// no sums of integers.
func (p *Problem) scalesIntegers() bool { return p.In().Info().Integer && p.ScaleType().Info().Integer }

// Converts reports whether sums are converted from Accum to ScaleType before alpha multiplies them.
func (p *Problem) Converts() bool { return p.Accum() != p.ScaleType() }

// Sums returns the product whose sums p multiplies by alpha or converts: op(A)·op(B) in the type of
// the sums, without padding.
func (p *Problem) Sums() Problem {
	q := *p
	q.Alpha, q.Beta, q.Layouts[Up], q.Layouts[Residual], q.Epilogue = 1, 0, Layout{}, Layout{}, p.Epilogue.Zeros()
	q.Layouts[C] = Dense(p.Accum(), p.M, p.N)
	return q
}

// Convert replaces the result of [Problem.Sums], in place, by α·op(A)·op(B) + β·C in
// ScaleType. c is p's old C.
func (p *Problem) Convert(sums, c []byte) {
	t := p.ScaleType()
	alpha, beta := real(p.Alpha), real(p.Beta)
	for i := range p.M {
		for j := range p.N {
			at := i*p.N + j
			x := t.Round(alpha * t.Round(p.Accum().At(sums, at)))
			if beta != 0 {
				x += t.Round(beta * p.Out().At(c, p.C().Index(i, j)))
			}
			t.Set(sums, at, x)
		}
	}
}

// WrapDepth returns the smallest K at which an int32 sum of products without zero points can wrap:
// 2¹⁷ for int8, whose products are at most 2¹⁴.
func (p *Problem) WrapDepth() int {
	largest := func(t dtype.Type) float64 { return max(t.Info().Max, -t.Round(math.Inf(-1))) }
	return int(math.Ceil(0x1p31 / (largest(p.In()) * largest(p.B().Type))))
}

// Wrapped converts a sum that was computed without overflow to the type of the accumulators, in
// which int32 sums wrap.
func (p *Problem) Wrapped(sum float64) float64 {
	if p.Accum() == dtype.I32 {
		return float64(int32(int64(sum)))
	}
	return sum
}

// ReadsAB reports whether the product reads A and B.
func (p *Problem) ReadsAB() bool { return p.K > 0 && p.Alpha != 0 }

// UnitFactors returns p with 1 for an alpha or beta other than 0. The plans of products that differ
// in such factors alone are the same.
func (p Problem) UnitFactors() Problem {
	if p.Alpha != 0 {
		p.Alpha = 1
	}
	if p.Beta != 0 {
		p.Beta = 1
	}
	return p
}

// Flops returns the number of operations, 2·M·N·K: a multiplication and an addition for each term.
// It includes all products of a batch, and both products of a gated one.
func (p *Problem) Flops() float64 {
	flops := 2 * float64(p.M) * float64(p.Columns()) * float64(p.K)
	if p.Batch.Kind == Strided {
		flops *= float64(p.Batch.Count)
	}
	return flops
}

// InNames returns the element type of A and B, or both if they differ: "uint8·int8".
func (p *Problem) InNames() string {
	if b := p.B().Type; b != p.In() {
		return p.In().String() + "·" + b.String()
	}
	return p.In().String()
}

// String describes the product in one line: "64×32 · 32×16 float32".
func (p *Problem) String() string {
	s := fmt.Sprintf("%d×%d · %d×%d %s", p.M, p.K, p.K, p.N, p.InNames())
	if p.Out() != p.In() {
		s += " → " + p.Out().String()
	}
	if p.Precision != Native {
		s += " in " + p.Precision.String()
	}
	if p.Invariance != NotInvariant {
		s += ", row-invariant"
	}
	if p.BlockScaled() {
		s += ", block scales of " + p.Layouts[ScaleA].String() + " and " + p.Layouts[ScaleB].String()
	}
	return s + p.Batch.words()
}
