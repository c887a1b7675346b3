package tilework

import "tilework/dtype"

// Operand is a matrix or a batch of matrices with elements of type T, on the host or on a device:
// a [Matrix], [Batch], [PackedMatrix], [DeviceMatrix] or [DeviceBatch]. No other type implements
// it. Go infers T from the operand.
type Operand[T dtype.Element] interface {
	operand(T)
}
