//go:build nogpu || !((linux || darwin) && (amd64 || arm64))

package dl

import (
	"fmt"
	"runtime"

	"tilework/internal/gemm"
)

// Open always fails on this platform, so the other functions are not called.
func Open(string, Scope) (uintptr, error) {
	return 0, fmt.Errorf("%w: this build for %s/%s cannot open libraries: want linux or darwin on amd64 "+
		"or arm64, without the build tag nogpu",
		gemm.ErrUnsupported, runtime.GOOS, runtime.GOARCH)
}

// Symbol always fails.
func Symbol(uintptr, string) (uintptr, error) { return Open("", Local) }

// FileOf returns the empty string.
func FileOf(uintptr) string { return "" }

// Call returns 0.
func Call(uintptr, ...uintptr) uintptr { return 0 }
