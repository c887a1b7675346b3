// Package dl opens shared libraries with dlopen, without cgo, and calls their functions.
package dl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"tilework/internal/gemm"
)

// ErrNotFound reports that a library is not installed at the expected places.
var ErrNotFound = errors.New("library not found")

// ErrSearchPath reports that the loader would search the working directory, because of an
// environment variable. No library is opened then, not even one with an absolute path, because the
// loader also searches for the libraries that it needs.
var ErrSearchPath = errors.New("no library is loaded")

// Source describes where to find a library's file.
type Source struct {
	Env     string // environment variable that may name the file
	Install string // how to install it, in a few words

	// The files are lib<stem>.so.<version>, or the equivalent of the platform. Earlier entries are
	// preferred. An empty version means a file name without a version.
	Stems, Versions []string
	Scope           Scope
}

// Scope is the symbol scope of a loaded library, as in dlopen(3).
type Scope int

const (
	Local    Scope = iota // RTLD_LOCAL: other libraries do not see its symbols
	Global                // RTLD_GLOBAL: libraries loaded later see its symbols
	DeepBind              // RTLD_DEEPBIND: its own dependencies, such as an OpenMP runtime, take precedence
)

// Load opens the file named by path, by the library's variable, or by the search, in that order. A
// named file that cannot be opened is an error: no other file is tried. The other errors are
// ErrNotFound, and ErrUnsupported on Windows and on a platform that cannot open libraries.
func (s *Source) Load(path string) (uintptr, error) {
	if runtime.GOOS == "windows" {
		return 0, errPlatform()
	}
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

func errPlatform() error {
	return fmt.Errorf("%w: this build for %s/%s cannot open such libraries: want linux or darwin on amd64 or arm64, "+
		"without the build tag nogpu", gemm.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

func (s *Source) loadFile(path string) (uintptr, error) {
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
	return Open(path, s.Scope)
}

// search tries each file name in each directory. The directory "" stands for the loader's own
// search. If a file exists but cannot be loaded, its error takes precedence over ErrNotFound.
func (s *Source) search() (uintptr, error) {
	var broken error
	for _, dir := range searchDirs() {
		for _, stem := range s.Stems {
			for _, version := range s.Versions {
				file := filepath.Join(dir, FileName(stem, version))
				if dir != "" {
					if _, err := os.Stat(file); err != nil {
						continue
					}
				}
				handle, err := Open(file, s.Scope)
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

// searchDirs lists the directories of libraries, at last those of NVIDIA's wheels in the active
// environment of Python. macOS's loader, unlike Linux's, would also search the working directory,
// and is therefore given absolute paths only.
func searchDirs() []string {
	if runtime.GOOS == "darwin" {
		return []string{"/opt/homebrew/opt/openblas/lib", "/opt/homebrew/lib", "/usr/local/opt/openblas/lib",
			"/usr/local/lib", "/opt/local/lib"}
	}
	dirs := []string{"", "/opt/intel/oneapi/mkl/latest/lib", "/opt/intel/oneapi/mkl/latest/lib/intel64",
		"/usr/local/cuda/lib64"}
	if env := os.Getenv("VIRTUAL_ENV"); filepath.IsAbs(env) {
		for _, folder := range []string{"*", "*/*"} { // nvidia/nccl, nvidia/cublasmp/cu13
			wheels, _ := fs.Glob(os.DirFS(env), "lib/python3*/site-packages/nvidia/"+folder+"/lib")
			for _, wheel := range wheels {
				dirs = append(dirs, filepath.Join(env, wheel))
			}
		}
	}
	return dirs
}

// FileName returns the platform's file name of a library.
func FileName(stem, version string) string {
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
