package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"tilework/internal/device"
)

// CopyPeer enqueues a copy from another GPU, or from this one.
//
// It uses the copies within a GPU, because unified addresses name their GPUs. The functions for
// copies between contexts, such as cuMemcpy3DPeerAsync, are as fast between two GPUs. But with four
// at once they reached 140 to 210 GB/s per GPU instead of 330, and with memory of a pool they ended
// with CUDA_ERROR_LAUNCH_FAILED when a module was loaded at the same time (H200, driver 580.159).
func (s *queue) CopyPeer(dst device.Ptr, from device.Device, src device.Ptr, rows device.PeerRows) error {
	g := s.gpu
	peer, err := g.peer(from)
	if err != nil {
		return err
	}
	r, err := rows.Merged()
	if err != nil || r.Count == 0 {
		return err
	}
	read, written := r.Spans()
	if err := errors.Join(peer.checkOpen(), peer.checkOwned(src, read), g.checkOwned(dst, written)); err != nil {
		return err
	}
	l, err := g.linkFrom(peer)
	if err != nil {
		return err
	}
	if l.direct {
		return s.copyPeer(uintptr(dst), uintptr(src), r)
	}
	return l.copy(s, uintptr(dst), uintptr(src), r)
}

// peer returns another device as a GPU of the same driver.
func (g *GPU) peer(d device.Device) (*GPU, error) {
	peer, ok := d.(*GPU)
	if !ok || peer.driver != g.driver {
		return nil, fmt.Errorf("cannot use the memory of a device of type %T: want a GPU of the same driver", d)
	}
	return peer, nil
}

// Access lets g use the memory of another GPU directly, also in kernels of other libraries, and
// reports whether it can.
func (g *GPU) Access(d device.Device) (direct bool, err error) {
	peer, err := g.peer(d)
	if err != nil {
		return false, err
	}
	l, err := g.linkFrom(peer)
	return err == nil && l.direct, err
}

// copyPeer enqueues the copy, row by row if the rows are too far apart for a 2D copy.
func (s *queue) copyPeer(dst, src uintptr, r device.PeerRows) error {
	g := s.gpu
	if r.Count > 1 && max(r.FromPitch, r.ToPitch) <= g.info.maxPitch {
		return s.copy2D(side2D{kind: onDevice, device: dst, pitch: uintptr(r.ToPitch)},
			side2D{kind: onDevice, device: src, pitch: uintptr(r.FromPitch)}, r)
	}
	return g.within(func() error {
		for i := range uintptr(r.Count) {
			err := g.call(cuMemcpyOnDevice, dst+i*uintptr(r.ToPitch), src+i*uintptr(r.FromPitch), uintptr(r.Width), s.stream)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A peerLink copies from another GPU.
type peerLink struct {
	direct bool // whether this GPU can access the memory of the other one
	// Without access, copies go through two buffers of pinned host memory. A stream of the other GPU,
	// which that GPU closes, fills them.
	mu      sync.Mutex // guards the fields below
	out     *queue
	buffers [2]bounce
	next    int // buffer
}

// bounce is a buffer of a link.
type bounce struct {
	address uintptr      // of pinned memory
	emptied device.Event // nil before the first use
}

const bounceBytes = 4 << 20

// linkFrom returns the link from another GPU. The first call requests access to its memory.
func (g *GPU) linkFrom(peer *GPU) (l *peerLink, err error) {
	g.linking.Lock()
	defer g.linking.Unlock()
	if l = g.links[peer]; l != nil {
		return l, nil
	}
	l = &peerLink{direct: peer == g, out: &queue{gpu: peer}}
	if !l.direct {
		err = g.within(func() (err error) {
			l.direct, err = g.access(peer)
			return err
		})
	}
	if err == nil {
		g.links[peer] = l
	}
	return l, err
}

// copy enqueues a copy to the GPU of s through host memory.
func (l *peerLink) copy(s *queue, dst, src uintptr, r device.PeerRows) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(s.gpu); err != nil {
		return err
	}
	if err := l.out.after(s); err != nil {
		return err
	}
	width := min(r.Width, bounceBytes)
	rows := bounceBytes / width // of a piece
	if max(r.FromPitch, r.ToPitch) > min(s.gpu.info.maxPitch, l.out.gpu.info.maxPitch) {
		rows = 1
	}
	for row := 0; row < r.Count; row += rows {
		for col := 0; col < r.Width; col += width {
			b := &l.buffers[l.next]
			l.next = (l.next + 1) % len(l.buffers)
			n, count := min(width, r.Width-col), min(rows, r.Count-row)
			if err := b.move(l.out, s, dst+uintptr(row*r.ToPitch+col), src+uintptr(row*r.FromPitch+col),
				device.PeerRows{Count: count, Width: n, FromPitch: r.FromPitch, ToPitch: r.ToPitch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// open creates the stream and the buffers.
func (l *peerLink) open(g *GPU) error {
	if l.out.stream == 0 {
		if err := l.out.create(); err != nil {
			return err
		}
	}
	const portable = 1 // CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
	return g.within(func() error {
		for i := range l.buffers {
			if at := &l.buffers[i].address; *at == 0 {
				if err := g.call(cuMemHostAlloc, uintptr(unsafe.Pointer(at)), bounceBytes, portable); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// move enqueues a copy of rows to b in one stream, and from there in the other one.
func (b *bounce) move(out, in *queue, dst, src uintptr, r device.PeerRows) error {
	if b.emptied != nil {
		if err := out.Wait(b.emptied); err != nil {
			return err
		}
	}
	host := side2D{kind: onHost, host: b.address, pitch: uintptr(r.Width)}
	side := func(at uintptr, pitch int) side2D {
		if r.Count == 1 {
			pitch = r.Width // which is below the limit of pitches
		}
		return side2D{kind: onDevice, device: at, pitch: uintptr(pitch)}
	}
	if err := out.copy2D(host, side(src, r.FromPitch), r); err != nil {
		return err
	}
	if err := in.after(out); err != nil {
		return err
	}
	if err := in.copy2D(side(dst, r.ToPitch), host, r); err != nil {
		return err
	}
	emptied, err := in.Record()
	if err != nil {
		return err
	}
	if b.emptied != nil {
		err = b.emptied.Free()
	}
	b.emptied = emptied
	return err
}

// after makes later work of s wait for the work enqueued on another stream.
func (s *queue) after(other *queue) error {
	e, err := other.Record()
	if err != nil {
		return err
	}
	return device.Join(s.Wait(e), e.Free())
}

// copy2D enqueues the copy of rows from src to dst.
func (s *queue) copy2D(dst, src side2D, r device.PeerRows) error {
	c := memcpy2D{src: src, dst: dst, width: uintptr(r.Width), height: uintptr(r.Count)}
	return s.gpu.within(func() error { return s.gpu.call(cuMemcpy2D, uintptr(unsafe.Pointer(&c)), s.stream) })
}

// memAccess is CUmemAccessDesc of cuda.h.
type memAccess struct{ locationType, location, flags int32 }

// access lets g access the memory of another GPU, and reports whether it can. A memory pool has
// access rights of its own (CUDA C++ Programming Guide, "Device Accessibility for Multi-GPU
// Support").
func (g *GPU) access(peer *GPU) (bool, error) {
	var can int32
	if err := g.call(cuDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), g.info.handle, peer.info.handle); err != nil ||
		can == 0 {
		return false, err
	}
	switch c := g.driver.result(cuCtxEnablePeerAccess, peer.context, 0); c {
	case accessEnabled:
	case tooManyPeers:
		return false, nil
	default:
		if err := g.check(cuCtxEnablePeerAccess, c); err != nil {
			return false, err
		}
	}
	if peer.pool == 0 {
		return true, nil
	}
	const onDevice, readWrite = 1, 3 // CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	a := memAccess{locationType: onDevice, location: int32(g.info.handle), flags: readWrite}
	return true, g.call(cuMemPoolSetAccess, peer.pool, uintptr(unsafe.Pointer(&a)), 1)
}
