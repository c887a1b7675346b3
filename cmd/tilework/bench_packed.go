package main

import (
	"bytes"
	"context"
	"unsafe"

	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// packedSubject is a kernel of the processor that multiplies by a B which was packed before.
type packedSubject struct {
	subject
	plans map[*byte]*dispatch.Plan // of the product that was prepared last, by B's memory
}

func (s *packedSubject) Name() string { return s.name + "-packed" }

func (s *packedSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(gemm.Buffers) error, error) {
	s.plans, s.plan, s.request.Problem = map[*byte]*dispatch.Plan{}, nil, *p
	return func(b gemm.Buffers) error {
		plan := s.plans[unsafe.SliceData(b.B)]
		b.B = nil
		return plan.Run(ctx, b)
	}, nil
}

// Lay packs a B, as a caller would who multiplies by it many times.
func (s *packedSubject) Lay(ctx context.Context, b gemm.Buffers) error {
	request := s.request
	packed, err := dispatch.Pack(ctx, request.Problem.B, b.B, request)
	if err != nil {
		return err
	}
	request.Packed = packed
	plan, err := dispatch.New(request)
	s.plans[unsafe.SliceData(b.B)], s.plan = plan, plan
	return err
}

// readPeer reads B, as fast as the processor can, and multiplies nothing: a product with few
// rows cannot be faster than that, and its ratio is how near it comes.
const readPeer = "reading"

type readSubject struct{ threads int }

func (s *readSubject) Name() string { return readPeer }

func (s *readSubject) String() string {
	return "B's bytes, each once, in vectors of AVX2 where there is that"
}

// ComputesNothing is for bench, which then checks no result.
func (s *readSubject) ComputesNothing() {}

func (s *readSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(gemm.Buffers) error, error) {
	const piece = 1 << 18
	threads := cpu.Workers(s.threads)
	return func(b gemm.Buffers) error {
		return cpu.Share(ctx, (len(b.B)+piece-1)/piece, threads, func(i int) {
			bytes.Count(b.B[i*piece:min((i+1)*piece, len(b.B))], []byte{1})
		})
	}, nil
}

var (
	_ bench.Laying    = (*packedSubject)(nil)
	_ bench.NoProduct = (*readSubject)(nil)
)
