package cpu

import "golang.org/x/sys/unix"

// preferHugePages advises the system to back b, which must not have been written yet, with huge
// pages. A failure does no harm.
func preferHugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
