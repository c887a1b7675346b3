//go:build !nogpu && (amd64 || arm64)

package dl

import (
	"github.com/ebitengine/purego"
	"golang.org/x/sys/windows"
)

// Open loads a library from the system folder, never from the program's.
func Open(file string, _ Scope) (uintptr, error) {
	handle, err := windows.LoadLibraryEx(file, 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	return uintptr(handle), err
}

// Symbol returns the address of a function, which is never zero without an error.
func Symbol(handle uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(handle), name)
}

// FileOf returns the empty string.
func FileOf(uintptr) string { return "" }

// Call calls a C function with integer and pointer arguments. The memory that the arguments point
// to stays alive and does not move until Call returns.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
