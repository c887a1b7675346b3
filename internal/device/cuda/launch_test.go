package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"tilework/internal/device"
	"tilework/ptx"
)

func TestLoad(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	ctx := t.Context()
	for _, c := range []struct{ text, want string }{
		{"wrong", "cuModuleLoadDataEx: error 218 of the fake (CUDA_ERROR_218, 218): ptxas line 1; error : wrong; ptxas fatal : aborted"},
		{"setmaxnreg", "(C7508) 'setmaxnreg' ignored"},
		{"a\x00b", "zero byte"},
	} {
		if _, err := g.Load(ctx, c.text); !errors.Is(err, device.ErrCompile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	modules := func() (n int) {
		for _, o := range f.objects {
			if o.kind == "module" {
				n++
			}
		}
		return n
	}
	if modules() != 0 {
		t.Errorf("refused texts left %d modules", modules())
	}

	load := func(text string) device.Module {
		m, err := g.Load(ctx, text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b, c := load("one"), load("one"), load("two")
	if modules() != 2 {
		t.Errorf("%d modules, want 2", modules())
	}
	if !strings.Contains(a.Log(), "compiled in") {
		t.Errorf("log %q", a.Log())
	}
	ka, err := a.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	if kb, err := b.Function("k"); err != nil || kb != ka {
		t.Errorf("the same text has two kernels, %v", err)
	}
	if _, err := c.Function("missing"); err == nil || !strings.Contains(err.Error(), `kernel "missing": cuModuleGetFunction`) {
		t.Errorf("missing: %v", err)
	}
	for range 2 { // the second time does nothing
		if err := a.Unload(); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Function("k"); err == nil {
		t.Error("a function of an unloaded module")
	}
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	l := device.Launch{Grid: one, Block: one, Params: make([]byte, 12)}
	if err := g.Launch(ctx, ka, l); err != nil {
		t.Errorf("while another still has the module: %v", err)
	}
	if err := b.Unload(); err != nil {
		t.Error(err)
	}
	if modules() != 1 {
		t.Errorf("%d modules, want 1", modules())
	}
	if err := g.Launch(ctx, ka, l); !errors.Is(err, device.ErrLaunch) {
		t.Errorf("of an unloaded module: %v", err)
	}
}

// TestSignatures: how long a kernel's arguments must be, as the driver would have it.
func TestSignatures(t *testing.T) {
	s := newSignatures(`
.visible .entry none() { ret; }
.visible .entry mixed(
	.param .u8 small, // the next stands at 8
	.param .u64 .ptr .global .align 16 p,
	.param .f32 x
)
.reqntid 16, 16, 1
{ ret; }
.entry map(.param .u32 n, .param .align 64 .b8 tensor[128]) { ret; }
.entry odd(.param .nonsense n) { ret; }
.entry bare { ret; }`)
	for name, want := range map[string]int{"none": 0, "mixed": 20, "map": 192, "odd": -1, "bare": -1, "absent": -1} {
		if got := paramBytes(s.entry(name)); got != want {
			t.Errorf("%s: %d bytes, want %d", name, got, want)
		}
	}
}

// TestLoadContextEnds: Load returns when its context ends, while the driver compiles;
// what that brings goes to whoever loads the text next, or back.
func TestLoadContextEnds(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	modules := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, o := range f.objects {
			if o.kind == "module" {
				n++
			}
		}
		return n
	}
	leave := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		f.compiling = make(chan struct{})
		go func() { <-f.compiling; cancel() }()
		if _, err := g.Load(ctx, "text"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Load: %v", err)
		}
	}
	leave()
	<-f.compiling
	g.mu.Lock()
	for _, c := range g.modules {
		g.mu.Unlock()
		<-c.ready
		g.mu.Lock()
	}
	left := len(g.modules)
	g.mu.Unlock()
	if left != 0 || modules() != 0 {
		t.Errorf("nobody wanted it: %d texts, %d modules", left, modules())
	}

	leave()
	next := make(chan device.Module)
	go func() {
		m, err := g.Load(t.Context(), "text")
		if err != nil {
			t.Error(err)
		}
		next <- m
	}()
	for { // until the second has joined the first
		g.mu.Lock()
		users := 0
		for _, c := range g.modules {
			users = c.users
		}
		g.mu.Unlock()
		if users > 0 {
			break
		}
		runtime.Gosched()
	}
	<-f.compiling
	m := <-next
	f.compiling = nil
	if m == nil || modules() != 1 {
		t.Fatalf("the next one got %v, of %d modules", m, modules())
	}
	if err := m.Unload(); err != nil || modules() != 0 {
		t.Errorf("Unload: %v, %d modules", err, modules())
	}
}

func TestLaunch(t *testing.T) {
	f := newFake()
	g, other := opened(t, f, 0), opened(t, f, 0)
	kernelOf := func(g *GPU) device.Function {
		m, err := g.Load(t.Context(), ".visible .entry other()\n.visible .entry k(\n\t.param .u64 at,\n\t.param .u32 n\n)\n{ ret; }")
		if err != nil {
			t.Fatal(err)
		}
		k, err := m.Function("k")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := kernelOf(g)
	good := device.Launch{Grid: device.Dim3{X: 8, Y: 4, Z: 1}, Block: device.Dim3{X: 16, Y: 16, Z: 1}, Params: make([]byte, 12)}
	for _, c := range []struct {
		name   string
		change func(*device.Launch)
		kernel device.Function
		want   string // of the error; empty for none
	}{
		{"plain", func(l *device.Launch) {}, k, ""},
		{"much shared memory", func(l *device.Launch) { l.Shared = 226 << 10 }, k, ""},
		{"too much", func(l *device.Launch) { l.Shared = 226<<10 + 1 }, k, "231425 bytes of dynamic shared memory beside 1024"},
		{"less than none", func(l *device.Launch) { l.Shared = -1 }, k, "-1 bytes"},
		{"no block", func(l *device.Launch) { l.Grid.Z = 0 }, k, "a grid of 8×4×0 blocks"},
		{"rows", func(l *device.Launch) { l.Grid.Y = 65536 }, k, "takes 2147483647×65535×65535"},
		{"threads", func(l *device.Launch) { l.Block.X = 33 }, k, "a block of 33×16×1 threads, and as compiled the kernel takes 512"},
		{"overflow", func(l *device.Launch) { l.Block = device.Dim3{X: 1 << 32, Y: 1 << 32, Z: 1} }, k, "takes 512"},
		{"negative threads", func(l *device.Launch) { l.Block = device.Dim3{X: -1, Y: -1, Z: 1} }, k, "a block of -1×-1×1 threads"},
		{"arguments", func(l *device.Launch) { l.Params = l.Params[:8] }, k, "8 bytes of arguments, and its parameters take 12"},
		{"cluster", func(l *device.Launch) { l.Cluster = device.Dim3{X: 2, Y: 4, Z: 1}; l.Cooperative = true }, k, ""},
		{"while others run", func(l *device.Launch) { l.Overlaps = true }, k, ""},
		{"cluster that does not fit", func(l *device.Launch) { l.Cluster = device.Dim3{X: 3, Y: 1, Z: 1} }, k, "clusters of 3×1×1 blocks"},
		{"half a cluster", func(l *device.Launch) { l.Cluster = device.Dim3{X: 2} }, k, "clusters of 2×0×0 blocks"},
		{"other device", func(l *device.Launch) {}, kernelOf(other), "another device"},
		{"no kernel", func(l *device.Launch) {}, nil, "another device"},
	} {
		l := good
		c.change(&l)
		err := g.Launch(t.Context(), c.kernel, l)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, device.ErrLaunch) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	want := []launched{
		{name: "k", bufferedParams: 12},
		{name: "k", bufferedParams: 12, shared: 226 << 10},
		{name: "k", bufferedParams: 12, cluster: [3]uint32{2, 4, 1}, cooperative: true},
		{name: "k", bufferedParams: 12, overlaps: true},
	}
	if fmt.Sprint(f.launches) != fmt.Sprint(want) {
		t.Errorf("the driver got %+v, want %+v", f.launches, want)
	}
	f.failAt, f.failWith = f.calls+2, 1
	if err := g.Launch(t.Context(), k, good); !errors.Is(err, device.ErrLaunch) || errors.Is(err, device.ErrLost) {
		t.Errorf("refused by the driver: %v", err)
	}
	f.lacks[cuLaunchKernelEx] = true
	good.Cooperative = true
	if err := g.Launch(t.Context(), k, good); !errors.Is(err, device.ErrLaunch) || !strings.Contains(err.Error(), "needs a driver for CUDA 11.8 or later, this one is for CUDA 13.0") {
		t.Errorf("without cuLaunchKernelEx: %v", err)
	}
}

func TestEncode(t *testing.T) {
	g := opened(t, newFake(), 0)
	good := ptx.TensorMap{Element: ptx.BF16, Base: 1 << 20, Dims: []int{77, 64}, Strides: []int{160}, Box: []int{64, 128}, Swizzle: 128}
	m, err := g.EncodeTensorMap(&good)
	if err != nil || m[0] != 77 || m[127] != 3 {
		t.Errorf("dimension %d, swizzle %d, %v", m[0], m[127], err)
	}
	for name, change := range map[string]func(*ptx.TensorMap){
		"no dimensions":  func(m *ptx.TensorMap) { m.Dims = nil },
		"six dimensions": func(m *ptx.TensorMap) { m.Dims, m.Strides, m.Box = make([]int, 6), make([]int, 5), make([]int, 6) },
		"strides":        func(m *ptx.TensorMap) { m.Strides = nil },
		"box":            func(m *ptx.TensorMap) { m.Box = []int{64} },
		"large box":      func(m *ptx.TensorMap) { m.Box = []int{64, 257} },
		"empty":          func(m *ptx.TensorMap) { m.Dims = []int{0, 64} },
		"stride":         func(m *ptx.TensorMap) { m.Strides = []int{168} },
		"base":           func(m *ptx.TensorMap) { m.Base++ },
		"type":           func(m *ptx.TensorMap) { m.Element = ptx.E4M3 },
		"swizzle":        func(m *ptx.TensorMap) { m.Swizzle = 3 },
		"long rows":      func(m *ptx.TensorMap) { m.Swizzle = 64 },
		"odd rows":       func(m *ptx.TensorMap) { m.Box = []int{36, 128} },
		"negative":       func(m *ptx.TensorMap) { m.Strides = []int{-160} },
	} {
		m := good
		change(&m)
		if _, err := g.EncodeTensorMap(&m); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTensorMapArguments: the driver wants tensor maps elsewhere than the text has them.
func TestTensorMapArguments(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	m, err := g.Load(t.Context(), ".visible .entry k(\n\t.param .u64 at,\n\t.param .align 64 .b8 map[128],\n\t.param .u32 n\n)\n{ ret; }")
	if err != nil {
		t.Fatal(err)
	}
	fn, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	var params device.Params
	params.U64(1)
	params.TensorMap([ptx.TensorMapBytes]byte{2, ptx.TensorMapBytes - 1: 3})
	params.U32(4)
	there := fn.(*kernel).arranged(params.Bytes())
	if len(params.Bytes()) != 196 || len(there) != 180 || there[0] != 1 || there[48] != 2 || there[175] != 3 || there[176] != 4 {
		t.Errorf("%d bytes become % x", len(params.Bytes()), there)
	}
	l := device.Launch{Grid: device.Dim3{X: 1, Y: 1, Z: 1}, Block: device.Dim3{X: 1, Y: 1, Z: 1}, Params: params.Bytes()}
	if err := g.Launch(t.Context(), fn, l); err != nil || f.launches[0].bufferedParams != len(there) {
		t.Errorf("%d bytes were launched, %v", f.launches[0].bufferedParams, err)
	}
}
