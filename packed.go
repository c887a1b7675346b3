package tilework

import (
	"tilework/dtype"
	"tilework/internal/dispatch"
)

// PackedMatrix is the B of many products on the CPU, such as the weights of a network, stored in
// the order in which the CPU's kernels read it. It cannot change, so any number of goroutines may
// multiply by it at once. Make one with [Pack].
type PackedMatrix[T dtype.Element] struct {
	shape
	b *dispatch.Packed
}

func (PackedMatrix[T]) operand(T) {}
