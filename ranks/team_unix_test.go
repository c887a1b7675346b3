//go:build unix

package ranks_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tilework/internal/device/cuda"
	"tilework/ranks"
)

// rankProcess is a rank in a process of its own.
type rankProcess struct {
	*exec.Cmd
	stdout, stderr lockedBuffer
}

// lockedBuffer is a buffer that may be read while the process writes it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startAll starts n ranks with torchrun's variables, the given ones for all, and those of last for
// the last one. Rank 0 inherits the listener, so that no other process can take its port.
func startAll(t *testing.T, n int, script string, env, last []string) []*rankProcess {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	inherited, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	all := make([]*rankProcess, n)
	for r := range all {
		p := &rankProcess{Cmd: exec.Command(os.Args[0], "-test.run=^TestAsRank$", "-test.timeout=5m")}
		p.Stdout, p.Stderr = &p.stdout, &p.stderr
		p.Env = append(os.Environ(), fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n), fmt.Sprint("LOCAL_RANK=", r),
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port), ranks.EnvSecret+"=sixteen-bytes-or-more",
			asRank+"="+script, asDevice+"=cpu", asTimeout+"=20s", "TILEWORK_CACHE=off", "NCCL_NVLS_ENABLE=0")
		p.Env = append(p.Env, env...)
		if r == 0 {
			p.ExtraFiles = []*os.File{inherited}
		}
		if r == n-1 {
			p.Env = append(p.Env, last...)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		all[r] = p
	}
	t.Cleanup(func() {
		for _, p := range all {
			if p.ProcessState == nil {
				_ = p.Process.Kill()
				_ = p.Wait()
			}
		}
	})
	return all
}

// end waits for the process and returns its last line.
func (p *rankProcess) end() (ok bool, line string) {
	err := p.Wait()
	out := p.stderr.String()
	if err == nil {
		out = p.stdout.String()
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return err == nil, lines[len(lines)-1]
}

// checkEnds checks that all ranks end well or with an error, but for the one that was killed.
func checkEnds(t *testing.T, all []*rankProcess, killed int, want string) {
	t.Helper()
	for r, p := range all {
		ok, line := p.end()
		if text := p.stdout.String(); strings.Contains(text, "TFLOP/s") {
			t.Log(strings.TrimSpace(text))
		}
		if r != killed && (ok != (want == "") || !strings.Contains(line, want)) {
			t.Errorf("rank %d: ended well: %v, %s; want %q", r, ok, line, want)
		}
	}
}

// TestTeam multiplies matrices with two and four processes and compares the bits with those of one.
func TestTeam(t *testing.T) {
	for _, device := range []string{"cpu", "emu"} {
		for _, n := range []int{2, 4} {
			env := []string{asDevice + "=" + device, asTransport + "=TCP (rank 0: there is no GPU)"}
			checkEnds(t, startAll(t, n, "products", env, nil), -1, "")
		}
	}
}

// TestTeamFails makes a rank fail in many ways. All ranks must end with an error that names it.
func TestTeamFails(t *testing.T) {
	for _, test := range []struct {
		name, script string
		last         []string // variables of rank 2
		want         string
	}{
		{"secret", "products", []string{ranks.EnvSecret + "=another-secret-like-it", asTimeout + "=3s"}, "rank 2"},
		{"version", "products", []string{asVersion + "=9.9.9"}, "rank 2 has tilework 9.9.9"},
		{"device", "products", []string{asDevice + "=emu"},
			"ranks disagree on the kind of the device: ranks 0 and 1 have cpu; rank 2 has emu"},
		{"no device", "products", []string{asDevice + "=gpu:77"}, ""},
		{"shapes", "shapes", []string{asFailing + "=2"}, "ranks disagree on the product: ranks 0 and 1 have 60×40 · 40×50"},
		{"invalid", "invalid", []string{asFailing + "=2"}, "ranks disagree on the product: ranks 0 and 1 have 60×40 · 40×50"},
		{"memory", "memory", []string{asFailing + "=2"}, "rank 2"},
	} {
		timeout := "60s"
		if test.name == "secret" { // the others wait for rank 2
			timeout = "3s"
		}
		all := startAll(t, 3, test.script, []string{asTimeout + "=" + timeout}, test.last)
		for r, p := range all {
			if ok, line := p.end(); ok || !strings.HasPrefix(line, "rank: ") || r < 2 && !strings.Contains(line, "rank 2") ||
				!strings.Contains(line, test.want) && test.name != "secret" && test.name != "memory" {
				t.Errorf("%s: rank %d: ended well: %v, %s; want %q", test.name, r, ok, line, test.want)
			}
		}
	}
}

// kill signals a rank while all compute, and waits until all others have ended.
func kill(t *testing.T, all []*rankProcess, rank int, signal os.Signal, want string) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		computing := 0
		for _, p := range all {
			computing += strings.Count(p.stdout.String(), "computing")
		}
		if computing == len(all) {
			break
		}
		if time.Now().After(deadline) {
			for r, p := range all {
				t.Logf("rank %d: %s", r, p.stderr.String())
			}
			t.Fatalf("%d of %d ranks compute", computing, len(all))
		}
	}
	if err := all[rank].Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	others := append(append([]*rankProcess{}, all[:rank]...), all[rank+1:]...)
	checkEnds(t, others, -1, want)
	_ = all[rank].Process.Kill() // it may be stopped
}

// TestTeamKilled kills and stops ranks while all compute.
func TestTeamKilled(t *testing.T) {
	for _, test := range []struct {
		rank    int
		signal  os.Signal
		timeout string
		want    string
	}{
		{0, syscall.SIGKILL, "60s", "rank 0: connection lost"},
		{2, syscall.SIGKILL, "60s", "rank 2: connection lost"},
		{1, syscall.SIGSTOP, "3s", "rank 1: no sign of life for 3s"},
	} {
		kill(t, startAll(t, 3, "endless", []string{asTimeout + "=" + test.timeout}, nil), test.rank, test.signal, test.want)
	}
}

// TestTeamSlow checks that a rank may be late by more than the timeout.
func TestTeamSlow(t *testing.T) {
	t.Parallel()
	checkEnds(t, startAll(t, 2, "slow", []string{asTimeout + "=2s"}, nil), -1, "")
}

// transports are the ways between GPUs, with the variables that select them and a part of the
// team's description.
var transports = []struct {
	name string
	env  []string
}{
	{"P2P", []string{asTransport + "=NCCL"}},
	// A second host can be reached neither through NVLink nor through shared memory.
	{"sockets", []string{asTransport + "=NCCL", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_NET=Socket"}},
	{"TCP", []string{asTransport + "=TCP (rank 0: nccl: TILEWORK_NCCL=off", "TILEWORK_NCCL=off"}},
}

// gpus returns the number of GPUs. It skips the test if there are fewer than least.
func gpus(t *testing.T, least int) int {
	t.Helper()
	found, err := cuda.List()
	n := len(found)
	if n == 0 && os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
		t.Fatal(err)
	}
	if n < least {
		t.Skipf("%d GPUs, want %d", n, least)
	}
	return n
}

// TestGPUTeam multiplies matrices with a rank on each of two and four GPUs, with all transports.
func TestGPUTeam(t *testing.T) {
	n := gpus(t, 2)
	for _, way := range transports {
		t.Run(way.name, func(t *testing.T) {
			for _, size := range []int{2, 4} {
				if size <= n {
					checkEnds(t, startAll(t, size, "products", append(way.env, asDevice+"=gpu"), nil), -1, "")
				}
			}
		})
	}
}

// TestGPUTeamShared lets two ranks share a GPU, between which NCCL does not work.
func TestGPUTeamShared(t *testing.T) {
	gpus(t, 1)
	checkEnds(t, startAll(t, 2, "products", []string{asDevice + "=gpu:0", asTransport + "=TCP"}, nil), -1, "")
}

// TestGPUTeamKilled kills and stops a rank while all compute on GPUs.
func TestGPUTeamKilled(t *testing.T) {
	n := min(gpus(t, 2), 4)
	for _, way := range transports {
		t.Run(way.name, func(t *testing.T) {
			env := append(way.env, asDevice+"=gpu", asTimeout+"=3s")
			kill(t, startAll(t, n, "endless", env, nil), 1, syscall.SIGKILL, "rank 1: connection lost")
			kill(t, startAll(t, n, "endless", env, nil), 0, syscall.SIGSTOP, "rank 0: no sign of life for 3s")
		})
	}
}

// TestGPUTeamLarge measures products of bfloat16 on two GPUs with each transport.
func TestGPUTeamLarge(t *testing.T) {
	gpus(t, 2)
	for _, way := range transports {
		t.Run(way.name, func(t *testing.T) {
			sizes := "64,8192"
			if way.name == "P2P" {
				sizes += ",16384,32768"
			}
			checkEnds(t, startAll(t, 2, "large", append(way.env, asDevice+"=gpu", asSizes+"="+sizes), nil), -1, "")
		})
	}
}
