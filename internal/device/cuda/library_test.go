//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"os"
	"strings"
	"testing"

	"tilework/internal/device"
)

// TestRelativeLibraryPath checks that libraries are not loaded if a relative entry of
// LD_LIBRARY_PATH contains libraries. Without libraries there, the entry is ignored.
func TestRelativeLibraryPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("lib", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".", "/usr/lib:", ":/usr/lib", "lib", "/usr/lib;lib"} {
		t.Setenv("LD_LIBRARY_PATH", path)
		if err := checkLibraryPath(); err != nil {
			t.Errorf("LD_LIBRARY_PATH=%q, no libraries there: %v", path, err)
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
		if !errors.Is(err, device.ErrNoDevice) || !strings.Contains(err.Error(), "relative entry") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("LD_LIBRARY_PATH=%q: driver: got error %v, want one about the relative entry", path, err)
		}
		if _, err := openNVML(); err == nil || !strings.Contains(err.Error(), "relative entry") {
			t.Errorf("LD_LIBRARY_PATH=%q: NVML: got error %v, want one about the relative entry", path, err)
		}
	}
	for _, path := range []string{"", "/usr/lib", dir} {
		t.Setenv("LD_LIBRARY_PATH", path)
		if err := checkLibraryPath(); err != nil {
			t.Errorf("LD_LIBRARY_PATH=%q: %v", path, err)
		}
	}
}
