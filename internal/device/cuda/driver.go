package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"tilework/internal/sentinel"
)

// symbol is a function of the driver library.
type symbol struct {
	name  string  // exported name
	since version // CUDA version that introduced it
	index int     // position in symbols
}

// oldest is the oldest supported driver version. Every symbol that it provides is required.
const oldest version = 11000

// symbols lists all driver functions that this package uses: those of the variables below, in their
// order. cuda.h documents them.
var symbols []*symbol

// lookup adds a function to symbols while the variables of the package are initialised.
func lookup(name string, since version) *symbol {
	s := &symbol{name, since, len(symbols)}
	symbols = append(symbols, s)
	return s
}

var (
	cuInit           = lookup("cuInit", oldest)
	cuDriverVersion  = lookup("cuDriverGetVersion", oldest)
	cuGetErrorName   = lookup("cuGetErrorName", oldest)
	cuGetErrorString = lookup("cuGetErrorString", oldest)

	cuDeviceCount     = lookup("cuDeviceGetCount", oldest)
	cuDeviceGet       = lookup("cuDeviceGet", oldest)
	cuDeviceName      = lookup("cuDeviceGetName", oldest)
	cuDeviceTotalMem  = lookup("cuDeviceTotalMem_v2", oldest)
	cuDeviceAttribute = lookup("cuDeviceGetAttribute", oldest)
	cuDevicePCIBusID  = lookup("cuDeviceGetPCIBusId", oldest)
	cuDeviceUUID      = lookup("cuDeviceGetUuid_v2", 11040)

	cuPrimaryCtxRetain  = lookup("cuDevicePrimaryCtxRetain", oldest)
	cuPrimaryCtxRelease = lookup("cuDevicePrimaryCtxRelease_v2", oldest)
	cuCtxSetCurrent     = lookup("cuCtxSetCurrent", oldest)

	cuDeviceCanAccessPeer = lookup("cuDeviceCanAccessPeer", oldest)
	cuCtxEnablePeerAccess = lookup("cuCtxEnablePeerAccess", oldest)

	cuStreamCreate      = lookup("cuStreamCreate", oldest)
	cuStreamQuery       = lookup("cuStreamQuery", oldest)
	cuStreamSynchronize = lookup("cuStreamSynchronize", oldest)
	cuStreamWaitEvent   = lookup("cuStreamWaitEvent", oldest)
	cuStreamDestroy     = lookup("cuStreamDestroy_v2", oldest)

	cuEventCreate      = lookup("cuEventCreate", oldest)
	cuEventRecord      = lookup("cuEventRecord", oldest)
	cuEventQuery       = lookup("cuEventQuery", oldest)
	cuEventElapsedTime = lookup("cuEventElapsedTime", oldest)
	cuEventDestroy     = lookup("cuEventDestroy_v2", oldest)

	cuMemAlloc     = lookup("cuMemAlloc_v2", oldest)
	cuMemFree      = lookup("cuMemFree_v2", oldest)
	cuMemGetInfo   = lookup("cuMemGetInfo_v2", oldest)
	cuMemHostAlloc = lookup("cuMemHostAlloc", oldest)
	cuMemFreeHost  = lookup("cuMemFreeHost", oldest)

	cuMemHostRegister   = lookup("cuMemHostRegister_v2", oldest)
	cuMemHostUnregister = lookup("cuMemHostUnregister", oldest)

	cuMemPoolCreate       = lookup("cuMemPoolCreate", 11020)
	cuMemPoolSetAttribute = lookup("cuMemPoolSetAttribute", 11020)
	cuMemPoolSetAccess    = lookup("cuMemPoolSetAccess", 11020)
	cuMemPoolTrimTo       = lookup("cuMemPoolTrimTo", 11020)
	cuMemPoolDestroy      = lookup("cuMemPoolDestroy", 11020)
	cuMemAllocFromPool    = lookup("cuMemAllocFromPoolAsync", 11020)
	cuMemFreeAsync        = lookup("cuMemFreeAsync", 11020)

	cuMemcpyIn       = lookup("cuMemcpyHtoDAsync_v2", oldest)
	cuMemcpyOut      = lookup("cuMemcpyDtoHAsync_v2", oldest)
	cuMemcpyOnDevice = lookup("cuMemcpyDtoDAsync_v2", oldest)
	cuMemcpy2D       = lookup("cuMemcpy2DAsync_v2", oldest)

	cuLibraryLoad   = lookup("cuLibraryLoadData", 12000)
	cuLibraryUnload = lookup("cuLibraryUnload", 12000)

	cuModuleLoad        = lookup("cuModuleLoadDataEx", oldest)
	cuModuleGetFunction = lookup("cuModuleGetFunction", oldest)
	cuModuleUnload      = lookup("cuModuleUnload", oldest)
	cuFuncGetAttribute  = lookup("cuFuncGetAttribute", oldest)
	cuFuncSetAttribute  = lookup("cuFuncSetAttribute", oldest)
	cuLaunchKernel      = lookup("cuLaunchKernel", oldest)
	cuLaunchKernelEx    = lookup("cuLaunchKernelEx", 11080)
	cuFuncGetParamInfo  = lookup("cuFuncGetParamInfo", 12040)

	cuTensorMapEncodeTiled  = lookup("cuTensorMapEncodeTiled", 12000)
	cuTensorMapEncodeIm2col = lookup("cuTensorMapEncodeIm2col", 12000)
)

// version is a CUDA version in the encoding of cuDriverGetVersion: 12040 is CUDA 12.4.
type version int

func (v version) String() string { return fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10) }

// library is the driver library or a test double.
type library interface {
	// has reports whether the library exports a function.
	has(*symbol) bool
	// invoke calls a function that the library exports. The caller keeps all memory that the
	// arguments point to alive and unmoved until invoke returns.
	invoke(s *symbol, args []uintptr) (result uintptr)
}

// driver is an initialised library with its version.
type driver struct {
	library
	version version
}

// newDriver initialises a driver library. The error is ErrNoDevice.
func newDriver(lib library) (*driver, error) {
	d := &driver{library: lib}
	for _, s := range symbols {
		if s.since == oldest && !lib.has(s) {
			return nil, fmt.Errorf("%w: the NVIDIA driver lacks %s: want a driver for %v or later", sentinel.ErrNoDevice,
				s.name, oldest)
		}
	}
	var v int32
	if err := d.call(cuDriverVersion, uintptr(unsafe.Pointer(&v))); err != nil {
		return nil, noDevice(err)
	}
	d.version = version(v)
	if err := d.call(cuInit, 0); err != nil {
		return nil, fmt.Errorf("%w%s", noDevice(err), visibleDevicesNote())
	}
	return d, nil
}

// call calls a driver function. Arguments are integers or pointers; a pointer must be converted
// with uintptr(unsafe.Pointer(&x)) in the argument list itself. The error is an *Error.
//
//go:uintptrescapes
func (d *driver) call(s *symbol, args ...uintptr) error {
	if code := d.result(s, args...); code != success {
		return d.newError(s, code)
	}
	return nil
}

// result is like call but returns the result code. It returns newerDriver if the driver lacks s.
//
//go:uintptrescapes
func (d *driver) result(s *symbol, args ...uintptr) code {
	if !d.has(s) {
		return newerDriver
	}
	return code(int32(d.invoke(s, args)))
}

// newError returns the error for result c of a call to s, with the driver's description.
func (d *driver) newError(s *symbol, c code) *Error {
	e := &Error{Call: s.name, Code: int(c), Name: d.errorText(cuGetErrorName, c),
		Text: d.errorText(cuGetErrorString, c)}
	if c == newerDriver && !d.has(s) {
		e.Text = fmt.Sprintf("driver is for %v: want %v or later", d.version, s.since)
	}
	return e
}

// errorText returns the name or the description of c, depending on s.
func (d *driver) errorText(s *symbol, c code) string {
	var text uintptr
	if d.result(s, uintptr(c), uintptr(unsafe.Pointer(&text))) != success || text == 0 {
		return "unknown error"
	}
	return goString(text)
}

// pointer converts an address of memory outside the Go heap to a pointer.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// goString copies the C string at address.
func goString(address uintptr) string {
	p, n := pointer(address), 0
	for *(*byte)(unsafe.Add(p, n)) != 0 && n < math.MaxInt16 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
