package testkit

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time of the current thread, which other work on the machine does not
// lengthen.
func threadTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
