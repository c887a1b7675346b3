package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLists(t *testing.T) {
	for _, verb := range []string{"kernels", "devices"} {
		for _, format := range listFormats {
			stdout, stderr, code := run(t.Context(), verb, "--format", format)
			if code != 0 || !strings.Contains(stdout, "portable") || !strings.Contains(stdout, "cpu") {
				t.Errorf("%s --format %s: exit code %d, %q, %q", verb, format, code, stdout, stderr)
			}
		}
	}
	for _, args := range [][]string{{"version"}, {"--help"}, {"mul", "--help"}, {"completion", "bash"},
		{"__complete", "mul", "--activation", ""}} {
		stdout, _, code := run(t.Context(), args...)
		if code != 0 || stdout == "" {
			t.Errorf("%v: exit code %d, %q", args, code, stdout)
		}
	}
}

// TestHere checks where the kernels of a machine can run.
func TestHere(t *testing.T) {
	device := func(name string, kernels ...string) deviceInfo {
		d := deviceInfo{Name: name}
		for _, k := range kernels {
			d.Kernels = append(d.Kernels, deviceKernel{Name: k})
		}
		return d
	}
	devices := []deviceInfo{device("cpu", "avx2"), device("gpu:0", "tiled"), device("emu", "tiled", "wgmma")}
	for kernel, want := range map[string]string{"avx2": "yes", "avx512": "no", "tiled": "yes", "wgmma": "emulated"} {
		if got := here(kernelInfo{Name: kernel}, devices); got != want {
			t.Errorf("%s: %s, want %s", kernel, got, want)
		}
	}
}

// TestDevices checks the list of devices. Without a GPU, devices must succeed with a message of one
// line.
func TestDevices(t *testing.T) {
	stdout, stderr, code := run(t.Context(), "devices", "--format", "json")
	var list []deviceInfo
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != 0 || len(list) < 2 || list[0].Name != "cpu" ||
		list[0].Memory == 0 {
		t.Errorf("exit code %d, %v, %q", code, err, stdout)
	}
	for _, d := range list {
		if len(d.Kernels) == 0 || d.Title == "" || d.Cores < 1 || strings.HasPrefix(d.Name, "gpu") &&
			(d.Memory == 0 || d.Clock == 0 || d.UUID == "") {
			t.Errorf("device %+v", d)
		}
	}
	if _, err := listDevices(); err != nil &&
		(!strings.HasPrefix(stderr, "no GPU: ") || strings.Count(stderr, "\n") != 1) {
		t.Errorf("standard error %q for %v, want one line", stderr, err)
	}
}
