package mapping

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Read maps n bytes of a file from an offset, for reading. Other programs that write to the file
// change the memory.
func Read(f *os.File, offset int64, n int) (data []byte, unmap func() error, err error) {
	before := int(offset % int64(os.Getpagesize()))
	return mapped(f, offset-int64(before), before, n, unix.PROT_READ)
}

// Reserve sets the size of a file and reserves the space for it on the disk. Without space on the
// disk the error is that of the operating system. Where the file system cannot reserve space, it is
// [errors.ErrUnsupported].
func Reserve(f *os.File, size int) error {
	switch err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err {
	case nil:
		return nil
	case unix.EOPNOTSUPP, unix.ENOSYS:
		return unix.ENOTSUP
	default:
		return &os.PathError{Op: "reserve space for", Path: f.Name(), Err: err}
	}
}

// Write reserves the space for a file as Reserve does, and maps all of it for writing.
func Write(f *os.File, size int) (data []byte, unmap func() error, err error) {
	if err := Reserve(f, size); err != nil {
		return nil, nil, err
	}
	return mapped(f, 0, 0, size, unix.PROT_READ|unix.PROT_WRITE)
}

// mapped maps before+n bytes from an offset, a multiple of the page size, and returns the last n.
func mapped(f *os.File, offset int64, before, n, protection int) (data []byte, unmap func() error, err error) {
	all, err := unix.Mmap(int(f.Fd()), offset, before+n, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %d bytes of %s: %w", n, f.Name(), err)
	}
	return all[before:], func() error { return unix.Munmap(all) }, nil
}
