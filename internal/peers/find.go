package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"tilework/internal/host"
)

// source is where a library's file comes from.
type source struct {
	Env     string // the variable that may name the file
	Install string // how to get it, in a few words

	// The files are lib<stem>.so.<version>, or the platform's like; the earlier
	// are preferred. An empty version is the file without one.
	stems, versions []string
	scope           scope
}

// scope is whose symbols a library finds, and who finds its own.
type scope int

const (
	alone    scope = iota // it finds those of shared libraries, then those of its own needs; nobody finds its
	shared                // the same, and libraries loaded later find its
	ownFirst              // its own needs come first: two libraries may need an OpenMP runtime each
)

// load opens the file that path, the library's variable or the search names, in
// that order. A file that was named and cannot be opened is an error: no other
// is tried in its place.
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
	path, err := filepath.Abs(path) // without a slash the loader would search for it
	if err != nil {
		return 0, err
	}
	switch info, err := os.Stat(path); {
	case os.IsNotExist(err):
		return 0, fmt.Errorf("%w: no file %s", ErrNotFound, path)
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%s is not a file", path)
	}
	return dlopen(path, s.scope)
}

// search tries each file name in each directory, "" standing for the loader's
// own search. What is there and does not load is worth more to the user than
// what is not there.
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

// searchDirs lists where libraries lie. macOS's loader, unlike Linux's, would
// look into the working directory too, and so is given full names only.
var searchDirs = func() []string {
	if runtime.GOOS == "darwin" {
		return []string{"/opt/homebrew/opt/openblas/lib", "/opt/homebrew/lib", "/usr/local/opt/openblas/lib", "/usr/local/lib", "/opt/local/lib"}
	}
	return []string{"", "/opt/intel/oneapi/mkl/latest/lib", "/opt/intel/oneapi/mkl/latest/lib/intel64", "/usr/local/cuda/lib64"}
}()

// fileName is the platform's name for a library's file.
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

// safeSearch refuses the loader's own search where LD_LIBRARY_PATH would lead it
// into the working directory.
func safeSearch() error {
	if dirs := host.RelativeLibraryDirs(); len(dirs) > 0 {
		return fmt.Errorf("LD_LIBRARY_PATH has the relative entry %q: libraries are not searched for in the working directory", dirs[0])
	}
	return nil
}
