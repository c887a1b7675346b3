//go:build !linux

package cpu

// preferHugePages does nothing on this system.
func preferHugePages([]byte) {}
