//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPipesAsFiles checks that a pipe without a writer or a reader is refused at once.
func TestPipesAsFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	const kernel = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n"
	if err := errors.Join(unix.Mkfifo("pipe", 0o600), os.WriteFile("k.ptx", []byte(kernel), 0o600)); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"report pipe -o r.html":                  "pipe: not a regular file",
		"bench --sizes 8 --resume pipe":          "--resume: pipe: not a regular file",
		"bench --sizes 8 --kernels loop -o pipe": "no such device or address",
		"emulate k.ptx --script pipe":            "pipe: not a regular file",
	} {
		if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q; want %q", args, code, stderr, want)
		}
	}
}

// TestReportInterrupted interrupts report while it waits for standard input.
func TestReportInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	cmd, _, stderr := process("report - -o r.html")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than a pipe holds, so that the command has read some of it when Write returns.
	if _, err := stdin.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code follows
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || stderr.String() != "tilework: interrupted\n" {
		t.Errorf("exit code %d, %q; want %d", code, stderr, exitInterrupted)
	}
}
