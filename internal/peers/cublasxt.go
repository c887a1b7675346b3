package peers

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// CuBLASXt is the part of NVIDIA's cuBLAS that multiplies matrices in host memory, opened for one
// GPU or several.
type CuBLASXt struct {
	Path string // the loaded file, with symbolic links resolved

	gpu    PinningGPU
	all    []int32 // numbers of the GPUs
	procs  map[string]uintptr
	run    func(proc uintptr, args ...uintptr) uintptr // [dl.Call]; tests replace it
	handle uintptr
	unpin  map[*byte]func() error // of the matrices that Pin has pinned, by their first byte
}

// PinningGPU is a [GPU] that can pin memory of the host.
type PinningGPU interface {
	GPU
	// Pin locks memory in place, so that the GPU accesses it directly, until unpin is called.
	Pin(memory []byte) (unpin func() error, err error)
	// Index returns the number of the GPU in the process.
	Index() int
}

var cublas = dl.Source{
	Env: "TILEWORK_CUBLAS", Install: "pip's nvidia-cublas, or a CUDA toolkit",
	Stems: []string{"cublas"}, Versions: []string{"13", "12"},
}

// Functions of cuBLAS. They return a cublasStatus_t.
const (
	xtCreate       = "cublasXtCreate"
	xtDestroy      = "cublasXtDestroy"
	xtDeviceSelect = "cublasXtDeviceSelect"
	xtSetBlockDim  = "cublasXtSetBlockDim"
	xtSgemm        = "cublasXtSgemm"
	xtDgemm        = "cublasXtDgemm"
	blasStatus     = "cublasGetStatusString"
)

// xtBlockDim is the side of the blocks that cuBLASXt copies to the GPU. It is the fastest of 1024,
// 2048, 4096 and 8192 on an H200.
const xtBlockDim = 8192

var cublasXtProcs = []string{xtCreate, xtDestroy, xtDeviceSelect, xtSetBlockDim, xtSgemm, xtDgemm, blasStatus}

// OpenCuBLASXt opens the library for a GPU and others of the same process, given by their numbers.
// If path is empty, it opens the file named by TILEWORK_CUBLAS, or searches for the library. The
// errors are those of [OpenCuBLASLt].
func OpenCuBLASXt(d device.Device, others []int, path string) (_ *CuBLASXt, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cublasxt: %w", err)
		}
	}()
	g, ok := d.(PinningGPU)
	if !ok {
		return nil, fmt.Errorf("%w: the library contains machine code, which %s does not run", gemm.ErrUnsupported,
			d.Info().Name)
	}
	file, err := cublas.Load(path)
	if err != nil {
		return nil, err
	}
	l := &CuBLASXt{gpu: g, all: []int32{int32(g.Index())}, run: dl.Call}
	for _, other := range others {
		l.all = append(l.all, int32(other))
	}
	if l.procs, err = dl.Symbols(file, cublasXtProcs); err != nil {
		return nil, fmt.Errorf("the file is not cuBLAS of CUDA 11.4 or later: %w", err)
	}
	l.Path = dl.FileOf(l.procs[xtCreate])
	return l, l.init()
}

// init creates the library's handle and selects the GPUs.
func (l *CuBLASXt) init() error {
	l.unpin = map[*byte]func() error{}
	return l.gpu.Foreign(func(uintptr) error {
		if err := l.call(xtCreate, uintptr(unsafe.Pointer(&l.handle))); err != nil {
			return err
		}
		err := l.call(xtDeviceSelect, l.handle, uintptr(len(l.all)), uintptr(unsafe.Pointer(unsafe.SliceData(l.all))))
		if err == nil {
			err = l.call(xtSetBlockDim, l.handle, xtBlockDim)
		}
		if err != nil {
			err = device.Join(err, l.call(xtDestroy, l.handle))
		}
		return err
	})
}

// Close unpins matrices and frees the library's resources on the GPU. The library stays loaded.
func (l *CuBLASXt) Close() error {
	var errs []error
	for at, unpin := range l.unpin {
		errs = append(errs, unpin())
		delete(l.unpin, at)
	}
	return device.Join(append(errs, l.gpu.Foreign(func(uintptr) error { return l.call(xtDestroy, l.handle) }))...)
}

// String returns the name of the library.
func (l *CuBLASXt) String() string { return "cuBLASXt" }

// call calls a function that returns a status. A failure is a *statusError.
//
//go:uintptrescapes
func (l *CuBLASXt) call(name string, args ...uintptr) error {
	if status := int32(l.run(l.procs[name], args...)); status != 0 {
		return &statusError{name, status, dl.String(l.run(l.procs[blasStatus], uintptr(status)))}
	}
	return nil
}

// Pin pins the matrices of b, unless they are, until Close.
func (l *CuBLASXt) Pin(b gemm.Buffers) error {
	for _, o := range []gemm.Operand{gemm.A, gemm.B, gemm.C} {
		at := unsafe.SliceData(b[o])
		if len(b[o]) == 0 || l.unpin[at] != nil {
			continue
		}
		unpin, err := l.gpu.Pin(b[o])
		if err != nil {
			return fmt.Errorf("cublasxt: %w", err)
		}
		l.unpin[at] = unpin
	}
	return nil
}

// Prepare returns a function that computes p, and returns when C is complete. A running product
// cannot be interrupted. The error is ErrUnsupported for all but float32 and float64 products
// without an epilogue.
func (l *CuBLASXt) Prepare(_ context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	proc := map[dtype.Type]string{dtype.F32: xtSgemm, dtype.F64: xtDgemm}[p.In()]
	if proc == "" || p.Out() != p.In() || p.Epilogue != (gemm.Epilogue{}) || p.Precision != gemm.Native ||
		p.Batch.Kind != gemm.Single || p.BlockScaled() {
		return nil, fmt.Errorf("%w: cublasxt: %v: want float32 or float64 without an epilogue", gemm.ErrUnsupported, p)
	}
	problem, c := *p, newCall(p)
	operation := func(l gemm.Layout) uintptr { // a cublasOperation_t
		if l.Trans {
			return 1
		}
		return 0
	}
	return func(b *gemm.Buffers) error {
		if err := b.Check(&problem); err != nil {
			return err
		}
		return l.gpu.Foreign(func(uintptr) error {
			return l.call(proc, l.handle, operation(problem.Layouts[gemm.B]), operation(problem.Layouts[gemm.A]),
				uintptr(c.n), uintptr(c.m), uintptr(c.k), uintptr(unsafe.Pointer(&c.alpha)),
				uintptr(unsafe.Pointer(unsafe.SliceData(b[gemm.B]))), uintptr(c.ldb),
				uintptr(unsafe.Pointer(unsafe.SliceData(b[gemm.A]))), uintptr(c.lda),
				uintptr(unsafe.Pointer(&c.beta)),
				uintptr(unsafe.Pointer(unsafe.SliceData(b[gemm.C]))), uintptr(c.ldc))
		})
	}, nil
}
