//go:build nogpu || !(linux || windows) || !(amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"

	"tilework/internal/device"
)

// openLibrary has nothing to load.
func openLibrary() (library, error) {
	return nil, fmt.Errorf("%w: this program for %s/%s was built without support for NVIDIA GPUs (it needs linux or windows on amd64 or arm64, and no build tag nogpu)",
		device.ErrNoDevice, runtime.GOOS, runtime.GOARCH)
}

// openManagement has nothing to load.
func openManagement() (*management, error) { return nil, device.ErrNoDevice }
