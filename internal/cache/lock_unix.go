//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cache

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock waits until no other process holds the file's lock, but no longer than that.
// The lock ends with the process, however that ends.
func lock(path string, patience time.Duration) (unlock func()) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return func() {}
	}
	const pause = 5 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(end) {
			return func() { f.Close() }
		}
	}
}
