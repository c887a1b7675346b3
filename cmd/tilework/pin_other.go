//go:build !linux

package main

// pinThread does nothing on systems without affinity.
func pinThread() (unpin func()) { return func() {} }
