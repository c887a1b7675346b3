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

// Environment variables for a test binary that [process] starts as the command.
const (
	asCommand   = "TILEWORK_TEST_COMMAND"   // the arguments of the command, one per line
	fileLimit   = "TILEWORK_TEST_FILE_SIZE" // if set, limits files to 10,000 bytes
	memoryLimit = "TILEWORK_TEST_MEMORY"    // the argument of limitMemory
	mapsFiles   = "TILEWORK_TEST_MAP"       // if set, files of any size are mapped
	asPart      = "TILEWORK_TEST_PART"      // the output of [TestPart]
	asVersion   = "TILEWORK_TEST_VERSION"   // if set, the version that ranks compare
)

// mapFiles makes mul map files of any size during a test.
func mapFiles(t *testing.T) {
	before := mapFrom
	mapFrom = 1
	t.Cleanup(func() { mapFrom = before })
}

// limitMemory limits the memory of this process on Linux, and does nothing elsewhere.
var limitMemory = func(*testing.T, string) {}

// TestCommand runs the command in a process that [process] started.
func TestCommand(t *testing.T) {
	args, ok := os.LookupEnv(asCommand)
	if !ok {
		t.Skip("other tests run it in a separate process")
	}
	if os.Getenv(fileLimit) != "" {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 10_000, Max: 10_000}); err != nil {
			t.Fatal(err)
		}
	}
	if limit := os.Getenv(memoryLimit); limit != "" {
		limitMemory(t, limit)
	}
	if os.Getenv(mapsFiles) != "" {
		mapFrom = 1
	}
	if version := os.Getenv(asVersion); version != "" {
		rankVersion = version
	}
	os.Args = append([]string{"tilework"}, strings.Split(args, "\n")...)
	main()
}

// process returns the command as a separate process that is not yet started, with additional
// environment variables.
func process(args string, env ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.Command(os.Args[0], "-test.run=^TestCommand$")
	cmd.Env = append(append(os.Environ(), asCommand+"="+strings.ReplaceAll(args, " ", "\n")), env...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// matrixFile writes a float32 matrix.
func matrixFile(t *testing.T, path string, rows, cols int) {
	t.Helper()
	l := gemm.Dense(dtype.F32, rows, cols)
	data := make([]byte, l.Bytes())
	for i := range l.Len() {
		l.Type.Set(data, i, float64(i%11)/7)
	}
	if err := matio.Write(t.Context(), path, l, data, true); err != nil {
		t.Fatal(err)
	}
}

// files returns the names of the files in the working directory.
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

// lockedBuffer collects the output of a process and can be read while the process runs.
type lockedBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (s *lockedBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, b...)
	return len(b), nil
}

func (s *lockedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// TestSignals sends signals to the command while it computes, tunes and writes. The command must
// print one line and exit with code 130. The old output must be unchanged, and no temporary file
// may remain. If the command succeeds before the signal arrives, the test tries again.
func TestSignals(t *testing.T) {
	t.Chdir(t.TempDir())
	// If the tests run under nohup, the command inherits an ignored SIGHUP. Catching it here
	// changes that.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	matrixFile(t, "a.npy", 1500, 1500)
	matrixFile(t, "row.npy", 1, 1500)
	cache := t.TempDir()
	// With --verbose the command prints a line before it starts to compute.
	computing := func(stderr string) bool { return strings.Contains(stderr, "\n") }
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
		now        func(stderr string) bool // reports whether to send the signal
		signal     os.Signal
	}{
		{"computing", "mul a.npy a.npy -o c.csv --force --kernel loop --threads 1 --verbose", computing, syscall.SIGINT},
		{"computing, SIGTERM", "mul a.npy a.npy -o c.csv --force --kernel loop --threads 1 --verbose", computing,
			syscall.SIGTERM},
		{"emulating", "mul a.npy a.npy -o c.csv --force --device emu --verbose", computing, syscall.SIGINT},
		{"tuning", "tune --sizes 30,300 --time 1s --verbose", computing, syscall.SIGINT},
		{"writing", "mul column.npy row.npy -o c.csv --force", writing, syscall.SIGINT},
		{"writing, SIGTERM", "mul column.npy row.npy -o c.csv --force", writing, syscall.SIGTERM},
		{"writing, SIGHUP", "mul column.npy row.npy -o c.csv --force", writing, syscall.SIGHUP},
	} {
		code := 0
		for tries := 0; code == 0 && tries < 10; tries++ {
			// If the command finished before the signal, double the size of the output.
			matrixFile(t, "column.npy", 1500<<min(tries, 5), 1)
			if err := os.WriteFile("c.csv", []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd, stdout, _ := process(test.args, "TILEWORK_CACHE="+cache)
			var stderr lockedBuffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(ended)
			}()
			for running := true; running && !test.now(stderr.String()); {
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
			// Only tune prints results after an interruption: those that it has so far.
			if silent := !strings.HasPrefix(test.args, "tune"); code != exitInterrupted || silent && stdout.Len() > 0 ||
				!strings.HasSuffix("\n"+stderr.String(), "\ntilework: interrupted\n") {
				t.Errorf("%s: exit code %d, %q, %q", test.name, code, stdout, stderr.String())
			}
			if now := files(t); now != "a.npy c.csv column.npy row.npy" {
				t.Errorf("%s: files in the folder: %s", test.name, now)
			}
			if old, err := os.ReadFile("c.csv"); err != nil || string(old) != "old" {
				t.Errorf("%s: the old output has %d bytes, %v", test.name, len(old), err)
			}
		}
		if code == 0 {
			t.Errorf("%s: the command always succeeded before the signal", test.name)
		}
	}
	err := filepath.WalkDir(cache, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			t.Errorf("temporary file in the cache: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSignalledBench checks that an interrupted bench leaves complete records in its file, and does
// not wait for a product that takes a minute.
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
	time.Sleep(500 * time.Millisecond) // until the large product runs
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	signalled := time.Now()
	_ = cmd.Wait()
	if code, took := cmd.ProcessState.ExitCode(), time.Since(signalled); code != exitInterrupted || took > 20*time.Second {
		t.Errorf("exit code %d after %v, %q", code, took, stderr)
	}
	if records := readRecords(t, "r.jsonl"); len(records) < 3 {
		t.Errorf("%d records, want at least 3", len(records))
	}
	if now := files(t); now != "r.jsonl" {
		t.Errorf("files in the folder: %s", now)
	}
}

// TestPipeInterrupted interrupts the command while it reads a matrix from a pipe whose writer is
// silent.
func TestPipeInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := unix.Mkfifo("pipe.csv", 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, stdout, stderr := process("mul pipe.csv pipe.csv -o c.npy")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile("pipe.csv", os.O_WRONLY, 0) // waits for the command
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	_, err = pipe.WriteString("1,2\n")
	if err := errors.Join(err, cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || stderr.String() != "tilework: interrupted\n" ||
		files(t) != "pipe.csv" {
		t.Errorf("exit code %d, %q, %q, files %s", code, stdout, stderr, files(t))
	}
}

// TestEndlessPTX checks that PTX files that are pipes, devices or huge are refused at once.
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
		"pipe.ptx": "not a regular file", "/dev/zero": "not a regular file",
		"large.ptx": "1099511627776 bytes, want at most 67108864", ".": "is a directory",
	} {
		for _, args := range []string{"emulate " + file + " --entry k --grid 1 --block 1",
			"bench --device emu --kernels naive --sizes 8 --peers cuda:k:1x1/1x1 --peer-path cuda=" + file} {
			if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 2 || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit code %d, %q; want %q", args, code, stderr, want)
			}
		}
	}
}

// TestSelftestProcesses checks that several processes together run the same cases as one, and that
// their results are added up.
func TestSelftestProcesses(t *testing.T) {
	original := selfCommand
	defer func() { selfCommand = original }()
	selfCommand = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		self, _, _ := process(strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, self.Path, self.Args[1:]...)
		cmd.Env = self.Env
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
	if _, stderr, code := run(t.Context(), "selftest", "--device", "cpu", "--processes", "2", "--kernels", "portable",
		"--part", "2/2", "--seed", "1", "--cases", "3"); code != 0 {
		t.Errorf("two of four parts: exit code %d, %q", code, stderr)
	}
	selfCommand = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, os.Args[0], "-test.run=^$", "-no-such-flag"), nil
	}
	if _, stderr, code := run(t.Context(), strings.Fields(list+" --processes 2")...); code != 2 ||
		!strings.Contains(stderr, "part 1/2: exit status 2") {
		t.Errorf("failing processes: exit code %d, %q", code, stderr)
	}
}

// TestPart is a part of selftest that prints a result when SIGTERM ends it.
func TestPart(t *testing.T) {
	row, ok := os.LookupEnv(asPart)
	if !ok {
		t.Skip("TestSelftestProcessesInterrupted runs it in separate processes")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	if unix.Getpgrp() != os.Getpid() {
		t.Fatal("an interruption from the terminal would reach the process too")
	}
	if err := os.WriteFile(fmt.Sprintf("%d.started", os.Getpid()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	fmt.Print(row)
	os.Exit(exitInterrupted)
}

// TestSelftestProcessesInterrupted checks that an interruption ends all processes, and that their
// results so far are added up. The processes are in different checks.
func TestSelftestProcessesInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	original := selfCommand
	defer func() { selfCommand = original }()
	const (
		exact = `{"kernel": "loop", "check": "exact", "cases": 7}`
		bound = `{"kernel": "loop", "check": "bound", "cases": 5}`
	)
	parts := map[string]string{"1/3": "[" + exact + "]", "2/3": "[" + exact + "," + bound + "]", "3/3": ""}
	selfCommand = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPart$")
		cmd.Env = append(os.Environ(), asPart+"="+parts[args[slices.Index(args, "--part")+1]])
		return cmd, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for started := []string(nil); len(started) < len(parts) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			started, _ = filepath.Glob("*.started")
		}
		cancel()
	}()
	stdout, stderr, code := run(ctx, "selftest", "--kernels", "loop", "--processes", "3", "--format", "csv")
	if code != exitInterrupted || !strings.Contains(stdout, "\nloop,exact,14,") ||
		!strings.Contains(stdout, "\nloop,bound,5,") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	cancel()
}

// sorted formats the rows of selftest in JSON with the types of each row sorted.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var rows []selftestRow
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, r := range rows {
		slices.SortFunc(r.ByType, func(a, b gemmtest.TypeErrors) int {
			return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.Out, b.Out))
		})
	}
	return fmt.Sprintf("%+v", rows)
}

// TestDiskFull checks that a failed write leads to exit code 2 and an error of one line, and leaves
// no partial file.
func TestDiskFull(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 10, 10)
	matrixFile(t, "b.npy", 10, 10_000)
	before := files(t)
	for _, format := range matio.Formats() {
		cmd, stdout, stderr := process("mul a.npy b.npy -o c"+format.Ext, fileLimit+"=1")
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 2 || stdout.Len() > 0 ||
			!strings.Contains(stderr.String(), "write c"+format.Ext) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, %q", format.Ext, code, stdout, stderr)
		}
		if now := files(t); now != before {
			t.Errorf("%s: files in the folder: %s", format.Ext, now)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
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

// TestDiskFullForRecords checks that a failed write leaves complete records in the file, which
// report reads and --resume continues.
func TestDiskFullForRecords(t *testing.T) {
	t.Chdir(t.TempDir())
	const bench = "bench --device emu --kernels naive --sizes 2..22+1 "
	cmd, _, stderr := process(bench+"-o r.jsonl", fileLimit+"=1")
	_ = cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code != 2 || !strings.Contains(stderr.String(), "write r.jsonl: file too large") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if n := len(readRecords(t, "r.jsonl")); n == 0 || n >= 21 {
		t.Fatalf("%d of 21 records in the file, want some", n)
	}
	for _, args := range []string{"report r.jsonl -o r.html", bench + "--resume r.jsonl"} {
		if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 0 || stderr != "" {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
	if n := len(readRecords(t, "r.jsonl")); n != 21 {
		t.Errorf("%d records in the end, want 21", n)
	}
}

// TestUnwritableCache checks that mul succeeds without a writable cache.
func TestUnwritableCache(t *testing.T) {
	t.Chdir(folder(t))
	for _, cache := range []string{"a.npy", "/proc/none", "/dev/full/x"} {
		cmd, _, stderr := process("mul a.npy b.npy -o c.npy --force", "TILEWORK_CACHE="+cache)
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v, %q", cache, err, stderr)
		}
	}
}

// TestWrongCPUVariable checks that the lists report a wrong TILEWORK_CPU, as a product does.
func TestWrongCPUVariable(t *testing.T) {
	for _, args := range []string{"kernels", "devices"} {
		cmd, stdout, stderr := process(args, "TILEWORK_CPU=foo")
		err := cmd.Run()
		const want = `tilework: TILEWORK_CPU: not supported: unknown CPU kernel "foo"`
		if cmd.ProcessState.ExitCode() != 2 || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("%s: error %v, %q, %q; want %q", args, err, stdout, stderr, want)
		}
	}
}

// TestEscapedText runs commands on files with control characters in names, scripts, messages and
// the output of a kernel. None may reach the terminal.
func TestEscapedText(t *testing.T) {
	t.Chdir(t.TempDir())
	const header = ".version 8.0\n.target sm_80\n.address_size 64\n"
	const evil = "\x1b]0;evil\x07"
	for name, text := range map[string]string{
		"print.ptx": header + `.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .b8 text[] = {27, 93, 48, 59, 101, 118, 105, 108, 7, 0};
.entry k() { .reg .b64 %f; .reg .b32 %r; mov.u64 %f, text; call (%r), vprintf, (%f, %f); ret; }`,
		"file.ptx": header + ".file 1 \"" + evil + "\"\n.entry k() { .reg .b64 %r; mov.u64 %r, 0;\n.loc 1 2 3\n" +
			"st.global.b64 [%r], %r; ret; }",
		"bad.ptx":      header + ".pragma \"" + evil + "\"; .entry " + evil,
		"memory.json":  `{"memory": {"\u001b]0;evil\u0007": "scratch:f32"}, "launches": [{}]}`,
		"args.json":    `{"launches": [{"entry": "k", "args": ["\u001b]0;evil\u0007"]}]}`,
		"entry.json":   `{"launches": [{"entry": "\u001b]0;evil\u0007"}]}`,
		"unknown.json": `{"\u001b]0;evil\u0007": 1}`,
		evil + ".ptx":  header,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, code := range map[string]int{
		"emulate print.ptx": 0, "emulate file.ptx": 1, "emulate bad.ptx": 2, "emulate " + evil + ".ptx": 2,
		"emulate print.ptx --script memory.json": 2, "emulate print.ptx --script args.json": 2,
		"emulate print.ptx --script entry.json": 2, "emulate print.ptx --script unknown.json": 2,
		"mul " + evil + " b.npy -o c.npy": 2, "emulate " + evil: 2,
	} {
		command, stdout, stderr := process(args)
		err := command.Run()
		if got := command.ProcessState.ExitCode(); got != code {
			t.Errorf("%q: exit code %d, %v; want %d", args, got, err, code)
		}
		for _, text := range []string{stdout.String(), stderr.String()} {
			if strings.ContainsAny(text, "\x1b\x07") {
				t.Errorf("%q: %q has control characters", args, text)
			}
		}
		if all := stdout.String() + stderr.String(); !strings.Contains(all, "1b") {
			t.Errorf("%q: %q does not show the escaped characters", args, all)
		}
	}
}

// TestEndlessScript checks that scripts that are pipes, devices or huge are refused at once.
func TestEndlessScript(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := unix.Mkfifo("pipe.json", 0o600); err != nil {
		t.Fatal(err)
	}
	const text = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }"
	for name, text := range map[string]string{"k.ptx": text, "large.json": strings.Repeat(" ", maxScript+1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"pipe.json": "pipe.json: not a regular file", "/dev/zero": "/dev/zero: not a regular file",
		"large.json": "more than 1048576 bytes", ".": "is a directory", "none.json": "none.json: no such file",
	} {
		_, stderr, code := run(t.Context(), "emulate", "k.ptx", "--script", file)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q; want %q", file, code, stderr, want)
		}
	}
}
