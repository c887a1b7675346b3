package matio

import (
	"os"

	"golang.org/x/sys/unix"
)

// keepBytesApart locks the byte at an offset of a file. Clients of NFS write whole pages back, with
// the old bytes of others, unless there is a lock of some bytes of the file on the client
// (nfs_can_extend_write in Linux). Without support for locks, nothing is done.
func keepBytesApart(f *os.File, at int64) {
	_ = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
}
