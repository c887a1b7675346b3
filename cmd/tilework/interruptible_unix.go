//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// interruptible makes the end of c's context interrupt c. A second signal would end c before it
// prints its results, so c is in a process group of its own, to which Ctrl-C sends none.
func interruptible(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second // until c is killed
}
