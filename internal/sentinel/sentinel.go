// Package sentinel defines the errors that products, the host's memory and devices share. Messages
// that wrap them name the argument, the value found and the value wanted.
package sentinel

import "errors"

// The shared errors. Errors of a device wrap them where they are made.
var (
	ErrNoDevice    = errors.New("no such device")
	ErrOutOfMemory = errors.New("out of memory")
	ErrClosed      = errors.New("used after Close")
)
