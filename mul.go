package tilework

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/call"
	"tilework/internal/device"
	"tilework/internal/split"
)

// Mul returns the product A·B in new memory: a [Matrix] for a Matrix A, a [DeviceMatrix] on the
// same device for a DeviceMatrix, and a batch for a batch. B is any operand that [Gemm] takes with
// such an A. Products of int8 and uint8 have another type than their operands: use Gemm.
//
// Several GPUs divide a new DeviceMatrix as A or B is divided, so that they copy the least, unless
// [WithColumnDivision] or [WithCopyOnEach] says otherwise.
func Mul[M interface {
	Matrix[T] | Batch[T] | DeviceMatrix[T] | DeviceBatch[T]
	Operand[T]
}, T dtype.Float](ctx context.Context, a M, b Operand[T], opts ...Option) (M, error) {
	var none M
	k := call.New()
	apply(&k.Options, opts)
	c, err := newProduct[T](k, a, b)
	if err != nil {
		k.Release()
		return none, err
	}
	start[T, T, T](k, 1, a, b, 0, c)
	if err := run(ctx, k); err != nil {
		if c, ok := c.(interface{ Close() error }); ok {
			err = device.Join(err, c.Close())
		}
		return none, err
	}
	return any(c).(M), nil
}

// newProduct returns a C for the product of a and b, of the kind of a. A C on a device takes the
// division of k's options.
func newProduct[T dtype.Element](k *call.Call, a, b Operand[T]) (c Operand[T], err error) {
	switch a := a.(type) {
	case Matrix[T]:
		return New[T](a.Rows(), columns(a.Cols(), b, 0)), nil
	case Batch[T]:
		c := make(Batch[T], len(a))
		for i := range c {
			c[i] = New[T](a[i].Rows(), columns(a[i].Cols(), b, i))
		}
		return c, nil
	case DeviceMatrix[T]:
		if err := a.check("A"); err != nil {
			return nil, err
		}
		by := takeDivision(k)
		if b, ok := b.(DeviceMatrix[T]); ok && b.memory != nil && by == split.Rows {
			by = split.Result(a.stored().By(), b.stored().By())
		}
		return newDeviceMatrix[T](a.device(), by, a.Rows(), columns(a.Cols(), b, 0))
	case DeviceBatch[T]:
		if err := a.check("A"); err != nil {
			return nil, err
		}
		return newDeviceBatch[T](a.device(), takeDivision(k), a.count, a.Rows(), columns(a.Cols(), b, 0))
	}
	return nil, fmt.Errorf("%w: A is a %T", ErrUnsupported, a)
}

// takeDivision returns the division that the options of k select, and removes it from them.
func takeDivision(k *call.Call) (by split.By) {
	by, k.Division = k.Division, split.Rows
	return by
}

// columns returns the number of columns of matrix i of b. It returns 0 if that matrix does not have
// the given number of rows: C then takes no memory, and Gemm returns the error.
func columns[T dtype.Element](rows int, b Operand[T], i int) int {
	m, _ := b.(interface {
		Rows() int
		Cols() int
	})
	if list, ok := b.(Batch[T]); ok && i < len(list) {
		m = list[i]
	}
	if m == nil || m.Rows() != rows {
		return 0
	}
	return m.Cols()
}
