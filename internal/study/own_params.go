package study

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// OwnParam is a parameter of a kernel, or an array of Numba, which is several parameters.
type OwnParam struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Pointer bool   `json:"pointer"` // it can be a pointer
	Array   bool   `json:"array"`   // it is an array of Numba
	Arg     Arg    `json:"arg"`     // the argument to begin with

	vars  []*ptx.Var
	numba numbaType
}

// Sides of the matrices, and lengths of the arrays, to begin with.
const (
	firstSide   = 32
	firstLength = 128
)

// ownParams returns the parameters of a kernel.
func ownParams(f *ptx.Func, u *uses) []OwnParam {
	list := []OwnParam{}
	arguments := numbaArguments(f)
	found := false // which 64-bit integers are pointers
	for _, v := range f.Params {
		found = found || v.Ptr != nil || u.params[v].pointer()
	}
	for rest := f.Params; len(rest) > 0; {
		p := OwnParam{Name: strings.TrimPrefix(rest[0].Name, f.Name+"_"), vars: rest[:1]}
		if len(arguments) > 0 {
			p.Name = fmt.Sprintf("argument %d", len(list)+1)
			p.numba = arguments[len(list)]
			p.vars = rest[:p.numba.params()]
		}
		p.describe(u, found)
		list = append(list, p)
		rest = rest[len(p.vars):]
	}
	return list
}

// describe sets the type and the first argument. found reports whether the kernel's pointers are
// known.
func (p *OwnParam) describe(u *uses, found bool) {
	v := p.vars[0]
	use := u.params[v]
	p.Type, p.Pointer = "."+v.Type.String(), isPointer(v)
	switch {
	case p.numba.dims > 0:
		p.Type, p.Pointer, p.Array = p.numba.String(), true, true
		p.Arg = firstMatrix(u.params[p.vars[numbaData]], p.numba.element, p.numba.dims)
	case !use.value:
		p.Arg = Arg{Kind: "unused"}
	case p.Pointer && (v.Ptr != nil || use.pointer() || !found):
		p.Arg = firstMatrix(use, elementType(use.element), 2)
	case v.Type.Class() == ptx.Float:
		p.Arg = Arg{Kind: "number", Value: "1"}
	default:
		p.Arg = Arg{Kind: "number", Value: strconv.Itoa(firstSide)}
	}
}

// firstMatrix returns the argument to begin with for a pointer.
func firstMatrix(u *use, element string, dims int) Arg {
	a := Arg{Kind: "in", Type: element, Rows: firstSide, Cols: firstSide}
	if dims == 1 {
		a.Rows, a.Cols = firstLength, 0
	}
	switch {
	case u.updated:
		a.Kind = "zeros"
	case u.written && u.read, !u.pointer(): // how it is used is not known
		a.Kind = "update"
	case u.written:
		a.Kind = "out"
	}
	return a
}

func isPointer(v *ptx.Var) bool {
	return len(v.Dims) == 0 && v.Vec == 0 && v.Type.Class() != ptx.Float && v.Type.Bytes() == 8
}

// values returns the values of the parameters for an argument, and the matrix that it points to or
// nil.
func (p *OwnParam) values(ctx context.Context, memory *emu.Memory, a *Arg) ([]any, *matrix, error) {
	v := p.vars[0]
	switch {
	case a.Kind == "unused" && len(v.Dims) > 0:
		return []any{make([]byte, v.Size())}, nil, nil
	case a.Kind == "unused" && p.numba.dims == 0:
		x, err := number("0", v)
		return []any{x}, nil, err
	case a.Kind == "number" && p.numba.dims == 0:
		x, err := number(a.Value, v)
		return []any{x}, nil, err
	case !p.Pointer:
		return nil, nil, fmt.Errorf("a %s: want a number", p.Type)
	}
	m, err := a.matrix(ctx, memory, p.Name)
	if err != nil {
		return nil, nil, err
	}
	if p.numba.dims == 0 {
		return []any{m.at}, m, nil
	}
	values, err := p.numba.values(m)
	return values, m, err
}

// demangle returns the name of a kernel in its source, and the types of its arguments as they are
// mangled: matmul and PKfS0_Pfi for _Z6matmulPKfS0_Pfi.
func demangle(name string) (title, arguments string) {
	rest, mangled := strings.CutPrefix(name, "_Z")
	if !mangled {
		return name, ""
	}
	rest, nested := strings.CutPrefix(rest, "N") // in a namespace, or in a module of Python
	for title = name; ; {
		text, tag := rest, false
		if nested {
			text, tag = strings.CutPrefix(rest, "B")
		}
		digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
		n, err := strconv.Atoi(text[:digits])
		if err != nil || n > len(text)-digits {
			return title, strings.TrimPrefix(rest, "E")
		}
		if !tag {
			title = text[digits : digits+n]
		}
		if rest = text[digits+n:]; !nested {
			return title, rest
		}
	}
}
