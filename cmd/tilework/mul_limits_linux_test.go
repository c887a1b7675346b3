package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"tilework/internal/testkit"

	"golang.org/x/sys/unix"
)

func init() { limitMemory = limitTo }

// limitTo limits the memory of this process to its current use plus a number of MiB. "VmSize 64"
// limits the address space, "VmData 64" the data segment.
func limitTo(t *testing.T, limit string) {
	key, more, _ := strings.Cut(limit, " ")
	mib, err := strconv.ParseUint(more, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), key+":")
	var kib uint64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	most := kib<<10 + mib<<20
	resource := map[string]int{"VmSize": unix.RLIMIT_AS, "VmData": unix.RLIMIT_DATA}[key]
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		t.Fatal(err)
	}
}

// smallestLimit is the smallest limit of tests in MiB besides the current use.
const smallestLimit = 320

// TestMemoryLimits runs products with increasing limits on the address space and the data segment.
// Each must succeed, or fail with an error of one line, but never with a fatal error of the Go
// runtime. With less than the smallest limit here, the runtime cannot start its threads and map
// another arena of 64 MiB, which it needs early if the random address of its heap is near the end
// of the first one.
func TestMemoryLimits(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 2000, 2000)
	matrixFile(t, "column.npy", 5000, 1)
	matrixFile(t, "row.npy", 1, 5000)
	matrixFile(t, "small.npy", 1, 200)
	step := 256
	if testkit.Full() {
		step = 64
	}
	tooLittle := regexp.MustCompile(`^tilework: (--residual: |tilework_naive: )?` +
		`out of memory: .*: want at least .*iB of (address space|data segment) \(ulimit -[vd] \d+\)\n$`)
	for key, products := range map[string][]string{
		"VmSize": {
			"mul a.npy a.npy --precision native",
			"mul a.npy a.npy --dtype float64 --activation gelu --residual a.npy --verify",
			"mul column.npy row.npy",
			"mul column.npy small.npy --device emu --kernel naive --dtype float64",
		},
		"VmData": {"mul a.npy a.npy --dtype float64 --activation gelu --residual a.npy --verify"},
	} {
		for _, args := range products {
			refused, done := 0, 0
			for mib := smallestLimit; done < 3 && mib < 4096; mib += step {
				cmd, stdout, stderr := process(args+" -o c.npy --force", fmt.Sprintf("%s=%s %d", memoryLimit, key, mib))
				if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
					t.Fatal(err)
				}
				text := stderr.String()
				switch code := cmd.ProcessState.ExitCode(); {
				case code == 0:
					done++
				case code != 2 || !tooLittle.MatchString(text) || strings.Count(text, "\n") != 1:
					t.Errorf("%s with %d MiB of %s: exit code %d, %q, %.500q", args, mib, key, code, stdout, text)
				default:
					refused++
					done = 0
				}
			}
			if refused == 0 || done == 0 {
				t.Errorf("%s, %s: failed %d times and succeeded %d times, want both", args, key, refused, done)
			}
		}
	}
}

// TestNamedLimit runs a product with a limit that is too small, and then with the limit that the
// error names, which must be enough.
func TestNamedLimit(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "small.npy", 1, 200)
	const args = "mul small.npy small.npy --transpose-b -o c.npy --force --device cpu"
	cmd, _, stderr := process(args, fmt.Sprintf("%s=VmSize %d", memoryLimit, smallestLimit))
	err := cmd.Run()
	named := regexp.MustCompile(`\(ulimit -v (\d+)\)`).FindStringSubmatch(stderr.String())
	if err == nil || named == nil {
		t.Fatalf("got error %v and %q, want the address space that is needed", err, stderr)
	}
	cmd, _, stderr = process(args)
	cmd.Args = append([]string{"sh", "-c", "ulimit -v " + named[1] + ` && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	if err := cmd.Run(); err != nil {
		t.Errorf("with the %s KiB that the error names: got error %v and %q", named[1], err, stderr)
	}
}

// TestProgramMemory checks that a long PTX file is refused if the process may not have the memory
// that its program can take.
func TestProgramMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("long.ptx", bytes.Repeat([]byte("L:\n"), 10<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd, _, stderr := process("emulate long.ptx --list", memoryLimit+"=VmSize 1024")
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	const want = "out of memory: the program in long.ptx"
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, %.500q, want 2 and %q", code, stderr, want)
	}
}

// TestRAMDisk checks that mul fails before it computes if the result does not fit into the output's
// file system, here a RAM disk, and warns if it may not fit.
func TestRAMDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a RAM disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	matrixFile(t, "column.npy", 600, 1)
	matrixFile(t, "row.npy", 1, 600)
	for name, c := range map[string]struct {
		text string
		code int
	}{
		"c.npy": {"c.npy needs 1.37 MiB, and 1 MiB are free in its file system", 2},
		"c.csv": {"c.csv may need up to ", 0}, // 2 to 16 bytes per element
	} {
		out := filepath.Join(small, name)
		_, stderr, code := run(t.Context(), "mul", "column.npy", "row.npy", "-o", out, "--kernel", "loop")
		if name == "c.csv" && code == 2 && strings.Contains(stderr, "no space left") {
			code = 0 // allowed after the warning
		}
		if code != c.code || !strings.Contains(stderr, c.text) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", name, code, stderr, c.code, c.text)
		}
	}
	entries, err := os.ReadDir(small)
	if err != nil || len(entries) > 1 {
		t.Errorf("remaining files: %v, %v", entries, err)
	}
}
