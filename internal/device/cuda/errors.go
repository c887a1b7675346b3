package cuda

import (
	"fmt"
	"strings"

	"tilework/internal/device"
)

// code is a CUresult of cuda.h.
type code int

// The codes that this package acts on.
const (
	success      code = 0
	invalidValue code = 1
	outOfMemory  code = 2
	newerDriver  code = 36 // which stands here too for a function that the driver lacks
	oldDriver    code = 222
	notReady     code = 600
)

// kinds are the codes that mean the same whatever was called. Those with ErrLost
// leave the context unusable: every call after them fails alike.
var kinds = map[code][]error{
	outOfMemory: {device.ErrOutOfMemory},

	4:   {device.ErrLost},                   // the process is ending
	46:  {device.ErrNoDevice},               // somebody has the device for himself
	100: {device.ErrNoDevice},               // no device
	101: {device.ErrNoDevice},               // no such device
	214: {device.ErrLost},                   // uncorrectable ECC error
	220: {device.ErrLost},                   // uncorrectable NVLink error
	226: {device.ErrLost},                   // contained memory error
	700: {device.ErrLaunch, device.ErrLost}, // illegal address
	702: {device.ErrLaunch, device.ErrLost}, // took too long
	709: {device.ErrLost},                   // context destroyed
	710: {device.ErrLaunch, device.ErrLost}, // assertion
	714: {device.ErrLaunch, device.ErrLost}, // stack error
	715: {device.ErrLaunch, device.ErrLost}, // illegal instruction
	716: {device.ErrLaunch, device.ErrLost}, // misaligned address
	717: {device.ErrLaunch, device.ErrLost}, // address in another space
	718: {device.ErrLaunch, device.ErrLost}, // illegal program counter
	719: {device.ErrLaunch, device.ErrLost}, // any other failure of a kernel
	721: {device.ErrLaunch, device.ErrLost}, // tensor memory left reserved
}

// Error is a call to the driver that failed. It wraps the errors of package device
// that fit it; that of a call that came after a kernel may be the kernel's.
type Error struct {
	Call string // "cuMemAlloc_v2"
	Code int    // 2
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
	// Log is what the compiler said of a text that it refused.
	Log string

	kind error // where the code alone does not tell
}

// Error is one line, however long the log.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
	if e.Log != "" {
		s += ": " + oneLine(e.Log)
	}
	return s
}

// Unwrap lists the errors of package device.
func (e *Error) Unwrap() []error {
	if e.kind != nil {
		return []error{e.kind}
	}
	return kinds[code(e.Code)]
}

// sticky says that the device is lost.
func (e *Error) sticky() bool {
	for _, kind := range kinds[code(e.Code)] {
		if kind == device.ErrLost {
			return true
		}
	}
	return false
}

// as gives an error of the driver a kind, unless its code has one.
func as(kind error, err error) error {
	if e, ok := err.(*Error); ok && kinds[code(e.Code)] == nil {
		e.kind = kind
	}
	return err
}

// noDevice makes a failure to begin with a device ErrNoDevice.
func noDevice(err error) error {
	return fmt.Errorf("%w: the NVIDIA driver answers: %w", device.ErrNoDevice, err)
}

// oneLine is the first lines of a compiler's log, as one.
func oneLine(log string) string {
	const most = 4
	var lines []string
	for line := range strings.Lines(log) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d lines more", more))
	}
	return strings.Join(lines, "; ")
}
