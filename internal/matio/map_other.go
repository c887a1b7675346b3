//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || solaris)

package matio

import (
	"errors"
	"os"
)

// mapFile maps nothing here: the file is read.
func mapFile(*os.File, int64, int) ([]byte, func() error, error) {
	return nil, nil, errors.ErrUnsupported
}
