// Package peers opens the BLAS libraries that are installed on the machine (OpenBLAS, BLIS, MKL,
// oneDNN) and multiplies with them, for comparison only.
//
// The libraries are opened with dlopen, without cgo. Nothing else needs them to build or run.
// [Libraries] lists them and [Open] opens one. On a GPU, [OpenCuBLASLt] opens
// cuBLASLt.
//
// Products use the Fortran entry points sgemm_ and dgemm_, whose arguments are all pointers. Such a
// call is about four times cheaper than cblas_sgemm with its floats in registers (0.4 against 1.5
// µs). An integer in eight little-endian bytes also reads the same in libraries with 32-bit and
// with 64-bit integers.
package peers

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// ErrNotFound reports that a library is not installed at the expected places.
var ErrNotFound = dl.ErrNotFound

// Options selects the library file and how it runs.
type Options struct {
	// Path is the library's file. If it is empty, the library's environment variable names the
	// file. If that is empty too, the system's library directories are searched, but never the
	// working directory.
	Path string
	// Threads is the number of threads per product; 0 means GOMAXPROCS.
	Threads int
	// Core is the kernel family to run, such as OpenBLAS's "SKYLAKEX", if the library offers a
	// choice. If it is empty, the library chooses. The first Open of a library in the process fixes
	// it.
	Core string
}

// Peer is an open library. It stays loaded until the process ends, because its worker threads would
// not survive unloading. The number of threads is a setting of the library, shared by all Peers of
// the same file. Products may run concurrently with each other, but not with SetThreads.
type Peer struct {
	Library *Library // its entry in Libraries
	Path    string   // the loaded file, with symbolic links resolved
	Version string   // "0.3.34"
	Config  string   // the library's build configuration
	Core    string   // the kernel family selected for this CPU: "SkylakeX"

	procs            map[string]uintptr
	engine, stream   uintptr // of oneDNN
	threads          atomic.Int64
	threadsPerCaller bool
}

// Open loads the library with the given name. The errors are ErrNotFound, ErrUnsupported if the
// platform or the library does not support o, and those of the dynamic loader.
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
		return nil, fmt.Errorf("%w: %d threads: want at least 0", gemm.ErrUnsupported, o.Threads)
	}
	if o.Core != "" {
		if l.CoreEnv == "" {
			return nil, fmt.Errorf("%w: core %q: the library has no choice of kernels", gemm.ErrUnsupported, o.Core)
		}
		defer setenv(l.CoreEnv, o.Core)()
	}
	if _, set := os.LookupEnv(l.spinEnv); l.spinEnv != "" && !set {
		defer setenv(l.spinEnv, l.spin)()
	}
	handle, err := l.Load(o.Path)
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
		return nil, fmt.Errorf("%w: %s runs the %s kernels despite %s=%s", gemm.ErrUnsupported, p.Path, p.Core, l.CoreEnv,
			o.Core)
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

// bind looks up all functions of the library, so that a wrong file is rejected before any of its
// code runs.
func (p *Peer) bind(handle uintptr) error {
	var a affix
	var addr uintptr
	first := p.Library.api.procs[0]
	for _, a = range affixes {
		if addr, _ = dl.Symbol(handle, a.symbol(first)); addr != 0 {
			break
		}
	}
	if addr == 0 {
		return fmt.Errorf("the file has no function %s, with or without the usual prefixes and suffixes", first)
	}
	p.Path = dl.FileOf(addr)
	for _, name := range slices.Concat(p.Library.api.procs, p.Library.procs) {
		var err error
		if p.procs[name], err = dl.Symbol(handle, a.symbol(name)); err != nil {
			return fmt.Errorf("%s has no function %s: want the library %s", p.Path, a.symbol(name), p.Library.Title)
		}
	}
	return nil
}

// SetThreads sets the number of threads per product. The error is ErrUnsupported if the library
// uses a different number.
func (p *Peer) SetThreads(n int) error {
	if n < 1 || n > 1<<16 {
		return fmt.Errorf("%s: %w: %d threads: want 1 to 65536", p.Library.Name, gemm.ErrUnsupported, n)
	}
	runtime.LockOSThread() // some libraries store the number per OS thread
	defer runtime.UnlockOSThread()
	p.call(p.Library.setThreads, uintptr(n))
	if got := int(int32(p.call(p.Library.getThreads))); got != n {
		return fmt.Errorf("%s: %w: %d threads: the library uses %d", p.Library.Name, gemm.ErrUnsupported, n, got)
	}
	p.threads.Store(int64(n))
	return nil
}

// Threads returns the number of threads per product.
func (p *Peer) Threads() int { return int(p.threads.Load()) }

// Name returns the library's name in Libraries.
func (p *Peer) Name() string { return p.Library.Name }

// String returns the title, version and kernels: "OpenBLAS 0.3.34, SkylakeX kernels".
func (p *Peer) String() string {
	s := p.Library.Title + " " + p.Version
	if p.Core != "" {
		s += ", " + p.Core + " kernels"
	}
	return s
}

// Caveat returns a line on why a comparison with p in its present configuration is unfair, or the
// empty string.
func (p *Peer) Caveat() string {
	if p.Library.caveat == nil {
		return ""
	}
	return p.Library.caveat(p)
}

// call calls the library's function with the given name; see [dl.Call].
//
//go:uintptrescapes
func (p *Peer) call(name string, args ...uintptr) uintptr { return dl.Call(p.procs[name], args...) }

// setenv sets a variable for Go and for the C library, and returns a function that restores it.
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
