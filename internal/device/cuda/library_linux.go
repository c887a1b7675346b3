//go:build !nogpu && (amd64 || arm64)

package cuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// libraryFiles are where the driver is, the usual place first: the second is the
// one that Windows gives a Linux that runs in it.
var libraryFiles = []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// managementFiles are where the driver's management library is.
var managementFiles = []string{"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}

func dlopen(file string) (uintptr, error) {
	// Why it failed is asked for in a second call, of the same thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func dlsym(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
