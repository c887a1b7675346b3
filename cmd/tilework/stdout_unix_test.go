//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestFailingStdout runs commands whose standard output is closed, read-only or a full device. They
// must end with exit code 2 and a line, and -o - must not take a closed one for a file. A file and
// /dev/null as shells open it are right.
func TestFailingStdout(t *testing.T) {
	t.Chdir(folder(t))
	for _, c := range []struct {
		args, to string
		code     int
		want     string
	}{
		{"mul a.npy b.npy -o -", ">&-", 2, "-o -: standard output is closed"},
		{"mul a.npy b.npy -o -.csv", ">&-", 2, "-o -.csv: standard output is closed"},
		{"mul a.npy b.npy -o -", "1</dev/null", 2, "bad file descriptor"},
		{"mul a.npy b.npy -o -", ">/dev/full", 2, "no space left"},
		{"mul a.npy b.npy -o -", ">/dev/null", 0, ""},
		{"mul a.npy b.npy -o -", ">c.npy", 0, ""},
		{"mul a.npy b.npy -o d.npy", ">&-", 0, ""},
		{"mul a.npy b.npy -o e.npy --format json", ">/dev/full", 2, "no space left"},
		{"kernels", ">/dev/full", 2, "no space left"},
		{"explain tiled --shape 64", "1</dev/null", 2, "bad file descriptor"},
		{"bench --sizes 8 --min-time 1ms --max-time 2ms", ">/dev/full", 2, "no space left"},
		{"--help", ">/dev/full", 2, "no space left"},
		{"mul --help", "1</dev/null", 2, "bad file descriptor"},
		{"help mul", ">/dev/full", 2, "no space left"},
		{"completion bash", ">/dev/full", 2, "no space left"},
	} {
		if _, err := os.Stat("/dev/full"); err != nil && strings.Contains(c.to, "full") {
			continue
		}
		command, _, stderr := process(c.args)
		command.Path = "/bin/sh"
		command.Args = []string{"sh", "-c", `exec "$0" -test.run='^TestCommand$' ` + c.to, os.Args[0]}
		code := 0
		err := command.Run()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			code = exit.ExitCode()
		}
		lines := strings.Count(stderr.String(), "\n")
		if code != c.code || !strings.Contains(stderr.String(), c.want) || code != 0 && lines != 1 {
			t.Errorf("%s %s: %v, %q; want exit code %d and %q", c.args, c.to, err, stderr, c.code, c.want)
		}
	}
}
