//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package peers

import (
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// dlopen loads a file. The reason for a failure is asked for in a call of its own, and kept for
// the thread that failed.
func dlopen(file string, s scope) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const deepBind = 8 // RTLD_DEEPBIND of Linux; macOS's loader knows for each symbol whose it is
	mode := purego.RTLD_LAZY | purego.RTLD_LOCAL
	switch {
	case s == shared:
		mode = purego.RTLD_LAZY | purego.RTLD_GLOBAL
	case s == ownFirst && runtime.GOOS == "linux":
		mode |= deepBind
	}
	return purego.Dlopen(file, mode)
}

// dlsym is the address of a function, never zero without an error.
func dlsym(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread() // as in dlopen
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}

// fileOf is the file that the function at addr was loaded from, or empty.
func fileOf(addr uintptr) string {
	dladdr, err := purego.Dlsym(purego.RTLD_DEFAULT, "dladdr")
	if err != nil {
		return ""
	}
	var info struct{ fname, fbase, sname, saddr uintptr } // Dl_info of dladdr(3)
	if found, _, _ := purego.SyscallN(dladdr, addr, uintptr(unsafe.Pointer(&info))); int32(found) == 0 {
		return ""
	}
	name := goString(info.fname)
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return name
}

// invoke calls a C function of integers and pointers. What the arguments point
// to stays alive and in place until it returns.
//
//go:uintptrescapes
func invoke(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
