package cuda

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/internal/device"
)

// Launch starts a kernel; it does not wait, and nothing ends the kernel early.
func (s *queue) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	g := s.gpu
	if err := ctx.Err(); err != nil {
		return err
	}
	k, ok := f.(*kernel)
	if !ok || k.module.gpu != g {
		return fmt.Errorf("%w: a kernel of another device than %s", device.ErrLaunch, g.info.Name)
	}
	if err := k.check(l); err != nil {
		return fmt.Errorf("%w: kernel %s: %w", device.ErrLaunch, k.name, err)
	}
	err := g.within(func() error {
		if err := k.allow(l.Shared); err != nil {
			return err
		}
		return k.launch(s.stream, l)
	})
	if err != nil {
		return fmt.Errorf("kernel %s, grid of %v blocks of %v threads: %w", k.name, l.Grid, l.Block, as(device.ErrLaunch, err))
	}
	return nil
}

// check refuses what the driver would, in words, and arguments of another length than
// the parameters, beyond whose end the driver would read.
func (k *kernel) check(l device.Launch) error {
	g := k.module.gpu
	most := g.info.MaxGrid
	g.mu.Lock()
	used := k.module.users > 0
	g.mu.Unlock()
	switch {
	case !used:
		return fmt.Errorf("its module has been unloaded")
	case l.Grid.X < 1 || l.Grid.Y < 1 || l.Grid.Z < 1:
		return fmt.Errorf("a grid of %v blocks", l.Grid)
	case l.Grid.X > most.X || l.Grid.Y > most.Y || l.Grid.Z > most.Z:
		return fmt.Errorf("a grid of %v blocks, and %s takes %v", l.Grid, g.info.Name, most)
	case l.Block.X < 1 || l.Block.Y < 1 || l.Block.Z < 1:
		return fmt.Errorf("a block of %v threads", l.Block)
	case max(l.Block.X, l.Block.Y, l.Block.Z) > k.maxThreads || l.Block.Count() > k.maxThreads:
		return fmt.Errorf("a block of %v threads, and as compiled the kernel takes %d", l.Block, k.maxThreads)
	case l.Shared < 0 || l.Shared > g.info.MaxShared-k.resources.Shared:
		return fmt.Errorf("%d bytes of dynamic shared memory beside %d static ones, and %s has %d for a block",
			l.Shared, k.resources.Shared, g.info.Name, g.info.MaxShared)
	case k.params >= 0 && len(l.Params) != k.params:
		return fmt.Errorf("%d bytes of arguments, and its parameters take %d", len(l.Params), k.params)
	}
	if c := l.Cluster; c != (device.Dim3{}) {
		if c.X < 1 || c.Y < 1 || c.Z < 1 || l.Grid.X%c.X != 0 || l.Grid.Y%c.Y != 0 || l.Grid.Z%c.Z != 0 {
			return fmt.Errorf("clusters of %v blocks, which do not divide a grid of %v", c, l.Grid)
		}
	}
	return nil
}

// allow lets the kernel have more shared memory than is usual.
func (k *kernel) allow(shared int) error {
	g := k.module.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if shared <= k.dynamic {
		return nil
	}
	if err := g.call(cuFuncSetAttribute, k.handle, kernelMaxDynamic, uintptr(shared)); err != nil {
		return err
	}
	k.dynamic = shared
	return nil
}

// extra is how arguments are given that are laid out already: pairs of a name and a
// value, and an end.
type extra struct {
	pointerName uintptr
	pointer     unsafe.Pointer
	sizeName    uintptr
	size        *uintptr
	end         uintptr
}

func newExtra(params []byte) *extra {
	const pointerName, sizeName, end = 1, 2, 0 // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, CU_LAUNCH_PARAM_END
	size := uintptr(len(params))
	return &extra{pointerName, unsafe.Pointer(unsafe.SliceData(params)), sizeName, &size, end}
}

// launchConfig is CUlaunchConfig of cuda.h.
type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	stream      uintptr
	attributes  *launchAttribute
	count       uint32
}

// launchAttribute is CUlaunchAttribute of cuda.h, whose value is a union.
type launchAttribute struct {
	id    uint32
	_     uint32
	value [16]uint32
}

// The attributes of a launch: CUlaunchAttributeID of cuda.h.
const (
	launchCooperative = 2
	launchCluster     = 4
	launchOverlaps    = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
)

func (k *kernel) launch(stream uintptr, l device.Launch) error {
	g, args := k.module.gpu, newExtra(k.arranged(l.Params))
	var attributes []launchAttribute
	if l.Cooperative {
		attributes = append(attributes, launchAttribute{id: launchCooperative, value: [16]uint32{1}})
	}
	if c := l.Cluster; c != (device.Dim3{}) {
		attributes = append(attributes, launchAttribute{id: launchCluster, value: [16]uint32{uint32(c.X), uint32(c.Y), uint32(c.Z)}})
	}
	if l.Overlaps {
		attributes = append(attributes, launchAttribute{id: launchOverlaps, value: [16]uint32{1}})
	}
	if len(attributes) == 0 {
		return g.call(cuLaunchKernel, k.handle,
			uintptr(l.Grid.X), uintptr(l.Grid.Y), uintptr(l.Grid.Z),
			uintptr(l.Block.X), uintptr(l.Block.Y), uintptr(l.Block.Z),
			uintptr(l.Shared), stream, 0, uintptr(unsafe.Pointer(args)))
	}
	config := &launchConfig{
		grid:   [3]uint32{uint32(l.Grid.X), uint32(l.Grid.Y), uint32(l.Grid.Z)},
		block:  [3]uint32{uint32(l.Block.X), uint32(l.Block.Y), uint32(l.Block.Z)},
		shared: uint32(l.Shared), stream: stream,
		attributes: unsafe.SliceData(attributes), count: uint32(len(attributes)),
	}
	return g.call(cuLaunchKernelEx, uintptr(unsafe.Pointer(config)), k.handle, 0, uintptr(unsafe.Pointer(args)))
}
