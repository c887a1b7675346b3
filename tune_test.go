package tilework

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tilework/internal/cache"
	"tilework/internal/dispatch/tuned"
)

// TestTuneGemm checks that TuneGemm returns a result and that later plans use it if it was kept. It
// also checks the errors of invalid calls.
func TestTuneGemm(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	a, b, c := New[float32](30, 400), New[float32](400, 20), New[float32](30, 20)
	const limit = 50 * time.Millisecond
	x, err := TuneGemm(t.Context(), a, b, c, limit, WithDevice("cpu"), WithThreads(1))
	if err != nil || x.Default == "" || x.Best == "" || !(x.Gain > 0) || x.Why == "" {
		t.Fatalf("%+v, %v", x, err)
	}
	pl, err := PlanGemm(t.Context(), a, b, c, WithDevice("cpu"))
	if err != nil || strings.HasPrefix(pl.Why, "tuned on ") != x.Kept {
		t.Errorf("tuning result %+v, but plan %v, error %v", x, pl, err)
	}
	if named, err := PlanGemm(t.Context(), a, b, c, WithKernel("loop")); err != nil || named.Kernel != "loop" {
		t.Errorf("WithKernel after tuning: plan %v, error %v, want kernel loop", named, err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		c    Matrix[float32]
		opts []Option
		want error
	}{
		"no device":      {t.Context(), c, nil, ErrUnsupported},
		"emulator":       {t.Context(), c, []Option{WithDevice("emu")}, ErrUnsupported},
		"unknown device": {t.Context(), c, []Option{WithDevice("tpu")}, ErrNoDevice},
		"shapes":         {t.Context(), New[float32](3, 3), []Option{WithDevice("cpu")}, ErrShape},
		"empty":          {t.Context(), New[float32](3, -3), []Option{WithDevice("cpu")}, ErrShape},
		"threads":        {t.Context(), c, []Option{WithDevice("cpu"), WithThreads(-1)}, ErrUnsupported},
		"cancelled":      {cancelled, c, []Option{WithDevice("cpu")}, context.Canceled},
	} {
		if x, err := TuneGemm(c.ctx, a, b, c.c, limit, c.opts...); !errors.Is(err, c.want) || x.Kept {
			t.Errorf("%s: %+v, error %v, want %v", name, x, err, c.want)
		}
	}
}

// TestWithThreads checks that a negative number of threads is an error.
func TestWithThreads(t *testing.T) {
	a := New[float32](2, 2)
	if err := Gemm(t.Context(), 1, a, a, 0, New[float32](2, 2), WithThreads(-1)); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "-1 threads: want 1 or more, or 0 for all") {
		t.Error(err)
	}
}
