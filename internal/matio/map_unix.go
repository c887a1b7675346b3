//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris

package matio

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps n bytes of f from offset off, for reading. The mapping outlives
// the open file.
func mapFile(f *os.File, off int64, n int) (data []byte, unmap func() error, err error) {
	start := off - off%int64(os.Getpagesize())
	skip := int(off - start)
	mem, err := unix.Mmap(int(f.Fd()), start, skip+n, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	return mem[skip : skip+n : skip+n], func() error { return unix.Munmap(mem) }, nil
}
