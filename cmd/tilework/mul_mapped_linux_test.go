package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gpu"
)

// TestMulMapped multiplies mapped files into mapped files, in little GPU memory. The files must
// have the bytes of those that are read and written, with their permissions, and no other file may
// remain.
func TestMulMapped(t *testing.T) {
	t.Chdir(t.TempDir())
	matrixFile(t, "a.npy", 70, 50)
	matrixFile(t, "b.npy", 50, 90)
	matrixFile(t, "c0.npy", 70, 90)
	matrixFile(t, "m.safetensors::w", 50, 90)
	for _, args := range []string{
		"a.npy b.npy", "a.npy m.safetensors", "a.npy b.npy --verify",
		"b.npy a.npy --transpose-a --transpose-b", "a.npy b.npy --beta 0.5 --c c0.npy",
		"a.npy b.npy --residual c0.npy --bias c0.npy", "a.npy b.npy --dtype float64", // converted, so not mapped
	} {
		if strings.Contains(args, "--bias") {
			matrixFile(t, "bias.npy", 1, 90)
			args = strings.Replace(args, "--bias c0.npy", "--bias bias.npy", 1)
		}
		for _, out := range []string{"c.npy", "c.safetensors", "c.csv"} {
			multiply := func(name, more string) []byte {
				t.Helper()
				_, stderr, code := run(t.Context(), strings.Fields("mul "+args+" -o "+name+" --device emu "+more)...)
				if code != 0 {
					t.Fatalf("%s: exit code %d, %s", args, code, stderr)
				}
				content, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				return content
			}
			want := multiply(out, "")
			if err := os.Chmod(out, 0o640); err != nil {
				t.Fatal(err)
			}
			t.Run(args+" "+out, func(t *testing.T) {
				mapFiles(t)
				if got := multiply(out, "--force --gpu-memory 40KB"); !bytes.Equal(got, want) {
					t.Error("other bytes than without a mapping")
				}
			})
			info, err := os.Stat(out)
			if err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%s: permissions %v, error %v", out, info.Mode(), err)
			}
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := files(t); strings.Contains(left, ".tmp") {
		t.Errorf("remaining files: %s", left)
	}
}

// TestMulMappedFails fails each device call of a product of mapped files in turn, and cancels
// another product. An existing result must stay as it was, and no temporary file may remain.
func TestMulMappedFails(t *testing.T) {
	t.Chdir(t.TempDir())
	mapFiles(t)
	matrixFile(t, "a.npy", 70, 50)
	matrixFile(t, "b.npy", 50, 90)
	matrixFile(t, "c.npy", 2, 2)
	before := files(t)
	want, err := os.ReadFile("c.npy")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, code int, stderr string) {
		t.Helper()
		got, err := os.ReadFile("c.npy")
		if code == 0 || err != nil || !bytes.Equal(got, want) || files(t) != before || strings.Contains(stderr, "\n") {
			t.Errorf("%s: exit code %d, %q, error %v, c.npy as before: %v, files %s", what, code, stderr, err,
				bytes.Equal(got, want), files(t))
		}
	}
	const command = "mul a.npy b.npy -o c.npy --force --device emu --gpu-memory 40KB"
	open := func() (device.Device, error) { return emu.Open(emu.Options{}) }
	failures := 0
	err = faulty.FailEachCall(40, device.ErrLaunch, open, func(d *faulty.Device) {
		restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return d, nil })
		_, stderr, code := run(t.Context(), strings.Fields(command)...)
		if err := restore(); err != nil && !errors.Is(err, device.ErrLaunch) {
			t.Error(err)
		}
		if failed := d.FailedCall(); failed != "" && code != 0 {
			failures++
			check(failed, code, stderr)
		} else if err := os.WriteFile("c.npy", want, 0o644); err != nil {
			t.Error(err)
		}
	})
	if err != nil || failures < 30 {
		t.Errorf("%d failures, want at least 30; error %v", failures, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, stderr, code := run(ctx, strings.Fields(command)...)
	check("cancelled", code, stderr)
	_, stderr, code = run(t.Context(), strings.Fields(strings.Replace(command, "40KB", "1KB", 1))...)
	check("too little memory", code, stderr)
	if !strings.Contains(stderr, "out of device memory") || !strings.Contains(stderr, "smallest blocks") {
		t.Errorf("too little memory: %q", stderr)
	}
}
