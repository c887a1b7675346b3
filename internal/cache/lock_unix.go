//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cache

import (
	"os"

	"golang.org/x/sys/unix"

	"tilework/internal/regular"
)

// lock locks a file, or returns errBusy if another process holds the lock. The kernel releases the
// lock when the process ends.
func lock(path string) (unlock func(), err error) {
	f, err := regular.OpenNoFollow(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK || err == unix.EINTR {
			err = errBusy
		}
		return nil, err
	}
	return func() { f.Close() }, nil
}
