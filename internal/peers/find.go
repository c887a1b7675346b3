package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"tilework/internal/host"
)

// source describes where to find a library's file.
type source struct {
	Env     string // environment variable that may name the file
	Install string // how to install it, in a few words

	// The files are lib<stem>.so.<version>, or the equivalent of the platform. Earlier entries are
	// preferred. An empty version means a file name without a version.
	stems, versions []string
	scope           scope
}

// scope is the symbol scope of a loaded library, as in dlopen(3).
type scope int

const (
	localScope  scope = iota // RTLD_LOCAL: other libraries do not see its symbols
	globalScope              // RTLD_GLOBAL: libraries loaded later see its symbols
	deepBind                 // RTLD_DEEPBIND: its own dependencies, such as an OpenMP runtime, take precedence
)

// load opens the file named by path, by the library's variable, or by the search, in that order. A
// named file that cannot be opened is an error: no other file is tried.
func (s *source) load(path string) (uintptr, error) {
	if path != "" {
		return s.loadFile(path)
	}
	path = os.Getenv(s.Env)
	if path == "" {
		return s.search()
	}
	if !filepath.IsAbs(path) {
		return 0, fmt.Errorf("%s=%s: want an absolute path", s.Env, path)
	}
	handle, err := s.loadFile(path)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.Env, err)
	}
	return handle, nil
}

func (s *source) loadFile(path string) (uintptr, error) {
	path, err := filepath.Abs(path) // the loader would search for a name without a slash
	if err != nil {
		return 0, err
	}
	switch info, err := os.Stat(path); {
	case os.IsNotExist(err):
		return 0, fmt.Errorf("%w: no file %s", ErrNotFound, path)
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%s: want a regular file", path)
	}
	return dlopen(path, s.scope)
}

// search tries each file name in each directory. The directory "" stands for the loader's own
// search. If a file exists but cannot be loaded, its error takes precedence over ErrNotFound.
func (s *source) search() (uintptr, error) {
	var broken error
	for _, dir := range searchDirs {
		if dir == "" {
			if err := safeSearch(); err != nil {
				return 0, err
			}
		}
		for _, stem := range s.stems {
			for _, version := range s.versions {
				file := filepath.Join(dir, fileName(stem, version))
				if dir != "" {
					if _, err := os.Stat(file); err != nil {
						continue
					}
				}
				handle, err := dlopen(file, s.scope)
				if err == nil {
					return handle, nil
				}
				if broken == nil && !strings.Contains(err.Error(), "cannot open shared object file") {
					broken = err
				}
			}
		}
	}
	if broken != nil {
		return 0, broken
	}
	return 0, fmt.Errorf("%w: install it (%s) or name its file with %s", ErrNotFound, s.Install, s.Env)
}

// searchDirs lists the directories of libraries. macOS's loader, unlike Linux's, would also search
// the working directory, and is therefore given absolute paths only.
var searchDirs = func() []string {
	if runtime.GOOS == "darwin" {
		return []string{"/opt/homebrew/opt/openblas/lib", "/opt/homebrew/lib", "/usr/local/opt/openblas/lib",
			"/usr/local/lib", "/opt/local/lib"}
	}
	return []string{"", "/opt/intel/oneapi/mkl/latest/lib", "/opt/intel/oneapi/mkl/latest/lib/intel64",
		"/usr/local/cuda/lib64"}
}()

// fileName returns the platform's file name of a library.
func fileName(stem, version string) string {
	name := "lib" + stem
	switch {
	case runtime.GOOS == "darwin" && version != "":
		return name + "." + version + ".dylib"
	case runtime.GOOS == "darwin":
		return name + ".dylib"
	case version != "":
		return name + ".so." + version
	}
	return name + ".so"
}

// safeSearch returns an error if the loader's search would include the working directory because of
// LD_LIBRARY_PATH.
func safeSearch() error {
	if dirs := host.RelativeLibraryDirs(); len(dirs) > 0 {
		return fmt.Errorf("LD_LIBRARY_PATH has the relative entry %q: want absolute paths only, so that the working "+
			"directory is not searched", dirs[0])
	}
	return nil
}
