//go:build !linux || !amd64

package asm

// AllowTiles asks the operating system whether this process may use AMX's tiles: none but
// Linux is asked.
func AllowTiles() bool { return false }
