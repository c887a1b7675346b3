//go:build !nogpu && (linux || darwin) && (amd64 || arm64)

package dl

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// searchVariables are the variables with directories that the loader searches: see ld.so(8), and
// dlopen(3) of macOS.
var searchVariables = map[string][]string{
	"linux":  {"LD_LIBRARY_PATH"},
	"darwin": {"DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"},
}[runtime.GOOS]

// errSearchPath is nil if the search path of this process is safe. The loader reads the variables
// when the process starts, so a later change of the environment does not matter.
var errSearchPath = checkSearchPath(searchVariables, os.Getenv)

// checkSearchPath returns an error that wraps ErrSearchPath if an entry of a variable does not
// begin with a slash. The loader resolves such an entry in the working directory, and an empty one
// too. It also replaces names such as $ORIGIN and $LIB; after a slash they keep the path absolute.
func checkSearchPath(variables []string, getenv func(string) string) error {
	for _, name := range variables {
		path := getenv(name)
		if path == "" {
			continue
		}
		// glibc separates entries by colons and semicolons, musl by colons and line ends.
		for entry := range strings.SplitSeq(strings.NewReplacer(";", ":", "\n", ":").Replace(path), ":") {
			if !strings.HasPrefix(entry, "/") {
				return fmt.Errorf("%w: %s has the relative entry %q: want absolute paths only, and no colon too many, so that "+
					"the working directory is not searched", ErrSearchPath, name, entry)
			}
		}
	}
	return nil
}
