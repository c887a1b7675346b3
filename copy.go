package tilework

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Copy overwrites dst with the elements of src, which has the same size: a matrix with a matrix, or
// a batch with a batch of as many. Each may be on the host or on a device. A matrix of several
// ranks counts as the part that this process stores. A copy to or from a device waits as [Upload]
// and [DeviceMatrix.Download] do; it is fastest where dst and src are both transposed or both not.
// A copy from device to device goes through the host's memory. After an error the elements of dst
// are undefined.
//
// The errors are ErrShape, ErrOverlap if a matrix of dst shares memory with any other matrix,
// ErrUnsupported for a packed matrix, and those of Upload and Download.
func Copy[T dtype.Element](ctx context.Context, dst, src Operand[T]) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkDeviceCopy(dst, src); err != nil {
		return err
	}
	if on, ok := src.(DeviceBatch[T]); ok {
		from, err := on.Download(ctx)
		if err != nil {
			return err
		}
		src = from
	}
	switch dst := dst.(type) {
	case Matrix[T]:
		switch src := src.(type) {
		case Matrix[T]:
			return copyMatrix(dst, src)
		case DeviceMatrix[T]:
			return src.downloadTo(ctx, dst)
		}
	case DeviceMatrix[T]:
		switch src := src.(type) {
		case Matrix[T]:
			return dst.uploadFrom(ctx, src)
		case DeviceMatrix[T]:
			from, err := src.Download(ctx)
			if err != nil {
				return err
			}
			return dst.uploadFrom(ctx, from)
		}
	case Batch[T]:
		if src, ok := src.(Batch[T]); ok {
			return copyBatch(dst, src)
		}
	case DeviceBatch[T]:
		if src, ok := src.(Batch[T]); ok {
			return dst.uploadFrom(ctx, src)
		}
	}
	return fmt.Errorf("%w: a copy from %T to %T, want two matrices or two batches that are not packed", ErrUnsupported,
		src, dst)
}

// checkDeviceCopy refuses a copy in which a matrix of dst on a device shares memory with any other
// matrix. A copy through the host's memory would give a result, but one that depends on its order.
func checkDeviceCopy[T dtype.Element](dst, src Operand[T]) error {
	switch dst := dst.(type) {
	case DeviceMatrix[T]:
		if src, ok := src.(DeviceMatrix[T]); ok && dst.overlaps(src.deviceView) {
			return fmt.Errorf("%w: a copy between matrices that share memory", ErrOverlap)
		}
	case DeviceBatch[T]:
		all := dst.regions(true)
		if src, ok := src.(DeviceBatch[T]); ok && src.memory == dst.memory {
			all = append(all, src.regions(false)...)
		}
		return checkRegions(all)
	}
	return nil
}

// checkRegions returns ErrOverlap if a matrix of a copy between batches, whose index is its ID,
// shares memory with another one.
func checkRegions(all []gemm.Region) error {
	if i, j, found := gemm.FindOverlap(all); found {
		return fmt.Errorf("%w: a copy between batches in which matrix %d shares memory with matrix %d", ErrOverlap, i, j)
	}
	return nil
}

func copyMatrix[T dtype.Element](dst, src Matrix[T]) error {
	if err := checkCopy(dst, src); err != nil {
		return err
	}
	dst.set(src)
	return nil
}

func checkCopy[T dtype.Element](dst, src Matrix[T]) error {
	if err := firstErr(dst.err, src.err); err != nil {
		return err
	}
	switch {
	case dst.Rows() != src.Rows() || dst.Cols() != src.Cols():
		return fmt.Errorf("%w: a copy of %d×%d to %d×%d", ErrShape, src.Rows(), src.Cols(), dst.Rows(), dst.Cols())
	case gemm.Overlap(dst.layout, dst.bytes(), src.layout, src.bytes()):
		return fmt.Errorf("%w: a copy between matrices that share memory", ErrOverlap)
	}
	return nil
}

func copyBatch[T dtype.Element](dst, src Batch[T]) error {
	if len(dst) != len(src) {
		return fmt.Errorf("%w: a copy of %d matrices to %d", ErrShape, len(src), len(dst))
	}
	all := make([]gemm.Region, 0, 2*len(dst))
	for i := range dst {
		if err := checkCopy(dst[i], src[i]); err != nil {
			return fmt.Errorf("matrix %d of the batch: %w", i, err)
		}
		all = append(all, gemm.Region{ID: i, Layout: dst[i].layout, Memory: unsafe.SliceData(dst[i].bytes()), Written: true},
			gemm.Region{ID: i, Layout: src[i].layout, Memory: unsafe.SliceData(src[i].bytes())})
	}
	if err := checkRegions(all); err != nil {
		return err
	}
	for i := range dst {
		dst[i].set(src[i])
	}
	return nil
}
