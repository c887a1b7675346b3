// Package device is the seam between the kernels and what runs them: one small
// interface that the CUDA driver and the emulator implement alike, so that every
// path above it is tested on machines without a GPU.
//
// Work is asked of a [Stream], which takes it in order: a copy or a launch begins when
// what the stream was asked for before it is done. A device is a stream itself, and can
// have others, so that copies both ways and kernels run at once; what one stream does
// is ordered with what another does by [Stream.Record] and [Stream.Wait] alone.
package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tilework/ptx"
)

// The errors of every device; the messages that wrap them say what was asked for and
// what the driver or the emulator answered.
var (
	ErrNoDevice    = errors.New("no such device")
	ErrOutOfMemory = errors.New("out of device memory")
	ErrCompile     = errors.New("kernel does not compile")
	// ErrLaunch is a launch that the device refused, or a kernel that it ended:
	// a bad size, a bad address.
	ErrLaunch = errors.New("launch failed")
	// ErrLost is a device that answers nothing any more. It stays lost.
	ErrLost = errors.New("device lost")
)

// Stream is an order of work on a device. Its methods may be called from several
// goroutines at once.
type Stream interface {
	// CopyIn and CopyOut copy between the host's memory and the device's. CopyIn returns
	// when it has read the host's memory, CopyOut when it has written it: a failure of
	// the device may come out of a later CopyOut or Sync. A context that ends while they
	// copy ends them with its error, as soon as nothing in flight uses the host's memory
	// any more.
	CopyIn(ctx context.Context, dst Ptr, src []byte, rows Rows) error
	CopyOut(ctx context.Context, dst []byte, src Ptr, rows Rows) error

	// Launch starts a kernel. What fails while it runs comes out of Launch itself, of
	// the next Sync or of the next CopyOut, also of a stream that waits for it. A GPU
	// runs a kernel to its end; the emulator ends it when the context ends.
	Launch(ctx context.Context, f Function, l Launch) error
	// Sync waits until all that was asked for is done.
	Sync(ctx context.Context) error
	// Record marks the place between what was asked for so far and what will be.
	Record() (Event, error)
	// Wait keeps what is asked for from now on until the device has come to e, a place
	// in any of its streams. Wait itself returns at once.
	Wait(e Event) error

	// Close waits for what is in flight and gives the stream back. It must not be used
	// after that.
	Close() error
}

// Device is one GPU, real or emulated. Its methods may be called from several
// goroutines at once.
type Device interface {
	// Stream is the device's own, to which Alloc and Free belong too. Its Close closes
	// the device: that waits for what is in flight and gives everything back.
	Stream
	Info() *Info

	// Alloc reserves n bytes, at an address that is a multiple of 256. What they hold
	// is undefined. A stream besides the device's own may use them once it has waited
	// for an event that the device has recorded since. The errors are ErrOutOfMemory and
	// ErrLost.
	Alloc(n int) (Ptr, error)
	// Free gives memory of Alloc back once what the device's own stream was asked for
	// is done: let it wait for whoever else still uses the memory. Freeing the zero Ptr
	// does nothing.
	Free(p Ptr) error

	// EncodeTensorMap encodes a tensor map as kernels on this device take it: a parameter
	// `.align 64 .b8[128]`. The error is ErrLaunch.
	EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error)
	// Load compiles PTX text. The error is ErrCompile, with the compiler's messages.
	Load(ctx context.Context, text string) (Module, error)

	// NewStream makes a stream beside the device's own.
	NewStream() (Stream, error)
}

// Ptr is an address in a device's memory. The zero Ptr is none.
type Ptr uint64

// Info describes a device.
type Info struct {
	Name     string // as the driver spells it: "NVIDIA H200"
	Emulated bool
	// Target is the most that a kernel may be written for: sm_90a on an H200.
	Target ptx.Target
	SMs    int
	Memory int64 // bytes

	// What one launch may ask for.
	MaxThreads int  // in a block
	MaxShared  int  // bytes of shared memory of a block, static and dynamic
	MaxGrid    Dim3 // blocks

	Staging Staging
}

// Staging is how a device copies from and to memory of the host that it cannot reach
// itself; zero where it has no need to.
type Staging struct {
	Threads int // that fill or empty the pinned memory of a copy
	Ring    int // bytes of that memory, for each direction
}

// Rows are the bytes that a copy moves: Count rows of Width bytes, the start of one
// Host bytes behind the start of the one before in the host's memory, and Device
// bytes in the device's.
type Rows struct{ Count, Width, Host, Device int }

// Whole is n bytes in one piece.
func Whole(n int) Rows { return Rows{Count: 1, Width: n, Host: n, Device: n} }

// Check refuses rows that overlap or that leave the host's n bytes.
func (r Rows) Check(n int) error {
	switch {
	case r.Count < 0 || r.Width < 0:
		return fmt.Errorf("a copy of %d rows of %d bytes", r.Count, r.Width)
	case r.Count > 1 && (r.Host < r.Width || r.Device < r.Width):
		return fmt.Errorf("a copy of rows of %d bytes that are %d and %d bytes apart", r.Width, r.Host, r.Device)
	case r.Count > 0 && (r.Width > n || r.Count > 1 && (r.Count-1) > (n-r.Width)/r.Host):
		return fmt.Errorf("a copy of %d rows of %d bytes, %d bytes apart, of %d bytes of memory", r.Count, r.Width, r.Host, n)
	}
	return nil
}

// Dim3 is the size of a grid in blocks, or of a block in threads.
type Dim3 struct{ X, Y, Z int }

// String is "16×16×1".
func (d Dim3) String() string { return fmt.Sprintf("%d×%d×%d", d.X, d.Y, d.Z) }

// Count is the number of blocks or threads.
func (d Dim3) Count() int { return d.X * d.Y * d.Z }

// Launch is one run of a kernel.
type Launch struct {
	Grid, Block Dim3
	Shared      int // bytes of dynamic shared memory of a block
	// Cluster is how many blocks form a cluster, dividing the grid (sm_90 and later);
	// zero for none.
	Cluster Dim3
	// Cooperative asks that all blocks run at once, so that they may wait for each
	// other.
	Cooperative bool
	// Overlaps says that the kernel may begin while those launched before it run: it waits
	// for them itself (sm_90, griddepcontrol.wait), before it touches memory.
	Overlaps bool
	// Params are the arguments, laid out as the kernel declares its parameters.
	Params []byte
}

// Module is a compiled text.
type Module interface {
	// Function finds a kernel by its name.
	Function(name string) (Function, error)
	// Log is what the compiler had to say.
	Log() string
	Unload() error
}

// Function is a compiled kernel.
type Function interface {
	Name() string
	Resources() Resources
}

// Resources is what the compiled kernel takes. An emulator, which allots no
// registers, leaves those at 0.
type Resources struct {
	Registers int // of a thread
	Spilled   int // bytes of a thread's local memory
	Shared    int // bytes of a block's static shared memory
}

// Event is a place in the order of a stream's work.
type Event interface {
	// Since is the time that the device took from an earlier event to this one. It
	// waits until the device has come here.
	Since(ctx context.Context, earlier Event) (time.Duration, error)
	Free() error
}
