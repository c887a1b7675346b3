//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakePython makes a shell script the python3 of the PATH. It answers the requests of package
// pytorch, and as run says those to run a product.
func fakePython(t *testing.T, run string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
while read -r line; do
	case $line in
	*devices*) echo '{"version": "2.11.0"}' ;;
	*run*) ` + run + ` ;;
	*check*) echo '{"error": 0.125}' ;;
	*) echo '{}' ;;
	esac
done
`
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestBenchPyTorch measures PyTorch beside kernels on emulated GPUs.
func TestBenchPyTorch(t *testing.T) {
	t.Chdir(t.TempDir())
	emulatedGPU(t)
	fakePython(t, `echo '{"seconds": 0.002}'`)
	args := strings.Fields("bench --shape 8x10x12 --kernels naive --min-time 1ms --max-time 20ms " +
		"--warmup 1ms --force -o r.jsonl")
	for _, test := range []struct{ args, peers string }{
		{"--device gpu:0,1 --peers pytorch,pytorch-async", "pytorch pytorch-async"},
		{"--device gpu:0,1 --peers all", "pytorch pytorch-async"},
		{"--device gpu --peers pytorch", "pytorch"},
	} {
		stdout, stderr, code := run(t.Context(), append(args, strings.Fields(test.args)...)...)
		if code != 0 || !strings.Contains(stderr, "peer PyTorch 2.11.0 (") {
			t.Errorf("%s: exit code %d, %q, %q", test.args, code, stdout, stderr)
			continue
		}
		var peers []string
		for _, r := range readRecords(t, "r.jsonl") {
			if !r.Verified {
				t.Errorf("%s: record %+v", test.args, r)
			}
			if r.Peer {
				peers = append(peers, r.Subject)
				if r.ErrorRatio != 0.125 || r.Detail != "PyTorch 2.11.0" || r.Breakdown != nil || r.Seconds.Median > 0.002 {
					t.Errorf("%s: record %+v", test.args, r)
				}
			} else if len(r.Versus) != len(strings.Fields(test.peers)) {
				t.Errorf("%s: ratios %v, want one for each of %s", test.args, r.Versus, test.peers)
			}
		}
		if got := strings.Join(peers, " "); got != test.peers {
			t.Errorf("%s: peers %q, want %q", test.args, got, test.peers)
		}
	}
	fakePython(t, `echo '{"failure": "cuda:1: out of memory"}'`)
	if _, stderr, code := run(t.Context(), append(args, "--device", "gpu:0,1", "--peers", "pytorch")...); code != 2 ||
		!strings.Contains(stderr, "pytorch: PyTorch: cuda:1: out of memory") {
		t.Errorf("a failure: exit code %d, %q", code, stderr)
	}
	for _, r := range readRecords(t, "r.jsonl") {
		if (r.Error != "") != (r.Subject == "pytorch") {
			t.Errorf("a failure: record %+v", r)
		}
	}
	fakePython(t, "sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(2*time.Second, cancel)
	start := time.Now()
	if _, stderr, code := run(ctx, append(args, "--device", "gpu:0,1", "--peers", "pytorch")...); code != 130 ||
		time.Since(start) > time.Minute {
		t.Errorf("interrupted: exit code %d after %v, %q", code, time.Since(start), stderr)
	}
	t.Setenv("PATH", t.TempDir())
	_, stderr, code := run(t.Context(), append(args, "--device", "gpu:0,1", "--peers", "pytorch")...)
	if code != 2 || !strings.Contains(stderr, "no python3 on the PATH: install Python 3 with PyTorch") {
		t.Errorf("without Python: exit code %d, %q", code, stderr)
	}
}
