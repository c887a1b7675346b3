// Package nccl calls NVIDIA's NCCL, which moves data between GPUs of different processes and hosts.
// The library is opened with dlopen, without cgo, and nothing needs it to build or start.
//
// Communicators are non-blocking: no call waits for another rank, so a rank that is lost cannot
// hang this process. See "Fault Tolerance" and "Group Calls" in NCCL's user guide.
package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"tilework/internal/device"
	"tilework/internal/dl"
)

// Library is NCCL.
type Library struct {
	Path    string // the loaded file, with symbolic links resolved
	Version Version

	procs map[string]uintptr
	run   func(proc uintptr, args ...uintptr) uintptr // [dl.Call]; tests replace it
}

// Version is a version of NCCL as it reports it: 22703 is 2.27.3.
type Version int

// String returns the version as a text: "2.27.3".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// source describes the places of the library.
var source = dl.Source{
	Env: "TILEWORK_NCCL", Install: "pip's nvidia-nccl-cu13 or nvidia-nccl-cu12",
	Stems: []string{"nccl"}, Versions: []string{"2"},
}

// Functions of NCCL 2.23 and later. They return an ncclResult_t, those of texts a C string.
const (
	getVersion   = "ncclGetVersion"
	getUniqueID  = "ncclGetUniqueId"
	initRank     = "ncclCommInitRankScalable" // takes the unique id by address
	asyncError   = "ncclCommGetAsyncError"
	finalize     = "ncclCommFinalize"
	destroy      = "ncclCommDestroy"
	abort        = "ncclCommAbort"
	groupStart   = "ncclGroupStart"
	groupEnd     = "ncclGroupEnd"
	send         = "ncclSend"
	receive      = "ncclRecv"
	errorString  = "ncclGetErrorString"
	getLastError = "ncclGetLastError"
)

var procs = []string{getVersion, getUniqueID, initRank, asyncError, finalize, destroy, abort, groupStart, groupEnd,
	send, receive, errorString, getLastError}

// The results that are no failures, of the type ncclResult_t.
const (
	success    = 0
	inProgress = 7
)

// off is the value of TILEWORK_NCCL for which Open finds no library.
const off = "off"

// Open opens the library. If path is empty, it opens the file named by TILEWORK_NCCL, or searches
// for the library, unless the variable is "off". The errors are [dl.ErrNotFound], ErrUnsupported
// and those of the loader.
func Open(path string) (*Library, error) {
	if path == "" && os.Getenv(source.Env) == off {
		return nil, fmt.Errorf("nccl: %s=%s: %w", source.Env, off, dl.ErrNotFound)
	}
	l, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	return l, nil
}

func open(path string) (*Library, error) {
	handle, err := source.Load(path)
	if err != nil {
		return nil, err
	}
	l := &Library{run: dl.Call}
	if l.procs, err = dl.Symbols(handle, procs); err != nil {
		return nil, fmt.Errorf("the file is not NCCL 2.23 or later: %w", err)
	}
	l.Path = dl.FileOf(l.procs[getVersion])
	return l, l.init()
}

// init sets the version.
func (l *Library) init() error {
	var v int32
	err := l.call(getVersion, uintptr(unsafe.Pointer(&v)))
	l.Version = Version(v)
	return err
}

// callError is the failure of a function.
type callError struct {
	call   string
	result int32 // an ncclResult_t
	text   string
}

func (e *callError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.call, e.text, e.result) }

// call calls a function that returns a result. Operations that go on in the background are no
// failures.
//
//go:uintptrescapes
func (l *Library) call(name string, args ...uintptr) error {
	return l.check(name, int32(l.run(l.procs[name], args...)))
}

// check returns the error of a result.
func (l *Library) check(name string, result int32) error {
	if result == success || result == inProgress {
		return nil
	}
	text := dl.String(l.run(l.procs[errorString], uintptr(result)))
	if last := dl.String(l.run(l.procs[getLastError], 0)); last != "" {
		text += ": " + last
	}
	return &callError{name, result, text}
}

// ID identifies a communicator. One rank makes it, and all ranks join with it.
type ID [128]byte

// NewID returns a new ID, with an address at which the process listens.
func (l *Library) NewID() (id ID, err error) {
	err = l.call(getUniqueID, uintptr(unsafe.Pointer(&id)))
	return id, err
}

// Stream is a stream of a GPU of package cuda.
type Stream interface {
	// Foreign runs f with the GPU's context current on the OS thread. stream is the CUstream.
	Foreign(f func(stream uintptr) error) error
}

// Comm is a communicator: the place of a GPU among those of all ranks.
type Comm struct {
	library *Library
	mu      sync.Mutex // during each call
	handle  uintptr    // 0 after Abort or Close
}

// config is the ncclConfig_t of NCCL 2.14. Later versions recognise it by its size and version.
type config struct {
	size           uintptr
	magic, version uint32
	blocking       int32
	_              int32
}

// Join makes a GPU a rank of a new communicator, and waits for the other ranks. s is a stream of
// the GPU. After an error, and when ctx ends, nothing remains.
func (l *Library) Join(ctx context.Context, s Stream, id ID, rank, size int) (*Comm, error) {
	c := &Comm{library: l}
	settings := config{magic: 0xcafebeef, version: 21400}
	settings.size = unsafe.Sizeof(settings)
	err := s.Foreign(func(uintptr) error {
		return l.call(initRank, uintptr(unsafe.Pointer(&c.handle)), uintptr(size), uintptr(rank), 1,
			uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&settings)))
	})
	if err == nil {
		err = c.settle(ctx, initRank)
	}
	if err != nil {
		return nil, device.Join(err, c.Abort())
	}
	return c, nil
}

// errAborted is the error of calls after Abort or Close.
var errAborted = errors.New("nccl: the communicator has ended")

// within calls f unless the communicator has ended.
func (c *Comm) within(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handle == 0 {
		return errAborted
	}
	return f()
}

// The pauses between two questions whether an operation has ended.
const (
	minPause = 20 * time.Microsecond
	maxPause = time.Millisecond
)

// settle waits until the operations that a call has started are enqueued.
func (c *Comm) settle(ctx context.Context, call string) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		var state int32
		err := c.within(func() error {
			if err := c.library.call(asyncError, c.handle, uintptr(unsafe.Pointer(&state))); err != nil {
				return err
			}
			return c.library.check(call, state)
		})
		if err != nil || state == success {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Transfer is a contiguous part of device memory that is sent to a rank, or received from it.
type Transfer struct {
	Rank  int
	At    device.Ptr
	Bytes int
}

// int8s is the type of the elements of all transfers, ncclInt8.
const int8s = 0

// Exchange enqueues transfers on s, all at the same time, and does not wait for them. The transfers
// between two ranks have the same order and the same sizes on both. If ctx ends before they are
// enqueued, the caller must abort the communicator.
func (c *Comm) Exchange(ctx context.Context, s Stream, sends, receives []Transfer) error {
	if len(sends)+len(receives) == 0 {
		return nil
	}
	// A group belongs to an OS thread.
	err := c.within(func() error {
		return s.Foreign(func(stream uintptr) error {
			err := c.library.call(groupStart)
			if err != nil {
				return err
			}
			for _, list := range []struct {
				call string
				all  []Transfer
			}{{send, sends}, {receive, receives}} {
				for _, t := range list.all {
					if err == nil {
						err = c.library.call(list.call, uintptr(t.At), uintptr(t.Bytes), int8s, uintptr(t.Rank), c.handle,
							stream)
					}
				}
			}
			return device.Join(err, c.library.call(groupEnd))
		})
	})
	if err != nil {
		return err
	}
	return c.settle(ctx, groupEnd)
}

// Abort ends the communicator and all operations, also those that run on the GPU. It may be called
// while other calls wait. A second call does nothing.
func (c *Comm) Abort() error { return c.end(abort) }

// Close waits until all operations of all ranks have ended and ends the communicator. If ctx ends
// before, it aborts them.
func (c *Comm) Close(ctx context.Context) error {
	err := c.within(func() error { return c.library.call(finalize, c.handle) })
	if errors.Is(err, errAborted) {
		return nil
	}
	if err == nil {
		err = c.settle(ctx, finalize)
	}
	if err != nil {
		return device.Join(err, c.Abort())
	}
	return c.end(destroy)
}

// end calls a function that frees the communicator.
func (c *Comm) end(name string) error {
	err := c.within(func() error {
		handle := c.handle
		c.handle = 0
		runtime.LockOSThread() // NCCL changes the thread's current device, and restores it
		defer runtime.UnlockOSThread()
		return c.library.call(name, handle)
	})
	if errors.Is(err, errAborted) {
		return nil
	}
	return err
}
