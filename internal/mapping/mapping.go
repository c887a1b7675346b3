// Package mapping maps files into memory, so that matrices may be larger than the memory of the
// machine. Only Linux is supported; elsewhere callers read and write the files.
package mapping

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrFault reports an access to memory without contents, such as that of a mapped file that another
// program has truncated.
var ErrFault = errors.New("memory of a mapped file is not accessible")

// Access calls f, and returns an error that wraps [ErrFault] if f accesses memory of a mapped file
// that has no contents. Such an access would otherwise end the program. f must not start goroutines
// that access the memory.
func Access(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w: address %#x: another program has changed the size of the file", ErrFault, r.Addr())
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
