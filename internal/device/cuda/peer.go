package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"tilework/internal/device"
)

// memcpy3DPeer is CUDA_MEMCPY3D_PEER of cuda.h.
type memcpy3DPeer struct {
	src, dst             side3D
	width, height, depth uintptr
}

// side3D is the source or the destination of a memcpy3DPeer.
type side3D struct {
	x, y, z, lod  uintptr
	kind          uint32
	host, device  uintptr
	array         uintptr
	context       uintptr
	pitch, height uintptr
}

// CopyPeer enqueues a copy from another GPU, or from this one. Without access to the other GPU's
// memory the driver copies through host memory by itself (CUDA C++ Programming Guide,
// "Peer-to-Peer Memory Copy").
func (s *queue) CopyPeer(dst device.Ptr, from device.Device, src device.Ptr, rows device.PeerRows) error {
	g := s.gpu
	peer, ok := from.(*GPU)
	if !ok || peer.driver != g.driver {
		return fmt.Errorf("cannot copy from a device of type %T: want a GPU of the same driver", from)
	}
	r, err := rows.Merged()
	if err != nil || r.Count == 0 {
		return err
	}
	read, written := r.Spans()
	if err := errors.Join(peer.checkOpen(), peer.checkOwned(src, read), g.checkOwned(dst, written)); err != nil {
		return err
	}
	return g.within(func() error {
		if err := g.access(peer); err != nil {
			return err
		}
		return s.copyPeer(uintptr(dst), peer, uintptr(src), r)
	})
}

// copyPeer enqueues the copy, row by row if the rows are too far apart for a 2D copy.
func (s *queue) copyPeer(dst uintptr, peer *GPU, src uintptr, r device.PeerRows) error {
	g := s.gpu
	if r.Count > 1 && max(r.FromPitch, r.ToPitch) <= g.info.maxPitch {
		c := memcpy3DPeer{width: uintptr(r.Width), height: uintptr(r.Count), depth: 1}
		c.src = side3D{kind: onDevice, device: src, context: peer.context, pitch: uintptr(r.FromPitch),
			height: uintptr(r.Count)}
		c.dst = side3D{kind: onDevice, device: dst, context: g.context, pitch: uintptr(r.ToPitch),
			height: uintptr(r.Count)}
		return g.call(cuMemcpy3DPeer, uintptr(unsafe.Pointer(&c)), s.stream)
	}
	for i := range uintptr(r.Count) {
		if err := g.call(cuMemcpyPeer, dst+i*uintptr(r.ToPitch), g.context, src+i*uintptr(r.FromPitch), peer.context,
			uintptr(r.Width), s.stream); err != nil {
			return err
		}
	}
	return nil
}

// memAccess is CUmemAccessDesc of cuda.h.
type memAccess struct{ locationType, location, flags int32 }

// access lets g access the memory of another GPU, if it can. A memory pool has access rights of its
// own (CUDA C++ Programming Guide, "Device Accessibility for Multi-GPU Support").
func (g *GPU) access(peer *GPU) error {
	if peer == g {
		return nil
	}
	g.accessing.Lock()
	defer g.accessing.Unlock()
	if g.accessed[peer] {
		return nil
	}
	var can int32
	if err := g.call(cuDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), g.info.handle, peer.info.handle); err != nil {
		return err
	}
	if can != 0 {
		if err := g.enableAccess(peer); err != nil {
			return err
		}
	}
	g.accessed[peer] = true
	return nil
}

func (g *GPU) enableAccess(peer *GPU) error {
	switch c := g.driver.result(cuCtxEnablePeerAccess, peer.context, 0); c {
	case accessEnabled:
	case tooManyPeers:
		return nil // the driver copies through host memory
	default:
		if err := g.check(cuCtxEnablePeerAccess, c); err != nil {
			return err
		}
	}
	if peer.pool == 0 {
		return nil
	}
	const onDevice, readWrite = 1, 3 // CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	a := memAccess{locationType: onDevice, location: int32(g.info.handle), flags: readWrite}
	return g.call(cuMemPoolSetAccess, peer.pool, uintptr(unsafe.Pointer(&a)), 1)
}
