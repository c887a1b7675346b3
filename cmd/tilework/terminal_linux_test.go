package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gpu"
	ptxemu "tilework/ptx/emu"
)

// TestMulTerminal checks that a binary result is not written to a terminal, and text is.
func TestMulTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer terminal.Close()
	if !isTerminal(terminal) {
		t.Skip("/dev/ptmx is no terminal")
	}
	t.Chdir(folder(t))
	for out, want := range map[string]string{
		"-": "-o -: the result is binary and standard output is a terminal: want a redirection (> c.npy), a file, " +
			"or text (-o -.csv)",
		"-.npz::c": "-o -.npz::c: the result is binary", "-.safetensors": "-o -.safetensors: the result is binary",
		"-.csv": "", "-.mtx": "",
	} {
		var stderr bytes.Buffer
		c := newCommand()
		c.SetOut(terminal)
		c.SetErr(&stderr)
		err := execute(t.Context(), c, []string{"mul", "a.npy", "b.npy", "-o", out})
		if want == "" && err != nil || want != "" && (exitCode(err) != 2 || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("-o %s: got error %v, want %q", out, err, want)
		}
	}
}

// TestMulProgress checks that mul draws its progress on the emulator while it computes. On a clock
// that advances while the command sleeps, the first block takes longer than barDelay and the pause
// between two reports, and the second one waits for the drawing.
func TestMulProgress(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 40, 40)
	terminal, screen := newTerminal(t)
	drawn := make(chan string, 1)
	go func() {
		text := make([]byte, 1<<10)
		n, _ := terminal.Read(text)
		drawn <- string(text[:n])
		_, _ = io.Copy(io.Discard, terminal)
	}()
	bar := ""
	synctest.Test(t, func(t *testing.T) {
		restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) {
			return emu.Open(emu.Options{Workers: 1, Watch: func(l *ptxemu.Launch) emu.Done {
				l.Observers = append(l.Observers, starting(func(block int) {
					switch block {
					case 0:
						time.Sleep(time.Minute)
					case 1:
						bar = <-drawn
					}
				}))
				return func(_ *ptxemu.Program, _ ptxemu.Stats, err error) error { return err }
			}})
		})
		c := newCommand()
		c.SetOut(new(bytes.Buffer))
		c.SetErr(screen)
		args := "mul a.npy a.npy -o c.npy --device emu --kernel naive:16"
		if err := errors.Join(execute(t.Context(), c, strings.Fields(args)), restore()); err != nil {
			t.Error(err)
		}
	})
	if !strings.Contains(bar, "% |████") || !strings.Contains(bar, ":") {
		t.Errorf("drew %q, want a bar and the estimated time that is left", bar)
	}
}

// starting is an observer that is called with each block that starts.
type starting func(block int)

// Block implements [ptxemu.Observer].
func (s starting) Block(b *ptxemu.BlockInfo) *ptxemu.Hooks {
	s(b.Linear)
	return nil
}

// newTerminal returns both ends of a pseudo-terminal: terminal reads the output to screen.
func newTerminal(t *testing.T) (terminal, screen *os.File) {
	t.Helper()
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Skipf("no terminal: %v", err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	terminal = open("/dev/ptmx")
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	return terminal, open(fmt.Sprintf("/dev/pts/%d", n))
}
