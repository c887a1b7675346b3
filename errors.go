package tilework

import (
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// The sentinel errors; test for them with [errors.Is]. The message around them
// names the argument, what was found and what is wanted.
var (
	// ErrShape: sizes that do not fit together, or that are no sizes.
	ErrShape = gemm.ErrShape
	// ErrOverlap: the result shares memory with something that the product reads.
	ErrOverlap = gemm.ErrOverlap
	// ErrUnsupported: an element type, kernel, precision or option that what was
	// asked for does not have.
	ErrUnsupported = gemm.ErrUnsupported
	// ErrNoDevice: the device is not there, or is lost, or this build cannot use it.
	ErrNoDevice = gemm.ErrNoDevice
	// ErrDeviceLost: the device answers nothing any more, in this process.
	ErrDeviceLost = device.ErrLost
	// ErrLaunch: the device refused a kernel, or ended it.
	ErrLaunch = device.ErrLaunch
	// ErrOutOfMemory: less memory is free than a matrix takes, on the host or on a
	// device.
	ErrOutOfMemory = gemm.ErrOutOfMemory
	// ErrClosed: a Device or a DeviceMatrix was used after its Close.
	ErrClosed = gemm.ErrClosed
	// ErrVerify: the result was computed and found to be wrong, or cannot be verified to the
	// precision that [WithVerify] promises.
	ErrVerify = gemm.ErrVerify
)
