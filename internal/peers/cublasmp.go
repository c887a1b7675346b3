package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"tilework/internal/device"
	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// CuBLASMp is NVIDIA's cuBLASMp, opened for several GPUs of this process. It multiplies matrices
// that are divided among the GPUs; see [CuBLASMp.Prepare].
//
// Each GPU is a rank. Many functions of the library wait for the calls of all ranks, so each rank
// makes its calls in a goroutine of its own.
type CuBLASMp struct {
	Path    string // the loaded file, with symbolic links resolved
	Version version
	NCCL    version // of the library that moves data between the GPUs

	procs  map[string]uintptr
	run    func(proc uintptr, args ...uintptr) uintptr // [dl.Call]; tests replace it
	ranks  []*mpRank
	failed error // of calls after the communicators were aborted
	// limit is the longest time of a step of all ranks. patience is that between the first failure of
	// a rank and the end of the others, and between the end of the communicators and that of all.
	limit, patience time.Duration
}

// ErrStuck means that a call of a library has not returned in time. It still uses the GPU, which
// cannot be closed.
var ErrStuck = errors.New("a call of the library does not return, and cannot be stopped")

// mpRank is a GPU and the library's objects for it.
type mpRank struct {
	gpu        LinkedGPU
	comm       uintptr // ncclComm_t
	handle     uintptr // cublasMpHandle_t
	tall, wide uintptr // cublasMpGrid_t of all ranks below each other, and side by side
}

// LinkedGPU is a [GPU] that can use the memory of others.
type LinkedGPU interface {
	GPU
	// Index returns the number of the GPU in the process.
	Index() int
	// Access lets the GPU use the memory of another one directly, and reports whether it can.
	Access(other device.Device) (direct bool, err error)
}

var cublasMp = dl.Source{
	Env: "TILEWORK_CUBLASMP", Install: "pip's nvidia-cublasmp-cu13",
	Stems: []string{"cublasmp"}, Versions: []string{"0"},
}

// Functions of cuBLASMp 0.10, which return a cublasMpStatus_t, and of the NCCL that it uses, which
// return an ncclResult_t.
const (
	mpGetVersion    = "cublasMpGetVersion"
	mpStatusString  = "cublasMpGetStatusString"
	mpCreate        = "cublasMpCreate"
	mpDestroy       = "cublasMpDestroy"
	mpGridCreate    = "cublasMpGridCreate"
	mpGridDestroy   = "cublasMpGridDestroy"
	mpMatrixCreate  = "cublasMpMatrixDescriptorCreate"
	mpMatrixDestroy = "cublasMpMatrixDescriptorDestroy"
	mpDescCreate    = "cublasMpMatmulDescriptorCreate"
	mpDescDestroy   = "cublasMpMatmulDescriptorDestroy"
	mpDescSet       = "cublasMpMatmulDescriptorSetAttribute"
	mpBufferSize    = "cublasMpMatmul_bufferSize"
	mpMatmul        = "cublasMpMatmul"
	mpRegister      = "cublasMpBufferRegister"
	mpDeregister    = "cublasMpBufferDeregister"

	ncclGetVersion  = "ncclGetVersion"
	ncclErrorString = "ncclGetErrorString"
	ncclLastError   = "ncclGetLastError"
	ncclInitAll     = "ncclCommInitAll"
	ncclDestroy     = "ncclCommDestroy"
	ncclAbort       = "ncclCommAbort"
	ncclMemAlloc    = "ncclMemAlloc"
	ncclMemFree     = "ncclMemFree"
)

var cublasMpProcs = []string{
	mpGetVersion, mpStatusString, mpCreate, mpDestroy, mpGridCreate, mpGridDestroy, mpMatrixCreate, mpMatrixDestroy,
	mpDescCreate, mpDescDestroy, mpDescSet, mpBufferSize, mpMatmul, mpRegister, mpDeregister,
	ncclGetVersion, ncclErrorString, ncclLastError, ncclInitAll, ncclDestroy, ncclAbort, ncclMemAlloc, ncclMemFree,
}

// The least versions: the first cuBLASMp that supports several GPUs in a process, and the NCCL that
// it needs.
const (
	minMpVersion   = version(1000)
	minNCCLVersion = version(22902)
)

// noMulticast lists the environment variables that keep NCCL and cuBLASMp from using NVLink
// multicast, which may not be available on shared machines.
var noMulticast = map[string]string{"NCCL_NVLS_ENABLE": "0", "CUBLASMP_DISABLE_MULTICAST": "1"}

// OpenCuBLASMp opens the library for several GPUs. If path is empty, it opens the file named by
// TILEWORK_CUBLASMP, or searches for the library. NVLink multicast is left off, unless the
// environment says otherwise. The errors are those of [OpenCuBLASLt].
func OpenCuBLASMp(ctx context.Context, devices []device.Device, path string) (_ *CuBLASMp, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cublasmp: %w", err)
		}
	}()
	l := &CuBLASMp{run: dl.Call, limit: time.Minute, patience: 10 * time.Second}
	for _, d := range devices {
		g, ok := d.(LinkedGPU)
		if !ok {
			return nil, fmt.Errorf("%w: the library contains machine code, which %s does not run", gemm.ErrUnsupported,
				d.Info().Name)
		}
		l.ranks = append(l.ranks, &mpRank{gpu: g})
	}
	for name, value := range noMulticast {
		if _, set := os.LookupEnv(name); !set {
			os.Setenv(name, value)
		}
	}
	file, err := cublasMp.Load(path)
	if err != nil {
		return nil, err
	}
	if l.procs, err = dl.Symbols(file, cublasMpProcs); err != nil {
		return nil, fmt.Errorf("the file is not cuBLASMp 0.10 or later: %w", err)
	}
	l.Path = dl.FileOf(l.procs[mpGetVersion])
	if err := l.init(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// init checks the versions, connects the ranks and creates their handles and grids.
func (l *CuBLASMp) init(ctx context.Context) error {
	err := l.call(mpGetVersion, uintptr(unsafe.Pointer(&l.Version)))
	if err == nil {
		err = l.call(ncclGetVersion, uintptr(unsafe.Pointer(&l.NCCL)))
	}
	if err != nil {
		return err
	}
	if l.Version < minMpVersion {
		return fmt.Errorf("%w: %s is version %v: want %v or later, for several GPUs in one process", gemm.ErrUnsupported,
			l.Path, l.Version, minMpVersion)
	}
	// The loader looks up functions of NCCL at their first call, and would end the process.
	if l.NCCL < minNCCLVersion {
		return fmt.Errorf("%w: %s is NCCL %v: want %v or later", gemm.ErrUnsupported, dl.FileOf(l.procs[ncclGetVersion]),
			l.NCCL, minNCCLVersion)
	}
	n := len(l.ranks)
	numbers, comms := make([]int32, n), make([]uintptr, n)
	for i, r := range l.ranks {
		numbers[i] = int32(r.gpu.Index())
		// NCCL uses the memory of the GPUs of a process directly, and does not ask for access to it.
		for _, other := range l.ranks {
			if other != r {
				if _, err := r.gpu.Access(other.gpu); err != nil {
					return err
				}
			}
		}
	}
	if err := l.each(ctx, func(r *mpRank, _ uintptr) error {
		if r != l.ranks[0] {
			return nil
		}
		return l.call(ncclInitAll, uintptr(unsafe.Pointer(unsafe.SliceData(comms))), uintptr(n),
			uintptr(unsafe.Pointer(unsafe.SliceData(numbers))))
	}); err != nil {
		return err
	}
	for i, r := range l.ranks {
		r.comm = comms[i]
	}
	err = l.each(ctx, func(r *mpRank, stream uintptr) error {
		err := l.call(mpCreate, uintptr(unsafe.Pointer(&r.handle)), stream)
		if err == nil {
			err = l.call(mpGridCreate, uintptr(n), 1, mpColumnMajor, r.comm, uintptr(unsafe.Pointer(&r.tall)))
		}
		if err == nil {
			err = l.call(mpGridCreate, 1, uintptr(n), mpRowMajor, r.comm, uintptr(unsafe.Pointer(&r.wide)))
		}
		return err
	})
	if err != nil {
		return device.Join(err, l.Close())
	}
	return nil
}

// The orders of the ranks in a grid, of the type cublasMpGridLayout_t.
const (
	mpColumnMajor = 0
	mpRowMajor    = 1
)

// each calls f for all ranks at the same time, with the GPU's context current on the OS thread.
// stream is the GPU's. If a rank fails, ctx ends, or the limit has passed, other ranks may wait
// forever, so each ends the communicators. The library is unusable then.
func (l *CuBLASMp) each(ctx context.Context, f func(r *mpRank, stream uintptr) error) error {
	if l.failed != nil {
		return l.failed
	}
	ends := l.start(f)
	var first error
	expired := time.After(l.limit)
	for left := len(l.ranks); left > 0; left-- {
		select {
		case err := <-ends:
			if err != nil && first == nil {
				first, expired = err, time.After(l.patience)
			}
			continue
		case <-ctx.Done():
			first = device.Join(ctx.Err(), first)
		case <-expired:
			if first == nil {
				first = fmt.Errorf("not all GPUs have finished within %v", l.limit)
			}
		}
		l.failed = l.abort(first, ends, left)
		return l.failed
	}
	return first
}

// abort ends the communicators after the first error, and waits for the ranks that are left. The
// error is ErrStuck too if they do not end.
func (l *CuBLASMp) abort(first error, ends <-chan error, left int) error {
	aborts := l.start(func(r *mpRank, _ uintptr) error {
		if r.comm == 0 {
			return nil
		}
		return l.call(ncclAbort, r.comm)
	})
	expired := time.After(l.patience)
	for range left + len(l.ranks) {
		select {
		case <-ends: // the first error tells more
		case <-aborts:
		case <-expired:
			return fmt.Errorf("%w: %w", first, ErrStuck)
		}
	}
	return first
}

// start calls f for all ranks at the same time, and sends their errors.
func (l *CuBLASMp) start(f func(r *mpRank, stream uintptr) error) <-chan error {
	ends := make(chan error, len(l.ranks))
	for _, r := range l.ranks {
		go func() {
			err := r.gpu.Foreign(func(stream uintptr) error { return f(r, stream) })
			if err != nil {
				err = fmt.Errorf("GPU %d: %w", r.gpu.Index(), err)
			}
			ends <- err
		}()
	}
	return ends
}

// Close frees the library's resources on the GPUs. The library stays loaded.
func (l *CuBLASMp) Close() error {
	if l.failed != nil {
		return nil // the communicators have ended, and an earlier call has returned the error
	}
	err := l.each(context.Background(), func(r *mpRank, _ uintptr) error {
		for _, x := range []struct {
			destroy string
			object  uintptr
		}{{mpGridDestroy, r.tall}, {mpGridDestroy, r.wide}, {mpDestroy, r.handle}} {
			if x.object != 0 {
				if err := l.call(x.destroy, x.object); err != nil {
					return err // other ranks may wait for it
				}
			}
		}
		return nil
	})
	if l.failed != nil {
		return err
	}
	return device.Join(err, l.each(context.Background(), func(r *mpRank, _ uintptr) error {
		return l.call(ncclDestroy, r.comm)
	}))
}

// String returns the name and the version of the library, and that of NCCL.
func (l *CuBLASMp) String() string {
	return fmt.Sprintf("cuBLASMp %v, NCCL %v", l.Version, l.NCCL)
}

const mpNotSupported = 7 // CUBLASMP_STATUS_NOT_SUPPORTED

// call calls a function that returns a status. A failure is a *statusError.
//
//go:uintptrescapes
func (l *CuBLASMp) call(name string, args ...uintptr) error {
	status := int32(l.run(l.procs[name], args...))
	if status == 0 {
		return nil
	}
	text := func(name string, argument int32) string { return dl.String(l.run(l.procs[name], uintptr(argument))) }
	if strings.HasPrefix(name, "nccl") {
		return &statusError{name, status, text(ncclErrorString, status) + ": " + text(ncclLastError, 0)}
	}
	err := error(&statusError{name, status, text(mpStatusString, status)})
	if status == mpNotSupported {
		err = fmt.Errorf("%w: %w", gemm.ErrUnsupported, err)
	}
	return err
}
