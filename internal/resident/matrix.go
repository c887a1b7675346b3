package resident

import (
	"context"
	"fmt"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
)

// Matrix is a matrix in device memory, Offset bytes after its start. The zero Matrix is empty and
// on no device.
type Matrix struct {
	Memory *Memory
	Offset int
	Layout gemm.Layout
}

// New allocates a matrix with undefined elements. The device chooses the leading dimension. The
// errors are those of [Device.Alloc], and ErrShape.
func New(d *Device, l gemm.Layout) (Matrix, error) {
	if err := l.Check("the matrix"); err != nil {
		return Matrix{}, err
	}
	there := kernel.Padded(l)
	if err := there.Check("the matrix"); err != nil {
		return Matrix{}, err
	}
	m, err := d.Alloc(there.Bytes(), gemm.Dense(l.Type, l.Rows, l.Cols))
	return Matrix{Memory: m, Layout: there}, err
}

// at returns the address of the matrix.
func (m Matrix) at() device.Ptr { return m.Memory.at + device.Ptr(m.Offset) }

// CopyIn copies the matrix from host memory, where its stored rows have layout l. The errors are
// the context's, the device's and ErrClosed.
func (m Matrix) CopyIn(ctx context.Context, host []byte, l gemm.Layout) error {
	return m.use(ctx, func(d device.Device) error { return d.CopyIn(ctx, m.at(), host, exec.Rows(l, m.Layout)) })
}

// CopyOut copies the matrix to host memory, where its stored rows have layout l, after all earlier
// work. The errors are those of CopyIn and of that work.
func (m Matrix) CopyOut(ctx context.Context, host []byte, l gemm.Layout) error {
	return m.use(ctx, func(d device.Device) error { return d.CopyOut(ctx, host, m.at(), exec.Rows(l, m.Layout)) })
}

// use calls f with the matrix, unless the matrix is empty.
func (m Matrix) use(ctx context.Context, f func(device.Device) error) error {
	if err := m.there("the matrix"); err != nil {
		return err
	}
	d := m.Memory.device
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := m.Memory.hold(); err != nil {
		return err
	}
	defer m.Memory.release()
	if err := ctx.Err(); err != nil || m.Layout.Len() == 0 {
		return err
	}
	return exec.Sentinel(f(d.backend.Device))
}

func (m Matrix) there(name string) error {
	if m.Memory == nil {
		return fmt.Errorf("%w: %s is on none", gemm.ErrNoDevice, name)
	}
	return nil
}
