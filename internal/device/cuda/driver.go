package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"tilework/internal/device"
)

// symbol is a function of the driver's library.
type symbol struct {
	name  string // as the library exports it
	since version
	index int
}

// oldest is the least driver that this package works with: it has every symbol
// whose since is no later, and those are required of it.
const oldest version = 11000

// symbols lists what is looked up, in the order of the variables below. It is the
// one table of the driver's functions; cuda.h documents them.
var symbols []*symbol

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

	cuMemPoolCreate       = lookup("cuMemPoolCreate", 11020)
	cuMemPoolSetAttribute = lookup("cuMemPoolSetAttribute", 11020)
	cuMemPoolTrimTo       = lookup("cuMemPoolTrimTo", 11020)
	cuMemPoolDestroy      = lookup("cuMemPoolDestroy", 11020)
	cuMemAllocFromPool    = lookup("cuMemAllocFromPoolAsync", 11020)
	cuMemFreeAsync        = lookup("cuMemFreeAsync", 11020)

	cuMemcpyIn  = lookup("cuMemcpyHtoDAsync_v2", oldest)
	cuMemcpyOut = lookup("cuMemcpyDtoHAsync_v2", oldest)
	cuMemcpy2D  = lookup("cuMemcpy2DAsync_v2", oldest)

	cuModuleLoad        = lookup("cuModuleLoadDataEx", oldest)
	cuModuleGetFunction = lookup("cuModuleGetFunction", oldest)
	cuModuleUnload      = lookup("cuModuleUnload", oldest)
	cuFuncGetAttribute  = lookup("cuFuncGetAttribute", oldest)
	cuFuncSetAttribute  = lookup("cuFuncSetAttribute", oldest)
	cuLaunchKernel      = lookup("cuLaunchKernel", oldest)
	cuLaunchKernelEx    = lookup("cuLaunchKernelEx", 11080)
	cuFuncGetParamInfo  = lookup("cuFuncGetParamInfo", 12040)

	cuTensorMapEncodeTiled = lookup("cuTensorMapEncodeTiled", 12000)
)

// version is a version of CUDA as the driver counts: 12040 is 12.4.
type version int

func (v version) String() string { return fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10) }

// library is the driver's library, or what stands in for it in a test.
type library interface {
	has(*symbol) bool
	// invoke calls a function that the library has. What the arguments point to
	// stays alive and in place until it returns.
	invoke(s *symbol, args []uintptr) (result uintptr)
}

// driver is a library whose version is known.
type driver struct {
	library
	version version
}

// newDriver makes a library ready for use. The error is ErrNoDevice.
func newDriver(lib library) (*driver, error) {
	d := &driver{library: lib}
	for _, s := range symbols {
		if s.since == oldest && !lib.has(s) {
			return nil, fmt.Errorf("%w: the NVIDIA driver lacks %s: it is older than %v, update it", device.ErrNoDevice, s.name, oldest)
		}
	}
	var v int32
	if err := d.call(cuDriverVersion, uintptr(unsafe.Pointer(&v))); err != nil {
		return nil, noDevice(err)
	}
	d.version = version(v)
	if err := d.call(cuInit, 0); err != nil {
		return nil, fmt.Errorf("%w%s", noDevice(err), visible())
	}
	return d, nil
}

// call calls the driver. The arguments are integers and, written as
// uintptr(unsafe.Pointer(&x)) in the call itself, pointers. The error is an *Error.
//
//go:uintptrescapes
func (d *driver) call(s *symbol, args ...uintptr) error {
	if code := d.result(s, args...); code != success {
		return d.newError(s, code)
	}
	return nil
}

// result is call without the words.
//
//go:uintptrescapes
func (d *driver) result(s *symbol, args ...uintptr) code {
	if !d.has(s) {
		return newerDriver
	}
	return code(int32(d.invoke(s, args)))
}

// newError says in the driver's words what a code means.
func (d *driver) newError(s *symbol, c code) *Error {
	e := &Error{Call: s.name, Code: int(c), Name: d.words(cuGetErrorName, c), Text: d.words(cuGetErrorString, c)}
	if c == newerDriver && !d.has(s) {
		e.Text = fmt.Sprintf("needs a driver for %v or later, this one is for %v", s.since, d.version)
	}
	return e
}

func (d *driver) words(s *symbol, c code) string {
	var text uintptr
	if d.result(s, uintptr(c), uintptr(unsafe.Pointer(&text))) != success || text == 0 {
		return "an error that the driver has no words for"
	}
	return goString(text)
}

// pointer makes a pointer of an address that a library gave, in memory that Go's
// collector knows nothing of.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// goString copies a string of C.
func goString(address uintptr) string {
	p, n := pointer(address), 0
	for *(*byte)(unsafe.Add(p, n)) != 0 && n < math.MaxInt16 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
