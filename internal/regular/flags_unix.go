//go:build unix

package regular

import "syscall"

// NoWait is the flag of os.OpenFile with which opening a named pipe does not wait for another
// process. Opening one for writing then fails unless a process reads from it.
const NoWait = syscall.O_NONBLOCK

const noFollow = syscall.O_NOFOLLOW
