package gemm

import (
	"cmp"
	"fmt"

	"tilework/dtype"
)

// Operand names a matrix or a vector of a product. This is the one list of operands: buffers,
// addresses, alignments and kernel parameters are arrays indexed by Operand, and checks are
// loops over it.
type Operand uint8

const (
	A            Operand = iota // op(A) is M×K
	B                           // op(B) is K×N
	C                           // M×N, written, and read unless beta is 0
	Residual                    // M×N elements of C's type, added after the activation
	Up                          // K×N elements of B's type: the second B of a gated product
	ScaleA                      // block scales of A, see scales.go
	ScaleB                      // block scales of B
	Bias                        // M or N elements of C's type
	RowScale                    // M numbers of ScaleType
	ColScale                    // N numbers of ScaleType
	OutScale                    // one number of ScaleType
	RowZero                     // M int32 numbers: zero points of the rows of op(A)
	ColZero                     // N int32 numbers: zero points of the columns of op(B)
	FunctionData                // DataLen numbers of ScaleType, read by the epilogue's function
	GroupEnds                   // for each group of rows, the int32 number of the row after its last

	Operands // the number of operands
)

// Layouts holds the layouts that the caller of a product chooses. The layouts of the operands
// from Bias on follow from the problem; see [Problem.Layout].
type Layouts [Bias]Layout

// operandRow describes an operand.
type operandRow struct {
	name   string
	phrase string // the name as part of a sentence, unless it is "the " and the name
	// transposed is the operand that this one becomes in the product of transposes, Bᵀ·Aᵀ.
	transposed Operand
	// flag returns the field of an epilogue that enables the operand. It is nil for operands
	// without such a field.
	flag func(e *Epilogue) *bool
	// reads reports whether an epilogue reads the operand. It is nil where flag decides, and for
	// operands that are not the epilogue's.
	reads func(e *Epilogue) bool
	// dim returns the dimension of C whose rows or columns have an element of the operand each. It
	// is nil for operands without such a dimension.
	dim func(e *Epilogue) BiasDim
	// layout returns the layout of an operand that p reads. It is nil for operands in Layouts.
	layout func(p *Problem) Layout
}

// operands has a row for each Operand.
var operands = [Operands]operandRow{
	A: {name: "A", phrase: "A", transposed: B},
	B: {name: "B", phrase: "B", transposed: A},
	C: {name: "C", phrase: "C", transposed: C},
	Residual: {
		name: "residual", transposed: Residual,
		flag: func(e *Epilogue) *bool { return &e.Residual },
	},
	Up: {
		name: "up", phrase: "the second B of a gated product", transposed: Up,
		flag: func(e *Epilogue) *bool { return &e.Gated },
	},
	ScaleA: {name: "block scales of A", transposed: ScaleB},
	ScaleB: {name: "block scales of B", transposed: ScaleA},
	Bias: {
		name: "bias", transposed: Bias,
		reads:  func(e *Epilogue) bool { return e.Bias != BiasNone },
		dim:    func(e *Epilogue) BiasDim { return e.Bias },
		layout: func(p *Problem) Layout { return Dense(p.Out(), 1, p.BiasLen()) },
	},
	RowScale: {
		name: "row-scale", transposed: ColScale,
		flag:   func(e *Epilogue) *bool { return &e.RowScale },
		dim:    func(*Epilogue) BiasDim { return BiasRow },
		layout: numbers(func(p *Problem) int { return p.M }),
	},
	ColScale: {
		name: "col-scale", transposed: RowScale,
		flag:   func(e *Epilogue) *bool { return &e.ColScale },
		dim:    func(*Epilogue) BiasDim { return BiasCol },
		layout: numbers(func(p *Problem) int { return p.N }),
	},
	OutScale: {
		name: "out-scale", phrase: "the output scale", transposed: OutScale,
		flag:   func(e *Epilogue) *bool { return &e.OutScale },
		layout: numbers(func(*Problem) int { return 1 }),
	},
	RowZero: {
		name: "row-zero", transposed: ColZero,
		flag:   func(e *Epilogue) *bool { return &e.RowZero },
		dim:    func(*Epilogue) BiasDim { return BiasRow },
		layout: func(p *Problem) Layout { return Dense(dtype.I32, 1, p.M) },
	},
	ColZero: {
		name: "col-zero", transposed: RowZero,
		flag:   func(e *Epilogue) *bool { return &e.ColZero },
		dim:    func(*Epilogue) BiasDim { return BiasCol },
		layout: func(p *Problem) Layout { return Dense(dtype.I32, 1, p.N) },
	},
	FunctionData: {
		name: "data", phrase: "the data of the device function", transposed: FunctionData,
		reads:  func(e *Epilogue) bool { return e.Function != nil && e.Function.Reads() },
		layout: numbers(func(p *Problem) int { return p.DataLen }),
	},
	GroupEnds: {
		name: "group ends", transposed: GroupEnds,
		layout: func(p *Problem) Layout { return Dense(dtype.I32, 1, p.Batch.Count) },
	},
}

// numbers returns the layout of a vector of n(p) numbers of p's ScaleType.
func numbers(n func(p *Problem) int) func(p *Problem) Layout {
	return func(p *Problem) Layout { return Dense(p.ScaleType(), 1, n(p)) }
}

func (o Operand) String() string { return operands[o].name }

// Phrase returns o's name as part of a sentence: "A" or "the residual".
func (o Operand) Phrase() string {
	return cmp.Or(operands[o].phrase, "the "+o.String())
}

// Transposed returns the operand that o becomes in the product of transposes, Bᵀ·Aᵀ = Cᵀ.
func (o Operand) Transposed() Operand { return operands[o].transposed }

// IsVector reports whether o is a vector, so that any view with one row or one column may be given
// for it.
func (o Operand) IsVector() bool { return o >= Bias }

// ReadFlag returns the field of e that enables operand o, or nil if o has no such field.
func (e *Epilogue) ReadFlag(o Operand) *bool {
	if flag := operands[o].flag; flag != nil {
		return flag(e)
	}
	return nil
}

// Reads reports whether the epilogue reads o.
func (e *Epilogue) Reads(o Operand) bool {
	switch row := &operands[o]; {
	case row.flag != nil:
		return *row.flag(e)
	case row.reads != nil:
		return row.reads(e)
	}
	return false
}

// VectorDim returns the dimension of C whose rows or columns have an element of vector o each. It
// is BiasNone for other operands.
func (e *Epilogue) VectorDim(o Operand) BiasDim {
	if dim := operands[o].dim; dim != nil {
		return dim(e)
	}
	return BiasNone
}

// Uses reports whether o belongs to p: A, B and C always, the others if p reads them.
func (p *Problem) Uses(o Operand) bool {
	switch o {
	case A, B, C:
		return true
	case ScaleA, ScaleB:
		return p.BlockScaled()
	case GroupEnds:
		return p.Batch.Kind == Grouped
	}
	return p.Epilogue.Reads(o)
}

// usesMore reports whether p uses operands besides A, B and C.
func (p *Problem) usesMore() bool {
	e := &p.Epilogue // field by field: comparing the struct takes as long as the rest of the check
	return e.Bias != BiasNone || e.RowScale || e.ColScale || e.Gated || e.Residual || e.OutScale ||
		e.RowZero || e.ColZero || e.Function != nil || p.BlockScaled() || p.Batch.Kind == Grouped
}

// Layout returns the layout of an operand; that of an operand that p does not use is empty.
func (p *Problem) Layout(o Operand) Layout {
	switch {
	case !p.Uses(o):
		return Layout{}
	case int(o) < len(p.Layouts):
		return p.Layouts[o]
	}
	return operands[o].layout(p)
}

// A returns the layout of A.
func (p *Problem) A() *Layout { return &p.Layouts[A] }

// B returns the layout of B.
func (p *Problem) B() *Layout { return &p.Layouts[B] }

// C returns the layout of C.
func (p *Problem) C() *Layout { return &p.Layouts[C] }

// In returns the element type of A. That of B differs only if one is int8 and the other uint8.
func (p *Problem) In() dtype.Type { return p.Layouts[A].Type }

// Out returns the element type of C.
func (p *Problem) Out() dtype.Type { return p.Layouts[C].Type }

// Buffers holds the memory of each operand that a problem uses, in the machine's byte order
// and at least as long as its layout.
type Buffers [Operands][]byte

// Check returns an error if a buffer is too short for p, or if C shares memory with an operand
// that p reads.
func (b *Buffers) Check(p *Problem) error { return b.CheckExcept(p, Operands) }

// CheckExcept is Check without operand except, which has no buffer.
func (b *Buffers) CheckExcept(p *Problem, except Operand) error {
	c := p.Out().Bytes(p.C().span())
	for o := range C + 1 { // without copies of the layouts, for which a small product would wait
		if o != except {
			if err := b.check(p, o, &p.Layouts[o], c); err != nil {
				return err
			}
		}
	}
	if !p.usesMore() {
		return nil
	}
	for o := C + 1; o < Operands; o++ {
		l := p.Layout(o)
		if err := b.check(p, o, &l, c); err != nil {
			return err
		}
	}
	return nil
}

// check checks the buffer of operand o, which has layout l. C has c bytes.
func (b *Buffers) check(p *Problem, o Operand, l *Layout, c int) error {
	switch n := l.Type.Bytes(l.span()); {
	case len(b[o]) < n:
		return fmt.Errorf("%w: %s has %d bytes of memory, want %d", ErrShape, o, len(b[o]), n)
	case o != C && near(b[C], c, b[o], n) && Overlap(p.Layouts[C], b[C], *l, b[o]):
		return fmt.Errorf("%w: C shares memory with %s", ErrOverlap, o.Phrase())
	}
	return nil
}

// near reports whether the first n bytes of l and the first m of r have one in common. If not,
// which is nearly always the case, matrices in them do not overlap.
func near(l []byte, n int, r []byte, m int) bool {
	a, b := address(l), address(r)
	return a < b+uintptr(m) && b < a+uintptr(n)
}
