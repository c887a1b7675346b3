package main

import (
	"bytes"
	"context"
	"fmt"
	"unsafe"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// packedSubject is a CPU kernel that multiplies by a prepacked B.
type packedSubject struct {
	subject
	plans map[*byte]*dispatch.Plan // of the product that was prepared last, by the address of B
}

func (s *packedSubject) Name() string { return s.name + "-packed" }

func (s *packedSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	s.plans, s.plan, s.request.Problem = map[*byte]*dispatch.Plan{}, nil, *p
	return func(b *gemm.Buffers) error {
		plan, rest := s.plans[unsafe.SliceData(b[gemm.B])], *b
		rest[gemm.B] = nil
		return plan.Run(ctx, &rest)
	}, nil
}

// PackB implements [bench.Packer]. It packs b[gemm.B].
func (s *packedSubject) PackB(ctx context.Context, b gemm.Buffers) error {
	request := s.request
	packed, err := dispatch.Pack(ctx, request.Problem.Layouts[gemm.B], b[gemm.B], request)
	if err != nil {
		return err
	}
	request.Packed = packed
	plan, err := dispatch.New(ctx, request)
	s.plans[unsafe.SliceData(b[gemm.B])], s.plan = plan, plan
	return err
}

// builtinPeers are the peers on the CPU that need no library.
var builtinPeers = map[string]func(threads int) bench.Subject{
	readPeer: func(threads int) bench.Subject { return readSubject{threads} },
	plainPeer: func(threads int) bench.Subject {
		request := dispatch.Request{Device: backend.DeviceName{Kind: backend.CPU}, Threads: threads}
		return &plainSubject{subject{name: plainPeer, request: request}}
	},
	defaultPeer: func(threads int) bench.Subject {
		request := dispatch.Request{Device: backend.DeviceName{Kind: backend.CPU}, Threads: threads}
		return &defaultSubject{subject{name: defaultPeer, request: request}}
	},
}

// defaultPeer is tilework's product without row invariance. The ratio to it shows the cost of that.
const defaultPeer = "default"

// errNotInvariant is the error of defaultPeer without --row-invariant.
var errNotInvariant = fmt.Errorf("%w: peer %s without --row-invariant", gemm.ErrUnsupported, defaultPeer)

type defaultSubject struct{ subject }

func (s *defaultSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	q := *p
	if q.Invariance == gemm.NotInvariant {
		return nil, errNotInvariant
	}
	q.Invariance = gemm.NotInvariant
	return s.subject.Prepare(ctx, &q)
}

// readPeer reads B, with vector loads on platforms where bytes.Count uses them, and multiplies
// nothing. A product with few rows that takes as long is limited by memory alone. With prefetching,
// a product can take less time than readPeer.
const readPeer = bench.Reading

type readSubject struct{ threads int }

func (readSubject) Name() string   { return readPeer }
func (readSubject) String() string { return "B's bytes, each once" }
func (readSubject) Unchecked()     {}

func (s readSubject) Prepare(ctx context.Context, _ *gemm.Problem) (func(*gemm.Buffers) error, error) {
	const piece = 1 << 18
	needle := []byte{1}
	return func(b *gemm.Buffers) error {
		return cpu.ParallelFor(ctx, ints.CeilDiv(len(b[gemm.B]), piece), s.threads, func(i int) {
			bytes.Count(b[gemm.B][i*piece:min((i+1)*piece, len(b[gemm.B]))], needle)
		})
	}, nil
}

// plainPeer is tilework's product without its epilogue. The ratio to it shows the cost of the
// epilogue.
const plainPeer = "plain"

type plainSubject struct{ subject }

func (*plainSubject) Unchecked() {}

func (s *plainSubject) Prepare(ctx context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	if p.Epilogue == (gemm.Epilogue{}) {
		return nil, fmt.Errorf("%w: peer %s without --epilogue", gemm.ErrUnsupported, plainPeer)
	}
	plain, _, err := gemm.New(p.Alpha, p.Layouts[gemm.A], p.Layouts[gemm.B], p.Beta, p.Layouts[gemm.C], gemm.Epilogue{})
	if err != nil {
		return nil, err
	}
	return s.subject.Prepare(ctx, &plain)
}

var (
	_ bench.Packer    = (*packedSubject)(nil)
	_ bench.Unchecked = readSubject{}
	_ bench.Unchecked = (*plainSubject)(nil)
)
