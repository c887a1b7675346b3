//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/matio"
	"tilework/internal/testkit"
)

// startAsProcess makes commands start this test binary as the command.
func startAsProcess(t *testing.T, env ...string) {
	original := selfCommand
	selfCommand = func(_ context.Context, args ...string) (*exec.Cmd, error) {
		cmd, _, _ := process(strings.Join(args, " "), env...)
		return cmd, nil
	}
	t.Cleanup(func() { selfCommand = original })
}

func init() { asProcesses = func(t *testing.T) { startAsProcess(t) } }

// randomFile writes a matrix of numbers with rounding errors in their products.
func randomFile(t *testing.T, path string, typ dtype.Type, rows, cols int) {
	t.Helper()
	l := gemm.Dense(typ, rows, cols)
	data := make([]byte, l.Bytes())
	for i := range l.Len() {
		x := float64(i*i%1013)/300 - 1.5
		if typ.Info().Integer {
			x = float64(i * i % 13)
		}
		l.Type.Set(data, i, x)
	}
	if err := matio.Write(t.Context(), path, l, data, true); err != nil {
		t.Fatal(err)
	}
}

// TestRanks multiplies files with two and four processes, with all types, operands and formats. The
// result must have the bytes of that of one process.
func TestRanks(t *testing.T) {
	t.Chdir(t.TempDir())
	startAsProcess(t, mapsFiles+"=1")
	mapFiles(t)
	for name, typ := range map[string]dtype.Type{"f32": dtype.F32, "f64": dtype.F64, "i8": dtype.I8} {
		randomFile(t, "a-"+name+".npy", typ, 300, 130)
		randomFile(t, "b-"+name+".npy", typ, 130, 200)
	}
	randomFile(t, "a.safetensors", dtype.BF16, 300, 130)
	randomFile(t, "b.safetensors", dtype.BF16, 130, 200)
	randomFile(t, "c0.npy", dtype.F32, 300, 200)
	randomFile(t, "bias.csv", dtype.F32, 300, 1)
	randomFile(t, "tiny.npy", dtype.F32, 3, 3)
	randomFile(t, "none.npy", dtype.F32, 0, 130)
	for _, test := range []struct {
		args, out string
		ranks     int
	}{
		{"a-f32.npy b-f32.npy --verify", "c.npy", 2},
		{"a-f32.npy b-f32.npy --verify", "c.npy", 4},
		{"a-f64.npy b-f64.npy --kernel portable", "c.safetensors", 2},
		{"a.safetensors b.safetensors", "w.safetensors::w", 4},
		{"a-i8.npy b-i8.npy", "c.npy", 4},
		{"b-f32.npy a-f32.npy --transpose-a --transpose-b --row-invariant --device cpu", "c.npy", 3},
		{"a-f32.npy b-f32.npy --alpha 2 --beta 0.5 --c c0.npy --bias bias.csv --bias-along rows --residual c0.npy " +
			"--activation gelu --verify", "c.npy", 2},
		{"a-f32.npy b-f32.npy --dtype bfloat16 --activation silu --up b-f32.npy --out-dtype float32", "c.npy", 4},
		{"tiny.npy tiny.npy", "c.npy", 4}, // one share
		{"none.npy b-f32.npy", "c.npy", 2},
		{"a-f32.npy b-f32.npy --device emu --gpu-memory 100KB", "c.npy", 2},
		{"a-f32.npy b-f32.npy --device emu --precision f32x3 --verify", "c.npy", 3},
		{"a-i8.npy b-i8.npy --device emu --out-dtype float32 --activation relu", "c.safetensors", 2},
	} {
		device := ""
		if !strings.Contains(test.args, "--device") {
			device = " --device cpu"
		}
		mul := func(more string) (stdout string, content []byte) {
			t.Helper()
			line := "mul " + test.args + " --force -o " + test.out + more
			stdout, stderr, code := run(t.Context(), strings.Fields(line)...)
			if code != 0 {
				t.Fatalf("%s: exit code %d, %s", line, code, stderr)
			}
			path, _, _ := strings.Cut(test.out, "::")
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return stdout, content
		}
		_, want := mul(device)
		stdout, got := mul(fmt.Sprintf("%s --ranks %d", device, test.ranks))
		if !bytes.Equal(got, want) {
			t.Errorf("%s in %d ranks: other bytes than in one process", test.args, test.ranks)
		}
		if !strings.Contains(stdout, fmt.Sprintf(", %d ranks) → ", test.ranks)) ||
			strings.Contains(stdout, "verified") != strings.Contains(test.args, "--verify") {
			t.Errorf("%s in %d ranks: printed %s", test.args, test.ranks, stdout)
		}
	}
	if left := files(t); strings.Contains(left, ".tmp") {
		t.Errorf("remaining files: %s", left)
	}
}

// rank is a process of the command.
type rank struct {
	*exec.Cmd
	stderr *lockedBuffer
}

// freePort returns a port of the loopback interface at which nothing listens. It is none of those
// that systems give to connections and listeners without a port, which could take it before rank 0.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("found no free port")
	return ""
}

// startAll starts ranks 0, 1, … with their arguments, except for those with "-". The last one has
// additional environment variables.
func startAll(t *testing.T, args []string, env ...string) []rank {
	t.Helper()
	port := freePort(t)
	all := make([]rank, len(args))
	for r, text := range args {
		if text == "-" {
			continue
		}
		with := []string{"TILEWORK_SECRET=sixteen-bytes-or-more"}
		if r == len(args)-1 {
			with = append(with, env...)
		}
		place := fmt.Sprintf(" --ranks %d --rank %d --address 127.0.0.1:%s", len(args), r, port)
		all[r] = start(t, "mul "+text+place, with...)
	}
	return all
}

// start starts a process.
func start(t *testing.T, line string, env ...string) rank {
	t.Helper()
	cmd, _, _ := process(line, env...)
	r := rank{cmd, new(lockedBuffer)}
	cmd.Stderr = r.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // unless it has ended
	return r
}

// end waits for the end of a rank and returns its exit code and last line.
func (r *rank) end() (code int, last string) {
	_ = r.Wait()
	lines := strings.Split(strings.TrimSpace(r.stderr.String()), "\n")
	return r.ProcessState.ExitCode(), lines[len(lines)-1]
}

// computing waits until all ranks compute.
func computing(t *testing.T, all []rank) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		n := 0
		for _, r := range all {
			if strings.Contains(r.stderr.String(), "kernel loop") {
				n++
			}
		}
		if n == len(all) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d ranks compute after 20 s", n, len(all))
		}
	}
}

// TestRanksFail makes ranks fail in all ways before and after they compute. All others must end in
// time with exit code 1 and a message that names the rank or the difference, and no file may
// appear.
func TestRanksFail(t *testing.T) {
	t.Chdir(t.TempDir())
	randomFile(t, "a.npy", dtype.F32, 256, 64)
	randomFile(t, "b.npy", dtype.F32, 64, 64)
	randomFile(t, "taller.npy", dtype.F32, 257, 64)
	randomFile(t, "other.npy", dtype.F32, 64, 256)
	byColumns(t, "swapped.npy", 256, 64, func(i, j int) float64 { return float64(i) })
	if err := os.Rename("other.npy", "source.npy"); err != nil {
		t.Fatal(err)
	}
	matrixFile(t, "other.npy", 256, 64)
	before := files(t)
	const mul = "a.npy b.npy -o c.npy --device cpu"
	at := func(out string) string { return strings.Replace(mul, "c.npy", out, 1) }
	type end struct {
		code int
		text string // part of the last line
	}
	for _, test := range []struct {
		name string
		args []string
		env  []string // additional variables of the last rank
		want []end
	}{
		{"secret", []string{mul + " --rank-timeout 2s", mul}, []string{"TILEWORK_SECRET=another-secret-like-it"},
			[]end{{1, "rank 1 of 2 did not join within 2s; a connection from 127.0.0.1"}, {1, "wrong secret"}}},
		{"version", []string{mul, mul, mul}, []string{asVersion + "=9.9.9"}, []end{
			{1, "ranks disagree: rank 0 has tilework 0."}, {1, "rank 2 has tilework 9.9.9"}, {1, "rank 2 has tilework 9.9.9"}}},
		{"shape", []string{mul, strings.Replace(mul, "a.npy", "taller.npy", 1)}, nil,
			[]end{{1, "rank 0 has 256×64 · 64×64 float32; rank 1 has 257×64"}, {1, "on the product: rank 0 has 256×64"}}},
		{"contents", []string{mul, strings.Replace(mul, "a.npy", "other.npy", 1), mul}, nil,
			[]end{{1, "on A: ranks 0 and 2 have 256×64 float32"}, {1, "rank 1 has 256×64 float32"}, {1, "ranks disagree on A"}}},
		{"flags", []string{mul, mul + " --alpha 2"}, nil, []end{{1, "rank 0 has 1, 0"}, {1, "rank 1 has 2, 0"}}},
		{"epilogue", []string{mul, mul + " --activation relu"}, nil, []end{{1, "the epilogue"}, {1, "the epilogue"}}},
		{"kernel", []string{mul, mul + " --kernel portable"}, nil,
			[]end{{1, "on --kernel: rank 0 has none; rank 1 has portable"}, {1, "on --kernel"}}},
		{"device", []string{mul, strings.Replace(mul, "cpu", "emu", 1)}, nil,
			[]end{{1, "on the kind of the device: rank 0 has cpu; rank 1 has emu"}, {1, "rank 1 has emu"}}},
		{"output file", []string{mul, at("d.npy")}, nil,
			[]end{{1, "on the name of the output file (-o): rank 0 has c.npy; rank 1 has d.npy"}, {1, "rank 1 has d.npy"}}},
		{"unreachable", []string{"-", mul + " --rank-timeout 300ms"}, nil,
			[]end{{}, {1, "rank 0 did not answer at 127.0.0.1"}}},
		{"absent", []string{mul + " --rank-timeout 2s", "-", mul}, nil,
			[]end{{1, "rank 1 of 3 did not join within 2s"}, {}, {1, "rank 1 of 3 did not join within 2s"}}},
		{"no input", []string{mul, strings.Replace(mul, "a.npy", "missing.npy", 1)}, nil,
			[]end{{1, "rank 1 failed: missing.npy: no such file"}, {2, "tilework: missing.npy: no such file"}}},
		{"no folder", []string{at("no/c.npy"), at("no/c.npy")}, nil,
			[]end{{2, "-o: folder no: no such file"}, {1, "rank 0 failed: -o: folder no: no such file"}}},
		{"existing file", []string{at("b.npy"), at("b.npy")}, nil,
			[]end{{2, "-o: b.npy: file already exists"}, {1, "rank 0 failed: -o: b.npy: file already exists"}}},
		{"other folder", []string{mul, at("/tmp/c.npy")}, nil,
			[]end{{1, "rank 1 failed: -o: /tmp/c.npy"}, {2, "want a shared file system"}}},
		{"read-only folder", []string{at("/proc/c.npy"), at("/proc/c.npy")}, nil,
			[]end{{2, "create a file in /proc"}, {1, "rank 0 failed: -o: create a file in /proc"}}},
		{"disk full", []string{mul, mul}, []string{fileLimit + "=1"},
			[]end{{1, "rank 1 failed: write c.npy: file too large"}, {2, "write c.npy: file too large"}}},
	} {
		all := startAll(t, test.args, test.env...)
		for r, want := range test.want {
			if all[r].Cmd == nil {
				continue
			}
			if code, text := all[r].end(); code != want.code || !strings.Contains(text, want.text) ||
				!strings.HasPrefix(text, "tilework: ") {
				t.Errorf("%s: rank %d: exit code %d, %s; want %d, %s", test.name, r, code, text, want.code, want.text)
			}
		}
		if now := files(t); now != before {
			t.Errorf("%s: files in the folder: %s", test.name, now)
		}
	}
	if left, err := filepath.Glob("/tmp/.tilework-*.tmp"); err != nil || len(left) > 0 {
		t.Errorf("temporary files in /tmp: %v, %v", left, err)
	}
}

// TestRanksKilled kills, stops and interrupts ranks while all compute.
func TestRanksKilled(t *testing.T) {
	t.Chdir(t.TempDir())
	randomFile(t, "a.npy", dtype.F32, 1200, 1200)
	before := files(t)
	const mul = "a.npy a.npy -o c.npy --kernel loop --device cpu --verbose --rank-timeout "
	for _, test := range []struct {
		name    string
		rank    int
		signal  syscall.Signal
		timeout string
		code    int // of the other ranks
		want    string
	}{
		{"killed", 1, syscall.SIGKILL, "60s", 1, "tilework: rank 1: connection lost"},
		{"killed", 0, syscall.SIGKILL, "60s", 1, "tilework: rank 0: connection lost"},
		{"stopped", 2, syscall.SIGSTOP, "3s", 1, "tilework: rank 2: no sign of life for 3s"},
		{"interrupted", 1, syscall.SIGINT, "60s", exitInterrupted, "tilework: interrupted"},
		{"terminated", 0, syscall.SIGTERM, "60s", exitInterrupted, "tilework: interrupted"},
	} {
		all := startAll(t, slices.Repeat([]string{mul + test.timeout}, 3))
		computing(t, all)
		if err := all[test.rank].Process.Signal(test.signal); err != nil {
			t.Fatal(err)
		}
		for r := range all {
			if r == test.rank {
				continue
			}
			if code, text := all[r].end(); code != test.code || !strings.HasPrefix(text, test.want) {
				t.Errorf("rank %d %s: rank %d: exit code %d, %s; want %d, %s", test.rank, test.name, r, code, text, test.code,
					test.want)
			}
		}
		_ = all[test.rank].Process.Kill() // it may be stopped
		if code, text := all[test.rank].end(); test.code == exitInterrupted && code != exitInterrupted {
			t.Errorf("rank %d %s: exit code %d, %s", test.rank, test.name, code, text)
		}
		if now := files(t); now != before {
			t.Errorf("rank %d %s: files in the folder: %s", test.rank, test.name, now)
		}
	}
}

// TestRanksSlow stops a rank for less than the timeout. The product must succeed.
func TestRanksSlow(t *testing.T) {
	t.Chdir(t.TempDir())
	randomFile(t, "a.npy", dtype.F32, 640, 640)
	const mul = "a.npy a.npy -o c.npy --kernel loop --device cpu --rank-timeout 60s --verbose"
	all := startAll(t, []string{mul, mul})
	computing(t, all)
	if err := all[1].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := all[1].Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for r := range all {
		if code, text := all[r].end(); code != 0 {
			t.Errorf("rank %d: exit code %d, %s", r, code, text)
		}
	}
	if now := files(t); now != "a.npy c.npy" {
		t.Errorf("files in the folder: %s", now)
	}
}

// TestRanksStarted kills a process that mul has started, and interrupts mul. No process may remain.
func TestRanksStarted(t *testing.T) {
	t.Chdir(t.TempDir())
	randomFile(t, "a.npy", dtype.F32, 1200, 1200)
	const mul = "mul a.npy a.npy -o c.npy --kernel loop --device cpu --ranks 3 --verbose"
	var started []*exec.Cmd
	startAsProcess(t)
	original := selfCommand
	selfCommand = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
		cmd, err := original(ctx, args...)
		started = append(started, cmd)
		return cmd, err
	}
	for _, test := range []struct {
		name string
		end  func(cancel context.CancelFunc) error
		code int
		want string
	}{
		{"killed", func(context.CancelFunc) error { return started[1].Process.Kill() }, 1, "rank 2: connection lost"},
		{"interrupted", func(cancel context.CancelFunc) error { cancel(); return nil }, exitInterrupted, "canceled"},
		{"started late", nil, 1, " ended (exit status 2): flag provided but not defined"},
	} {
		started = nil
		ctx, cancel := context.WithCancel(t.Context())
		var stderr lockedBuffer
		var ended sync.WaitGroup
		if test.end == nil { // a process that does not become a rank
			before := selfCommand
			selfCommand = func(ctx context.Context, args ...string) (*exec.Cmd, error) {
				cmd := exec.Command(os.Args[0], "-test.no-such-flag")
				started = append(started, cmd)
				return cmd, nil
			}
			defer func() { selfCommand = before }()
		} else {
			ended.Go(func() {
				for ctx.Err() == nil && strings.Count(stderr.String(), "kernel loop") < 3 { // not all compute
					time.Sleep(time.Millisecond)
				}
				if err := test.end(cancel); err != nil {
					t.Error(err)
				}
			})
		}
		stdout, code := runTo(ctx, &stderr, strings.Fields(mul)...)
		cancel()
		ended.Wait()
		if code != test.code || stdout != "" || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: exit code %d, %q, %q; want %d, %s", test.name, code, stdout, stderr.String(), test.code, test.want)
		}
		for i, cmd := range started {
			if cmd.ProcessState == nil {
				t.Errorf("%s: rank %d was not waited for", test.name, i+1)
			}
		}
		if now := files(t); now != "a.npy" {
			t.Errorf("%s: files in the folder: %s", test.name, now)
		}
	}
}

// TestRanksEmpty multiplies a matrix without rows, which takes no time on any rank.
func TestRanksEmpty(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 0, 5)
	randomFile(t, "b.npy", dtype.F32, 5, 7)
	startAsProcess(t)
	const mul = "mul a.npy b.npy -o c.npy --device cpu --ranks 2 --format json"
	stdout, stderr, code := run(t.Context(), strings.Fields(mul)...)
	var result mulResult
	if err := json.Unmarshal([]byte(stdout), &result); err != nil || code != 0 || result.Ranks != 2 ||
		result.GFLOPS != 0 || stderr != "" {
		t.Errorf("exit code %d, result %+v, error %v, %s", code, result, err, stderr)
	}
}

// TestRanksByLauncher starts ranks with the variables of launchers. Without a secret, rank 0 warns.
func TestRanksByLauncher(t *testing.T) {
	t.Chdir(t.TempDir())
	randomFile(t, "a.npy", dtype.F64, 200, 100)
	for name, env := range map[string]func(r int, port string) []string{
		"torchrun": func(r int, port string) []string {
			return []string{fmt.Sprint("RANK=", r), "WORLD_SIZE=2", fmt.Sprint("LOCAL_RANK=", r), "MASTER_ADDR=127.0.0.1",
				"MASTER_PORT=" + port}
		},
		"Slurm": func(r int, port string) []string {
			return []string{fmt.Sprint("SLURM_PROCID=", r), "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=here",
				fmt.Sprintf("SLURM_JOB_ID=%d", os.Getpid())}
		},
		"Kubernetes": func(r int, port string) []string {
			return []string{fmt.Sprint("JOB_COMPLETION_INDEX=", r), "TILEWORK_RANKS=2", "TILEWORK_ADDRESS=localhost:" + port,
				"TILEWORK_SECRET=sixteen-bytes-or-more"}
		},
	} {
		port := freePort(t)
		all := make([]rank, 2)
		for r := range all {
			all[r] = start(t, "mul a.npy a.npy --transpose-b -o c.npy --force --device cpu --ranks env", env(r, port)...)
		}
		for r := range all {
			if code, text := all[r].end(); code != 0 {
				t.Errorf("%s: rank %d: exit code %d, %s", name, r, code, text)
			}
			warns := strings.Contains(all[r].stderr.String(), "warning: every user of this machine can join the ranks")
			if want := r == 0 && name != "Kubernetes"; warns != want { // with a secret there
				t.Errorf("%s: rank %d: warns %v, want %v", name, r, warns, want)
			}
		}
	}
}

// TestRanksFlags checks the errors for flags that contradict each other, and for files and devices
// that several processes cannot use.
func TestRanksFlags(t *testing.T) {
	t.Chdir(folder(t))
	if err := unix.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("weak", []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const mul = "mul a.npy b.npy -o c.npy "
	for args, want := range map[string]string{
		mul + "--ranks 0":                                           "--ranks 0: want a number from 1 to 65536, or env",
		mul + "--ranks many":                                        "--ranks many: want a number from 1 to 65536, or env",
		mul + "--ranks 5000":                                        "--ranks 5000: want at most 1024 processes",
		mul + "--rank 1":                                            "want --ranks N or --ranks env too",
		mul + "--address h:1":                                       "want --ranks N or --ranks env too",
		mul + "--ranks env --rank 1":                                "--rank 1 with --ranks env: want only one of them",
		mul + "--ranks 2 --rank 2 --address h:1":                    "--rank 2 with --ranks 2: want a lower rank",
		mul + "--ranks 2 --rank x":                                  "--rank x: want a number",
		mul + "--ranks 2 --address h:1":                             "want the number of this process too",
		mul + "--ranks 2 --rank 1":                                  "rank 1 of 2 has no address",
		mul + "--ranks 2 --rank 1 --address h:1":                    "address h:1 without a secret",
		mul + "--ranks env":                                         "no variable of a launcher is set",
		mul + "--ranks 2 --rank-timeout 1ms":                        "a timeout of 1ms: want at least 100ms",
		mul + "--ranks 2 --device gpu:0,1":                          "want one GPU for each rank",
		"mul - b.npy -o c.npy --ranks 2":                            "A is standard input (-) or a pipe, with --ranks",
		"mul a.npy pipe -o c.npy --ranks 2":                         "B is standard input (-) or a pipe, with --ranks",
		"mul a.npy b.npy -o - --ranks 2":                            "want a file of .npy or .safetensors",
		"mul a.npy b.npy -o c.csv --ranks 2":                        "want a file of .npy or .safetensors",
		mul + "--ranks 2 --activation tanhh":                        "--activation",
		mul + "--ranks 2 --rank 0 --address h:1 --secret-file none": "file with the secret",
		mul + "--ranks 2 --rank 0 --address h:1 --secret-file weak": "a secret of 7 bytes: want at least 16",
	} {
		stdout, stderr, code := run(t.Context(), strings.Fields(args)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, %q; want 2, %s", args, code, stdout, stderr, want)
		}
	}
}

// TestRanksChoose checks that all ranks use the kernel that rank 0 chooses, although it is slower
// on the others: here one that was tuned on rank 0 alone.
func TestRanksChoose(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(cache.EnvVar, "off")
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	startAsProcess(t)
	randomFile(t, "a.npy", dtype.F32, 256, 100)
	randomFile(t, "b.npy", dtype.F32, 100, 64)
	p := *testkit.Product(t, dtype.F32, dtype.F32, 256, 64, 100)
	choice := tuned.Tuned{
		Form:    tuned.FormOf(&p),
		Choice:  backend.Choice{Kernel: "portable", Config: backend.Config{KC: 32, Method: "blocked-pack-A"}},
		Default: backend.Choice{Kernel: "avx2"}, Seconds: 1, Before: 1.5, Gain: 1.5, P10: 1.4, P90: 1.6, Date: time.Now(),
	}
	if err := tuned.For(cpu.Backend{}.TuningKey()).Keep(choice); err != nil {
		t.Fatal(err)
	}
	const mul = "mul a.npy b.npy --device cpu -o "
	for _, args := range []string{mul + "one.npy", mul + "two.npy --ranks 2", mul + "three.npy --ranks 3 --verify"} {
		stdout, stderr, code := run(t.Context(), strings.Fields(args)...)
		if code != 0 || !strings.Contains(stdout, "portable") {
			t.Fatalf("%s: exit code %d, %s, %s", args, code, stdout, stderr)
		}
	}
	one, err := os.ReadFile("one.npy")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"two.npy", "three.npy"} {
		if content, err := os.ReadFile(other); err != nil || !bytes.Equal(content, one) {
			t.Errorf("%s: error %v, the bytes of one process: %v", other, err, bytes.Equal(content, one))
		}
	}
}

// TestGPURanks multiplies files with two and four processes on the GPUs of the machine, which they
// share if there are fewer, and compares the bytes with those of one process on one GPU.
func TestGPURanks(t *testing.T) {
	if err := (gpu.Backend{Device: backend.DeviceName{Kind: backend.GPU}}).Open(); err != nil {
		if os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Chdir(t.TempDir())
	t.Setenv(cache.EnvVar, "off")
	startAsProcess(t, mapsFiles+"=1")
	mapFiles(t)
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		randomFile(t, "a.safetensors", typ, 3000, 2000)
		randomFile(t, "b.safetensors", typ, 2000, 1500)
		for _, more := range []string{"", " --verify", " --activation gelu", " --row-invariant"} {
			mul := "mul a.safetensors b.safetensors --force --device gpu" + more + " -o "
			var contents [3][]byte
			for i, args := range []string{mul + "one.safetensors", mul + "two.safetensors --ranks 2",
				mul + "four.safetensors --ranks 4"} {
				stdout, stderr, code := run(t.Context(), strings.Fields(args)...)
				if code != 0 {
					t.Fatalf("%v, %s: exit code %d, %s", typ, args, code, stderr)
				}
				t.Log(strings.TrimSpace(stdout))
				var err error
				if contents[i], err = os.ReadFile([]string{"one", "two", "four"}[i] + ".safetensors"); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(contents[1], contents[0]) || !bytes.Equal(contents[2], contents[0]) {
				t.Errorf("%v%s: other bytes than those of one process: with two ranks %v, with four %v", typ, more,
					!bytes.Equal(contents[1], contents[0]), !bytes.Equal(contents[2], contents[0]))
			}
		}
	}
}
