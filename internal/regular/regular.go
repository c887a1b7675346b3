// Package regular opens regular files and nothing else. Opening a pipe can wait forever, and
// opening a device can have any effect.
package regular

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// errKind is the error of a file of another kind.
var errKind = errors.New("not a regular file")

// Open opens a file for reading. It follows symbolic links. Errors are of type *fs.PathError.
func Open(path string) (*os.File, error) {
	return open(path, os.Stat, os.O_RDONLY, 0)
}

// OpenNoFollow opens a file like os.OpenFile, and refuses a symbolic link as the last element of
// path. Errors are of type *fs.PathError.
func OpenNoFollow(path string, flag int, perm fs.FileMode) (*os.File, error) {
	return open(path, os.Lstat, flag|noFollow, perm)
}

// open checks the file before it is opened, and again afterwards, because another process can
// replace it in between. Meanwhile NoWait keeps the call from waiting.
func open(path string, stat func(string) (fs.FileInfo, error), flag int, perm fs.FileMode) (*os.File, error) {
	info, err := stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: path, Err: errKind}
	}
	f, err := os.OpenFile(path, flag|NoWait, perm)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errKind}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
