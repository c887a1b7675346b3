package peers

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// GPU is a device that a library with kernels of its own can work on, as package
// cuda's is and an emulated one is not.
type GPU interface {
	device.Device
	// Foreign runs f where the GPU's context is current, with the handle of the
	// stream in which all of its work is in order.
	Foreign(f func(stream uintptr) error) error
}

// CuBLASLt is NVIDIA's library, open on one GPU. It computes on matrices that are
// there already, with those of its algorithms that its heuristics propose: see
// [CuBLASLt.Plan].
type CuBLASLt struct {
	Path    string // the file that was loaded, symbolic links resolved
	Version string // "13.1.0"

	gpu       GPU
	procs     map[string]uintptr
	run       func(proc uintptr, args ...uintptr) uintptr // invoke, but for tests
	handle    uintptr
	workspace device.Ptr
}

var cublasLt = source{
	Env: "TILEWORK_CUBLASLT", Install: "pip's nvidia-cublas, or a CUDA toolkit",
	stems: []string{"cublasLt"}, versions: []string{"13", "12"},
}

// workspaceBytes is what an algorithm may use beside the matrices. NVIDIA recommends
// 32 MiB on Hopper; with more, none of its algorithms is left out for want of memory.
const workspaceBytes = 256 << 20

// The functions of the library, all since CUDA 11.4. They answer with a
// cublasStatus_t.
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
	ltLayoutDestroy, ltLayoutSet, ltPreferenceCreate, ltPreferenceDestroy, ltPreferenceSet, ltHeuristic, ltAlgoGet, ltMatmul,
}

// OpenCuBLASLt opens the library for a GPU, and reserves its workspace there. The
// file is path, or where that is empty the one that TILEWORK_CUBLASLT names, or what
// the loader finds. The errors are ErrNotFound, ErrUnsupported for an emulated
// device, and those of the dynamic loader and of the device.
func OpenCuBLASLt(d device.Device, path string) (_ *CuBLASLt, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cublaslt: %w", err)
		}
	}()
	g, ok := d.(GPU)
	if !ok {
		return nil, fmt.Errorf("%w: it brings machine code, which %s does not run", gemm.ErrUnsupported, d.Info().Name)
	}
	file, err := cublasLt.load(path)
	if err != nil {
		return nil, err
	}
	l := &CuBLASLt{gpu: g, procs: map[string]uintptr{}, run: invoke}
	for _, name := range cublasLtProcs {
		if l.procs[name], err = dlsym(file, name); err != nil {
			return nil, fmt.Errorf("the file is no cuBLASLt of CUDA 11.4 or later: %w", err)
		}
	}
	l.Path = fileOf(l.procs[ltCreate])
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

// begin begins to use the library on the GPU.
func (l *CuBLASLt) begin() (err error) {
	v := int(l.invoke(ltGetVersion))
	l.Version = fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
	if l.workspace, err = l.gpu.Alloc(workspaceBytes); err != nil {
		return err
	}
	err = l.gpu.Foreign(func(uintptr) error { return l.call(ltCreate, uintptr(unsafe.Pointer(&l.handle))) })
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// Close gives back what the library has on the GPU. It stays loaded.
func (l *CuBLASLt) Close() error {
	var err error
	if l.handle != 0 {
		err = l.gpu.Foreign(func(uintptr) error { return l.call(ltDestroy, l.handle) })
		l.handle = 0
	}
	err = errors.Join(err, l.gpu.Free(l.workspace))
	l.workspace = 0
	return err
}

func (l *CuBLASLt) String() string { return "cuBLASLt " + l.Version }

// invoke calls the library's function of that name. What the arguments point to stays
// alive and in place until it returns.
//
//go:uintptrescapes
func (l *CuBLASLt) invoke(name string, args ...uintptr) uintptr {
	return l.run(l.procs[name], args...)
}

// call calls a function that answers with a status. Its failure is a *statusError.
//
//go:uintptrescapes
func (l *CuBLASLt) call(name string, args ...uintptr) error {
	if status := int32(l.run(l.procs[name], args...)); status != 0 {
		return &statusError{name, status, goString(l.invoke(ltStatusString, uintptr(status)))}
	}
	return nil
}

// statusError is a call that failed.
type statusError struct {
	call   string
	status int32 // a cublasStatus_t of cublas_api.h
	text   string
}

const statusNotSupported = 15 // CUBLAS_STATUS_NOT_SUPPORTED

func (e *statusError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.call, e.text, e.status) }

// Is makes what the library does not do [gemm.ErrUnsupported].
func (e *statusError) Is(target error) bool {
	return target == gemm.ErrUnsupported && e.status == statusNotSupported
}

// Arithmetic is a way in which cuBLASLt multiplies float32 matrices, other than in
// float32.
type Arithmetic struct {
	Name string // "tf32"; empty for the element type's own
	// Roundoff bounds the relative change of an element of A or B before it is
	// multiplied; 0 where it is taken as it is.
	Roundoff float64

	compute int32 // a cublasComputeType_t
}

// Native is arithmetic in the type that products of the elements are summed in, and
// TF32 that of the tensor cores on float32 cut to 10 bits of fraction.
var (
	Native = Arithmetic{}
	TF32   = Arithmetic{Name: "tf32", Roundoff: 0x1p-10, compute: 77} // CUBLAS_COMPUTE_32F_FAST_TF32
)

// The values of cudaDataType in library_types.h, and those of cublasComputeType_t in
// cublas_api.h for what is summed in, as in the headers of CUDA 12.1 and of 13.1.
var (
	dataTypes = map[dtype.Type]int32{
		dtype.F32: 0, dtype.F64: 1, dtype.F16: 2, dtype.I8: 3, dtype.I32: 10, dtype.BF16: 14, dtype.F8E4M3: 28, dtype.F8E5M2: 29,
	}
	computeTypes = map[dtype.Type]int32{dtype.F32: 68, dtype.F64: 70, dtype.I32: 72}
)

// epilogues are what the library fuses, as cublasLtEpilogue_t. A bias of its is one along
// the rows of what it computes, which is Cᵀ; its GELU is the one with tanh.
var epilogues = map[gemm.Epilogue]int32{
	{Activation: gemm.ActReLU}:                         2,
	{Bias: gemm.BiasCol}:                               4,
	{Bias: gemm.BiasCol, Activation: gemm.ActReLU}:     6,
	{Activation: gemm.ActGELUTanh}:                     32,
	{Bias: gemm.BiasCol, Activation: gemm.ActGELUTanh}: 36,
}

// epilogueOf is the library's for p, 0 for none. A residual is β·C to it, with β = 1, and comes
// before an activation.
func epilogueOf(p *gemm.Problem) int32 {
	e := p.Epilogue
	e.Residual = false
	return epilogues[e]
}

// computeType is the cublasComputeType_t for p.
func (a Arithmetic) computeType(p *gemm.Problem) (int32, error) {
	switch {
	case a == Native:
		return computeTypes[p.Accum()], nil
	case p.A.Type == dtype.F32:
		return a.compute, nil
	}
	return 0, fmt.Errorf("%w: cublaslt: %s of %v matrices (want float32)", gemm.ErrUnsupported, a.Name, p.A.Type)
}

// supported refuses what cannot be said to the library.
func supported(p *gemm.Problem) error {
	plain := p.Epilogue
	plain.Residual = false
	_, known := epilogues[plain]
	if plain != (gemm.Epilogue{}) && !known || p.Epilogue.Residual && (plain.Activation != gemm.ActNone || p.Beta != 0) {
		return fmt.Errorf("%w: cublaslt: epilogue %v", gemm.ErrUnsupported, p.Epilogue)
	}
	if p.Batch.Kind == gemm.Grouped || p.Batch.Count > math.MaxInt32 {
		return fmt.Errorf("%w: cublaslt: %v", gemm.ErrUnsupported, p)
	}
	if !common(p) {
		return fmt.Errorf("%w: cublaslt: %v (want the usual type of result)", gemm.ErrUnsupported, p)
	}
	if p.K < 1 || p.Empty() {
		return fmt.Errorf("%w: cublaslt: nothing to compute in %d×%d×%d", gemm.ErrUnsupported, p.M, p.N, p.K)
	}
	if !takesScales(p) {
		return fmt.Errorf("%w: cublaslt: block scales that lie as %v and %v", gemm.ErrUnsupported, p.ScaleA, p.ScaleB)
	}
	for _, l := range []gemm.Layout{p.A, p.B, p.C} {
		if _, known := dataTypes[l.Type]; !known || max(l.Rows, l.Cols) > math.MaxInt32 {
			return fmt.Errorf("%w: cublaslt: a matrix of %v", gemm.ErrUnsupported, l)
		}
	}
	return nil
}

// takesScales reports whether block scales, if there are any, lie as the library takes them: of
// rows, or columns, each side by side, of blocks those along K, in rows of whole vectors.
func takesScales(p *gemm.Problem) bool {
	sideA, sideB := p.ScaleSides()
	lies := func(l gemm.Layout, side, n int) bool {
		along := n
		if side > 1 {
			along = gemm.ScaleBlocks(p.K)
		}
		return l.Trans == (side == 1) && l.LD == (along+3)&^3
	}
	return sideA == 0 || lies(p.ScaleA, sideA, p.M) && lies(p.ScaleB.T(), sideB, p.N) && sideA*sideB < gemm.ScaleBlock*gemm.ScaleBlock
}
