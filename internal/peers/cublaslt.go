package peers

import (
	"fmt"
	"math"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// GPU is a device that can run the kernels of other libraries. The devices of package cuda are
// GPUs, an emulated device is not.
type GPU interface {
	device.Device
	// Foreign runs f with the GPU's context current on the OS thread. stream is the stream that
	// orders all of its work.
	Foreign(f func(stream uintptr) error) error
}

// CuBLASLt is NVIDIA's cuBLASLt, opened for one GPU. It multiplies matrices in the GPU's memory
// with the algorithms that its heuristic proposes; see [CuBLASLt.Plan].
type CuBLASLt struct {
	Path    string // the loaded file, with symbolic links resolved
	Version version

	gpu       GPU
	procs     map[string]uintptr
	run       func(proc uintptr, args ...uintptr) uintptr // [dl.Call]; tests replace it
	handle    uintptr
	workspace device.Ptr
}

var cublasLt = dl.Source{
	Env: "TILEWORK_CUBLASLT", Install: "pip's nvidia-cublas, or a CUDA toolkit",
	Stems: []string{"cublasLt"}, Versions: []string{"13", "12"},
}

// workspaceBytes is the size of the workspace for algorithms. NVIDIA recommends 32 MiB on Hopper.
// This size excludes no algorithm.
const workspaceBytes = 256 << 20

// Functions of cuBLASLt, available since CUDA 11.4. They return a cublasStatus_t.
const (
	ltCreate            = "cublasLtCreate"
	ltDestroy           = "cublasLtDestroy"
	ltGetVersion        = "cublasLtGetVersion"
	ltStatusString      = "cublasLtGetStatusString"
	ltDescCreate        = "cublasLtMatmulDescCreate"
	ltDescDestroy       = "cublasLtMatmulDescDestroy"
	ltDescSet           = "cublasLtMatmulDescSetAttribute"
	ltLayoutCreate      = "cublasLtMatrixLayoutCreate"
	ltLayoutDestroy     = "cublasLtMatrixLayoutDestroy"
	ltLayoutSet         = "cublasLtMatrixLayoutSetAttribute"
	ltPreferenceCreate  = "cublasLtMatmulPreferenceCreate"
	ltPreferenceDestroy = "cublasLtMatmulPreferenceDestroy"
	ltPreferenceSet     = "cublasLtMatmulPreferenceSetAttribute"
	ltHeuristic         = "cublasLtMatmulAlgoGetHeuristic"
	ltAlgoGet           = "cublasLtMatmulAlgoConfigGetAttribute"
	ltMatmul            = "cublasLtMatmul"
)

var cublasLtProcs = []string{
	ltCreate, ltDestroy, ltGetVersion, ltStatusString, ltDescCreate, ltDescDestroy, ltDescSet, ltLayoutCreate,
	ltLayoutDestroy, ltLayoutSet, ltPreferenceCreate, ltPreferenceDestroy, ltPreferenceSet, ltHeuristic, ltAlgoGet,
	ltMatmul,
}

// OpenCuBLASLt opens the library for a GPU and allocates its workspace there. If path is empty, it
// opens the file named by TILEWORK_CUBLASLT, or searches for the library. The errors are
// ErrNotFound, ErrUnsupported for an emulated device, and those of the dynamic loader and of the
// device.
func OpenCuBLASLt(d device.Device, path string) (_ *CuBLASLt, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cublaslt: %w", err)
		}
	}()
	g, ok := d.(GPU)
	if !ok {
		return nil, fmt.Errorf("%w: the library contains machine code, which %s does not run", gemm.ErrUnsupported,
			d.Info().Name)
	}
	file, err := cublasLt.Load(path)
	if err != nil {
		return nil, err
	}
	l := &CuBLASLt{gpu: g, run: dl.Call}
	if l.procs, err = dl.Symbols(file, cublasLtProcs); err != nil {
		return nil, fmt.Errorf("the file is not cuBLASLt of CUDA 11.4 or later: %w", err)
	}
	l.Path = dl.FileOf(l.procs[ltCreate])
	if err := l.init(); err != nil {
		return nil, err
	}
	return l, nil
}

// init allocates the workspace and creates the library's handle.
func (l *CuBLASLt) init() (err error) {
	l.Version = version(l.invoke(ltGetVersion))
	if l.workspace, err = l.gpu.Alloc(workspaceBytes); err != nil {
		return err
	}
	err = l.gpu.Foreign(func(uintptr) error { return l.call(ltCreate, uintptr(unsafe.Pointer(&l.handle))) })
	if err != nil {
		return device.Join(err, l.Close())
	}
	return nil
}

// Close frees the library's resources on the GPU. The library stays loaded.
func (l *CuBLASLt) Close() error {
	var err error
	if l.handle != 0 {
		err = l.gpu.Foreign(func(uintptr) error { return l.call(ltDestroy, l.handle) })
		l.handle = 0
	}
	err = device.Join(err, l.gpu.Free(l.workspace))
	l.workspace = 0
	return err
}

func (l *CuBLASLt) String() string { return fmt.Sprintf("cuBLASLt %v", l.Version) }

// version is the version of one of NVIDIA's libraries, as it reports it: 130100 is 13.1.0.
type version int32

// String returns the version as a text: "13.1.0".
func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// invoke calls the library's function with the given name. The memory that the arguments
// point to stays alive and does not move until invoke returns.
//
//go:uintptrescapes
func (l *CuBLASLt) invoke(name string, args ...uintptr) uintptr {
	return l.run(l.procs[name], args...)
}

// call calls a function that returns a status. A failure is a *statusError.
//
//go:uintptrescapes
func (l *CuBLASLt) call(name string, args ...uintptr) error {
	if status := int32(l.run(l.procs[name], args...)); status != 0 {
		return &statusError{name, status, dl.String(l.invoke(ltStatusString, uintptr(status)))}
	}
	return nil
}

// statusError is a status that reports a failure.
type statusError struct {
	call   string
	status int32 // a cublasStatus_t of cublas_api.h
	text   string
}

const statusNotSupported = 15 // CUBLAS_STATUS_NOT_SUPPORTED

func (e *statusError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.call, e.text, e.status) }

// Is makes the status "not supported" match [gemm.ErrUnsupported].
func (e *statusError) Is(target error) bool {
	return target == gemm.ErrUnsupported && e.status == statusNotSupported
}

// Arithmetic is the precision of the products. Only float32 matrices have a choice.
type Arithmetic struct {
	Name string // "tf32"; empty for Native
	// Roundoff is the largest relative change of an element of A or B by rounding before the
	// multiplication.
	Roundoff float64

	compute int32 // a cublasComputeType_t
}

// Native multiplies the elements without rounding them and sums in the accumulator type. TF32
// truncates float32 elements to 10 bits of fraction for the tensor cores.
var (
	Native = Arithmetic{}
	TF32   = Arithmetic{Name: "tf32", Roundoff: 0x1p-10, compute: 77} // CUBLAS_COMPUTE_32F_FAST_TF32
)

// dataTypes holds the values of cudaDataType in library_types.h. computeTypes holds the values of
// cublasComputeType_t in cublas_api.h for each accumulator type. They are the same in the headers
// of CUDA 12.1 and 13.1.
var (
	dataTypes = map[dtype.Type]int32{
		dtype.F32: 0, dtype.F64: 1, dtype.F16: 2, dtype.I8: 3, dtype.I32: 10, dtype.BF16: 14, dtype.F8E4M3: 28,
		dtype.F8E5M2: 29,
	}
	computeTypes = map[dtype.Type]int32{dtype.F32: 68, dtype.F64: 70, dtype.I32: 72}
)

// epilogues holds the fused epilogues of cuBLASLt, as cublasLtEpilogue_t. Its bias has one element
// per row of the column-major result Cᵀ, which is a column bias here. Its GELU is the tanh
// approximation.
var epilogues = map[gemm.Epilogue]int32{
	{Activation: gemm.ActReLU}:                         2,
	{Bias: gemm.BiasCol}:                               4,
	{Bias: gemm.BiasCol, Activation: gemm.ActReLU}:     6,
	{Activation: gemm.ActGELUTanh}:                     32,
	{Bias: gemm.BiasCol, Activation: gemm.ActGELUTanh}: 36,
}

// epilogueOf returns the cublasLtEpilogue_t for p, or 0 for none. A residual is not part of it:
// it is passed as the source matrix with β = 1, and the library adds it before the activation.
func epilogueOf(p *gemm.Problem) int32 {
	e := p.Epilogue
	e.Residual = false
	return epilogues[e]
}

// computeType returns the cublasComputeType_t for p.
func (a Arithmetic) computeType(p *gemm.Problem) (int32, error) {
	switch {
	case a == Native:
		return computeTypes[p.Accum()], nil
	case p.In() == dtype.F32:
		return a.compute, nil
	}
	return 0, fmt.Errorf("%w: cublaslt: %s with %v matrices: want float32", gemm.ErrUnsupported, a.Name, p.In())
}

// checkSupported returns ErrUnsupported if cuBLASLt cannot express p.
func checkSupported(p *gemm.Problem) error {
	plain := p.Epilogue
	plain.Residual = false
	_, known := epilogues[plain]
	if plain != (gemm.Epilogue{}) && !known || p.Epilogue.Residual && (plain.Activation != gemm.ActNone || p.Beta != 0) {
		return fmt.Errorf("%w: cublaslt: epilogue %v", gemm.ErrUnsupported, p.Epilogue)
	}
	if p.Batch.Kind == gemm.Grouped || p.Batch.Count > math.MaxInt32 {
		return fmt.Errorf("%w: cublaslt: %v", gemm.ErrUnsupported, p)
	}
	if !hasUsualTypes(p) {
		return fmt.Errorf("%w: cublaslt: %v: want a result of the accumulator type, or of A's type", gemm.ErrUnsupported, p)
	}
	if p.K < 1 || p.Empty() {
		return fmt.Errorf("%w: cublaslt: %d×%d×%d: want sizes of at least 1", gemm.ErrUnsupported, p.M, p.N, p.K)
	}
	if !supportsScales(p) {
		return fmt.Errorf("%w: cublaslt: block scales with the layouts %v and %v", gemm.ErrUnsupported,
			p.Layouts[gemm.ScaleA], p.Layouts[gemm.ScaleB])
	}
	for _, l := range []gemm.Layout{p.Layouts[gemm.A], p.Layouts[gemm.B], p.Layouts[gemm.C]} {
		if _, known := dataTypes[l.Type]; !known || max(l.Rows, l.Cols) > math.MaxInt32 {
			return fmt.Errorf("%w: cublaslt: matrix %v", gemm.ErrUnsupported, l)
		}
	}
	return nil
}

// supportsScales reports whether p has no block scales, or has them in the layouts of cuBLASLt. For
// blocks of one row or column, the scales of adjacent rows or columns are contiguous. For square
// blocks, the scales along K are contiguous. The leading dimension is the least multiple of 4, a
// vector of 16 bytes. At least one of A and B must have blocks of one row or column.
func supportsScales(p *gemm.Problem) bool {
	sideA, sideB := p.ScaleSides()
	matches := func(l gemm.Layout, side, n int) bool {
		contiguous := n
		if side > 1 {
			contiguous = gemm.ScaleBlocks(p.K)
		}
		return l.Trans == (side == 1) && l.LD == (contiguous+3)&^3
	}
	return sideA == 0 || matches(p.Layouts[gemm.ScaleA], sideA, p.M) && matches(p.Layouts[gemm.ScaleB].T(), sideB, p.N) &&
		sideA*sideB < gemm.ScaleBlock*gemm.ScaleBlock
}
