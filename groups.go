package tilework

import (
	"fmt"
	"math"

	"tilework/internal/gemm"
)

// WithGroups computes a product for each group of rows, as a mixture of experts does. A is m×k, B a
// batch of a k×n matrix for each group, and C m×n. The rows of group g of A are multiplied by
// matrix g of B and give the same rows of C. Group g ends before row ends[g] and starts at the end
// of the one before it. A group may be empty. Rows after the last group are not read, and those of
// C do not change; [Mul] leaves them undefined. A bias is that of all rows of C.
//
// ends is a vector of g; [GroupEnds] makes it from numbers of rows. For matrices on a device it may
// be on that device. The product then reads it there after all earlier work, such as a router.
// Values on a device are not checked: an end smaller than its predecessor, or larger than m, is
// clamped to that.
//
// The errors are ErrShape for ends on the host that decrease or exceed m, or that are not as many
// as the matrices of B, and ErrUnsupported for [WithGated], [WithBlockScales] and [WithTileFunc].
// For matrices on a device, a transposed A or C is ErrUnsupported too, and so are the options that
// a [DeviceBatch] does not support.
func WithGroups(ends Operand[int32]) Option {
	return func(c *config) { give(c, gemm.GroupEnds, ends) }
}

// GroupEnds returns the ends of groups of rows for [WithGroups]: the sums of the first 1, 2, …
// numbers. A negative number, or more than 2³¹−1 rows, is ErrShape.
func GroupEnds(rows ...int) Matrix[int32] {
	ends := New[int32](1, len(rows))
	end := 0
	for i, n := range rows {
		if n < 0 || n > math.MaxInt32-end {
			return invalidMatrix[int32](fmt.Errorf("%w: group %d of %d rows after %d others, want 0 or more, and less than "+
				"2³¹ in all", ErrShape, i, n, end))
		}
		end += n
		ends.Set(0, i, int32(end))
	}
	return ends
}
