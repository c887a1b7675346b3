//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cache

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file, or returns busy if another process holds the lock. The kernel releases the
// lock when the process ends.
func lock(path string) (unlock func(), busy bool) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return func() {}, false
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK || err == unix.EINTR {
		f.Close()
		return nil, true
	}
	return func() { f.Close() }, false
}
