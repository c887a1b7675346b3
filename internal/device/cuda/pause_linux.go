package cuda

import (
	"syscall"
	"time"
)

// pause sleeps for little more than d. What waits for a time in Go's own way wakes at
// whole milliseconds where the process has nothing else to do.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early, and the caller looks again
}
