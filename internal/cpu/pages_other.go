//go:build !linux

package cpu

// preferHugePages leaves it to the system.
func preferHugePages([]byte) {}
