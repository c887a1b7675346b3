//go:build !nogpu && (amd64 || arm64)

package cuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// libraryFiles lists the names of the driver library in search order. The second is used by WSL.
var libraryFiles = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// nvmlFiles lists the names of the NVML library in search order.
var nvmlFiles = []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}

func dlopen(file string) (uintptr, error) {
	// dlerror must run on the same OS thread as dlopen.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func dlsym(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
