package asm

import (
	"sync"

	"golang.org/x/sys/unix"
)

// AllowTiles asks the kernel once whether this process may use AMX's tiles, and returns
// its answer. A thread that has begun to has 8 KiB more to be saved, also for a signal:
// the kernel refuses where a thread has a signal stack too small for that. (The Go
// runtime's have 32 KiB.)
var AllowTiles = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM and the component's number
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
})
