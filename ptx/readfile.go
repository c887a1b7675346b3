package ptx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// MaxFileBytes is the maximum size of a PTX file that [ReadFile] accepts: 64 MiB.
const MaxFileBytes = 64 << 20

// ReadFile returns the contents of a regular file of at most [MaxFileBytes] bytes. It rejects
// pipes and devices, which can block or never end. Errors are of type *fs.PathError.
func ReadFile(path string) (string, error) {
	info, err := os.Stat(path) // opening a pipe would block until it has a writer
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return "", &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	case info.Size() > MaxFileBytes:
		err := fmt.Errorf("%d bytes, want at most %d", info.Size(), MaxFileBytes)
		return "", &fs.PathError{Op: "read", Path: path, Err: err}
	}
	text, err := os.ReadFile(path)
	return string(text), err
}
