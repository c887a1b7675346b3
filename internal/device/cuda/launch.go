package cuda

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"tilework/internal/device"
)

// Launch enqueues a kernel and does not wait for it. A running kernel cannot be cancelled.
func (s *queue) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	g := s.gpu
	if err := ctx.Err(); err != nil {
		return err
	}
	k, ok := f.(*kernel)
	if !ok || k.module.gpu != g {
		return fmt.Errorf("%w: function of type %T: want a kernel of this %s", device.ErrLaunch, f, g.info.Name)
	}
	if err := k.check(l); err != nil {
		return fmt.Errorf("%w: kernel %s: %w", device.ErrLaunch, k.name, err)
	}
	err := g.within(func() error {
		if err := k.raiseSharedLimit(l.Shared); err != nil {
			return err
		}
		return k.launch(s.stream, l)
	})
	if err != nil {
		return fmt.Errorf("kernel %s, grid of %v blocks of %v threads: %w", k.name, l.Grid, l.Block,
			withKind(device.ErrLaunch, err))
	}
	return nil
}

// check returns a descriptive error for launches that the driver would reject, and for arguments
// that are shorter or longer than the parameters: the driver would read past their end.
func (k *kernel) check(l device.Launch) error {
	g := k.module.gpu
	limit := g.info.MaxGrid
	g.mu.Lock()
	used := k.module.users > 0
	g.mu.Unlock()
	switch {
	case !used:
		return fmt.Errorf("module was unloaded")
	case l.Grid.X < 1 || l.Grid.Y < 1 || l.Grid.Z < 1:
		return fmt.Errorf("grid has %v blocks: want at least 1 in each dimension", l.Grid)
	case l.Grid.X > limit.X || l.Grid.Y > limit.Y || l.Grid.Z > limit.Z:
		return fmt.Errorf("grid has %v blocks: %s supports at most %v", l.Grid, g.info.Name, limit)
	case l.Block.X < 1 || l.Block.Y < 1 || l.Block.Z < 1:
		return fmt.Errorf("block has %v threads: want at least 1 in each dimension", l.Block)
	case max(l.Block.X, l.Block.Y, l.Block.Z) > k.maxThreads || l.Block.Count() > k.maxThreads:
		return fmt.Errorf("block has %v threads: the compiled kernel supports at most %d", l.Block, k.maxThreads)
	case l.Shared < 0 || l.Shared > g.info.MaxShared-k.resources.Shared:
		return fmt.Errorf("block uses %d bytes of dynamic and %d of static shared memory: %s supports at most %d",
			l.Shared, k.resources.Shared, g.info.Name, g.info.MaxShared)
	case k.params >= 0 && len(l.Params) != k.params:
		return fmt.Errorf("arguments have %d bytes: want %d", len(l.Params), k.params)
	}
	if c := l.Cluster; c != (device.Dim3{}) {
		if c.X < 1 || c.Y < 1 || c.Z < 1 || l.Grid.X%c.X != 0 || l.Grid.Y%c.Y != 0 || l.Grid.Z%c.Z != 0 {
			return fmt.Errorf("clusters of %v blocks do not divide a grid of %v", c, l.Grid)
		}
	}
	return nil
}

// raiseSharedLimit raises the limit of dynamic shared memory to at least shared bytes.
func (k *kernel) raiseSharedLimit(shared int) error {
	g := k.module.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if shared <= k.maxDynamic {
		return nil
	}
	if err := g.call(cuFuncSetAttribute, k.handle, kernelMaxDynamic, uintptr(shared)); err != nil {
		return err
	}
	k.maxDynamic = shared
	return nil
}

// extra is the "extra" argument of cuLaunchKernel, which passes arguments as one buffer: a list of
// names and values with an end marker.
type extra struct {
	pointerName uintptr
	pointer     unsafe.Pointer
	sizeName    uintptr
	size        *uintptr
	end         uintptr
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
	launchPDL         = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
)

// launchMemory is the memory that the driver reads during a launch. It is on the heap, because a
// stack can move, and reused.
type launchMemory struct {
	config     launchConfig
	attributes [3]launchAttribute
	extra      extra
	size       uintptr // of the arguments
	moved      []byte  // arguments in the driver's layout
}

var launchMemories = sync.Pool{New: func() any { return new(launchMemory) }}

// setArguments sets the arguments of k, which are in the PTX layout.
func (m *launchMemory) setArguments(k *kernel, params []byte) {
	const pointerName, sizeName, end = 1, 2, 0 // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, CU_LAUNCH_PARAM_END
	if k.moves != nil {
		m.moved = k.driverParams(m.moved, params)
		params = m.moved
	}
	m.size = uintptr(len(params))
	m.extra = extra{pointerName, unsafe.Pointer(unsafe.SliceData(params)), sizeName, &m.size, end}
}

// launch enqueues the kernel. It uses cuLaunchKernelEx only if the launch has attributes, because
// older drivers lack it.
func (k *kernel) launch(stream uintptr, l device.Launch) error {
	g, m := k.module.gpu, launchMemories.Get().(*launchMemory)
	defer launchMemories.Put(m)
	m.setArguments(k, l.Params)
	attributes := m.attributes[:0]
	if l.Cooperative {
		attributes = append(attributes, launchAttribute{id: launchCooperative, value: [16]uint32{1}})
	}
	if c := l.Cluster; c != (device.Dim3{}) {
		attributes = append(attributes, launchAttribute{id: launchCluster,
			value: [16]uint32{uint32(c.X), uint32(c.Y), uint32(c.Z)}})
	}
	if l.PDL {
		attributes = append(attributes, launchAttribute{id: launchPDL, value: [16]uint32{1}})
	}
	if len(attributes) == 0 {
		return g.call(cuLaunchKernel, k.handle,
			uintptr(l.Grid.X), uintptr(l.Grid.Y), uintptr(l.Grid.Z),
			uintptr(l.Block.X), uintptr(l.Block.Y), uintptr(l.Block.Z),
			uintptr(l.Shared), stream, 0, uintptr(unsafe.Pointer(&m.extra)))
	}
	m.config = launchConfig{
		grid:   [3]uint32{uint32(l.Grid.X), uint32(l.Grid.Y), uint32(l.Grid.Z)},
		block:  [3]uint32{uint32(l.Block.X), uint32(l.Block.Y), uint32(l.Block.Z)},
		shared: uint32(l.Shared), stream: stream,
		attributes: unsafe.SliceData(attributes), count: uint32(len(attributes)),
	}
	return g.call(cuLaunchKernelEx, uintptr(unsafe.Pointer(&m.config)), k.handle, 0, uintptr(unsafe.Pointer(&m.extra)))
}
