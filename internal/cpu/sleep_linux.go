package cpu

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// sleeper is a goroutine that sleeps until it is woken: in the kernel, on a word of
// memory (futex(2)).
type sleeper struct{ down atomic.Uint32 }

// lieDown says that sleep may follow: from here on, wake ends it.
func (s *sleeper) prepareSleep() { s.down.Store(1) }

// sleep returns when wake was called after lieDown.
func (s *sleeper) sleep() {
	for s.down.Load() == 1 {
		s.futex(futexWait, 1) // no longer if the word is not 1
	}
}

// wake ends a sleep, if there is one or is about to be.
func (s *sleeper) wake() {
	if s.down.Load() == 1 && s.down.CompareAndSwap(1, 0) {
		s.futex(futexWake, 1)
	}
}

// The operations of linux/futex.h, for a word that no other process knows.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

func (s *sleeper) futex(op, value uintptr) {
	// What it returns does not matter: whoever sleeps looks at the word again.
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&s.down)), op, value, 0, 0, 0)
}

// yieldThread lets another thread have the processor.
func yieldThread() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
