//go:build !nogpu && (amd64 || arm64)

package cuda

import "golang.org/x/sys/windows"

// libraryFiles lists the names of the driver library. It is loaded only from the system folder,
// never from the program's.
var libraryFiles = []string{"nvcuda.dll"}

// nvmlFiles lists the names of the NVML library.
var nvmlFiles = []string{"nvml.dll"}

func dlopen(file string) (uintptr, error) {
	handle, err := windows.LoadLibraryEx(file, 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	return uintptr(handle), err
}

func dlsym(handle uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(handle), name)
}
