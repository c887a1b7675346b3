package cuda

import "syscall"

// thread returns the id of the OS thread. A CUDA context is current on one thread.
func thread() int { return syscall.Gettid() }
