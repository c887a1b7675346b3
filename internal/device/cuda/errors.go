package cuda

import (
	"fmt"
	"strings"

	"tilework/internal/device"
	"tilework/internal/sentinel"
)

// code is a CUresult of cuda.h.
type code int

// The codes that this package acts on.
const (
	success      code = 0
	invalidValue code = 1
	outOfMemory  code = 2
	newerDriver  code = 36 // also used for a function that the driver lacks
	oldDriver    code = 222
	notReady     code = 600

	accessEnabled code = 704
	tooManyPeers  code = 711
)

// kinds maps result codes to errors of package device, independent of the function called. A code
// with ErrLost leaves the context unusable: every later call fails with it.
var kinds = map[code][]error{
	outOfMemory: {device.ErrOutOfMemory},

	4:   {device.ErrLost},                   // the process is ending
	46:  {sentinel.ErrNoDevice},             // exclusive to another process
	100: {sentinel.ErrNoDevice},             // no device
	101: {sentinel.ErrNoDevice},             // invalid device
	214: {device.ErrLost},                   // uncorrectable ECC error
	220: {device.ErrLost},                   // uncorrectable NVLink error
	226: {device.ErrLost},                   // contained memory error
	700: {device.ErrLaunch, device.ErrLost}, // illegal address
	702: {device.ErrLaunch, device.ErrLost}, // launch timeout
	709: {device.ErrLost},                   // context destroyed
	710: {device.ErrLaunch, device.ErrLost}, // assertion
	714: {device.ErrLaunch, device.ErrLost}, // stack error
	715: {device.ErrLaunch, device.ErrLost}, // illegal instruction
	716: {device.ErrLaunch, device.ErrLost}, // misaligned address
	717: {device.ErrLaunch, device.ErrLost}, // invalid address space
	718: {device.ErrLaunch, device.ErrLost}, // illegal program counter
	719: {device.ErrLaunch, device.ErrLost}, // any other failure of a kernel
	721: {device.ErrLaunch, device.ErrLost}, // tensor memory left reserved
}

// Error describes a failed driver call. It wraps the matching errors of package device. The cause
// may be an earlier kernel instead of the call itself.
type Error struct {
	Call string // "cuMemAlloc_v2"
	Code int    // 2
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
	// Log is the compiler's error log.
	Log string

	kind error // set if the code alone does not determine it; see kinds
}

// Error returns the message on one line, with at most the first lines of the log.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
	if e.Log != "" {
		s += ": " + oneLine(e.Log)
	}
	return s
}

// Unwrap returns the matching errors of package device.
func (e *Error) Unwrap() []error {
	if e.kind != nil {
		return []error{e.kind}
	}
	return kinds[code(e.Code)]
}

// sticky reports whether the error makes the context unusable.
func (e *Error) sticky() bool {
	for _, kind := range kinds[code(e.Code)] {
		if kind == device.ErrLost {
			return true
		}
	}
	return false
}

// withKind makes a driver error match kind, unless its code determines another.
func withKind(kind error, err error) error {
	if e, ok := err.(*Error); ok && kinds[code(e.Code)] == nil {
		e.kind = kind
	}
	return err
}

// noDevice wraps an error of initialisation in ErrNoDevice.
func noDevice(err error) error {
	return fmt.Errorf("%w: NVIDIA driver: %w", sentinel.ErrNoDevice, err)
}

// oneLine returns the first lines of a compiler log, joined with semicolons.
func oneLine(log string) string {
	const maxLines = 4
	var lines []string
	for line := range strings.Lines(log) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines], fmt.Sprintf("and %d more lines", more))
	}
	return strings.Join(lines, "; ")
}
