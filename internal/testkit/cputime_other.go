//go:build !linux

package testkit

import "time"

// threadTime returns 0: the CPU time of a thread is not known.
func threadTime() time.Duration { return 0 }
