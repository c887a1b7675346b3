//go:build nogpu || !((linux || darwin || windows) && (amd64 || arm64))

package dl

// Open always fails on this platform, so the other functions are not called.
func Open(string, Scope) (uintptr, error) { return 0, errPlatform() }

// Symbol always fails.
func Symbol(uintptr, string) (uintptr, error) { return 0, errPlatform() }

// FileOf returns the empty string.
func FileOf(uintptr) string { return "" }

// Call returns 0.
func Call(uintptr, ...uintptr) uintptr { return 0 }
