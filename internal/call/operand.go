package call

import (
	"math/bits"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// Operand is a matrix, a batch of matrices or a packed matrix, on the host or on a device. The
// layout and memory of an A, B or C that is a matrix on the host are in the [Call] instead.
type Operand struct {
	Kind   Kind
	Layout gemm.Layout // of a device batch, of the first matrix
	Host   []byte
	// Memory and Offset locate an operand at a place other than the host.
	Memory Memory
	Offset int
	// Count and Stride are the number of matrices of a batch and, on a device, the elements from one
	// to the next.
	Count, Stride int
	Batch         []Matrix // the matrices of a batch on the host
	Packed        *dispatch.Packed
	Err           error // of an invalid operand

	// repeated is the number of a vector on the host that a single number stands for.
	repeated *float64
}

// Matrix is a matrix on the host.
type Matrix struct {
	Layout gemm.Layout
	Host   []byte
}

// Kind is the kind of an operand, wherever it is stored.
type Kind uint8

const (
	Single Kind = iota
	Packed
	Batch
)

func (k Kind) String() string { return [...]string{"matrix", "packed matrix", "batch"}[k] }

// maxKept is the number of matrices of a batch for which a call keeps its memory for the next
// batch.
const maxKept = 1 << 14

// reset makes x zero, except for memory that the next batch uses again.
func (x *Operand) reset() {
	kept := x.Batch[:0]
	clear(x.Batch)
	if *x = (Operand{}); cap(kept) <= maxKept {
		x.Batch = kept
	}
}

// straighten makes a vector on the host one stored row. A column of a wider matrix is copied. A
// matrix that is no vector does not change.
func (x *Operand) straighten() {
	if !x.Layout.IsVector() {
		return
	}
	row, contiguous := x.Layout.Row()
	if !contiguous {
		column := x.Host
		x.Host = make([]byte, row.Bytes())
		size, step := row.Type.Bytes(1), row.Type.Bytes(x.Layout.LD)
		for i := range row.Cols {
			copy(x.Host[i*size:][:size], column[i*step:])
		}
	}
	x.Layout = row
}

// repeat makes a single number on the host a vector of layout l, whose elements all have its value.
func (x *Operand) repeat(l gemm.Layout) {
	if x.Memory != nil {
		return
	}
	if x.repeated == nil && x.Layout.Rows == 1 && x.Layout.Cols == 1 {
		number := x.Layout.Type.At(x.Host, 0)
		x.repeated = &number
	}
	if x.repeated == nil {
		return
	}
	x.Host, x.Layout = make([]byte, l.Bytes()), l
	for i := range l.Cols {
		l.Type.Set(x.Host, i, *x.repeated)
	}
}

// operandSet is a set of operands, a bit for each.
type operandSet uint16

// matrices is the set of A, B and C.
const matrices operandSet = 1<<gemm.A | 1<<gemm.B | 1<<gemm.C

func (s operandSet) has(o gemm.Operand) bool { return s>>o&1 != 0 }

// first returns the first operand of a set that is not empty. s &= s-1 removes it.
func (s operandSet) first() gemm.Operand { return gemm.Operand(bits.TrailingZeros16(uint16(s))) }
