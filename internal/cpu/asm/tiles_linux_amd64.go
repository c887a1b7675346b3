package asm

import (
	"sync"

	"golang.org/x/sys/unix"
)

// AllowTiles requests Linux's permission to use AMX tiles, once, and reports whether it was
// granted. A thread that uses tiles needs 8 KiB more for its saved state, also on a signal stack.
// Linux refuses if a thread has a signal stack too small for that. (Those of the Go runtime have 32
// KiB.)
var AllowTiles = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM and the component's number
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
})
