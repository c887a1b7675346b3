package cuda

import (
	"syscall"
	"time"
)

// pause sleeps for little more than d. What waits for a time in Go's own way wakes at
// whole milliseconds where the process has nothing else to do, and Linux wakes a thread up to
// 50 µs late if it is not asked for better.
func pause(d time.Duration) {
	const setTimerSlack, slack = 29, time.Microsecond // PR_SET_TIMERSLACK of the thread
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, uintptr(slack), 0)
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early, and the caller looks again
}
