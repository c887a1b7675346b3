package tilework

import "tilework/internal/gemm"

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
	// ErrNoDevice: the device is not there, or this build cannot use it.
	ErrNoDevice = gemm.ErrNoDevice
	// ErrOutOfMemory: less memory is free than a matrix takes.
	ErrOutOfMemory = gemm.ErrOutOfMemory
	// ErrVerify: the result was computed and found to be wrong.
	ErrVerify = gemm.ErrVerify
)
