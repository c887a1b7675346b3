package emu

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu"
)

func open(t *testing.T, opt Options) *Device {
	t.Helper()
	d, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// load compiles a kernel of one thread whose body write emits.
func load(t *testing.T, d *Device, write func(k *build.Kernel, out build.Ptr)) device.Function {
	t.Helper()
	k := build.New("k")
	k.Threads(1, 1, 1)
	write(k, k.Pointer("out", ptx.U32))
	text, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load(t.Context(), text.String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// singleThread returns a launch of one thread with argument p.
func singleThread(p device.Ptr) device.Launch {
	var args device.Params
	args.Ptr(p)
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	return device.Launch{Grid: one, Block: one, Params: args.Bytes()}
}

func TestCopies(t *testing.T) {
	d := open(t, Options{})
	p, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	host := []byte("abc.def.ghi")
	rows := device.Rows{Count: 3, Width: 3, HostPitch: 4, DevicePitch: 5}
	if err := d.CopyIn(t.Context(), p, make([]byte, 64), device.Whole(64)); err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(t.Context(), p, host, rows); err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, 13)
	if err := d.CopyOut(t.Context(), whole, p, device.Whole(13)); err != nil {
		t.Fatal(err)
	}
	if want := []byte("abc\x00\x00def\x00\x00ghi"); !bytes.Equal(whole, want) {
		t.Errorf("device memory is %q, want %q", whole, want)
	}
	back := []byte("-----------")
	if err := d.CopyOut(t.Context(), back, p, rows); err != nil {
		t.Fatal(err)
	}
	if want := "abc-def-ghi"; string(back) != want {
		t.Errorf("CopyOut wrote %q, want %q", back, want)
	}
	if err := d.CopyIn(t.Context(), p, host, device.Whole(12)); err == nil {
		t.Error("CopyIn of more bytes than the host slice succeeded, want an error")
	}
	if err := d.CopyOut(t.Context(), make([]byte, 65), p, device.Whole(65)); !errors.Is(err, emu.ErrAddress) {
		t.Errorf("CopyOut beyond the allocation: got error %v, want %v", err, emu.ErrAddress)
	}
	if err := d.Free(p); err != nil || d.Used() != 0 {
		t.Errorf("Free: error %v, %d bytes in use; want no error and 0 bytes", err, d.Used())
	}
	if err := d.Free(0); err != nil {
		t.Errorf("Free(0): %v", err)
	}
}

func TestOutOfMemory(t *testing.T) {
	d := open(t, Options{Memory: 1000})
	p, err := d.Alloc(900)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(200); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("got %v, want %v", err, device.ErrOutOfMemory)
	}
	if err := d.Free(p); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(200); err != nil {
		t.Errorf("Alloc after Free: %v", err)
	}
}

func TestInfo(t *testing.T) {
	for _, c := range []struct {
		model, target string
		sms           int
	}{{"h200", "sm_90a", 132}, {"t4", "sm_75", 40}, {"sm_80", "sm_80", 1}} {
		m, err := model.Lookup(c.model)
		if err != nil {
			t.Fatal(err)
		}
		in := open(t, Options{Model: m}).Info()
		if in.Target.String() != c.target || in.SMs != c.sms || !in.Emulated || in.MaxThreads != 1024 ||
			in.Name != c.model {
			t.Errorf("%s: got %+v, want target %s and %d SMs", c.model, *in, c.target, c.sms)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	turing, err := model.Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"not PTX", "int main() {}", "kernel.ptx:1:1"},
		{"undeclared register",
			".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { mov.u32 %r1, 0; ret; }",
			"%r1 is not declared"},
		{"newer target", ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }",
			"the PTX targets sm_80 and t4 supports up to sm_75"},
	} {
		_, err := open(t, Options{Model: turing}).Load(t.Context(), c.text)
		if !errors.Is(err, device.ErrCompile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one containing %q", c.name, err, c.want)
		}
	}
	m, err := open(t, Options{}).Load(t.Context(),
		".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("l"); err == nil || !strings.Contains(err.Error(), `no kernel "l": want one of ["k"]`) {
		t.Errorf("Function(\"l\"): got error %v, want one that names the kernel k", err)
	}
	m, err = open(t, Options{}).Load(t.Context(), ".version 7.0\n.target sm_75\n.address_size 64\n"+
		".visible .entry k() { ret; }\n.visible .entry refused() { frob; }")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("k"); err != nil {
		t.Errorf("Function(\"k\"): %v", err)
	}
	if _, err := m.Function("refused"); !errors.Is(err, device.ErrCompile) || !strings.Contains(err.Error(), "frob") {
		t.Errorf("Function(\"refused\"): got error %v, want one that names the instruction", err)
	}
}

func TestLaunch(t *testing.T) {
	d := open(t, Options{MaxInstructions: 1e6})
	p, err := d.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(t.Context(), p, make([]byte, 4), device.Whole(4)); err != nil {
		t.Fatal(err)
	}
	good := load(t, d, func(k *build.Kernel, out build.Ptr) {
		k.Shared("s", ptx.F64, 2, 2)
		out.Store(7)
	})
	if got := good.Resources().Shared; got != 32 {
		t.Errorf("Resources().Shared = %d, want 32", got)
	}
	bad := load(t, d, func(k *build.Kernel, out build.Ptr) { out.At(1).Store(7) })
	endless := load(t, d, func(k *build.Kernel, out build.Ptr) {
		k.While(func() build.Reg { return k.Lt(out.Load(), 100) }, func() { out.Store(7) })
	})
	wide, large := singleThread(p), singleThread(p)
	wide.Block.X = 2
	large.Shared = 227<<10 - 31
	for _, c := range []struct {
		name string
		f    device.Function
		l    device.Launch
		want string
	}{
		{"block too large", good, wide, "block"},
		{"too much shared memory", good, large,
			"32 bytes of static and 232417 of dynamic shared memory: h200 has at most 232448"},
		{"no parameters", good, device.Launch{Grid: singleThread(p).Grid, Block: singleThread(p).Block}, "parameters"},
		{"out of bounds", bad, singleThread(p), "past the end"},
		{"endless loop", endless, singleThread(p), "instructions"},
		{"function of another device", nil, singleThread(p), "does not belong to an emulated GPU"},
	} {
		if err := d.Launch(t.Context(), c.f, c.l); !errors.Is(err, device.ErrLaunch) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one containing %q", c.name, err, c.want)
		}
	}
	// The device stays usable after the faults.
	before, _ := d.Record()
	if err := d.Launch(t.Context(), good, singleThread(p)); err != nil {
		t.Fatal(err)
	}
	after, _ := d.Record()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		if took, err := after.Since(ctx, before); err != nil || took <= 0 {
			t.Errorf("launch took %v, error %v; want a positive time", took, err)
		}
	}
	got := make([]byte, 4)
	if err := d.CopyOut(t.Context(), got, p, device.Whole(4)); err != nil || got[0] != 7 {
		t.Errorf("got %v, %v, want 7", got, err)
	}
}

func TestCancelEndlessKernel(t *testing.T) {
	d := open(t, Options{})
	p, err := d.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(t.Context(), p, make([]byte, 4), device.Whole(4)); err != nil {
		t.Fatal(err)
	}
	endless := load(t, d, func(k *build.Kernel, out build.Ptr) {
		k.While(func() build.Reg { return k.Lt(out.Load(), 100) }, func() { out.Store(7) })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Launch(ctx, endless, singleThread(p)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
