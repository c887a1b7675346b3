package host

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// RelativeLibraryDirs returns the relative entries of LD_LIBRARY_PATH. The loader would search the
// working directory for them. This includes the empty entries that come from superfluous colons;
// see ld.so(8). Windows does not use LD_LIBRARY_PATH.
func RelativeLibraryDirs() []string {
	path := os.Getenv("LD_LIBRARY_PATH")
	if path == "" || runtime.GOOS == "windows" {
		return nil
	}
	var dirs []string
	for dir := range strings.SplitSeq(strings.ReplaceAll(path, ";", ":"), ":") {
		if !filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
