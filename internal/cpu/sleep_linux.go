package cpu

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// sleeper lets a goroutine sleep until it is woken, blocking its thread on a word of memory
// (futex(2)).
type sleeper struct{ down atomic.Uint32 }

// prepareSleep announces a sleep. A wake after it ends the sleep, even if the sleep has not begun.
func (s *sleeper) prepareSleep() { s.down.Store(1) }

// sleep returns once wake has been called after prepareSleep.
func (s *sleeper) sleep() {
	for s.down.Load() == 1 {
		s.futex(futexWait, 1) // returns at once if the word is not 1
	}
}

// asleep reports whether a sleep has begun or was announced.
func (s *sleeper) asleep() bool { return s.down.Load() == 1 }

// wake ends a sleep that has begun or was announced.
func (s *sleeper) wake() {
	if s.asleep() && s.down.CompareAndSwap(1, 0) {
		s.futex(futexWake, 1)
	}
}

// The operations of linux/futex.h for a word that is private to this process.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

func (s *sleeper) futex(op, value uintptr) {
	// The result does not matter: the sleeper checks the word again.
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&s.down)), op, value, 0, 0, 0)
}

// yieldThread lets another thread run on this processor.
func yieldThread() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
