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

// Function is a custom epilogue function that is compiled into the kernels. Functions that write
// the same PTX are identical: the kernel is compiled once, no matter how often the function is
// created.
type Function struct {
	write func(k *build.Kernel, e Element) build.Reg
	name  string
	reads bool
	// Refused holds, for each accumulator type that the function does not support, the reason.
	Refused map[dtype.Type]error
}

// Element is an element of C that an epilogue function computes, and its position.
type Element struct {
	Value    build.Reg // of the type of alpha and beta: F32, F64 or S32
	Row, Col build.Reg // 0-based and always inside C; 32-bit or 64-bit integers
	// Data points to the numbers that the caller supplied for the function. They have Value's type.
	Data build.Ptr
}

// functions holds all functions, keyed by the hash of their PTX.
var functions struct {
	sync.Mutex
	known map[[sha256.Size]byte]*Function
}

// NewFunction creates the epilogue function that f writes. It calls f once for each accumulator
// type. f must return a value of the element's type. It must not write to memory or synchronize
// threads. If f fails for all types, the error is ErrUnsupported and states the reasons. If it
// fails for some types, products with such accumulators are refused.
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
		return nil, fmt.Errorf("%w: epilogue function: %w", gemm.ErrUnsupported, errors.Join(errs...))
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

// probe returns the PTX of a kernel that only applies f to an element of type t.
func (f *Function) probe(t ptx.Type) (string, error) {
	k := build.New("function")
	k.Threads(1, 1, 1)
	at, data := k.Pointer("at", t), k.Pointer("data", t).ReadOnly()
	got := f.write(k, Element{Value: at.Load(), Row: k.Param("row", ptx.U32), Col: k.Param("col", ptx.U32), Data: data})
	if got.Type() != t && got.Type() != ptx.NoType {
		return "", fmt.Errorf("the result has type .%v: want .%v, the type of the element", got.Type(), t)
	}
	at.Store(got)
	m, err := k.Build()
	if err != nil {
		return "", err
	}
	text := m.String()
	f.reads = f.reads || strings.Contains(text, "[data]") // the builder drops a parameter that is not used
	return text, nil
}

// String returns a name derived from the hash of f's PTX.
func (f *Function) String() string { return f.name }

// Reads implements [gemm.Function].
func (f *Function) Reads() bool { return f.reads }

// checkFunction returns an error if p has an epilogue function that GPUs cannot compute.
func checkFunction(p *gemm.Problem) error {
	switch f := p.Epilogue.Function.(type) {
	case nil:
		return nil
	case *Function:
		if err := f.Refused[p.ScaleType()]; err != nil {
			return fmt.Errorf("%w: the device function on elements of %v: %w", gemm.ErrUnsupported, p.ScaleType(), err)
		}
		return nil
	default:
		return fmt.Errorf("%w: the function %v on a GPU", gemm.ErrUnsupported, f)
	}
}

// call applies the custom epilogue function to element (row, col). Positions of elements outside C
// are clamped to its edge, so that the function reads no data outside.
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
