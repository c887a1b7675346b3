package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func init() { limitMemory = limitTo }

// limitTo limits the memory of this process: "VmSize 64" leaves it 64 MiB more of address
// space than it has, "VmData 64" that much more data.
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

// TestMemoryLimits runs products under limits of the address space and of the data from too
// small to ample: each refuses in one line with the two numbers, or succeeds, and none ends in
// the Go runtime's report of a fatal error. With less than the first limit the runtime cannot
// start its threads before the command begins.
func TestMemoryLimits(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 2000, 2000)
	matrixFile(t, "column.npy", 5000, 1)
	matrixFile(t, "row.npy", 1, 5000)
	matrixFile(t, "small.npy", 1, 200)
	step := 64
	if testing.Short() {
		step = 256
	}
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
			for mib := 256; done < 3 && mib < 4096; mib += step {
				cmd, stdout, stderr := process(args+" -o c.npy --force", fmt.Sprintf("%s=%s %d", memoryLimit, key, mib))
				if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
					t.Fatal(err)
				}
				text := stderr.String()
				switch code := cmd.ProcessState.ExitCode(); {
				case code == 0:
					done++
				case code != 2 || !strings.HasPrefix(text, "tilework: out of memory: ") || strings.Count(text, "\n") != 1 || strings.Count(text, "iB") < 1:
					t.Errorf("%s with %d MiB of %s: exit code %d, %q, %.500q", args, mib, key, code, stdout, text)
				default:
					refused++
					done = 0
				}
			}
			if refused == 0 || done == 0 {
				t.Errorf("%s, %s: refused %d times and done %d times", args, key, refused, done)
			}
		}
	}
}

// TestRAMDisk refuses a result whose file on a RAM disk would not fit the memory beside it, and
// one that does not fit its file system, before computing.
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
		"c.npy": {"c.npy takes 1.37 MiB, and 1 MiB are free in its file system", 2},
		"c.csv": {"warning: -o: at the most, ", 0}, // it has between 2 and 16 bytes an element
	} {
		out := filepath.Join(small, name)
		_, stderr, code := run(t.Context(), "mul", "column.npy", "row.npy", "-o", out, "--kernel", "loop")
		if name == "c.csv" && code == 2 && strings.Contains(stderr, "no space left") {
			code = 0 // as the warning said
		}
		if code != c.code || !strings.Contains(stderr, c.text) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", name, code, stderr, c.code, c.text)
		}
	}
	entries, err := os.ReadDir(small)
	if err != nil || len(entries) > 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
