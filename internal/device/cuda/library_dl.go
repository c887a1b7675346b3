//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"strings"

	"tilework/internal/dl"
	"tilework/internal/sentinel"
)

// loaded is the driver library loaded into this process.
type loaded struct {
	addresses []uintptr // of symbols; 0 for missing ones
}

// openLibrary loads the driver. The error is ErrNoDevice.
func openLibrary() (library, error) {
	var handle uintptr
	var reasons []string
	for _, file := range libraryFiles {
		var err error
		if handle, err = dl.Open(file, dl.Local); err == nil {
			break
		}
		if errors.Is(err, dl.ErrSearchPath) {
			return nil, fmt.Errorf("%w: %w", sentinel.ErrNoDevice, err)
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
		return nil, fmt.Errorf("%w: no NVIDIA driver found: %s", sentinel.ErrNoDevice, strings.Join(reasons, "; "))
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
