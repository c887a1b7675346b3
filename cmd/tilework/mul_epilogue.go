package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tilework"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
)

// epilogueFlags are the flags of `tilework mul` for what is done to each element on its way out.
type epilogueFlags struct {
	bias, biasAlong, activation string
	files                       [gemm.Extras]string // of the operands that come from a file
	scale                       float64
	saturate                    bool
}

// extraFlags are the operands that come from a file, with their flags.
var extraFlags = []struct {
	extra      gemm.Extra
	flag, what string
}{
	{gemm.RowScale, "row-scale", "a file with a factor for each row"},
	{gemm.ColScale, "col-scale", "a file with a factor for each column"},
	{gemm.Up, "up", "a file with a second B, read as B is: what the activation makes of A·B is multiplied by A·up, element by element (with --activation silu that is SwiGLU)"},
	{gemm.Residual, "residual", "a file with a matrix to add behind the activation"},
}

func (f *epilogueFlags) declare(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.bias, "bias", "", "a file with a vector to add before the activation")
	fl.StringVar(&f.biasAlong, "bias-along", "cols", "what the bias has an element for: cols (added to each row) or rows")
	fl.StringVar(&f.activation, "activation", "none", "applied to each element: "+strings.Join(tilework.Activations(), ", "))
	for _, x := range extraFlags {
		fl.StringVar(&f.files[x.extra], x.flag, "", x.what)
	}
	fl.Float64Var(&f.scale, "output-scale", 1, "a factor of the result, before it is rounded")
	fl.BoolVar(&f.saturate, "saturate", false, "the largest number of C's type instead of an infinity")
	complete(c, "activation", tilework.Activations()...)
	complete(c, "bias-along", "cols", "rows")
}

// parse is what the flags say, as far as that needs no file.
func (f *epilogueFlags) parse() (e gemm.Epilogue, err error) {
	if e.Activation, err = gemm.ParseActivation(f.activation); err != nil {
		return e, fmt.Errorf("--activation: %w%s", err, meant(f.activation, tilework.Activations()))
	}
	switch {
	case f.biasAlong != "cols" && f.biasAlong != "rows":
		return e, fmt.Errorf("--bias-along %s: want cols or rows", f.biasAlong)
	case f.bias == "" && f.biasAlong != "cols":
		return e, fmt.Errorf("--bias-along %s without --bias: there is no bias to add", f.biasAlong)
	case f.bias == "":
	case f.biasAlong == "cols":
		e.Bias = gemm.BiasCol
	default:
		e.Bias = gemm.BiasRow
	}
	for _, x := range extraFlags {
		if f.files[x.extra] != "" {
			e.Read(x.extra)
		}
	}
	e.OutScale, e.Saturate = f.scale != 1, f.saturate
	return e, nil
}

// read reads the operands of p's epilogue, and sets their layouts in p. With transB, B is the
// transpose of its file.
func (f *epilogueFlags) read(ctx context.Context, files *inputFlags, p *gemm.Problem, b *gemm.Buffers, transB bool) (err error) {
	if f.bias != "" {
		along := map[gemm.BiasDim]string{gemm.BiasRow: "rows", gemm.BiasCol: "columns"}[p.Epilogue.Bias]
		if b.Bias, err = f.vector(ctx, files, "bias", f.bias, gemm.Dense(p.C.Type, 1, p.BiasLen()), along); err != nil {
			return err
		}
	}
	for _, x := range extraFlags {
		file, want := f.files[x.extra], p.Extra(x.extra)
		switch {
		case file == "":
			continue
		case x.extra == gemm.RowScale:
			b.Extras[x.extra], err = f.vector(ctx, files, x.flag, file, want, "rows")
		case x.extra == gemm.ColScale:
			b.Extras[x.extra], err = f.vector(ctx, files, x.flag, file, want, "columns")
		default:
			up := x.extra == gemm.Up
			if want, b.Extras[x.extra], err = f.matrix(ctx, files, x.flag, file, want, up && transB); err != nil {
				return err
			}
			if up {
				*p, err = p.GatedBy(want)
			} else {
				*p, err = p.Plus(want)
			}
		}
		if err != nil {
			return err
		}
	}
	if l := p.Extra(gemm.OutScale); p.Epilogue.OutScale {
		b.Extras[gemm.OutScale] = make([]byte, l.Bytes())
		l.Type.Set(b.Extras[gemm.OutScale], 0, f.scale)
	}
	return nil
}

// vector reads a vector that has an element for each of the rows, or of the columns.
func (f *epilogueFlags) vector(ctx context.Context, files *inputFlags, flag, file string, want gemm.Layout, along string) ([]byte, error) {
	m, err := files.read(ctx, file, matio.ReadOptions{Type: want.Type, Vector: true})
	if err != nil {
		return nil, err
	}
	if m.OpCols() != want.Cols {
		return nil, fmt.Errorf("%w: --%s %s has %d elements, want %d, one for each of the %s", gemm.ErrShape, flag, file, m.OpCols(), want.Cols, along)
	}
	return m.Data, nil
}

// matrix reads a matrix of the size wanted, or its transpose. It lies as it does in the file where
// its rows run as wanted, and else is copied.
func (f *epilogueFlags) matrix(ctx context.Context, files *inputFlags, flag, file string, want gemm.Layout, transpose bool) (gemm.Layout, []byte, error) {
	m, err := files.read(ctx, file, matio.ReadOptions{Type: want.Type})
	if err != nil {
		return want, nil, err
	}
	if transpose {
		m.Layout = m.T()
	}
	if m.OpRows() != want.OpRows() || m.OpCols() != want.OpCols() {
		return want, nil, fmt.Errorf("%w: --%s %s is %d×%d, want %d×%d", gemm.ErrShape, flag, file, m.OpRows(), m.OpCols(), want.OpRows(), want.OpCols())
	}
	if m.Trans == want.Trans {
		return m.Layout, m.Data, nil
	}
	if err := host.CheckMemory(want.Bytes(), fmt.Sprintf("--%s %s by %s", flag, file, map[bool]string{false: "rows", true: "columns"}[want.Trans])); err != nil {
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
