// Package device defines the interface between kernels and the hardware that runs them.
// The CUDA driver (package cuda) and the emulator (package emu) both implement it, so all
// code above it can be tested on machines without a GPU.
//
// Work is enqueued on a [Stream] and runs in order: a copy or launch starts when all earlier
// work of the same stream has finished. A device has a default stream, which is the Device
// itself, and can create more, so that copies in both directions overlap with kernels. Only
// [Stream.Record] and [Stream.Wait] order the work of different streams, of one device or of
// several.
package device

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"tilework/internal/sentinel"
	"tilework/ptx"
)

// The errors that all devices return, besides [sentinel.ErrNoDevice]. The errors that wrap them
// describe the request and the answer of the driver or emulator.
var (
	ErrIndex       = WithKind(sentinel.ErrNoDevice, errors.New("index beyond the last device"))
	ErrOutOfMemory = WithKind(sentinel.ErrOutOfMemory, errors.New("out of device memory"))
	ErrCompile     = errors.New("kernel does not compile")
	// ErrLaunch reports that the device rejected a launch (such as an invalid block size) or
	// aborted a kernel (such as one that accessed an invalid address).
	ErrLaunch = errors.New("launch failed")
	// ErrLost reports that the device no longer accepts work. It stays lost.
	ErrLost = WithKind(sentinel.ErrNoDevice, errors.New("device lost"))
)

// Stream is a queue of work on a device, like a CUDA stream. Its methods are safe for concurrent
// use.
type Stream interface {
	// CopyIn copies from host memory to device memory and returns when it has read all host
	// memory. CopyOut copies from device memory to host memory and returns when it has written
	// all host memory. A device failure may be reported by a later CopyOut or Sync. If ctx ends
	// during a copy, the copy returns the context's error as soon as no transfer in flight
	// uses the host memory.
	CopyIn(ctx context.Context, dst Ptr, src []byte, rows Rows) error
	CopyOut(ctx context.Context, dst []byte, src Ptr, rows Rows) error

	// CopyPeer enqueues a copy of rows from the memory of device from to that of this device, and
	// does not wait for it. from is of the same implementation, and may be this device. Only this
	// stream orders the copy: wait for events of from, and keep its memory until the copy is done.
	// If the GPUs cannot access each other's memory, the copy goes through host memory.
	CopyPeer(dst Ptr, from Device, src Ptr, rows PeerRows) error

	// Launch starts a kernel. An error of the running kernel is returned by Launch itself or by
	// the next Sync or CopyOut, of this stream or of a stream that waits for it. A GPU always
	// runs a kernel to its end; the emulator aborts it when ctx ends.
	Launch(ctx context.Context, f Function, l Launch) error
	// Sync waits until all work enqueued on the stream has finished.
	Sync(ctx context.Context) error
	// Record enqueues an event, which completes when all work enqueued before it has finished.
	Record() (Event, error)
	// Wait makes all work that is enqueued after this call wait for e, an event of any stream of any
	// device of the same implementation. Wait itself returns immediately.
	Wait(e Event) error

	// Close waits for work in flight and destroys the stream, which must not be used afterwards.
	Close() error
}

// Device is one GPU, real or emulated. Its methods are safe for concurrent use.
type Device interface {
	// Stream is the default stream, which also orders Alloc and Free. Its Close closes the
	// device: it waits for work in flight and releases all resources.
	Stream
	// Info returns the properties of the device.
	Info() *Info

	// Alloc allocates n bytes at an address that is a multiple of 256. Their contents are
	// undefined. Another stream may use the memory once it waits for an event recorded on the
	// default stream after Alloc. The error is ErrOutOfMemory or ErrLost.
	Alloc(n int) (Ptr, error)
	// Free releases memory from Alloc once all work enqueued on the default stream has
	// finished. If other streams still use the memory, the default stream must first wait for
	// them. Freeing the zero Ptr does nothing.
	Free(p Ptr) error

	// EncodeTensorMap encodes m as the 128 bytes that a kernel takes as a parameter
	// `.align 64 .b8[128]`. The error is ErrLaunch.
	EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error)
	// Load compiles PTX. The error is ErrCompile, with the compiler's messages.
	Load(ctx context.Context, text string) (Module, error)
	// Precompile compiles PTX for a later Load, which then takes about a millisecond. Unlike Load it
	// does not delay calls of other goroutines. It reports whether it has compiled.
	Precompile(text string) bool

	// NewStream creates an additional stream.
	NewStream() (Stream, error)
}

// Ptr is an address in device memory. The zero Ptr is a null pointer.
type Ptr uint64

// Info describes a device.
type Info struct {
	Name     string // as the driver reports it: "NVIDIA H200"
	Emulated bool
	Driver   string // version of CUDA of the driver: "CUDA 13.0"; empty for a device without one
	// Target is the highest target of kernels that the device runs, such as sm_90a on an H200.
	Target ptx.Target
	SMs    int
	Memory int64 // bytes

	// Limits of a launch.
	MaxThreads int  // threads per block
	MaxShared  int  // bytes of shared memory per block, static and dynamic
	MaxGrid    Dim3 // blocks per grid

	Staging Staging
}

// Staging describes how a device copies from and to pageable host memory through pinned
// buffers. It is zero for a device that uses no pinned buffers.
type Staging struct {
	Threads     int // host threads that fill or empty the pinned buffers of one copy
	BufferBytes int // bytes of pinned buffers per direction
}

// Rows describes the bytes of a strided copy: Count rows of Width bytes. Consecutive rows
// start HostPitch bytes apart in host memory and DevicePitch bytes apart in device memory.
type Rows struct{ Count, Width, HostPitch, DevicePitch int }

// Whole returns the Rows of a contiguous copy of n bytes.
func Whole(n int) Rows { return Rows{Count: 1, Width: n, HostPitch: n, DevicePitch: n} }

// Bytes returns the number of bytes that the copy moves.
func (r Rows) Bytes() int { return r.Count * r.Width }

// Check returns an error if rows overlap or exceed n bytes of host memory.
func (r Rows) Check(n int) error {
	switch {
	case r.Count < 0 || r.Width < 0:
		return fmt.Errorf("copy has %d rows of %d bytes: want no negative size", r.Count, r.Width)
	case r.Count > 1 && (r.HostPitch < r.Width || r.DevicePitch < r.Width):
		return fmt.Errorf("rows of %d bytes are %d bytes apart on the host and %d on the device: want at least %d",
			r.Width, r.HostPitch, r.DevicePitch, r.Width)
	case r.Count > 0 && (r.Width > n || r.Count > 1 && (r.Count-1) > (n-r.Width)/r.HostPitch):
		return fmt.Errorf("%d rows of %d bytes, %d bytes apart, exceed %d bytes of host memory", r.Count, r.Width,
			r.HostPitch, n)
	}
	return nil
}

// PeerRows describes the bytes of a copy between two devices: Count rows of Width bytes.
// Consecutive rows start FromPitch bytes apart in the source and ToPitch in the destination.
type PeerRows struct{ Count, Width, FromPitch, ToPitch int }

// WholePeer returns the PeerRows of a contiguous copy of n bytes.
func WholePeer(n int) PeerRows { return PeerRows{Count: 1, Width: n, FromPitch: n, ToPitch: n} }

// Bytes returns the number of bytes that the copy moves.
func (r PeerRows) Bytes() int { return r.Count * r.Width }

// Merged returns the same copy with contiguous rows as one row, and a copy of nothing as the zero
// PeerRows. The error is that of rows that overlap, or that span more than 2^63 bytes.
func (r PeerRows) Merged() (PeerRows, error) {
	switch {
	case r.Count < 0 || r.Width < 0:
		return r, fmt.Errorf("copy between devices has %d rows of %d bytes: want no negative size", r.Count, r.Width)
	case r.Count == 0 || r.Width == 0:
		return PeerRows{}, nil
	case r.Count == 1:
		return WholePeer(r.Width), nil
	case r.FromPitch < r.Width || r.ToPitch < r.Width:
		return r, fmt.Errorf("rows of %d bytes are %d bytes apart in the source and %d in the destination: want at least %d",
			r.Width, r.FromPitch, r.ToPitch, r.Width)
	case r.Count > math.MaxInt/max(r.FromPitch, r.ToPitch):
		return r, fmt.Errorf("%d rows that are %d and %d bytes apart: want less than 2^63 bytes in total", r.Count,
			r.FromPitch, r.ToPitch)
	case r.FromPitch == r.Width && r.ToPitch == r.Width:
		return WholePeer(r.Count * r.Width), nil
	}
	return r, nil
}

// Spans returns the number of bytes from the first byte of the copy to its last, in the source and
// in the destination.
func (r PeerRows) Spans() (from, to int) {
	gaps := max(r.Count-1, 0)
	return gaps*r.FromPitch + r.Width, gaps*r.ToPitch + r.Width
}

// Dim3 is the size of a grid in blocks, of a block in threads, or of a cluster in blocks.
type Dim3 struct{ X, Y, Z int }

// String returns a string of the form "16×16×1".
func (d Dim3) String() string { return fmt.Sprintf("%d×%d×%d", d.X, d.Y, d.Z) }

// Count returns the total number of blocks or threads.
func (d Dim3) Count() int { return d.X * d.Y * d.Z }

// Launch holds the configuration and arguments of a kernel launch.
type Launch struct {
	Grid, Block Dim3
	Shared      int // bytes of dynamic shared memory per block
	// Cluster is the cluster size in blocks (sm_90 and later). Each dimension must divide the
	// grid's. Zero launches without clusters.
	Cluster Dim3
	// Cooperative requires all blocks to be resident at once, so that they can wait for each
	// other.
	Cooperative bool
	// PDL enables programmatic dependent launch: the kernel may start while earlier kernels
	// of the stream are still running. It must execute griddepcontrol.wait before it touches
	// memory that they use.
	PDL bool
	// Params holds the arguments in the layout of the kernel's parameters. See [Params].
	Params []byte
	// BlockEnded, if not nil, is called when a block of the grid has ended, from any goroutine. Only
	// the emulator calls it.
	BlockEnded func()
}

// Module is a compiled PTX module.
type Module interface {
	// Function returns the kernel with the given name.
	Function(name string) (Function, error)
	// Log returns the messages of the compiler.
	Log() string
	Unload() error
}

// Function is a compiled kernel.
type Function interface {
	Name() string
	Resources() Resources
}

// Resources describes the resources that a compiled kernel uses. The emulator does not
// allocate registers and leaves Registers and Spilled at 0.
type Resources struct {
	Registers int // per thread
	Spilled   int // bytes of local memory per thread
	Shared    int // bytes of static shared memory per block
}

// Event marks a position in a stream.
type Event interface {
	// Since waits for e to complete and returns the device time between earlier and e. If ctx has
	// ended, it does not wait: it returns the error of ctx unless both events are complete.
	Since(ctx context.Context, earlier Event) (time.Duration, error)
	Free() error
}
