package tilework

import (
	"fmt"
	"math/bits"
	"slices"

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/resident"
	"tilework/internal/team"
)

// argument is an operand as backends take it, without its element type. The layout and memory of A,
// B and C on the host are in the product instead; see [describe].
type argument struct {
	kind   kind
	layout gemm.Layout // of a device batch, of the first matrix
	host   []byte
	// memory and offset locate an operand on a device.
	memory *resident.Memory
	offset int
	// team is the memory of an operand of several ranks.
	team *team.Memory
	// count and stride are the number of matrices of a batch and, on a device, the elements from
	// one to the next.
	count, stride int
	batch         []hostMatrix // the matrices of a batch on the host
	packed        *dispatch.Packed
	// repeated is the number of a vector on the host that a single number stands for.
	repeated *float64
	err      error
}

// hostMatrix is a matrix of a batch on the host.
type hostMatrix struct {
	layout gemm.Layout
	host   []byte
}

// maxKept is the number of matrices of a batch for which a call keeps its memory for the next
// batch.
const maxKept = 1 << 14

// reset makes a zero, except for memory that the next batch uses again.
func (a *argument) reset() {
	kept := a.batch[:0]
	clear(a.batch)
	if *a = (argument{}); cap(kept) <= maxKept {
		a.batch = kept
	}
}

// kind is the kind of an operand, wherever it is stored.
type kind uint8

const (
	kindMatrix kind = iota
	kindPacked
	kindBatch
)

func (k kind) name() string { return [...]string{"matrix", "packed matrix", "batch"}[k] }

// resident returns the argument as a matrix on a device; on the host, as none.
func (a *argument) resident() resident.Matrix {
	if a.memory == nil {
		return resident.Matrix{}
	}
	return resident.Matrix{Memory: a.memory, Offset: a.offset, Layout: a.layout}
}

// straighten makes a vector on the host one stored row. A column of a wider matrix is copied. A
// matrix that is no vector does not change.
func (a *argument) straighten() {
	if !a.layout.IsVector() {
		return
	}
	row, contiguous := a.layout.Row()
	if !contiguous {
		column := a.host
		a.host = make([]byte, row.Bytes())
		size, step := row.Type.Bytes(1), row.Type.Bytes(a.layout.LD)
		for i := range row.Cols {
			copy(a.host[i*size:][:size], column[i*step:])
		}
	}
	a.layout = row
}

// describe converts operand x. It writes the layout to l, the memory of a matrix on the host to
// host, and everything else to *a first, which is left alone for a valid [Matrix].
//
// It is a type switch, as a call of a method of the interface would let x escape: every product
// would allocate.
func describe[T dtype.Element](x Operand[T], o gemm.Operand, l *gemm.Layout, host *[]byte, a *argument) (plain bool) {
	switch x := x.(type) {
	case Matrix[T]:
		x.describe(l)
		*host = dtype.Bytes(x.data)
		if x.err == nil {
			return true
		}
		a.err = x.err
	case PackedMatrix[T]:
		*a = argument{kind: kindPacked, packed: x.b, err: x.err}
		*l = x.layout
		if x.b == nil {
			a.err = fmt.Errorf("%w: the zero PackedMatrix for %s: make one with Pack", ErrShape, o.Phrase())
		}
	case DeviceMatrix[T]:
		*a = argument{memory: x.memory, offset: x.offset, team: x.team, err: x.check(o.Phrase())}
		*l = x.layout
	case DeviceBatch[T]:
		*a = argument{kind: kindBatch, memory: x.memory, offset: x.offset, count: x.count, stride: x.stride,
			err: x.check(o.Phrase())}
		*l = x.layout
	case Batch[T]:
		*a = argument{kind: kindBatch, count: len(x), batch: slices.Grow(a.batch, len(x))[:len(x)]}
		for i := range x {
			m := &a.batch[i]
			x[i].describe(&m.layout)
			if m.host = x[i].bytes(); x[i].err != nil && a.err == nil {
				a.err = fmt.Errorf("matrix %d of %s: %w", i, o.Phrase(), x[i].err)
			}
		}
	default:
		a.err = fmt.Errorf("%w: nil for %s", ErrShape, o.Phrase())
	}
	return false
}

// operandSet is a set of operands, a bit for each.
type operandSet uint16

// product is the set of A, B and C.
const product operandSet = 1<<gemm.A | 1<<gemm.B | 1<<gemm.C

func (s operandSet) has(o gemm.Operand) bool { return s>>o&1 != 0 }

// first returns the first operand of a set that is not empty. s &= s-1 removes it.
func (s operandSet) first() gemm.Operand { return gemm.Operand(bits.TrailingZeros16(uint16(s))) }
