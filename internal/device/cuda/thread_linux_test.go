package cuda

import "syscall"

// thread is the operating system's thread, to which a current context belongs.
func thread() int { return syscall.Gettid() }
