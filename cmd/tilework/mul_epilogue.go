package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/call"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/matfile"
)

// epilogueFlags are the flags of `tilework mul` for the epilogue.
type epilogueFlags struct {
	bias, biasAlong, activation string
	files                       [gemm.Operands]string // the files of extraFlags
	scale                       factor
	saturate                    bool
}

// extraFlags are the flags that name files with operands of the epilogue, besides the bias.
var extraFlags = []struct {
	extra       gemm.Operand
	flag, usage string
}{
	{gemm.RowZero, "zero-a",
		"the zero `POINT` of A, which is subtracted from its elements: a whole number, or a file with one number or " +
			"one for each row"},
	{gemm.ColZero, "zero-b", "the zero `POINT` of B: a whole number, or a file with one number or one for each column"},
	{gemm.RowScale, "row-scale", "a `FILE` with one factor for each row of C"},
	{gemm.ColScale, "col-scale", "a `FILE` with one factor for each column of C"},
	{gemm.Up, "up",
		"a `FILE` with a second B, transposed like B: multiplies the result of the activation by A·up, element by element " +
			"(SwiGLU with --activation silu)"},
	{gemm.Residual, "residual", "a `FILE` with a matrix to add after the activation"},
}

func activationNames() (names []string) {
	for _, a := range gemm.Activations() {
		names = append(names, a.String())
	}
	return names
}

func (f *epilogueFlags) declare(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.bias, "bias", "", "a `FILE` with a vector to add before the activation")
	fl.StringVar(&f.biasAlong, "bias-along", "cols",
		"`SIDE`: cols (an element for each column of C, added to each row) or rows (an element for each row)")
	fl.StringVar(&f.activation, "activation", "none",
		"the `FUNCTION` to apply to each element: "+strings.Join(activationNames(), ", "))
	for _, x := range extraFlags {
		fl.StringVar(&f.files[x.extra], x.flag, "", x.usage)
	}
	f.scale.value = 1
	fl.Var(&f.scale, "output-scale", "the `FACTOR` of the final result, before it is rounded to C's type")
	fl.BoolVar(&f.saturate, "saturate", false, "store the largest finite number of C's type instead of an infinity")
	complete(c, "activation", activationNames()...)
	complete(c, "bias-along", "cols", "rows")
}

// parse returns the epilogue that the flags describe, without reading files.
func (f *epilogueFlags) parse() (e gemm.Epilogue, err error) {
	if e.Activation, err = gemm.ParseActivation(f.activation); err != nil {
		return e, fmt.Errorf("--activation: %w", err)
	}
	switch {
	case f.biasAlong != "cols" && f.biasAlong != "rows":
		return e, fmt.Errorf("--bias-along %s: want cols or rows", f.biasAlong)
	case f.bias == "" && f.biasAlong != "cols":
		return e, fmt.Errorf("--bias-along %s without --bias: want --bias FILE too", f.biasAlong)
	case f.bias == "":
	case f.biasAlong == "cols":
		e.Bias = gemm.BiasCol
	default:
		e.Bias = gemm.BiasRow
	}
	for _, x := range extraFlags {
		if f.files[x.extra] != "" {
			*e.ReadFlag(x.extra) = true
		}
	}
	e.OutScale, e.Saturate = f.scale.value != 1, f.saturate
	return e, nil
}

// read reads the operands of the epilogue, in the types and sizes that p has for them, and gives
// them to k. With transB, up is the transpose of its file, like B.
func (f *epilogueFlags) read(ctx context.Context, files *inputFlags, k *call.Call, p *gemm.Problem, transB bool) error {
	if f.bias != "" {
		if err := f.vector(ctx, files, k, gemm.Bias, "bias", f.bias, p); err != nil {
			return err
		}
	}
	for _, x := range extraFlags {
		var err error
		switch file := f.files[x.extra]; {
		case file == "":
		case p.Epilogue.VectorDim(x.extra) != gemm.BiasNone:
			err = f.vector(ctx, files, k, x.extra, x.flag, file, p)
		default:
			var l gemm.Layout
			var data []byte
			l, data, err = f.matrix(ctx, files, x.flag, file, p.Layout(x.extra), x.extra == gemm.Up && transB)
			k.GiveMatrix(x.extra, l, data)
		}
		if err != nil {
			return err
		}
	}
	if p.Epilogue.OutScale {
		giveNumber(k, gemm.OutScale, p.ScaleType(), f.scale.in(p.ScaleType()))
	}
	return nil
}

// vector reads vector o, which has one element for each row or column of C, and gives it to k.
func (f *epilogueFlags) vector(ctx context.Context, files *inputFlags, k *call.Call, o gemm.Operand, flag, file string,
	p *gemm.Problem) error {
	want := p.Layout(o)
	if n, ok := f.zeroNumber(o); ok {
		giveNumber(k, o, want.Type, float64(n))
		return nil
	}
	along := map[gemm.BiasDim]string{gemm.BiasRow: "row", gemm.BiasCol: "column"}[p.Epilogue.VectorDim(o)]
	m, err := files.read(ctx, file, want.Type, matfile.OnlyVector)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if m.OpCols() != want.Cols && !(m.OpCols() == 1 && isZero(o)) {
		return fmt.Errorf("%w: --%s %s has %d %s and C has %d %s: want one element for each", gemm.ErrShape,
			flag, file, m.OpCols(), plural("element", m.OpCols()), want.Cols, plural(along, want.Cols))
	}
	k.GiveMatrix(o, m.Layout, m.Data)
	return nil
}

// giveNumber gives a number of type t to k, for a vector whose elements are all that number.
func giveNumber(k *call.Call, o gemm.Operand, t dtype.Type, v float64) {
	l := gemm.Dense(t, 1, 1)
	data := make([]byte, l.Bytes())
	t.Set(data, 0, v)
	k.GiveMatrix(o, l, data)
}

// isZero reports whether o is a zero point of A or B.
func isZero(o gemm.Operand) bool { return o == gemm.RowZero || o == gemm.ColZero }

// zeroNumber returns the zero point o if its flag is a number and not a file.
func (f *epilogueFlags) zeroNumber(o gemm.Operand) (n int64, ok bool) {
	if !isZero(o) {
		return 0, false
	}
	n, err := strconv.ParseInt(f.files[o], 10, 32)
	return n, err == nil
}

// matrix reads a matrix, or the transpose of a matrix, with the shape of want. It copies the matrix
// into the layout want if the file has the other order of rows and columns.
func (f *epilogueFlags) matrix(ctx context.Context, files *inputFlags, flag, file string, want gemm.Layout,
	transpose bool) (gemm.Layout, []byte, error) {
	m, err := files.read(ctx, file, want.Type, matfile.OnlyMatrix)
	if err != nil {
		return want, nil, fmt.Errorf("--%s: %w", flag, err)
	}
	if transpose {
		m.Layout = m.T()
	}
	if m.OpRows() != want.OpRows() || m.OpCols() != want.OpCols() {
		return want, nil, fmt.Errorf("%w: --%s %s is %d×%d, want %d×%d",
			gemm.ErrShape, flag, file, m.OpRows(), m.OpCols(), want.OpRows(), want.OpCols())
	}
	if m.Trans == want.Trans {
		return m.Layout, m.Data, nil
	}
	order := map[bool]string{false: "rows", true: "columns"}[want.Trans]
	if err := host.CheckMemory(want.Bytes(), fmt.Sprintf("--%s %s by %s", flag, file, order)); err != nil {
		return want, nil, err
	}
	data := make([]byte, want.Bytes())
	for i := range want.OpRows() {
		for j := range want.OpCols() {
			want.Type.Set(data, want.Index(i, j), m.Type.At(m.Data, m.Index(i, j)))
		}
	}
	return want, data, nil
}
