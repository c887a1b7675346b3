package tilework

import (
	"context"
	"errors"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
)

// Errors that all others wrap, except those of a context. Test for them with [errors.Is]. The
// message around them names the argument, the value found and the value wanted.
var (
	// ErrShape reports sizes that do not fit together or are invalid.
	ErrShape = gemm.ErrShape
	// ErrOverlap reports a result that shares memory with an operand.
	ErrOverlap = gemm.ErrOverlap
	// ErrUnsupported reports an element type, kernel, precision or combination of options that
	// is not implemented.
	ErrUnsupported = gemm.ErrUnsupported
	// ErrNoDevice reports a device that does not exist, is lost or is not part of this build.
	ErrNoDevice = sentinel.ErrNoDevice
	// ErrDeviceLost reports a device that this process can no longer use.
	ErrDeviceLost = device.ErrLost
	// ErrLaunch reports a kernel that the device refused or aborted.
	ErrLaunch = device.ErrLaunch
	// ErrOutOfMemory reports that the host or the device has less free memory than requested.
	ErrOutOfMemory = sentinel.ErrOutOfMemory
	// ErrClosed reports the use of a Device or a matrix on it after Close.
	ErrClosed = sentinel.ErrClosed
	// ErrVerify reports a result that failed verification, or that cannot be verified within the
	// limit of [WithVerify].
	ErrVerify = gemm.ErrVerify
)

// errNilContext is the error of all functions for a nil context, as in net/http.
var errNilContext = errors.New("nil Context: want one, such as context.Background()")

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	return nil
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
