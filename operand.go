package tilework

import (
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/call"
	"tilework/internal/gemm"
)

// Operand is a matrix or a batch of matrices with elements of type T, on the host or on a device:
// a [Matrix], [Batch], [PackedMatrix], [DeviceMatrix] or [DeviceBatch]. No other type implements
// it. Go infers T from the operand.
type Operand[T dtype.Element] interface {
	operand(T)
}

// describe converts operand x. It writes the layout to l, the memory of a matrix on the host to
// host, and everything else to *to first, which is left alone for a valid [Matrix].
//
// It is a type switch, as a call of a method of the interface would let x escape: every product
// would allocate.
func describe[T dtype.Element](x Operand[T], o gemm.Operand, l *gemm.Layout, host *[]byte,
	to *call.Operand) (plain bool) {
	switch x := x.(type) {
	case Matrix[T]:
		x.describe(l)
		*host = dtype.Bytes(x.data)
		if x.err == nil {
			return true
		}
		to.Err = x.err
	case PackedMatrix[T]:
		*to = call.Operand{Kind: call.Packed, Packed: x.b, Err: x.err}
		*l = x.layout
		if x.b == nil {
			to.Err = fmt.Errorf("%w: the zero PackedMatrix for %s: make one with Pack", ErrShape, o.Phrase())
		}
	case DeviceMatrix[T]:
		*to = call.Operand{Memory: x.memory, Offset: x.offset, Err: x.check(o.Phrase())}
		*l = x.layout
	case DeviceBatch[T]:
		*to = call.Operand{Kind: call.Batch, Memory: x.memory, Offset: x.offset, Count: x.count, Stride: x.stride,
			Err: x.check(o.Phrase())}
		*l = x.layout
	case Batch[T]:
		*to = call.Operand{Kind: call.Batch, Count: len(x), Batch: slices.Grow(to.Batch, len(x))[:len(x)]}
		for i := range x {
			m := &to.Batch[i]
			x[i].describe(&m.Layout)
			if m.Host = x[i].bytes(); x[i].err != nil && to.Err == nil {
				to.Err = fmt.Errorf("matrix %d of %s: %w", i, o.Phrase(), x[i].err)
			}
		}
	default:
		to.Err = fmt.Errorf("%w: nil for %s", ErrShape, o.Phrase())
	}
	return false
}
