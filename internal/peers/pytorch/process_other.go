//go:build !unix

package pytorch

import "os/exec"

// group does nothing where there are no process groups: the ranks end when the program does.
func group(*exec.Cmd) {}

// kill ends a started process.
func kill(c *exec.Cmd) { _ = c.Process.Kill() }
