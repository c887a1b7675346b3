//go:build nogpu || !((linux || darwin) && (amd64 || arm64))

package peers

import (
	"fmt"
	"runtime"

	"tilework/internal/gemm"
)

// This platform cannot open libraries: dlopen always fails, so the other functions are not called.

func dlopen(string, scope) (uintptr, error) {
	return 0, fmt.Errorf("%w: this build for %s/%s cannot open libraries for comparison: want linux or darwin on amd64 "+
		"or arm64, without the build tag nogpu",
		gemm.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

func dlsym(uintptr, string) (uintptr, error) { return dlopen("", localScope) }
func fileOf(uintptr) string                  { return "" }
func invoke(uintptr, ...uintptr) uintptr     { return 0 }
