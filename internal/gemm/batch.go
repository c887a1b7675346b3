package gemm

import (
	"fmt"
	"math"
	"math/bits"
)

// Batch describes the products of a [Problem] that are computed together. Make such a problem with
// [Problem.Strided] or [Problem.Grouped]. The zero Batch is a single product.
type Batch struct {
	Kind   BatchKind
	Count  int // of products
	Stride Strides
}

// Strides holds the elements from a matrix of one product to that of the next; 0 means that all
// products share the matrix.
type Strides [Bias]int

// BatchKind is the kind of a batch.
type BatchKind uint8

const (
	// Single is a single product.
	Single BatchKind = iota
	// Strided products have equal layouts and matrices at constant strides.
	Strided
	// Grouped products multiply consecutive groups of rows of one A, each by a B of its own, into the
	// same rows of one C. M is the number of rows of all groups. The ends of the groups are data.
	// Rows after the last group are not computed and not written.
	Grouped
)

// Strided returns a batch of count products like p, which is complete, with the strides of b. It
// returns ErrShape if a stride makes parts of C overlap or overflows, and ErrUnsupported if the
// epilogue reads more than a bias.
func (p Problem) Strided(count int, b Batch) (Problem, error) {
	b.Kind, b.Count = Strided, count
	p.Batch = b
	return p, p.checkBatch(false)
}

// Grouped returns the products of count groups of the rows of p, which is complete, with a B every
// stride elements. The errors are ErrShape, and ErrUnsupported for a transposed A and an epilogue
// that reads more than a bias.
func (p Problem) Grouped(count, stride int) (Problem, error) {
	p.Batch = Batch{Kind: Grouped, Count: count, Stride: Strides{B: stride}}
	return p, p.checkBatch(false)
}

// checkBatch checks the batch. swapped reports whether the caller's C is transposed.
func (p *Problem) checkBatch(swapped bool) error {
	b := &p.Batch
	if b.Kind == Grouped && swapped {
		return fmt.Errorf("%w: groups of rows of a C that is stored by columns", ErrUnsupported)
	}
	if err := p.plain(); err != nil {
		return err
	}
	switch {
	case b.Kind == Strided && b.Count < 0:
		return fmt.Errorf("%w: a batch of %d products", ErrShape, b.Count)
	case b.Kind == Grouped && b.Count < 0:
		return fmt.Errorf("%w: %d groups", ErrShape, b.Count)
	case b.Kind == Grouped && p.A().Trans:
		return fmt.Errorf("%w: groups of rows of an A that is stored by columns", ErrUnsupported)
	case b.Kind == Grouped:
		_, err := p.B().Span(b.Count, b.Stride[B], "B")
		return err
	}
	for o := range C + 1 {
		if _, err := p.Layouts[o].Span(b.Count, b.Stride[o], o.String()); err != nil {
			return err
		}
	}
	if l := p.Layouts[C]; b.Count > 1 && l.Len() > 0 && b.Stride[C] < l.Len() &&
		(b.Stride[C] < l.Cols || (b.Count-1)*b.Stride[C]+l.Cols > l.LD) {
		return fmt.Errorf("%w: C's of %v begin every %d elements, so that they overlap", ErrShape, l, b.Stride[C])
	}
	return nil
}

// plain returns an error if p uses an operand that each product of a batch would need.
func (p *Problem) plain() error {
	for o := Residual; o < GroupEnds; o++ {
		if o != Bias && p.Uses(o) {
			hint := ""
			if o == OutScale {
				hint = ": alpha scales the products, before the bias and the activation"
			}
			return fmt.Errorf("%w: a batch with %s, want at most a bias and an activation%s", ErrUnsupported, o.Phrase(), hint)
		}
	}
	if p.Shifted() {
		return fmt.Errorf("%w: a batch of uint8: want int8, or single products", ErrUnsupported)
	}
	if p.Epilogue.Function != nil {
		return fmt.Errorf("%w: a batch with a device function, want at most a bias and an activation", ErrUnsupported)
	}
	return nil
}

// Span returns the number of elements from the first element of the first of count matrices to the
// last element of the last one. The matrices begin every stride elements. The error is ErrShape.
func (l Layout) Span(count, stride int, name string) (int, error) {
	if stride >= 0 && (count == 0 || l.Len() == 0) {
		return 0, nil
	}
	high, apart := bits.Mul64(uint64(count-1), uint64(stride))
	most := uint64(math.MaxInt)/uint64(l.Type.Bytes(1)) - uint64(l.Len())
	if stride < 0 || high != 0 || apart > most {
		return 0, fmt.Errorf("%w: %d matrices %s of %v, which begin every %d elements", ErrShape, count, name, l, stride)
	}
	return int(apart) + l.Len(), nil
}

// Products returns the number of products.
func (p *Problem) Products() int {
	if p.Batch.Kind == Single {
		return 1
	}
	return p.Batch.Count
}

// Empty reports whether C has no elements.
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
		bytes[o] = l.Type.Bytes(n)
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
		at[o] = p.Layouts[o].Type.Bytes(n * p.Batch.Stride[o])
	}
	return one, at
}

// Group returns product n of a grouped batch, which has rows from to to-1, as a problem of its own.
// It also returns the offsets of its A, B, C and bias in the memory of the batch, in bytes.
func (p *Problem) Group(n, from, to int) (one Problem, at [C + 1]int, bias int) {
	one, at = p.Product(n)
	one.M, one.A().Rows, one.C().Rows = to-from, to-from, to-from
	at[A], at[C] = p.In().Bytes(from*p.A().LD), p.Out().Bytes(from*p.C().LD)
	if p.Epilogue.Bias == BiasRow {
		bias = p.Out().Bytes(from)
	}
	return one, at, bias
}

// words describes the batch for [Problem.String].
func (b Batch) words() string {
	switch b.Kind {
	case Strided:
		return fmt.Sprintf(", %d times", b.Count)
	case Grouped:
		return fmt.Sprintf(", in %d groups of rows", b.Count)
	}
	return ""
}
