//go:build nogpu || !((linux || darwin) && (amd64 || arm64))

package peers

import (
	"fmt"
	"runtime"

	"tilework/internal/gemm"
)

// No library can be opened here, so that nothing else is ever called.

func dlopen(string, scope) (uintptr, error) {
	return 0, fmt.Errorf("%w: this program for %s/%s was built without support for comparison libraries (it needs linux or darwin on amd64 or arm64, and no build tag nogpu)",
		gemm.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

func dlsym(uintptr, string) (uintptr, error) { return dlopen("", alone) }
func fileOf(uintptr) string                  { return "" }
func invoke(uintptr, ...uintptr) uintptr     { return 0 }
