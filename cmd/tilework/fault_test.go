package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/dispatch/tuned"
	"tilework/internal/gpu"
	"tilework/internal/testkit"
)

// TestEveryDeviceCallFails runs the commands that use a device, and makes each call to the device
// fail in turn. The command must end in time with the exit code of the failure, name the failed
// call in one line, write no output and release everything on the device.
func TestEveryDeviceCallFails(t *testing.T) {
	t.Chdir(folder(t))
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for i, verb := range []struct {
		args  string
		all   int // number of calls that each fail in turn; only some of the later ones do
		lost  int // exit code if the device is lost
		other int // exit code after any other failure
	}{
		{"mul a.npy b.npy -o c.npy --device emu", 100, 3, 2},
		{"mul a.npy b.npy -o c.npy --device emu --alpha 2 --beta 3 --c c0.csv --bias col.npy --activation relu --verify", 100,
			3, 2},
		{"bench --device emu --sizes 4 --min-time 1us --max-time 1us --warmup 1us", 20, 3, 2},
		{"bench --device gpu --shape 3x4x5 --kernels naive --min-time 1us --max-time 1us --warmup 1us", 20, 3, 2},
		{"bench --device gpu --shape 3x4x5 --transfers --min-time 1us --max-time 1us --warmup 1us", 20, 3, 2},
		{"selftest --device emu --kernels naive:16 --full --cases 1 --seed 1", 10, 1, 1},
	} {
		kinds := []struct {
			err  error
			code int
		}{{device.ErrLost, verb.lost}, {device.ErrLaunch, verb.other}, {device.ErrOutOfMemory, verb.other}}
		if !testkit.Full() {
			kinds = append(kinds[:1], kinds[1+i%2])
		}
		for _, kind := range kinds {
			open := func() (device.Device, error) { return emu.Open(emu.Options{}) }
			err := faulty.FailEachCall(verb.all, kind.err, open, func(d *faulty.Device) {
				restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return d, nil })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, stderr, code := run(ctx, strings.Fields(verb.args)...)
				failed := d.FailedCall()
				// A product continues in smaller blocks.
				recovered := kind.err == device.ErrOutOfMemory && code == 0 && strings.HasPrefix(failed, "Alloc")
				switch {
				case ctx.Err() != nil:
					t.Errorf("%s: %s failed, and the command did not end", verb.args, failed)
				case failed == "" && code != 0:
					t.Errorf("%s: exit code %d, %q", verb.args, code, stderr)
				case failed != "" && !recovered && (code != kind.code || !strings.Contains(stderr, failed)):
					t.Errorf("%s: %s failed (%v): exit code %d, want %d, %q", verb.args, failed, kind.err, code, kind.code, stderr)
				}
				if strings.HasPrefix(verb.args, "mul") && strings.Contains(strings.TrimSpace(stderr), "\n") {
					t.Errorf("%s: %s failed: error of more than one line: %q", verb.args, failed, stderr)
				}
				if _, err := os.Stat("c.npy"); (err == nil) != (code == 0 && strings.HasPrefix(verb.args, "mul")) {
					t.Errorf("%s: %s failed: exit code %d, c.npy exists: %v", verb.args, failed, code, err == nil)
				}
				_ = os.Remove("c.npy")
				if now, err := os.ReadDir("."); err != nil || len(now) != len(files) {
					t.Errorf("%s: %s failed: files in the folder: %v, %v", verb.args, failed, now, err)
				}
				if err := restore(); err != nil && !errors.Is(err, kind.err) {
					t.Error(err)
				}
				if left := d.Leaks(); len(left) > 0 {
					t.Errorf("%s: %s failed: not released on the device: %v", verb.args, failed, left)
				}
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCancelAnywhere runs each command that computes, and cancels its context at every point where
// the context is checked. The command must either succeed, or exit with the code of an interruption
// without output. No goroutine may remain.
func TestCancelAnywhere(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	t.Chdir(folder(t))
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"mul a.npy b.npy -o c.npz",
		"mul a.npy b.npy -o c.csv --alpha 2 --beta 3 --c c0.csv --bias col.npy --activation relu --verify",
		"mul a.npy b.npy -o c.npy --device emu --verify",
		"bench --sizes 4 --kernels loop --min-time 1us --max-time 1us --warmup 1us",
		"bench --device emu --kernels naive --sizes 4 --min-time 1us --max-time 1us --warmup 1us",
		"selftest --device emu --kernels naive:16 --full --cases 1 --seed 1",
		"tune --shape 3x4x5 --time 2ms",
	} {
		if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 0 {
			t.Fatalf("%s: exit code %d, %q", args, code, stderr)
		}
		before := goleak.IgnoreCurrent()
		cancels := 0
		testkit.CancelEverywhere(testkit.Repeats(25, 200), func(ctx *testkit.CountdownContext) {
			for _, out := range []string{"c.npz", "c.csv", "c.npy"} {
				_ = os.Remove(out)
			}
			_, stderr, code := run(ctx, strings.Fields(args)...)
			cancels++
			if code != exitInterrupted && code != 0 {
				t.Errorf("%s, run %d: exit code %d, %q", args, cancels, code, stderr)
			}
			now, err := os.ReadDir(".")
			if written := strings.HasPrefix(args, "mul") && code == 0; err != nil || len(now) != len(files) &&
				!(written && len(now) == len(files)+1) {
				t.Errorf("%s, run %d: exit code %d, files in the folder: %v, %v", args, cancels, code, now, err)
			}
		})
		if cancels < 3 {
			t.Errorf("%s: cancelled %d times, want at least 3", args, cancels)
		}
		goleak.VerifyNone(t, before)
	}
}
