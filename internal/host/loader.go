package host

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// RelativeLibraryDirs are the entries of LD_LIBRARY_PATH by which the system's loader
// looks for libraries in the working directory or beneath it: the relative ones, and
// the empty one that a colon too many leaves (ld.so(8)). Windows' loader has no such
// list.
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
