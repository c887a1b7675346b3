package team

import (
	"context"
	"fmt"

	"tilework/internal/device"
	"tilework/internal/ints"
	"tilework/internal/nccl"
)

// communicator is the part of [nccl.Comm] that the transport needs.
type communicator interface {
	Exchange(ctx context.Context, s nccl.Stream, sends, receives []nccl.Transfer) error
	Abort() error
	Close(ctx context.Context) error
}

// ncclTransport is a transport between GPUs. NCCL moves contiguous memory, so parts of rows are
// packed into staging memory, and unpacked from there. The queue of copies orders all uses of the
// staging memory.
type ncclTransport struct {
	store   store
	comm    communicator
	stream  nccl.Stream // of copies
	version nccl.Version
	staging block
	size    int // bytes of staging memory
}

// joinNCCL connects the ranks with NCCL.
func joinNCCL(ctx context.Context, s store, l *nccl.Library, id nccl.ID, rank, size int) (transport, error) {
	gpu, ok := s.(*gpuStore)
	if !ok {
		return nil, fmt.Errorf("a store of type %T has no stream for NCCL", s)
	}
	stream, ok := gpu.copies.(nccl.Stream)
	if !ok {
		return nil, fmt.Errorf("a stream of type %T is none of CUDA", gpu.copies)
	}
	comm, err := l.Join(ctx, stream, id, rank, size)
	if err != nil {
		return nil, &brokenError{err}
	}
	return &ncclTransport{store: s, comm: comm, stream: stream, version: l.Version}, nil
}

func (t *ncclTransport) String() string { return fmt.Sprintf("NCCL %v", t.version) }

// stagingAlign is the alignment of parts in the staging memory.
const stagingAlign = 256

// exchange implements [transport].
func (t *ncclTransport) exchange(ctx context.Context, sends, receives []transfer) error {
	size := 0
	for _, all := range [][]transfer{sends, receives} {
		for _, x := range all {
			if !x.part.contiguous() {
				size += staged(x.part)
			}
		}
	}
	if err := t.grow(size); err != nil {
		return err
	}
	used := 0
	place := func(all []transfer) (places []part) {
		for _, x := range all {
			p := x.part
			if !p.contiguous() {
				p.block, p.pitch = t.staging.from(used), p.width
				used += staged(p)
			}
			places = append(places, p)
		}
		return places
	}
	from, to := place(sends), place(receives)
	if err := t.move(from, sends, func(staged, own part) error { return t.store.copy(staged, own) }); err != nil {
		return err
	}
	if err := t.comm.Exchange(ctx, t.stream, transfers(sends, from), transfers(receives, to)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &brokenError{err}
	}
	return t.move(to, receives, func(staged, own part) error { return t.store.copy(own, staged) })
}

// staged returns the size of a part in the staging memory.
func staged(p part) int { return ints.RoundUp(p.bytes(), stagingAlign) }

// move calls f for the parts that are staged.
func (t *ncclTransport) move(places []part, all []transfer, f func(staged, own part) error) error {
	for i, p := range places {
		if own := all[i].part; own.block.at != p.block.at {
			if err := f(p, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// transfers returns the transfers of contiguous parts.
func transfers(all []transfer, places []part) []nccl.Transfer {
	list := make([]nccl.Transfer, len(all))
	for i, x := range all {
		list[i] = nccl.Transfer{Rank: x.rank, At: places[i].at, Bytes: places[i].bytes()}
	}
	return list
}

// grow makes room for n bytes of staging memory. Memory is freed in the queue of kernels, which
// first waits for the copies that use it.
func (t *ncclTransport) grow(n int) error {
	if n <= t.size {
		return nil
	}
	if err := t.release(); err != nil {
		return err
	}
	var err error
	if t.staging, err = t.store.alloc(n, fmt.Sprintf("%d bytes to exchange parts of rows", n)); err != nil {
		return err
	}
	t.size = n
	return t.order(kernels, copies)
}

// order makes all later work of one queue wait for all earlier work of another one.
func (t *ncclTransport) order(first, then queue) error {
	e, err := t.store.stream(first).Record()
	if err != nil {
		return err
	}
	return device.Join(t.store.stream(then).Wait(e), e.Free())
}

// release frees the staging memory.
func (t *ncclTransport) release() error {
	if t.size == 0 {
		return nil
	}
	err := device.Join(t.order(copies, kernels), t.store.free(t.staging))
	t.staging, t.size = block{}, 0
	return err
}

// abort implements [transport].
func (t *ncclTransport) abort() { _ = t.comm.Abort() } // the rank has failed before

// close implements [transport].
func (t *ncclTransport) close(ctx context.Context) error {
	return device.Join(t.comm.Close(ctx), t.release())
}
