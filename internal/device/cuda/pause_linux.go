package cuda

import (
	"syscall"
	"time"
)

// pause sleeps for d with microsecond resolution. The timers of an idle Go process can round sleeps
// up to whole milliseconds.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early; the caller polls again anyway
}
