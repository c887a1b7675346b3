// Package peers opens the libraries that are installed on the machine (OpenBLAS, BLIS,
// MKL, oneDNN) and multiplies with them, for comparison only.
//
// The libraries are opened with dlopen, without cgo, and are not needed to
// build or run anything else. [Libraries] is the table of them, and [Open] opens
// one. On a GPU [OpenCuBLASLt] opens cuBLASLt, and
// [OpenKernel] a kernel of a file of PTX, such as nvcc's.
//
// A product is handed to a BLAS through the Fortran entry points sgemm_ and dgemm_,
// whose arguments are all pointers. That makes a call about four times cheaper
// than cblas_sgemm with its floats in registers (0.4 against 1.5 µs), and an
// integer stored in eight little-endian bytes reads the same to a library with
// 32-bit integers and to one with 64-bit integers.
package peers

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"tilework/internal/gemm"
)

// ErrNotFound tells that a library is not installed where it is looked for.
var ErrNotFound = errors.New("library not found")

// Options says which file to open and how it shall run.
type Options struct {
	// Path is the library's file. If empty, the file named by the library's
	// environment variable is opened; if that is empty too, the system's library
	// directories are searched, never the working directory.
	Path string
	// Threads is how many threads a product may use; 0 stands for GOMAXPROCS.
	Threads int
	// Core is the kernel family to run, where the library lets one choose it, as
	// OpenBLAS's "SKYLAKEX". Empty leaves the choice to the library. It is fixed
	// when the process opens the library first.
	Core string
}

// Peer is an open library. It stays loaded until the process ends: its worker
// threads do not survive an unloading. Its number of threads is the library's
// own, and so shared by all Peers of the same file; products may be computed
// concurrently, but not while SetThreads runs.
type Peer struct {
	Library *Library // its row of the table
	Path    string   // the file that was loaded, symbolic links resolved
	Version string   // "0.3.34"
	Config  string   // what the library says about its build
	Core    string   // the kernel family it picked for this CPU: "SkylakeX"

	procs            map[string]uintptr
	engine, stream   uintptr // oneDNN's
	threads          atomic.Int64
	threadsPerCaller bool
}

// Open loads the library of that name. The errors are ErrNotFound, ErrUnsupported
// where this platform or the library cannot do what o asks for, and those of the
// dynamic loader.
func Open(name string, o Options) (*Peer, error) {
	l, err := Find(name)
	if err != nil {
		return nil, err
	}
	p, err := l.open(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	return p, nil
}

func (l *Library) open(o Options) (*Peer, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("%w: %d threads", gemm.ErrUnsupported, o.Threads)
	}
	if o.Core != "" {
		if l.CoreEnv == "" {
			return nil, fmt.Errorf("%w: choosing its kernels by name (wanted %q)", gemm.ErrUnsupported, o.Core)
		}
		defer setenv(l.CoreEnv, o.Core)()
	}
	if _, said := os.LookupEnv(l.restEnv); l.restEnv != "" && !said {
		defer setenv(l.restEnv, l.rest)()
	}
	handle, err := l.load(o.Path)
	if err != nil {
		return nil, err
	}
	p := &Peer{Library: l, procs: map[string]uintptr{}}
	if err := p.bind(handle); err != nil {
		return nil, err
	}
	if l.prepare != nil {
		if err := l.prepare(p); err != nil {
			return nil, err
		}
	}
	l.describe(p)
	if o.Core != "" && !strings.EqualFold(o.Core, p.Core) {
		return nil, fmt.Errorf("%w: %s runs the %s kernels where %s=%s asks for others", gemm.ErrUnsupported, p.Path, p.Core, l.CoreEnv, o.Core)
	}
	n := o.Threads
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if err := p.SetThreads(n); err != nil {
		return nil, err
	}
	return p, nil
}

// bind looks up all that the row names, so that a file which is not the library
// is refused before anything in it runs.
func (p *Peer) bind(handle uintptr) error {
	var d decoration
	var addr uintptr
	first := p.Library.face.procs[0]
	for _, d = range decorations {
		if addr, _ = dlsym(handle, d.of(first)); addr != 0 {
			break
		}
	}
	if addr == 0 {
		return fmt.Errorf("the file has no %s under any of its usual names", first)
	}
	p.Path = fileOf(addr)
	for _, name := range slices.Concat(p.Library.face.procs, p.Library.procs) {
		var err error
		if p.procs[name], err = dlsym(handle, d.of(name)); err != nil {
			return fmt.Errorf("%s has no %s: is it %s?", p.Path, d.of(name), p.Library.Title)
		}
	}
	return nil
}

// SetThreads lets a product use n threads. A library that takes another number
// than asked for is an error, ErrUnsupported.
func (p *Peer) SetThreads(n int) error {
	if n < 1 || n > 1<<16 {
		return fmt.Errorf("%s: %w: %d threads", p.Library.Name, gemm.ErrUnsupported, n)
	}
	runtime.LockOSThread() // some libraries keep the number for each OS thread
	defer runtime.UnlockOSThread()
	p.call(p.Library.setThreads, uintptr(n))
	if got := int(int32(p.call(p.Library.getThreads))); got != n {
		return fmt.Errorf("%s: %w: %d threads (it takes %d)", p.Library.Name, gemm.ErrUnsupported, n, got)
	}
	p.threads.Store(int64(n))
	return nil
}

// Threads is how many threads a product may use.
func (p *Peer) Threads() int { return int(p.threads.Load()) }

// Name is the library's name in the table.
func (p *Peer) Name() string { return p.Library.Name }

// String tells what would be compared with: "OpenBLAS 0.3.34, SkylakeX kernels".
func (p *Peer) String() string {
	s := p.Library.Title + " " + p.Version
	if p.Core != "" {
		s += ", " + p.Core + " kernels"
	}
	return s
}

// Caveat is one line on why a comparison with p as it stands would be unfair, or
// empty.
func (p *Peer) Caveat() string {
	if p.Library.caveat == nil {
		return ""
	}
	return p.Library.caveat(p)
}

// call calls the library's function of that name, as [invoke] does.
//
//go:uintptrescapes
func (p *Peer) call(name string, args ...uintptr) uintptr { return invoke(p.procs[name], args...) }

// setenv sets a variable for the C library too, and returns what undoes it.
func setenv(name, value string) (undo func()) {
	old, was := os.LookupEnv(name)
	os.Setenv(name, value)
	return func() {
		if was {
			os.Setenv(name, old)
		} else {
			os.Unsetenv(name)
		}
	}
}
