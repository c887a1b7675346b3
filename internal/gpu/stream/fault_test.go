package stream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/program"
	"tilework/internal/sentinel"
)

// TestEveryCallFails fails each device call of a run in turn, and hangs in each that waits until
// the context ends. It checks that Run returns the error, that nothing stays allocated, and that
// the next run succeeds.
func TestEveryCallFails(t *testing.T) {
	schedules := maps.Clone(schedules)
	schedules["one step"] = func(pl *Plan, _ []program.Span) *schedule { return pl.wholly() }
	for name, build := range schedules {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []struct{ from, want error }{
				{device.ErrOutOfMemory, sentinel.ErrOutOfMemory}, {device.ErrLost, sentinel.ErrNoDevice},
				{device.ErrLaunch, device.ErrLaunch}, {context.Canceled, context.Canceled},
			} {
				n := 1
				for everyCall(t, n, kind.from, kind.want, build) {
					n++
				}
				t.Logf("failed each of %d calls with %v", n-1, kind.from)
			}
		})
	}
}

// everyCall runs a product with a schedule from build and fails device call n with the error from.
// [context.Canceled] instead hangs in call n of those that wait, and then cancels the product. Run
// must return an error that wraps want. everyCall reports whether the run made n calls.
func everyCall(t *testing.T, n int, from, want error, build func(*Plan, []program.Span) *schedule) bool {
	t.Helper()
	p, b := small(t, 0.5)
	d := faulty.New(devicetest.NewNull())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if from == context.Canceled {
		d.Hang(n, cancel)
	} else {
		d.Fail(n, from)
	}
	backend := New(d)
	plan, err := backend.Plan(p, exec.Options{Kernel: "naive"})
	if err != nil {
		t.Fatal(err)
	}
	plan.Steps = build(plan, program.First(p.K).Cut(p.K))
	err = plan.Run(ctx, b)
	failed := d.FailedCall()
	// Run may have succeeded with a schedule that needs less memory.
	recovered := err == nil && strings.HasPrefix(failed, "Alloc") && from == device.ErrOutOfMemory
	switch {
	case failed == "" && err != nil:
		t.Errorf("no call failed, but Run returned %v", err)
	case failed != "" && !recovered && (!errors.Is(err, from) || !errors.Is(err, want)):
		t.Errorf("%s failed with %v: Run returned %v", failed, from, err)
	}
	// Modules and streams are kept for the next run.
	if left := slices.DeleteFunc(d.Leaks(), kept); len(left) > 0 {
		t.Errorf("%s failed, Run returned %v: leaked %v", failed, err, left)
	}
	d.Fail(0, nil)
	if err := plan.Run(t.Context(), b); err != nil {
		t.Errorf("%s failed: the next Run returned %v", failed, err)
	}
	if err := backend.Close(); err != nil || len(d.Leaks()) > 0 {
		t.Errorf("%s failed: Close returned %v, leaked %v", failed, err, d.Leaks())
	}
	return failed != ""
}

// kept reports whether a backend keeps a resource until it is closed, by the resource's description
// in [faulty.Device.Leaks].
func kept(resource string) bool { return resource == "module" || resource == "stream" }

// small returns a 5×6×7 product with a bias and padded rows of C, and its buffers.
func small(t *testing.T, beta complex128) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	a, b, c := gemm.Dense(dtype.F32, 5, 7), gemm.Dense(dtype.F32, 7, 6), gemm.Dense(dtype.F32, 5, 6)
	c.LD = 9
	p, _, err := gemm.New(1, a, b, beta, c, gemm.Epilogue{Bias: gemm.BiasRow})
	if err != nil {
		t.Fatal(err)
	}
	return &p, gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes()),
		gemm.C: make([]byte, c.Bytes()), gemm.Bias: make([]byte, 20)}
}

// TestCancelled checks that Run with a cancelled context makes no device calls.
func TestCancelled(t *testing.T) {
	p, b := small(t, 0)
	d := faulty.New(devicetest.NewNull())
	plan, err := New(d).Plan(p, exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plan.Run(ctx, b); !errors.Is(err, context.Canceled) || d.Calls() > 0 {
		t.Errorf("Run returned %v after %d device calls, want %v after none", err, d.Calls(), context.Canceled)
	}
}
