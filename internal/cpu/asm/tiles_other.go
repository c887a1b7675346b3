//go:build !linux || !amd64

package asm

// AllowTiles reports false: tiles are supported on Linux only.
func AllowTiles() bool { return false }
