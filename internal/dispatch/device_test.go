package dispatch

import (
	"strings"
	"testing"
)

func TestParseDevice(t *testing.T) {
	for name, want := range map[string]string{
		"": "auto", "auto": "auto", "cpu": "cpu", "gpu": "gpu", "gpu:0": "gpu", "gpu:7": "gpu:7", "emu": "emu", "emu:a100": "emu:a100",
		"gpu:GPU-3f2a": "gpu:GPU-3f2a",
	} {
		if d, err := ParseDevice(name); err != nil || d.String() != want {
			t.Errorf("%q is %v, %v; want %s", name, d, err, want)
		}
	}
	for name, want := range map[string]string{
		"tpu": "unknown device", "cpu:0": "unknown device", "auto:1": "unknown device", "emu:": "unknown device",
		"gpu:": "no GPU number", "gpu:-1": "no GPU number", "gpu:one": "no GPU number", "gpu:gpu-3f": "no GPU number",
	} {
		if _, err := ParseDevice(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
