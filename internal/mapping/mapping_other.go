//go:build !linux

package mapping

import (
	"errors"
	"os"
)

// Read returns [errors.ErrUnsupported].
func Read(*os.File, int64, int) (data []byte, unmap func() error, err error) {
	return nil, nil, errors.ErrUnsupported
}

// Reserve returns [errors.ErrUnsupported].
func Reserve(*os.File, int) error { return errors.ErrUnsupported }

// Write returns [errors.ErrUnsupported].
func Write(*os.File, int) (data []byte, unmap func() error, err error) {
	return nil, nil, errors.ErrUnsupported
}
