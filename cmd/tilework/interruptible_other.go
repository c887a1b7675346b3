//go:build !unix

package main

import "os/exec"

// interruptible does nothing. The end of c's context kills c.
func interruptible(*exec.Cmd) {}
