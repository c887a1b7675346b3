package ptx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// MaxFile is how many bytes a file of PTX may have: 64 MiB.
const MaxFile = 64 << 20

// ReadFile reads the text of a file. It is a regular one, as a pipe may have no end or nobody
// who writes to it, of [MaxFile] bytes at the most. The errors are *fs.PathError.
func ReadFile(path string) (string, error) {
	info, err := os.Stat(path) // before opening: that waits for a pipe's writer
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return "", &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New("it is no regular file")}
	case info.Size() > MaxFile:
		return "", &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes, want at most %d", info.Size(), MaxFile)}
	}
	text, err := os.ReadFile(path)
	return string(text), err
}
