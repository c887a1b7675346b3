//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/gemm"
	"tilework/internal/matio"
)

// The variables by which a test starts this program again as the command itself.
const (
	asCommand   = "TILEWORK_TEST_COMMAND"   // its arguments, one a line
	fileLimit   = "TILEWORK_TEST_FILE_SIZE" // if set, files may have 10,000 bytes
	memoryLimit = "TILEWORK_TEST_MEMORY"    // for limitMemory
)

// limitMemory limits the memory of this process, on systems where a test knows how.
var limitMemory = func(*testing.T, string) {}

// TestCommand is the command, in a process that [process] has started.
func TestCommand(t *testing.T) {
	args, ok := os.LookupEnv(asCommand)
	if !ok {
		t.Skip("it is run by other tests, in a process of its own")
	}
	if os.Getenv(fileLimit) != "" {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 10_000, Max: 10_000}); err != nil {
			t.Fatal(err)
		}
	}
	if limit := os.Getenv(memoryLimit); limit != "" {
		limitMemory(t, limit)
	}
	os.Args = append([]string{"tilework"}, strings.Split(args, "\n")...)
	main()
}

// process is the command in a process of its own, with more variables in its
// environment, not yet started.
func process(args string, env ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.Command(os.Args[0], "-test.run=^TestCommand$")
	cmd.Env = append(append(os.Environ(), asCommand+"="+strings.ReplaceAll(args, " ", "\n")), env...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// matrixFile writes a matrix of so many rows and columns.
func matrixFile(t *testing.T, path string, rows, cols int) {
	t.Helper()
	l := gemm.Dense(dtype.F32, rows, cols)
	data := make([]byte, l.Bytes())
	for i := range l.Len() {
		l.Type.Set(data, i, float64(i%11)/7)
	}
	if err := matio.Write(t.Context(), path, l, data, matio.WriteOptions{Replace: true}); err != nil {
		t.Fatal(err)
	}
}

// files are the names in the working directory.
func files(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// transcript is what a process has said so far.
type transcript struct {
	mu   sync.Mutex
	text []byte
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, b...)
	return len(b), nil
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// TestSignals interrupts and ends the command while it computes, tunes and writes: it says
// so in a line, its exit code is 130, the old output is whole and nothing lies beside it.
// Where a busy machine lets it write to the end first, it is tried again.
func TestSignals(t *testing.T) {
	t.Chdir(t.TempDir())
	// Where the tests themselves run under nohup the command would ignore SIGHUP, as it should.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	matrixFile(t, "a.npy", 1500, 1500)
	matrixFile(t, "row.npy", 1, 1500)
	cache := t.TempDir()
	// With --verbose it says what it is about to do.
	computing := func(said string) bool { return strings.Contains(said, "\n") }
	writing := func(string) bool {
		temporary, err := filepath.Glob(".tilework-*.tmp")
		if err != nil || len(temporary) == 0 {
			return false
		}
		info, err := os.Stat(temporary[0])
		return err == nil && info.Size() > 0
	}
	for _, test := range []struct {
		name, args string
		now        func(said string) bool
		signal     os.Signal
	}{
		{"computing", "mul a.npy a.npy -o c.csv --force --kernel loop --threads 1 --verbose", computing, syscall.SIGINT},
		{"computing, ended", "mul a.npy a.npy -o c.csv --force --kernel loop --threads 1 --verbose", computing, syscall.SIGTERM},
		{"emulating", "mul a.npy a.npy -o c.csv --force --device emu --verbose", computing, syscall.SIGINT},
		{"tuning", "tune --sizes 30,300 --time 1s --verbose", computing, syscall.SIGINT},
		{"writing", "mul column.npy row.npy -o c.csv --force", writing, syscall.SIGINT},
		{"writing, ended", "mul column.npy row.npy -o c.csv --force", writing, syscall.SIGTERM},
		{"writing, its terminal closed", "mul column.npy row.npy -o c.csv --force", writing, syscall.SIGHUP},
	} {
		code := 0
		for tries := 0; code == 0 && tries < 10; tries++ {
			// What was written before it could be interrupted is twice as long the next time.
			matrixFile(t, "column.npy", 1500<<min(tries, 5), 1)
			if err := os.WriteFile("c.csv", []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd, stdout, _ := process(test.args, "TILEWORK_CACHE="+cache)
			var said transcript
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(ended)
			}()
			for running := true; running && !test.now(said.String()); {
				select {
				case <-ended:
					running = false
				case <-time.After(100 * time.Microsecond):
				}
			}
			if err := cmd.Process.Signal(test.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			<-ended
			if code = cmd.ProcessState.ExitCode(); code == 0 {
				continue
			}
			// What tune has found by then it prints.
			if silent := !strings.HasPrefix(test.args, "tune"); code != interrupted || silent && stdout.Len() > 0 || !strings.HasSuffix("\n"+said.String(), "\ntilework: interrupted\n") {
				t.Errorf("%s: exit code %d, %q, %q", test.name, code, stdout, said.String())
			}
			if now := files(t); now != "a.npy c.csv column.npy row.npy" {
				t.Errorf("%s: left behind: %s", test.name, now)
			}
			if old, err := os.ReadFile("c.csv"); err != nil || string(old) != "old" {
				t.Errorf("%s: the old output has %d bytes, %v", test.name, len(old), err)
			}
		}
		if code == 0 {
			t.Errorf("%s: done each time before it could be interrupted", test.name)
		}
	}
	err := filepath.WalkDir(cache, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			t.Errorf("left in the cache: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSignalledBench: what an interrupted bench has appended to its file are whole
// records, and it does not wait for the end of a product that would take a minute.
func TestSignalledBench(t *testing.T) {
	t.Chdir(t.TempDir())
	cmd, _, stderr := process("bench --sizes 8,16,24,2048 --kernels loop --min-time 1ms --warmup 1ms -o r.jsonl")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile("r.jsonl"); err == nil && bytes.Count(text, []byte("\n")) >= 3 {
			break
		}
	}
	time.Sleep(500 * time.Millisecond) // it has begun to multiply
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	_ = cmd.Wait()
	if code, took := cmd.ProcessState.ExitCode(), time.Since(asked); code != interrupted || took > 20*time.Second {
		t.Errorf("exit code %d after %v, %q", code, took, stderr)
	}
	if records := readRecords(t, "r.jsonl"); len(records) < 3 {
		t.Errorf("%d records", len(records))
	}
	if now := files(t); now != "r.jsonl" {
		t.Errorf("left behind: %s", now)
	}
}

// TestEndlessPTX: what has no end, or nobody who writes it, is not waited for.
func TestEndlessPTX(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := unix.Mkfifo("pipe.ptx", 0o600); err != nil {
		t.Fatal(err)
	}
	large, err := os.Create("large.ptx")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(1<<40), large.Close()); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"pipe.ptx": "not a regular file", "/dev/zero": "not a regular file", "large.ptx": "1099511627776 bytes, want at most 67108864", ".": "is a directory",
	} {
		for _, args := range []string{"emulate " + file + " --entry k --grid 1 --block 1", "bench --device emu --kernels naive --sizes 8 --peers cuda:k:1x1/1x1 --peer-path cuda=" + file} {
			if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 2 || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit code %d, %q; want %q", args, code, stderr, want)
			}
		}
	}
}

// TestSelftestShared: several processes run the list of one, whole, and what they found is
// added up.
func TestSelftestShared(t *testing.T) {
	original := itself
	defer func() { itself = original }()
	itself = func(_ context.Context, args ...string) (*exec.Cmd, error) {
		cmd, _, _ := process(strings.Join(args, " "))
		cmd.Stdout = nil
		return cmd, nil
	}
	const list = "selftest --kernels portable,loop --cases 50 --seed 5 --format json"
	alone, stderr, code := run(t.Context(), strings.Fields(list)...)
	if code != 0 {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	for _, others := range []string{"--processes 1", "--processes 3", "--processes 60"} {
		stdout, stderr, code := run(t.Context(), strings.Fields(list+" "+others)...)
		if code != 0 || sorted(t, stdout) != sorted(t, alone) {
			t.Errorf("%s: exit code %d, %q: %s\nwant %s", others, code, stderr, stdout, alone)
		}
	}
	if _, stderr, code := run(t.Context(), "selftest", "--device", "cpu", "--processes", "2", "--kernels", "portable", "--part", "2/2", "--seed", "1", "--cases", "3"); code != 0 {
		t.Errorf("two of four parts: exit code %d, %q", code, stderr)
	}
	itself = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, os.Args[0], "-test.run=^$", "-no-such-flag"), nil
	}
	if _, stderr, code := run(t.Context(), strings.Fields(list+" --processes 2")...); code != 2 || !strings.Contains(stderr, "part 1/2: exit status 2") {
		t.Errorf("processes that fail: exit code %d, %q", code, stderr)
	}
}

// sorted are selftest's rows with the types of each in one order.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var rows []selftestRow
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, r := range rows {
		slices.SortFunc(r.ByType, func(a, b gemmtest.TypeErrors) int { return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.Out, b.Out)) })
	}
	return fmt.Sprintf("%+v", rows)
}

// TestNoRoom: where a file cannot be written to its end, the exit code is 2, a line says
// what happened, and no part of it stays.
func TestNoRoom(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 10, 10)
	matrixFile(t, "b.npy", 10, 10_000)
	before := files(t)
	for _, format := range matio.Formats() {
		cmd, stdout, stderr := process("mul a.npy b.npy -o c"+format.Ext, fileLimit+"=1")
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 2 || stdout.Len() > 0 || !strings.Contains(stderr.String(), "write c"+format.Ext) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, %q", format.Ext, code, stdout, stderr)
		}
		if now := files(t); now != before {
			t.Errorf("%s: left behind: %s", format.Ext, now)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("standard output that is full: %v", err)
	}
	defer full.Close()
	for _, args := range []string{
		"kernels", "devices --format json", "version --sbom", "mul a.npy a.npy -o c.npy",
		"bench --sizes 8 --kernels loop --min-time 1ms", "occupancy --threads 256 --gpu h200", "explain tiled",
	} {
		cmd, _, stderr := process(args)
		cmd.Stdout = full
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s with a full standard output: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestNoRoomForRecords: of records there are whole ones in the file, which a report takes
// and with which a measurement goes on.
func TestNoRoomForRecords(t *testing.T) {
	t.Chdir(t.TempDir())
	const bench = "bench --device emu --kernels naive --sizes 2..12+1 "
	cmd, _, stderr := process(bench+"-o r.jsonl", fileLimit+"=1")
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(stderr.String(), "write r.jsonl: file too large") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if n := len(readRecords(t, "r.jsonl")); n == 0 || n >= 11 {
		t.Fatalf("%d of 11 records are kept", n)
	}
	for _, args := range []string{"report r.jsonl -o r.html", bench + "--resume r.jsonl"} {
		if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 0 || stderr != "" {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
	if n := len(readRecords(t, "r.jsonl")); n != 11 {
		t.Errorf("%d records in the end, want 11", n)
	}
}

// TestCacheOutOfReach: a cache that cannot be written costs time and nothing else.
func TestCacheOutOfReach(t *testing.T) {
	t.Chdir(folder(t))
	for _, cache := range []string{"a.npy", "/proc/none", "/dev/full/x"} {
		cmd, _, stderr := process("mul a.npy b.npy -o c.npy --force", "TILEWORK_CACHE="+cache)
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v, %q", cache, err, stderr)
		}
	}
}

// TestPlantedLibraries: libraries that lie in the working directory are not loaded, even
// where the environment has the loader look there. A text in their place would be an
// error of the loader's.
func TestPlantedLibraries(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{
		"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libcublasLt.so.13", "libcublasLt.so.12", "libopenblas.so.0",
		"libopenblas.so", "libblis.so.4", "libblis.so", "libmkl_rt.so.2", "libmkl_rt.so",
	} {
		if err := os.WriteFile(name, []byte("PLANTED"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const loaders = "file too short" // what glibc says of such a file
	for _, path := range []string{"", ".", ":/usr/lib", here} {
		for _, args := range []string{"devices", "bench --sizes 8 --kernels loop --min-time 1ms --peers openblas", "bench --sizes 8 --kernels loop --min-time 1ms --peers mkl"} {
			cmd, stdout, stderr := process(args, "LD_LIBRARY_PATH="+path)
			if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			found := strings.Contains(stdout.String()+stderr.String(), loaders)
			if asked := path == here; found && !asked {
				t.Errorf("%s with LD_LIBRARY_PATH=%q: %q, %q", args, path, stdout, stderr)
			}
		}
	}
}
