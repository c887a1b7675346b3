//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"

	"tilework/internal/device"
	"tilework/internal/host"
)

// loaded is the library in this process.
type loaded struct {
	addresses []uintptr // of the symbols, 0 for those that it lacks
}

// planted refuses to search where LD_LIBRARY_PATH leads the loader into the working
// directory, or beneath it, and libraries lie there: one of the driver's name, or of
// those that it loads itself, would run in its place. A colon too many is common, and
// does no harm where there is nothing to find.
func planted() error {
	for _, dir := range host.RelativeLibraryDirs() {
		found, err := filepath.Glob(filepath.Join(dir, "*.so*"))
		if err == nil && len(found) > 0 {
			return fmt.Errorf("LD_LIBRARY_PATH has the relative entry %q, where %s lies: libraries are not loaded from the working directory", dir, found[0])
		}
	}
	return nil
}

// openLibrary loads the driver. The error is ErrNoDevice.
func openLibrary() (library, error) {
	if err := planted(); err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrNoDevice, err)
	}
	var handle uintptr
	var reasons []string
	for _, file := range libraryFiles {
		var err error
		if handle, err = dlopen(file); err == nil {
			break
		}
		reason := err.Error()
		if !strings.Contains(reason, file) {
			reason = file + ": " + reason
		}
		reasons = append(reasons, reason)
	}
	if handle == 0 {
		return nil, fmt.Errorf("%w: no NVIDIA driver: looked for %s", device.ErrNoDevice, strings.Join(reasons, "; "))
	}
	l := &loaded{addresses: make([]uintptr, len(symbols))}
	for _, s := range symbols {
		if address, err := dlsym(handle, s.name); err == nil {
			l.addresses[s.index] = address
		}
	}
	return l, nil
}

func (l *loaded) has(s *symbol) bool { return l.addresses[s.index] != 0 }

func (l *loaded) invoke(s *symbol, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.addresses[s.index], args...)
	return r
}

// openManagement loads NVIDIA's management library.
func openManagement() (*management, error) {
	if err := planted(); err != nil {
		return nil, err
	}
	var handle uintptr
	var err error
	for _, file := range managementFiles {
		if handle, err = dlopen(file); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	m := &management{procs: map[string]uintptr{}, invoke: invokeC}
	for _, name := range nvmlProcs {
		if m.procs[name], err = dlsym(handle, name); err != nil {
			return nil, err
		}
	}
	return m, nil
}

//go:uintptrescapes
func invokeC(proc uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(proc, args...)
	return r
}
