package gemm

import (
	"fmt"
	"math"
	"math/bits"
)

// Batch says that a [Problem] is several products, which are computed together. Make
// such a problem with [Problem.Strided] or [Problem.Grouped]; the zero Batch is one product.
type Batch struct {
	Kind  BatchKind
	Count int // of products
	// A, B and C are the elements from a product's matrix to the next one's; 0 says that
	// all products have the same.
	A, B, C int
}

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
	for _, x := range p.operands() {
		if _, err := x.l.Span(count, x.stride, x.name); err != nil {
			return p, err
		}
	}
	if l := p.C; count > 1 && l.Len() > 0 && b.C < l.Len() && (b.C < l.Cols || (count-1)*b.C+l.Cols > l.LD) {
		return p, fmt.Errorf("%w: C's of %v begin every %d elements, which has them overlap", ErrShape, l, b.C)
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
	case p.A.Trans:
		return p, fmt.Errorf("%w: groups of the rows of a transposed A: they do not lie one behind the other", ErrUnsupported)
	}
	if _, err := p.B.Span(count, stride, "B"); err != nil {
		return p, err
	}
	p.Batch = Batch{Kind: Grouped, Count: count, B: stride}
	return p, nil
}

// plain refuses what a batch would need many of.
func (p *Problem) plain() error {
	for x := range Extra(Extras) {
		if p.Has(x) {
			return fmt.Errorf("%w: a batch with %v", ErrUnsupported, x)
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

// Traffic is the bytes of all matrices, each counted once, but for what an epilogue reads
// besides a second B.
func (p *Problem) Traffic() float64 {
	sum := 0.0
	for _, x := range p.operands() {
		n := float64(x.l.Bytes())
		if x.stride > 0 {
			n *= float64(p.Batch.Count)
		}
		sum += n
	}
	return sum + float64(p.Up.Bytes())
}

// Bytes are those from the first of A, of B and of C to the last: of a batch with the
// matrices of all products, and what lies in between.
func (p *Problem) Bytes() (bytes [3]int) {
	for i, x := range p.operands() {
		n, err := x.l.Span(p.matrices(x.stride), x.stride, "")
		if err != nil {
			n = 0 // Strided and Grouped have refused such a batch
		}
		bytes[i] = n * x.l.Type.Size()
	}
	return bytes
}

// matrices is how many there are of an operand.
func (p *Problem) matrices(stride int) int {
	if p.Batch.Kind == Grouped && stride == 0 {
		return 1
	}
	return p.Products()
}

// operand is A, B or C and the elements from a product's to the next one's.
type operand struct {
	name   string
	l      Layout
	stride int
}

func (p *Problem) operands() [3]operand {
	return [...]operand{{"A", p.A, p.Batch.A}, {"B", p.B, p.Batch.B}, {"C", p.C, p.Batch.C}}
}

// Product is product n of a strided batch as a problem of its own, and where its A, B and C
// begin in the batch's memory, in bytes.
func (p *Problem) Product(n int) (one Problem, at [3]int) {
	one = *p
	one.Batch = Batch{}
	for i, x := range p.operands() {
		at[i] = n * x.stride * x.l.Type.Size()
	}
	return one, at
}

// Group is product n of a grouped batch, which has the rows from one up to another, as a problem
// of its own, and where its A, B, C and its bias begin in the batch's memory, in bytes.
func (p *Problem) Group(n, from, to int) (one Problem, at [3]int, bias int) {
	one, at = p.Product(n)
	one.M, one.A.Rows, one.C.Rows = to-from, to-from, to-from
	at[0], at[2] = from*p.A.LD*p.A.Type.Size(), from*p.C.LD*p.C.Type.Size()
	if p.Epilogue.Bias == BiasRow {
		bias = from * p.C.Type.Size()
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
