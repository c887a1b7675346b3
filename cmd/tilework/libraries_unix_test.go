//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlantedLibraries checks that libraries in the working directory are not loaded if
// LD_LIBRARY_PATH has an entry that the loader resolves there. The test's libraries are text files,
// so that loading them is an error.
func TestPlantedLibraries(t *testing.T) {
	const loaderError = "file too short" // the error of glibc for a short text file
	for _, c := range []struct{ entry, folder string }{
		{"", ""}, {".", ""}, {":/usr/lib", ""}, {"lib[", "lib["}, {"$LIB", "lib/x86_64-linux-gnu"}, {"$LIB", "lib64"},
		{":", "glibc-hwcaps/x86-64-v2"}, {":", "glibc-hwcaps/x86-64-v3"}, {"/", ""},
	} {
		here := plantLibraries(t, c.folder)
		explicit := c.entry == "/" // an absolute path is the user's choice
		path := c.entry
		if explicit {
			path = here
		}
		for _, args := range []string{"devices", "bench --sizes 8 --kernels loop --min-time 1ms --peers openblas",
			"bench --sizes 8 --kernels loop --min-time 1ms --peers mkl"} {
			cmd, stdout, stderr := process(args, "LD_LIBRARY_PATH="+path)
			if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			output := stdout.String() + stderr.String()
			refused := strings.Contains(output, "LD_LIBRARY_PATH has the relative entry")
			if want := path != "" && !explicit; !explicit && strings.Contains(output, loaderError) || refused != want {
				t.Errorf("%s with LD_LIBRARY_PATH=%q: refused %t, want %t and no planted library: %q", args, path, refused,
					want, output)
			}
		}
	}
}

// plantLibraries changes to a new folder whose subfolder has text files with the names of
// libraries, and returns its path.
func plantLibraries(t *testing.T, subfolder string) string {
	t.Helper()
	here := t.TempDir()
	t.Chdir(here)
	if err := os.MkdirAll(filepath.Join(here, subfolder), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libcublasLt.so.13", "libcublasLt.so.12", "libopenblas.so.0",
		"libopenblas.so", "libblis.so.4", "libblis.so", "libmkl_rt.so.2", "libmkl_rt.so",
	} {
		if err := os.WriteFile(filepath.Join(here, subfolder, name), []byte("PLANTED"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return here
}
