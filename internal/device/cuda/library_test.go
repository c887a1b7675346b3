//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"os"
	"strings"
	"testing"

	"tilework/internal/device"
)

// TestPlanted: where LD_LIBRARY_PATH leads into a folder of libraries by a relative
// entry, the driver is not looked for at all; where nothing lies there it is.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("lib", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".", "/usr/lib:", ":/usr/lib", "lib", "/usr/lib;lib"} {
		t.Setenv("LD_LIBRARY_PATH", path)
		if err := planted(); err != nil {
			t.Errorf("%q, with nothing there: %v", path, err)
		}
	}
	for _, file := range []string{"libnvidia-ptxjitcompiler.so.1", "lib/libcuda.so.1"} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{".", "/usr/lib:", ":/usr/lib", "lib", "/usr/lib;lib"} {
		t.Setenv("LD_LIBRARY_PATH", path)
		_, err := openLibrary()
		if !errors.Is(err, device.ErrNoDevice) || !strings.Contains(err.Error(), "relative entry") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", path, err)
		}
		if _, err := openManagement(); err == nil || !strings.Contains(err.Error(), "relative entry") {
			t.Errorf("%q: management: %v", path, err)
		}
	}
	for _, path := range []string{"", "/usr/lib", dir} {
		t.Setenv("LD_LIBRARY_PATH", path)
		if err := planted(); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}
