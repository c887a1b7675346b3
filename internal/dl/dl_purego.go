//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package dl

import (
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Open loads a file, unless the error is ErrSearchPath. purego fetches the error of a failed call
// with a second call, dlerror, which returns the last error of the same OS thread.
func Open(file string, s Scope) (uintptr, error) {
	if errSearchPath != nil {
		return 0, errSearchPath
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const rtldDeepBind = 8 // RTLD_DEEPBIND on Linux; macOS binds each symbol to a library
	mode := purego.RTLD_LAZY | purego.RTLD_LOCAL
	switch {
	case s == Global:
		mode = purego.RTLD_LAZY | purego.RTLD_GLOBAL
	case s == DeepBind && runtime.GOOS == "linux":
		mode |= rtldDeepBind
	}
	return purego.Dlopen(file, mode)
}

// Symbol returns the address of a function, which is never zero without an error.
func Symbol(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread() // see Open
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}

// FileOf returns the file that the function at addr was loaded from, or the empty string.
func FileOf(addr uintptr) string {
	dladdr, err := purego.Dlsym(purego.RTLD_DEFAULT, "dladdr")
	if err != nil {
		return ""
	}
	var info struct{ fname, fbase, sname, saddr uintptr } // Dl_info of dladdr(3)
	if found, _, _ := purego.SyscallN(dladdr, addr, uintptr(unsafe.Pointer(&info))); int32(found) == 0 {
		return ""
	}
	name := String(info.fname)
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return name
}

// Call calls a C function with integer and pointer arguments. The memory that the arguments point
// to stays alive and does not move until Call returns.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
