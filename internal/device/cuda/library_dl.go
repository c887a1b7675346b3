//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"fmt"
	"path/filepath"
	"strings"

	"tilework/internal/device"
	"tilework/internal/dl"
	"tilework/internal/host"
)

// loaded is the driver library loaded into this process.
type loaded struct {
	addresses []uintptr // of symbols; 0 for missing ones
}

// checkLibraryPath returns an error if LD_LIBRARY_PATH contains a relative directory with libraries
// in it. A library there could replace the driver or one of its dependencies. Relative entries
// without libraries, which often result from a surplus colon, are accepted.
func checkLibraryPath() error {
	for _, dir := range host.RelativeLibraryDirs() {
		found, err := filepath.Glob(filepath.Join(dir, "*.so*"))
		if err == nil && len(found) > 0 {
			return fmt.Errorf("LD_LIBRARY_PATH has the relative entry %q, which contains %s: want absolute directories only",
				dir, found[0])
		}
	}
	return nil
}

// openLibrary loads the driver. The error is ErrNoDevice.
func openLibrary() (library, error) {
	if err := checkLibraryPath(); err != nil {
		return nil, fmt.Errorf("%w: %w", device.ErrNoDevice, err)
	}
	var handle uintptr
	var reasons []string
	for _, file := range libraryFiles {
		var err error
		if handle, err = dl.Open(file, dl.Local); err == nil {
			break
		}
		reason := err.Error()
		switch {
		case strings.HasPrefix(reason, file+": ") && strings.HasSuffix(reason, "No such file or directory"):
			reason = "no " + file
		case !strings.Contains(reason, file):
			reason = file + ": " + reason
		}
		reasons = append(reasons, reason)
	}
	if handle == 0 {
		return nil, fmt.Errorf("%w: no NVIDIA driver found: %s", device.ErrNoDevice, strings.Join(reasons, "; "))
	}
	l := &loaded{addresses: make([]uintptr, len(symbols))}
	for _, s := range symbols {
		if address, err := dl.Symbol(handle, s.name); err == nil {
			l.addresses[s.index] = address
		}
	}
	return l, nil
}

func (l *loaded) has(s *symbol) bool { return l.addresses[s.index] != 0 }

func (l *loaded) invoke(s *symbol, args []uintptr) uintptr {
	return dl.Call(l.addresses[s.index], args...)
}

// openNVML loads the NVML library.
func openNVML() (*nvml, error) {
	if err := checkLibraryPath(); err != nil {
		return nil, err
	}
	var handle uintptr
	var err error
	for _, file := range nvmlFiles {
		if handle, err = dl.Open(file, dl.Local); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	m := &nvml{procs: map[string]uintptr{}, invoke: dl.Call}
	for _, name := range nvmlProcs {
		if m.procs[name], err = dl.Symbol(handle, name); err != nil {
			return nil, err
		}
	}
	return m, nil
}
