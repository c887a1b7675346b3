package resident

import (
	"context"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/ref"
)

// sums is the matrices of a product as its verification sees them. It implements
// [ref.Remote].
//
// A and B are read in a stream of their own, which has not to wait for the product: they are
// multiplied by the vectors where that leaves room on the device. C is read in the device's own.
type sums struct {
	*gpu.Backend
	p     *gemm.Problem
	at    gpu.Memory
	aside device.Stream
	there device.Event // what A and B hold was asked for before, and the memory below
	sent  device.Event // the vectors
	// What is multiplied by, and what comes out: x, op(B)·x, op(A)·(op(B)·x), C·x.
	x, bx, ax, cx device.Ptr
}

// A check draws as many vectors as a sweep takes.
var _ = [1]struct{}{}[gpu.SweepVectors-ref.DefaultVectors]

func newSums(b *gpu.Backend, p *gemm.Problem, at gpu.Memory) (*sums, error) {
	s := &sums{Backend: b, p: p, at: at}
	x, bx, ax := gpu.SweepBytes(p.N), gpu.SweepBytes(p.K), gpu.SweepBytes(p.M)
	var err error
	if s.x, err = b.Device.Alloc(x + bx + 2*ax); err != nil {
		return s, gpu.Sentinel(err)
	}
	s.bx = s.x + device.Ptr(x)
	s.ax = s.bx + device.Ptr(bx)
	s.cx = s.ax + device.Ptr(ax)
	s.there, err = b.Device.Record()
	return s, gpu.Sentinel(err)
}

// open opens the stream for A and B, if it is not: for that nothing has to wait but they.
func (s *sums) open() (err error) {
	if s.aside != nil {
		return nil
	}
	if s.aside, err = s.Device.NewStream(); err != nil {
		return gpu.Sentinel(err)
	}
	return gpu.Sentinel(s.aside.Wait(s.there))
}

// close gives back what was taken, when the device has done with it.
func (s *sums) close() error {
	var errs []error
	if s.aside != nil {
		errs = append(errs, s.aside.Close()) // waits
	}
	for _, e := range []device.Event{s.there, s.sent} {
		if e != nil {
			errs = append(errs, e.Free())
		}
	}
	errs = append(errs, s.Device.Free(s.x))
	return gpu.Sentinel(device.Join(errs...))
}

// Vectors implements [ref.Remote].
func (s *sums) Vectors(ctx context.Context, x [][]float64) error {
	if err := s.open(); err != nil {
		return err
	}
	n := s.p.N
	packed := make([]float64, len(x)*n)
	for i, v := range x {
		copy(packed[i*n:], v)
	}
	if err := s.aside.CopyIn(ctx, s.x, dtype.Bytes(packed), device.Whole(8*len(packed))); err != nil {
		return gpu.Sentinel(err)
	}
	if s.sent != nil {
		if err := s.sent.Free(); err != nil {
			return gpu.Sentinel(err)
		}
	}
	var err error
	if s.sent, err = s.aside.Record(); err != nil {
		return gpu.Sentinel(err)
	}
	return nil
}

// Product implements [ref.Remote].
func (s *sums) Product(ctx context.Context) (ref.Sums, error) {
	if err := s.Sweep(ctx, s.aside, s.at.B, s.p.B, s.x, s.bx, false); err != nil {
		return nil, err
	}
	if err := s.Sweep(ctx, s.aside, s.at.A, s.p.A, s.bx, s.ax, true); err != nil {
		return nil, err
	}
	return s.wait(s.aside, s.ax), nil
}

// Result implements [ref.Remote].
func (s *sums) Result(ctx context.Context) (ref.Sums, error) {
	d := s.Device
	if err := d.Wait(s.sent); err != nil {
		return nil, gpu.Sentinel(err)
	}
	if err := s.Sweep(ctx, d, s.at.C, s.p.C, s.x, s.cx, false); err != nil {
		return nil, err
	}
	return s.wait(d, s.cx), nil
}

// wait is how to wait for sums in memory of the device.
func (s *sums) wait(on device.Stream, at device.Ptr) ref.Sums {
	return func(ctx context.Context) (out [][]float64, size []float64, err error) {
		m := s.p.M
		all := make([]float64, gpu.SweepBytes(m)/8)
		if err := on.CopyOut(ctx, dtype.Bytes(all), at, device.Whole(8*len(all))); err != nil {
			return nil, nil, gpu.Sentinel(err)
		}
		for n := range gpu.SweepVectors {
			out = append(out, all[n*m:(n+1)*m])
		}
		return out, all[gpu.SweepVectors*m:], nil
	}
}

// FetchA implements [ref.Remote].
func (s *sums) FetchA(ctx context.Context, row, col, rows, cols int) ([]byte, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	return fetch(ctx, s.aside, s.at.A, s.p.A, row, col, rows, cols)
}

// FetchB implements [ref.Remote].
func (s *sums) FetchB(ctx context.Context, row, col, rows, cols int) ([]byte, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	return fetch(ctx, s.aside, s.at.B, s.p.B, row, col, rows, cols)
}

// FetchC implements [ref.Remote].
func (s *sums) FetchC(ctx context.Context, row, col, rows, cols int) ([]byte, error) {
	return fetch(ctx, s.Device, s.at.C, s.p.C, row, col, rows, cols)
}
