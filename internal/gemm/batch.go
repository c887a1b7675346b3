package gemm

import (
	"fmt"
	"math"
	"math/bits"
)

// Batch says that a [Problem] is several products, which are computed together. Make
// such a problem with [Problem.Strided] or [Problem.Grouped]; the zero Batch is one product.
type Batch struct {
	Kind   BatchKind
	Count  int // of products
	Stride Strides
}

// Strides holds the elements from a matrix of one product to that of the next; 0 means that all
// products share the matrix.
type Strides [Bias]int

// BatchKind says what the products of a batch have in common.
type BatchKind uint8

const (
	// Single is one product.
	Single BatchKind = iota
	// Strided are products of equal layouts, whose matrices lie at equal distances.
	Strided
	// Grouped are products of groups of the rows of one A, each with a B of its own, which
	// give the same rows of one C. M counts the rows of all groups; where each ends is data:
	// rows behind the last group are nobody's, and of C they are not written.
	Grouped
)

// Strided is count products as p is one, b having the distances.
//
// The errors are ErrShape: a distance at which parts of C overlap, or that no int counts; and
// ErrUnsupported for what an epilogue reads besides a bias.
func (p Problem) Strided(count int, b Batch) (Problem, error) {
	if err := p.plain(); err != nil {
		return p, err
	}
	b.Kind, b.Count = Strided, count
	p.Batch = b
	if count < 0 {
		return p, fmt.Errorf("%w: a batch of %d products", ErrShape, count)
	}
	for o := range C + 1 {
		if _, err := p.Layouts[o].Span(count, b.Stride[o], o.String()); err != nil {
			return p, err
		}
	}
	if l := p.Layouts[C]; count > 1 && l.Len() > 0 && b.Stride[C] < l.Len() && (b.Stride[C] < l.Cols || (count-1)*b.Stride[C]+l.Cols > l.LD) {
		return p, fmt.Errorf("%w: C's of %v begin every %d elements, which has them overlap", ErrShape, l, b.Stride[C])
	}
	return p, nil
}

// Grouped is the products of count groups of p's rows, with a B every stride elements.
//
// The errors are ErrShape, and ErrUnsupported for an A or a C whose rows are no rows in memory
// and for what an epilogue reads besides a bias.
func (p Problem) Grouped(count, stride int) (Problem, error) {
	if err := p.plain(); err != nil {
		return p, err
	}
	switch {
	case count < 0:
		return p, fmt.Errorf("%w: %d groups", ErrShape, count)
	case p.A().Trans:
		return p, fmt.Errorf("%w: groups of the rows of a transposed A: they do not lie one behind the other", ErrUnsupported)
	}
	if _, err := p.B().Span(count, stride, "B"); err != nil {
		return p, err
	}
	p.Batch = Batch{Kind: Grouped, Count: count, Stride: Strides{B: stride}}
	return p, nil
}

// plain returns an error if p uses an operand of which a batch would need many.
func (p *Problem) plain() error {
	for o := Residual; o < GroupEnds; o++ {
		if o != Bias && p.Uses(o) {
			return fmt.Errorf("%w: a batch with %s", ErrUnsupported, o)
		}
	}
	if p.Epilogue.Function != nil {
		return fmt.Errorf("%w: a batch with a function of the caller's", ErrUnsupported)
	}
	return nil
}

// Span is the number of elements from the first of so many equal matrices, which begin
// every stride elements, to the last of the last. The error is ErrShape.
func (l Layout) Span(count, stride int, name string) (int, error) {
	if stride >= 0 && (count == 0 || l.Len() == 0) {
		return 0, nil
	}
	high, apart := bits.Mul64(uint64(count-1), uint64(stride))
	most := uint64(math.MaxInt)/uint64(l.Type.Size()) - uint64(l.Len())
	if stride < 0 || high != 0 || apart > most {
		return 0, fmt.Errorf("%w: %d matrices %s of %v, which begin every %d elements", ErrShape, count, name, l, stride)
	}
	return int(apart) + l.Len(), nil
}

// Products is how many products the problem is.
func (p *Problem) Products() int {
	if p.Batch.Kind == Single {
		return 1
	}
	return p.Batch.Count
}

// Empty says that C has no element.
func (p *Problem) Empty() bool { return p.M == 0 || p.N == 0 || p.Products() == 0 }

// Traffic returns the bytes of all matrices, each counted once. Of the epilogue's operands it
// counts only the second B of a gated product.
func (p *Problem) Traffic() float64 {
	sum := 0.0
	for o := range C + 1 {
		n := float64(p.Layouts[o].Bytes())
		if p.Batch.Stride[o] > 0 {
			n *= float64(p.Batch.Count)
		}
		sum += n
	}
	return sum + float64(p.Layouts[Up].Bytes())
}

// Bytes returns the bytes from the first to the last of each operand that p uses. For a batch they
// include the matrices of all products and the gaps between them.
func (p *Problem) Bytes() (bytes [Operands]int) {
	for o := range C + 1 {
		l, stride := p.Layouts[o], p.Batch.Stride[o]
		count := p.Products()
		if p.Batch.Kind == Grouped && stride == 0 {
			count = 1 // all groups share one A and one C
		}
		n, err := l.Span(count, stride, "")
		if err != nil {
			n = 0 // Strided and Grouped return an error for such a batch
		}
		bytes[o] = n * l.Type.Size()
	}
	for o := C + 1; o < Operands; o++ {
		l := p.Layout(o)
		bytes[o] = l.Bytes()
	}
	return bytes
}

// Product returns product n of a strided batch as a problem of its own, and the bytes from the
// start of the batch's A, B and C to those of the product.
func (p *Problem) Product(n int) (one Problem, at [C + 1]int) {
	one = *p
	one.Batch = Batch{}
	for o := range C + 1 {
		at[o] = n * p.Batch.Stride[o] * p.Layouts[o].Type.Size()
	}
	return one, at
}

// Group is product n of a grouped batch, which has the rows from one up to another, as a problem
// of its own, and where its A, B, C and its bias begin in the batch's memory, in bytes.
func (p *Problem) Group(n, from, to int) (one Problem, at [C + 1]int, bias int) {
	one, at = p.Product(n)
	one.M, one.A().Rows, one.C().Rows = to-from, to-from, to-from
	at[A], at[C] = from*p.A().LD*p.In().Size(), from*p.C().LD*p.Out().Size()
	if p.Epilogue.Bias == BiasRow {
		bias = from * p.Out().Size()
	}
	return one, at, bias
}

// words is what String says of the batch.
func (b Batch) words() string {
	switch b.Kind {
	case Strided:
		return fmt.Sprintf(", %d times", b.Count)
	case Grouped:
		return fmt.Sprintf(", in %d groups of rows", b.Count)
	}
	return ""
}
