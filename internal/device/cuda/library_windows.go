//go:build !nogpu && (amd64 || arm64)

package cuda

import "golang.org/x/sys/windows"

// libraryFiles are where the driver is: in the system's own folder, never in that
// of the program.
var libraryFiles = []string{"nvcuda.dll"}

// managementFiles are where the driver's management library is.
var managementFiles = []string{"nvml.dll"}

func dlopen(file string) (uintptr, error) {
	handle, err := windows.LoadLibraryEx(file, 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	return uintptr(handle), err
}

func dlsym(handle uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(handle), name)
}
