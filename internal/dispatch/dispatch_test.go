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
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
)

func TestParseDevice(t *testing.T) {
	for _, c := range []struct {
		name string
		want backend.Device
		back string // what the device calls itself
	}{
		{"", backend.Device{Kind: "auto"}, "auto"},
		{"auto", backend.Device{Kind: "auto"}, "auto"},
		{"cpu", backend.Device{Kind: "cpu"}, "cpu"},
		{"gpu", backend.Device{Kind: "gpu"}, "gpu"},
		{"gpu:0", backend.Device{Kind: "gpu"}, "gpu"},
		{"gpu:12", backend.Device{Kind: "gpu", Index: 12}, "gpu:12"},
		{"gpu:GPU-3f2a", backend.Device{Kind: "gpu", UUID: "GPU-3f2a"}, "gpu:GPU-3f2a"},
		{"emu", backend.Device{Kind: "emu"}, "emu"},
		{"emu:sm_80", backend.Device{Kind: "emu", Model: "sm_80"}, "emu:sm_80"},
	} {
		got, err := backend.ParseDevice(c.name)
		if err != nil || got != c.want || got.String() != c.back {
			t.Errorf("%q is %+v, %q, %v", c.name, got, got, err)
		}
		if again, err := backend.ParseDevice(got.String()); err != nil || again != got {
			t.Errorf("%q, read again, is %+v, %v", got, again, err)
		}
	}
	for _, name := range []string{"GPU", "gpu:", "gpu:-1", "gpu:1x", "gpu:1:2", "gpu:gpu-3f", "cpu:0", "auto:1", "emu:", " cpu", "cuda"} {
		if got, err := backend.ParseDevice(name); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%q is %+v, %v, want an error that quotes it", name, got, err)
		}
	}
}

// product is a product with memory for it: all of A and B are 1.
func product(t *testing.T, in, out dtype.Type, m, n, k int, e gemm.Epilogue) (gemm.Problem, gemm.Buffers) {
	t.Helper()
	a, b, c := gemm.Dense(in, m, k), gemm.Dense(in, k, n), gemm.Dense(out, m, n)
	p, _, err := gemm.New(1, a, b, 0, c, e)
	if err != nil {
		t.Fatal(err)
	}
	buf := gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes()), gemm.C: make([]byte, c.Bytes())}
	for i := range a.Len() {
		in.Set(buf[gemm.A], i, 1)
	}
	for i := range b.Len() {
		in.Set(buf[gemm.B], i, 1)
	}
	return p, buf
}

func name(t *testing.T, device string) backend.Device {
	t.Helper()
	d, err := backend.ParseDevice(device)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestPlans: what is asked for by name is in the plan, and what is not asked for is
// chosen, said and explained.
func TestPlans(t *testing.T) {
	p, b := product(t, dtype.F32, dtype.F32, 70, 60, 50, gemm.Epilogue{})
	for _, d := range []string{"auto", "cpu", "emu", "emu:t4"} {
		var names []string
		for _, k := range Kernels(name(t, d)) {
			if k.Available && slices.Contains(k.Types, dtype.F32) {
				names = append(names, k.Name)
			}
		}
		if len(names) < 2 {
			t.Fatalf("%s has kernels %v", d, names)
		}
		for _, kernel := range append(names, "") {
			pl, err := New(Request{Problem: p, Device: name(t, d), Kernel: kernel, Timed: true})
			if err != nil {
				t.Fatalf("%s, %s: %v", d, kernel, err)
			}
			if kernel != "" && pl.Kernel != kernel || !slices.Contains(names, pl.Kernel) {
				t.Errorf("%s, kernel %q: planned is %q", d, kernel, pl.Kernel)
			}
			if pl.Device.Kind == "auto" || d != "auto" && pl.Device != name(t, d) || pl.Why() == "" || pl.Detail() == "" {
				t.Errorf("%s, kernel %q: %+v", d, kernel, pl)
			}
			if onGPU := pl.Device.IsGPU(); onGPU != (pl.Threads == 0) {
				t.Errorf("%s, kernel %q: %d threads", d, kernel, pl.Threads)
			}
			if pl.Took() != 0 || pl.Verified() != nil {
				t.Errorf("%s, kernel %q: a plan that has not run took %v, %v", d, kernel, pl.Took(), pl.Verified())
			}
			clear(b[gemm.C])
			if err := pl.Run(t.Context(), b); err != nil {
				t.Fatalf("%s, %s: %v", d, kernel, err)
			}
			if got := dtype.F32.At(b[gemm.C], 70*60-1); got != 50 || pl.Took() <= 0 {
				t.Errorf("%s, kernel %q: the last element is %v after %v, want 50", d, kernel, got, pl.Took())
			}
			if compiled := pl.CompileTime() > 0; compiled != pl.Device.IsGPU() {
				t.Errorf("%s, kernel %q: compiled in %v", d, kernel, pl.CompileTime())
			}
		}
	}
	if pl, err := New(Request{Problem: p, Device: name(t, "emu"), Kernel: "tiled:16"}); err != nil || pl.Kernel != "tiled" || !strings.Contains(pl.Detail(), "tile 16") {
		t.Errorf("tiled:16 is planned as %+v, %v", pl, err)
	}
}

func TestPlanErrors(t *testing.T) {
	p, b := product(t, dtype.F32, dtype.F32, 3, 4, 5, gemm.Epilogue{})
	tf32, f32x3 := p, p
	tf32.Precision, f32x3.Precision = gemm.TF32, gemm.F32x3
	for _, c := range []struct {
		r    Request
		want error
		text string
	}{
		{Request{Kernel: "fast"}, gemm.ErrUnsupported, `no CPU kernel "fast"`},
		{Request{Device: name(t, "cpu"), Kernel: "tiled"}, gemm.ErrUnsupported, `no CPU kernel "tiled"`},
		{Request{Device: name(t, "cpu"), Problem: tf32}, gemm.ErrUnsupported, "precision tf32 on the processor"},
		{Request{Device: name(t, "emu"), Kernel: "tiled", Problem: tf32}, gemm.ErrUnsupported, "kernel tiled multiplies no float32 in precision tf32"},
		{Request{Device: name(t, "emu:t4"), Problem: f32x3}, gemm.ErrUnsupported, "kernel wgmma needs sm_90a"},
		{Request{Device: name(t, "emu"), Kernel: "loop"}, gemm.ErrUnsupported, `no GPU kernel "loop"`},
		{Request{Device: name(t, "emu"), Kernel: ":16"}, gemm.ErrUnsupported, "of no kernel"},
		{Request{Device: name(t, "emu"), Kernel: "tiled:-4"}, gemm.ErrUnsupported, "-4"},
		{Request{Device: name(t, "emu:h300")}, gemm.ErrNoDevice, `emu:h300: unknown GPU "h300"`},
		{Request{Device: name(t, "gpu:9999")}, gemm.ErrNoDevice, "no such device"},
	} {
		if c.r.Problem == (gemm.Problem{}) {
			c.r.Problem = p
		}
		if _, err := New(c.r); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %v with %q", c.r, err, c.want, c.text)
		}
	}
	if err := CheckDevice(name(t, "emu:h300")); !errors.Is(err, gemm.ErrNoDevice) {
		t.Errorf("Check: %v", err)
	}
	for _, d := range []string{"cpu", "emu"} {
		pl, err := New(Request{Problem: p, Device: name(t, d)})
		if err != nil {
			t.Fatal(err)
		}
		short := b
		short[gemm.B] = short[gemm.B][:len(b[gemm.B])-1]
		if err := pl.Run(t.Context(), short); !errors.Is(err, gemm.ErrShape) {
			t.Errorf("on %s with too little memory for B: %v", d, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pl.Run(ctx, b); !errors.Is(err, context.Canceled) {
			t.Errorf("on %s, cancelled: %v", d, err)
		}
	}
}

// TestVerified: a result is verified on any device, before the activation where there
// is one, which is then still the kernel's to the bit.
func TestVerified(t *testing.T) {
	for _, d := range []string{"cpu", "emu"} {
		for _, act := range gemm.Activations() {
			p, b := product(t, dtype.F16, dtype.F16, 33, 20, 10, gemm.Epilogue{Activation: act})
			pl, err := New(Request{Problem: p, Device: name(t, d), Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := pl.Run(t.Context(), b); err != nil {
				t.Errorf("%s, %v: %v", d, act, err)
			}
			want := dtype.F16.Round(act.Info().F(10))
			if got := dtype.F16.At(b[gemm.C], 33*20-1); pl.Verified() == nil || got != want {
				t.Errorf("%s, %v: the last element is %v, want %v; verified: %v", d, act, got, want, pl.Verified())
			}
		}
	}
}

// corrupt is a device that changes what it copies back.
type corrupt struct{ device.Device }

func (c corrupt) CopyOut(ctx context.Context, dst []byte, src device.Ptr, r device.Rows) error {
	err := c.Device.CopyOut(ctx, dst, src, r)
	dst[2] ^= 0x40
	return err
}

func TestCorruptedResult(t *testing.T) {
	inner, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	restore := Substitute(func(backend.Device) (device.Device, error) { return corrupt{inner}, nil })
	defer restore()
	for _, act := range []gemm.Activation{gemm.ActNone, gemm.ActReLU} {
		p, b := product(t, dtype.F32, dtype.F32, 8, 8, 8, gemm.Epilogue{Activation: act})
		pl, err := New(Request{Problem: p, Device: name(t, "emu"), Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := pl.Run(t.Context(), b); !errors.Is(err, gemm.ErrVerify) {
			t.Errorf("%v, with a bit of the result changed: %v", act, err)
		}
	}
}

// TestBatch: all products are computed, small ones and large ones, of the processor
// and of a device, and what goes wrong names the product.
func TestBatch(t *testing.T) {
	var batch []Product
	add := func(d string, m, n, k int) {
		p, b := product(t, dtype.F64, dtype.F64, m, n, k, gemm.Epilogue{})
		pl, err := New(Request{Problem: p, Device: name(t, d)})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, Product{*pl, b})
	}
	for i := range 10 {
		add("cpu", 1+i, 2, 3)
	}
	add("cpu", 200, 210, 220)
	for range 3 { // one launch
		add("emu", 8, 9, 10)
	}
	add("emu", 9, 9, 10)
	if err := RunBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, p := range batch {
		if got := dtype.F64.At(p.Buffers[gemm.C], p.Problem.C().Len()-1); got != float64(p.Problem.K) {
			t.Errorf("product %d: the last element is %v, want %d", i, got, p.Problem.K)
		}
	}
	if err := RunBatch(t.Context(), nil); err != nil {
		t.Errorf("no products: %v", err)
	}

	many, err := batch[0].Problem.Strided(2, gemm.Batch{Stride: gemm.Strides{gemm.C: batch[0].Problem.C().Len()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Request{Problem: many, Device: name(t, "cpu")}); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("a batch as one product: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RunBatch(ctx, batch); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for i, c := range []struct {
		change func()
		want   error
		text   string
	}{
		{func() { batch[3].Buffers[gemm.C] = batch[4].Buffers[gemm.C] }, gemm.ErrOverlap, "C of product 3 shares memory with C of product 4"},
		{func() { batch[3].Buffers[gemm.C] = batch[10].Buffers[gemm.B] }, gemm.ErrOverlap, "C of product 3 shares memory with B of product 10"},
		{func() { batch[10].Buffers[gemm.A] = batch[10].Buffers[gemm.A][:8] }, gemm.ErrShape, "product 10 of the batch: "},
		{func() { batch[2].Buffers[gemm.A] = nil }, gemm.ErrShape, "product 2 of the batch: "},
		{func() { batch[11].Buffers[gemm.A] = nil }, gemm.ErrShape, "product 11 of the batch: "},
		{func() { batch[12].Buffers[gemm.B] = nil }, gemm.ErrShape, "product 12 of the batch: "},
		{func() { batch[14].Buffers[gemm.A] = nil }, gemm.ErrShape, "product 14 of the batch: "},
	} {
		before := slices.Clone(batch)
		c.change()
		err := RunBatch(t.Context(), batch)
		// Which of two comes first in memory is chance.
		a, b, _ := strings.Cut(c.text, " shares memory with ")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
			t.Errorf("change %d: %v, want %v with %q", i, err, c.want, c.text)
		}
		batch = before
	}
}

// TestOpenGPU: a device is opened once for all who use it, and closed with the last of
// them, unless a plan keeps it.
func TestOpenGPU(t *testing.T) {
	opened := 0
	var last *faulty.Device
	restore := Substitute(func(backend.Device) (device.Device, error) {
		inner, err := emu.Open(emu.Options{})
		opened++
		last = faulty.New(inner)
		return last, err
	})
	d := backend.Device{Kind: "emu"}
	b, closeIt, err := OpenGPU(d)
	if err != nil {
		t.Fatal(err)
	}
	again, closeAgain, err := OpenGPU(d)
	if err != nil || again != b || opened != 1 {
		t.Errorf("opened %d times, %v", opened, err)
	}
	for range 2 { // the second is not another user's
		if err := closeIt(); err != nil || last.Closed() {
			t.Errorf("closed: %v, %v", last.Closed(), err)
		}
	}
	if err := closeAgain(); err != nil || !last.Closed() {
		t.Errorf("closed: %v, %v", last.Closed(), err)
	}
	_, closeIt, err = OpenGPU(d)
	if err != nil || opened != 2 {
		t.Errorf("opened %d times, %v", opened, err)
	}
	if err := CheckDevice(d); err != nil || opened != 2 {
		t.Errorf("opened %d times, %v", opened, err)
	}
	if err := closeIt(); err != nil || last.Closed() {
		t.Errorf("closed: %v, %v", last.Closed(), err)
	}
	if err := restore(); err != nil || !last.Closed() {
		t.Errorf("restored, and closed: %v, %v", last.Closed(), err)
	}
}

// TestProgress: the processor tells how far it is, and never backwards.
func TestProgress(t *testing.T) {
	p, b := product(t, dtype.F32, dtype.F32, 500, 500, 500, gemm.Epilogue{})
	var done, total int64
	pl, err := New(Request{Problem: p, Device: name(t, "cpu"), Timed: true, Progress: func(d, of int64) {
		if d < done || of <= 0 || d > of {
			t.Errorf("%d of %d after %d of %d", d, of, done, total)
		}
		done, total = d, of
	}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := pl.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if done == 0 || pl.Took() > time.Since(start) {
		t.Errorf("%d of %d is the last that was told, after %v of %v", done, total, pl.Took(), time.Since(start))
	}
}
