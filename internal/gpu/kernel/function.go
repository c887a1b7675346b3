package kernel

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Function is a function of a caller's own, compiled into the kernels. Functions that write
// the same text are one: a kernel with it is compiled once, however often it is made.
type Function struct {
	write func(k *build.Kernel, e Element) build.Reg
	name  string
	reads bool
	// refused says why it is none for products that are summed in a type.
	Refused map[dtype.Type]error
}

// Element is an element of C on its way out, and where it is.
type Element struct {
	Value    build.Reg // of the type of alpha and beta: F32, F64 or S32
	Row, Col build.Reg // from 0, always inside of C; whole numbers of 32 bits, or of 64
	// Data are the numbers that the product was given for the function, of Value's type.
	Data build.Ptr
}

// functions are all that there are, by the hash of what they write.
var functions struct {
	sync.Mutex
	known map[[sha256.Size]byte]*Function
}

// NewFunction has f write what it does to an element, for each type that products are summed
// in, to see what it is. f returns a value of the type of the element's, writes nothing to
// memory and meets no other thread. The error, ErrUnsupported, says what is wrong where it is so
// for every type; where it is for some, products of those are refused.
func NewFunction(f func(k *build.Kernel, e Element) build.Reg) (*Function, error) {
	own := &Function{write: f, Refused: map[dtype.Type]error{}}
	hash := sha256.New()
	var errs []error
	sums := []dtype.Type{dtype.F32, dtype.F64, dtype.I32}
	for _, t := range sums {
		text, err := own.probe(PTXTypes[t])
		if err != nil {
			own.Refused[t] = err
			errs = append(errs, err)
		}
		fmt.Fprintf(hash, "%v\n%s\n", t, text)
	}
	if len(errs) == len(sums) {
		return nil, fmt.Errorf("%w: a function of elements: %w", gemm.ErrUnsupported, errors.Join(errs...))
	}
	var key [sha256.Size]byte
	hash.Sum(key[:0])
	own.name = fmt.Sprintf("function-%x", key[:4])
	functions.Lock()
	defer functions.Unlock()
	if known := functions.known[key]; known != nil {
		return known, nil
	}
	if functions.known == nil {
		functions.known = map[[sha256.Size]byte]*Function{}
	}
	functions.known[key] = own
	return own, nil
}

// probe is the text of a kernel that does nothing else, for elements of a type.
func (f *Function) probe(t ptx.Type) (string, error) {
	k := build.New("function")
	k.Threads(1, 1, 1)
	at, data := k.Pointer("at", t), k.Pointer("data", t).ReadOnly()
	got := f.write(k, Element{Value: at.Load(), Row: k.Param("row", ptx.U32), Col: k.Param("col", ptx.U32), Data: data})
	if got.Type() != t && got.Type() != ptx.NoType {
		return "", fmt.Errorf("it makes a value of type .%v of one of type .%v", got.Type(), t)
	}
	at.Store(got)
	m, err := k.Build()
	if err != nil {
		return "", err
	}
	text := m.String()
	f.reads = f.reads || strings.Contains(text, "[data]") // a parameter that nothing needs is not loaded
	return text, nil
}

// String names the function by the hash of its text.
func (f *Function) String() string { return f.name }

// Reads implements [gemm.Function].
func (f *Function) Reads() bool { return f.reads }

// checkFunction refuses a function that is not for p.
func checkFunction(p *gemm.Problem) error {
	switch f := p.Epilogue.Function.(type) {
	case nil:
		return nil
	case *Function:
		if err := f.Refused[p.ScaleType()]; err != nil {
			return fmt.Errorf("%w: %v of elements of %v: %w", gemm.ErrUnsupported, f, p.ScaleType(), err)
		}
		return nil
	default:
		return fmt.Errorf("%w: %v on a GPU", gemm.ErrUnsupported, f)
	}
}

// call is what the epilogue's function makes of element (row, col). Elements that a tile has
// outside of C are told to be at its edge, so that the function reads no data there.
func (g *Writer) call(x, row, col build.Reg) build.Reg {
	e := g.Config.Epilogue
	row = g.Add(g.Min(row, g.Sub(g.M, 1)), g.row0)
	col = g.Add(g.Min(col, g.Sub(g.N, 1)), g.col0)
	if e.Flipped {
		row, col = col, row
	}
	y := e.Function.(*Function).write(g.Kernel, Element{Value: x, Row: row, Col: col, Data: g.vectors[gemm.FunctionData]})
	if y.Type() == ptx.NoType { // a constant
		y = g.Var("", g.EpilogueType, y)
	}
	return y
}
