//go:build unix

package pytorch

import (
	"os/exec"
	"syscall"
)

// group starts c in a process group of its own, which ends with c's context: Python starts a
// process for each rank.
func group(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}

// kill ends a started process and its group.
func kill(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
