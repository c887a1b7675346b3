//go:build unix

package matio

import "golang.org/x/sys/unix"

// openItself makes [os.OpenFile] fail for a symbolic link, and not wait for a reader of a pipe.
const openItself = unix.O_NOFOLLOW | unix.O_NONBLOCK
