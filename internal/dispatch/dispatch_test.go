package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// product returns a product and its buffers. All elements of A and B are 1.
func product(t *testing.T, in, out dtype.Type, m, n, k int, e gemm.Epilogue) (gemm.Problem, gemm.Buffers) {
	t.Helper()
	a, b, c := gemm.Dense(in, m, k), gemm.Dense(in, k, n), gemm.Dense(out, m, n)
	p, _, err := gemm.New(1, a, b, 0, c, e)
	if err != nil {
		t.Fatal(err)
	}
	buf := newBuffers(&p)
	for i := range a.Len() {
		in.Set(buf[gemm.A], i, 1)
	}
	for i := range b.Len() {
		in.Set(buf[gemm.B], i, 1)
	}
	return p, buf
}

// newBuffers returns zeroed matrices for p.
func newBuffers(p *gemm.Problem) (b gemm.Buffers) {
	for o := range gemm.C + 1 {
		b[o] = make([]byte, p.Layouts[o].Bytes())
	}
	return b
}

// name returns the device of a name.
func name(t *testing.T, device string) backend.DeviceName {
	t.Helper()
	d, err := backend.ParseDevice(device)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestPlans checks that a plan has the requested device and kernel, or else an available kernel of
// some device, and that it describes them and computes the product.
func TestPlans(t *testing.T) {
	p, b := product(t, dtype.F32, dtype.F32, 70, 60, 50, gemm.Epilogue{})
	for _, d := range []string{"auto", "cpu", "emu", "emu:t4"} {
		var names []string
		lists := name(t, d)
		if lists.Kind == backend.Auto {
			lists.Kind = backend.CPU // which computes such a small product
		}
		for _, k := range Kernels(lists) {
			if k.Available && slices.Contains(k.Types, dtype.F32) {
				names = append(names, k.Name)
			}
		}
		if len(names) < 2 {
			t.Fatalf("%s: got kernels %v, want at least two", d, names)
		}
		for _, kernel := range append(names, "") {
			pl, err := New(t.Context(), Request{Problem: p, Device: name(t, d), Kernel: kernel, Timed: true})
			if err != nil {
				t.Fatalf("%s, %s: %v", d, kernel, err)
			}
			if kernel != "" && pl.Kernel() != kernel || !slices.Contains(names, pl.Kernel()) {
				t.Errorf("%s, kernel %q: planned with %q", d, kernel, pl.Kernel())
			}
			if pl.Device().Kind == backend.Auto || d != "auto" && pl.Device() != name(t, d) ||
				pl.Why() == "" || pl.Detail() == "" {
				t.Errorf("%s, kernel %q: %+v", d, kernel, pl)
			}
			if onGPU := pl.Device().Kind.IsGPU(); onGPU != (pl.Threads() == 0) {
				t.Errorf("%s, kernel %q: %d threads", d, kernel, pl.Threads())
			}
			if pl.Took() != 0 || pl.Verified() != nil {
				t.Errorf("%s, kernel %q: took %v, verified %v before Run", d, kernel, pl.Took(), pl.Verified())
			}
			clear(b[gemm.C])
			if err := pl.Run(t.Context(), &b); err != nil {
				t.Fatalf("%s, %s: %v", d, kernel, err)
			}
			if got := dtype.F32.At(b[gemm.C], 70*60-1); got != 50 || pl.Took() <= 0 {
				t.Errorf("%s, kernel %q: the last element is %v, want 50; took %v", d, kernel, got, pl.Took())
			}
			if compiled := pl.CompileTime() > 0; compiled != pl.Device().Kind.IsGPU() {
				t.Errorf("%s, kernel %q: compile time %v", d, kernel, pl.CompileTime())
			}
		}
	}
	pl, err := New(t.Context(), Request{Problem: p, Device: name(t, "emu"), Kernel: "tiled:16"})
	if err != nil || pl.Kernel() != "tiled" || !strings.Contains(pl.Detail(), "tile 16") {
		t.Errorf("tiled:16: got %+v, error %v", pl, err)
	}
}

// TestPlanErrors checks the errors of planning, and of running with bad buffers or a cancelled
// context.
func TestPlanErrors(t *testing.T) {
	p, b := product(t, dtype.F32, dtype.F32, 3, 4, 5, gemm.Epilogue{})
	tf32, f32x3 := p, p
	tf32.Precision, f32x3.Precision = gemm.TF32, gemm.F32x3
	for _, c := range []struct {
		r    Request
		want error
		text string
	}{
		{Request{Kernel: "fast"}, gemm.ErrUnsupported, `unknown CPU kernel "fast"`},
		{Request{Device: name(t, "cpu"), Kernel: "tiled"}, gemm.ErrUnsupported, `unknown CPU kernel "tiled"`},
		{Request{Device: name(t, "cpu"), Problem: tf32}, gemm.ErrUnsupported, "precision tf32 on the CPU"},
		{Request{Device: name(t, "emu"), Kernel: "tiled", Problem: tf32}, gemm.ErrUnsupported,
			"kernel tiled multiplies no float32 in precision tf32"},
		{Request{Device: name(t, "emu:t4"), Problem: f32x3}, gemm.ErrUnsupported, "kernel wgmma needs sm_90a"},
		{Request{Device: name(t, "emu"), Kernel: "loop"}, gemm.ErrUnsupported, `unknown GPU kernel "loop"`},
		{Request{Device: name(t, "emu"), Kernel: ":16"}, gemm.ErrUnsupported, "of no kernel"},
		{Request{Device: name(t, "emu"), Kernel: "tiled:-4"}, gemm.ErrUnsupported, "-4"},
		{Request{Device: name(t, "emu:h300")}, sentinel.ErrNoDevice, `emu:h300: unknown GPU "h300"`},
		{Request{Device: name(t, "gpu:9999")}, sentinel.ErrNoDevice, "no such device"},
	} {
		if c.r.Problem == (gemm.Problem{}) {
			c.r.Problem = p
		}
		if _, err := New(t.Context(), c.r); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: got error %v, want %v with %q", c.r, err, c.want, c.text)
		}
	}
	if err := CheckDevice(name(t, "emu:h300")); !errors.Is(err, sentinel.ErrNoDevice) {
		t.Errorf("CheckDevice of an unknown model: got error %v, want ErrNoDevice", err)
	}
	for _, d := range []string{"cpu", "emu"} {
		pl, err := New(t.Context(), Request{Problem: p, Device: name(t, d)})
		if err != nil {
			t.Fatal(err)
		}
		short := b
		short[gemm.B] = short[gemm.B][:len(b[gemm.B])-1]
		if err := pl.Run(t.Context(), &short); !errors.Is(err, gemm.ErrShape) {
			t.Errorf("on %s with a short B: got error %v, want ErrShape", d, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pl.Run(ctx, &b); !errors.Is(err, context.Canceled) {
			t.Errorf("on %s, cancelled: got error %v", d, err)
		}
	}
}

// TestTook checks that the time of a product is not more than the time that passed.
func TestTook(t *testing.T) {
	p, b := product(t, dtype.F32, dtype.F32, 50, 50, 50, gemm.Epilogue{})
	pl, err := New(t.Context(), Request{Problem: p, Device: name(t, "cpu"), Timed: true})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := pl.Run(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if pl.Took() <= 0 || pl.Took() > time.Since(start) {
		t.Errorf("took %v, at most %v expected", pl.Took(), time.Since(start))
	}
}
