package main

import (
	"context"
	"errors"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/peers"
)

// mpPeer is the name of cuBLASMp in --peers.
const mpPeer = "cublasmp"

// mpSubject is cuBLASMp.
type mpSubject struct {
	library  *peers.CuBLASMp
	releases []func() error   // of the GPUs
	product  *peers.MpProduct // that was prepared last
}

// openMp opens cuBLASMp on GPUs.
func openMp(ctx context.Context, gpus []backend.DeviceName, path string) (_ residentPeer, err error) {
	s := &mpSubject{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	var devices []device.Device
	for _, name := range gpus {
		b, release, err := gpu.Open(name)
		if err != nil {
			return nil, err
		}
		s.releases = append(s.releases, release)
		devices = append(devices, b.Device)
	}
	s.library, err = peers.OpenCuBLASMp(ctx, devices, path)
	return s, unlessStuck(err)
}

func (s *mpSubject) Name() string { return mpPeer }
func (s *mpSubject) file() string { return s.library.Path }

func (s *mpSubject) String() string {
	if s.product == nil {
		return s.library.String()
	}
	return s.product.String()
}

func (s *mpSubject) close() (err error) {
	if s.library != nil {
		err = unlessStuck(s.library.Close())
	}
	for _, release := range s.releases {
		err = errors.Join(err, release())
	}
	return err
}

// Prepare implements [bench.ResidentSubject].
func (s *mpSubject) Prepare(ctx context.Context, p *gemm.Problem, b *gemm.Buffers) (bench.ResidentProduct, error) {
	x, err := s.library.Prepare(ctx, p, b)
	if err != nil {
		return nil, unlessStuck(err)
	}
	s.product = x
	return mpProduct{x}, nil
}

// mpProduct is a product whose matrices are divided among the GPUs of cuBLASMp.
type mpProduct struct{ *peers.MpProduct }

// Run implements [bench.ResidentProduct].
func (x mpProduct) Run(ctx context.Context, n int) (time.Duration, error) {
	took, err := x.MpProduct.Run(ctx, n)
	return took, unlessStuck(err)
}

// Close implements [bench.ResidentProduct].
func (x mpProduct) Close() error { return unlessStuck(x.MpProduct.Close()) }

// RunBreakdown implements [bench.ResidentProduct].
func (mpProduct) RunBreakdown(context.Context, int) ([]timeline.Breakdown, error) { return nil, nil }

// unlessStuck returns err, or ends the process if it is [peers.ErrStuck]: the GPUs cannot be
// closed, and other products may wait for them. The records of earlier products are in the file.
func unlessStuck(err error) error {
	if errors.Is(err, peers.ErrStuck) {
		exit(err)
	}
	return err
}
