//go:build nogpu || !(linux || windows) || !(amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"

	"tilework/internal/sentinel"
)

// openLibrary always fails.
func openLibrary() (library, error) {
	return nil, fmt.Errorf("%w: this program for %s/%s was built without support for NVIDIA GPUs: "+
		"want linux or windows on amd64 or arm64, without the build tag nogpu",
		sentinel.ErrNoDevice, runtime.GOOS, runtime.GOARCH)
}

// openNVML always fails.
func openNVML() (*nvml, error) { return nil, sentinel.ErrNoDevice }
