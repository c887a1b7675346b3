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

// TestPrecompile checks that PTX is compiled once, or that the GPU reports that it cannot.
func TestPrecompile(t *testing.T) {
	t.Setenv("CUDA_CACHE_DISABLE", "")
	f := newFake()
	g := opened(t, f, 0)
	check := func(text string, want bool, compiled int) {
		t.Helper()
		f.precompiled = 0
		if got := g.Precompile(text); got != want || f.precompiled != compiled {
			t.Errorf("PTX %q: reports %v and compiles %d times, want %v and %d", text, got, f.precompiled, want, compiled)
		}
	}
	check("one", true, 1)
	check("wrong", false, 0)
	check("a\x00b", false, 0)
	for _, o := range f.objects {
		if o.kind == "library" {
			t.Error("a library stays loaded")
		}
	}
	t.Setenv("CUDA_CACHE_DISABLE", "1")
	check("one", false, 0)
	t.Setenv("CUDA_CACHE_DISABLE", "")
	f.lacks[cuLibraryLoad] = true
	check("one", false, 0)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	f.lacks[cuLibraryLoad] = false
	check("one", false, 0)
}

func TestLoad(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	ctx := t.Context()
	for _, c := range []struct{ text, want string }{
		{"wrong", "cuModuleLoadDataEx: fake error 218 (CUDA_ERROR_218, 218): ptxas line 1; error : wrong; ptxas " +
			"fatal : aborted"},
		{"setmaxnreg", "(C7508) 'setmaxnreg' ignored"},
		{"a\x00b", "zero byte"},
	} {
		if _, err := g.Load(ctx, c.text); !errors.Is(err, device.ErrCompile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("PTX %q: got error %v, want one containing %q", c.text, err, c.want)
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
		t.Errorf("failed compilations left %d modules loaded", modules())
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
		t.Errorf("Log() = %q, want the compile time", a.Log())
	}
	ka, err := a.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	if kb, err := b.Function("k"); err != nil || kb != ka {
		t.Errorf("modules with the same PTX: got two kernels, error %v", err)
	}
	if _, err := c.Function("missing"); err == nil ||
		!strings.Contains(err.Error(), `kernel "missing": cuModuleGetFunction`) {
		t.Errorf("Function(\"missing\"): got error %v", err)
	}
	for range 2 { // the second call does nothing
		if err := a.Unload(); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Function("k"); err == nil {
		t.Error("Function on an unloaded module succeeded, want an error")
	}
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	l := device.Launch{Grid: one, Block: one, Params: make([]byte, 12)}
	if err := g.Launch(ctx, ka, l); err != nil {
		t.Errorf("Launch while another module holds the same PTX: %v", err)
	}
	if err := b.Unload(); err != nil {
		t.Error(err)
	}
	if modules() != 1 {
		t.Errorf("%d modules, want 1", modules())
	}
	if err := g.Launch(ctx, ka, l); !errors.Is(err, device.ErrLaunch) {
		t.Errorf("Launch of a kernel of an unloaded module: got error %v", err)
	}
}

// TestSignatures checks the sizes of parameter lists against the driver's rules.
func TestSignatures(t *testing.T) {
	s := parseSignatures(`
.visible .entry none() { ret; }
.visible .entry mixed(
	.param .u8 small, // the next parameter is at offset 8
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

// TestLoadContextEnds checks that Load returns when its context ends during compilation. A later
// Load uses the result; otherwise it is unloaded.
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
	abandon := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		f.compiling = make(chan struct{})
		go func() { <-f.compiling; cancel() }()
		if _, err := g.Load(ctx, "text"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Load: %v", err)
		}
	}
	abandon()
	<-f.compiling
	g.mu.Lock()
	for _, c := range g.modules {
		g.mu.Unlock()
		<-c.ready
		g.mu.Lock()
	}
	cached := len(g.modules)
	g.mu.Unlock()
	if cached != 0 || modules() != 0 {
		t.Errorf("abandoned compilation: %d cached, %d modules loaded; want none", cached, modules())
	}

	abandon()
	next := make(chan device.Module)
	go func() {
		m, err := g.Load(t.Context(), "text")
		if err != nil {
			t.Error(err)
		}
		next <- m
	}()
	for { // until the second Load waits for the first compilation
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
		t.Fatalf("second Load: got %v with %d modules loaded, want 1", m, modules())
	}
	if err := m.Unload(); err != nil || modules() != 0 {
		t.Errorf("Unload: error %v, %d modules loaded; want none", err, modules())
	}
}

func TestLaunch(t *testing.T) {
	f := newFake()
	g, other := opened(t, f, 0), opened(t, f, 0)
	kernelOf := func(g *GPU) device.Function {
		m, err := g.Load(t.Context(),
			".visible .entry other()\n.visible .entry k(\n\t.param .u64 at,\n\t.param .u32 n\n)\n{ ret; }")
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
	good := device.Launch{Grid: device.Dim3{X: 8, Y: 4, Z: 1}, Block: device.Dim3{X: 16, Y: 16, Z: 1},
		Params: make([]byte, 12)}
	for _, c := range []struct {
		name   string
		change func(*device.Launch)
		kernel device.Function
		want   string // part of the error; empty for none
	}{
		{"plain", func(l *device.Launch) {}, k, ""},
		{"maximum shared memory", func(l *device.Launch) { l.Shared = 226 << 10 }, k, ""},
		{"too much shared memory", func(l *device.Launch) { l.Shared = 226<<10 + 1 }, k,
			"231425 bytes of dynamic and 1024 of static shared memory"},
		{"negative shared memory", func(l *device.Launch) { l.Shared = -1 }, k, "-1 bytes"},
		{"empty grid", func(l *device.Launch) { l.Grid.Z = 0 }, k, "grid has 8×4×0 blocks"},
		{"grid too large", func(l *device.Launch) { l.Grid.Y = 65536 }, k, "supports at most 2147483647×65535×65535"},
		{"too many threads", func(l *device.Launch) { l.Block.X = 33 }, k,
			"block has 33×16×1 threads: the compiled kernel supports at most 512"},
		{"thread count overflows", func(l *device.Launch) { l.Block = device.Dim3{X: 1 << 32, Y: 1 << 32, Z: 1} }, k,
			"supports at most 512"},
		{"negative threads", func(l *device.Launch) { l.Block = device.Dim3{X: -1, Y: -1, Z: 1} }, k,
			"block has -1×-1×1 threads"},
		{"too few arguments", func(l *device.Launch) { l.Params = l.Params[:8] }, k, "arguments have 8 bytes: want 12"},
		{"cluster", func(l *device.Launch) { l.Cluster = device.Dim3{X: 2, Y: 4, Z: 1}; l.Cooperative = true }, k, ""},
		{"programmatic dependent launch", func(l *device.Launch) { l.PDL = true }, k, ""},
		{"cluster does not divide grid", func(l *device.Launch) { l.Cluster = device.Dim3{X: 3, Y: 1, Z: 1} }, k,
			"clusters of 3×1×1 blocks"},
		{"empty cluster", func(l *device.Launch) { l.Cluster = device.Dim3{X: 2} }, k, "clusters of 2×0×0 blocks"},
		{"other device", func(l *device.Launch) {}, kernelOf(other), "want a kernel of this"},
		{"nil kernel", func(l *device.Launch) {}, nil, "want a kernel of this"},
	} {
		l := good
		c.change(&l)
		err := g.Launch(t.Context(), c.kernel, l)
		if (err == nil) != (c.want == "") || err != nil &&
			(!errors.Is(err, device.ErrLaunch) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got error %v, want one containing %q", c.name, err, c.want)
		}
	}
	want := []launched{
		{name: "k", bufferedParams: 12},
		{name: "k", bufferedParams: 12, shared: 226 << 10},
		{name: "k", bufferedParams: 12, cluster: [3]uint32{2, 4, 1}, cooperative: true},
		{name: "k", bufferedParams: 12, pdl: true},
	}
	if fmt.Sprint(f.launches) != fmt.Sprint(want) {
		t.Errorf("the driver got %+v, want %+v", f.launches, want)
	}
	f.failAt, f.failWith = f.calls+2, 1
	if err := g.Launch(t.Context(), k, good); !errors.Is(err, device.ErrLaunch) || errors.Is(err, device.ErrLost) {
		t.Errorf("launch rejected by the driver: got error %v", err)
	}
	f.lacks[cuLaunchKernelEx] = true
	good.Cooperative = true
	if err := g.Launch(t.Context(), k, good); !errors.Is(err, device.ErrLaunch) ||
		!strings.Contains(err.Error(), "driver is for CUDA 13.0: want CUDA 11.8 or later") {
		t.Errorf("without cuLaunchKernelEx: got error %v", err)
	}
}

func TestEncode(t *testing.T) {
	g := opened(t, newFake(), 0)
	good := ptx.TensorMap{Element: ptx.BF16, Base: 1 << 20, Dims: []int{77, 64}, Strides: []int{160},
		Box: []int{64, 128}, Swizzle: 128}
	m, err := g.EncodeTensorMap(&good)
	if err != nil || m[0] != 77 || m[127] != 3 {
		t.Errorf("encoded dimension %d and swizzle %d, error %v; want 77 and 3", m[0], m[127], err)
	}
	m, err = g.EncodeTensorMap(&ptx.TensorMap{Element: ptx.F32, Base: 1 << 20, Dims: []int{64, 9, 14, 2},
		Strides: []int{256, 2304, 32256}, Box: []int{16, 80}, Steps: []int{1, 1, 2, 1}, Lower: []int{-1, 5},
		Upper: []int{-1, 3}})
	if err != nil || m[0] != 5-3 || m[127] != 80+2 {
		t.Errorf("encoded corners with the difference %d, and pixels and step %d, error %v; want 2 and 82", m[0], m[127], err)
	}
	for name, change := range map[string]func(*ptx.TensorMap){
		"no dimensions": func(m *ptx.TensorMap) { m.Dims = nil },
		"six dimensions": func(m *ptx.TensorMap) {
			m.Dims, m.Strides, m.Box = make([]int, 6),
				make([]int, 5), make([]int, 6)
		},
		"no strides":                          func(m *ptx.TensorMap) { m.Strides = nil },
		"1D box":                              func(m *ptx.TensorMap) { m.Box = []int{64} },
		"box too large":                       func(m *ptx.TensorMap) { m.Box = []int{64, 257} },
		"empty tensor":                        func(m *ptx.TensorMap) { m.Dims = []int{0, 64} },
		"odd stride":                          func(m *ptx.TensorMap) { m.Strides = []int{168} },
		"odd base":                            func(m *ptx.TensorMap) { m.Base++ },
		"element type":                        func(m *ptx.TensorMap) { m.Element = ptx.E4M3 },
		"swizzle 3":                           func(m *ptx.TensorMap) { m.Swizzle = 3 },
		"box rows exceed swizzle":             func(m *ptx.TensorMap) { m.Swizzle = 64 },
		"box rows not a multiple of 16 bytes": func(m *ptx.TensorMap) { m.Box = []int{36, 128} },
		"negative stride":                     func(m *ptx.TensorMap) { m.Strides = []int{-160} },
		"interleaved matrix":                  func(m *ptx.TensorMap) { m.Interleave = 16 },
		"slices of 64 bytes": func(m *ptx.TensorMap) {
			m.Dims, m.Strides, m.Box = []int{16, 4, 3}, []int{64, 192}, []int{16, 4, 3}
			m.Interleave = 64
		},
		"interleaved slices of 32 bytes without a swizzle": func(m *ptx.TensorMap) {
			m.Dims, m.Strides, m.Box = []int{16, 4, 3}, []int{64, 192}, []int{16, 4, 3}
			m.Interleave, m.Swizzle = 32, 0
		},
		"interleaved slices of 32 bytes, odd stride": func(m *ptx.TensorMap) {
			m.Dims, m.Strides, m.Box = []int{16, 4, 3}, []int{48, 192}, []int{16, 4, 3}
			m.Interleave, m.Swizzle = 32, 32
		},
	} {
		m := good
		change(&m)
		if _, err := g.EncodeTensorMap(&m); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("%s: got error %v, want %v", name, err, device.ErrLaunch)
		}
	}
}

// TestEncodeMovesStack encodes tensor maps at all depths of a small stack, so that some calls move
// the stack before they reach the driver. The memory of the arguments must not move.
func TestEncodeMovesStack(t *testing.T) {
	g := opened(t, newFake(), 0)
	tiled := ptx.TensorMap{Element: ptx.BF16, Base: 1 << 20, Dims: []int{77, 64}, Strides: []int{160},
		Box: []int{64, 128}, Swizzle: 128}
	var encode func(depth int) byte
	encode = func(depth int) byte {
		if depth > 0 {
			return encode(depth - 1)
		}
		m, err := g.EncodeTensorMap(&tiled)
		if err != nil {
			t.Error(err)
		}
		return m[0]
	}
	for depth := range 300 {
		done := make(chan byte)
		go func() { done <- encode(depth) }() // on a new stack
		if got := <-done; got != 77 {
			t.Fatalf("encoded dimension %d after %d calls, want 77", got, depth)
		}
	}
}

// TestTensorMapArguments checks that arguments are moved to the driver's offsets, which differ from
// the PTX layout.
func TestTensorMapArguments(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	m, err := g.Load(t.Context(),
		".visible .entry k(\n\t.param .u64 at,\n\t.param .align 64 .b8 map[128],\n\t.param .u32 n\n)\n{ ret; }")
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
	moved := fn.(*kernel).driverParams(nil, params.Bytes())
	if len(params.Bytes()) != 196 || len(moved) != 180 || moved[0] != 1 || moved[48] != 2 || moved[175] != 3 ||
		moved[176] != 4 {
		t.Errorf("driverParams of %d bytes = % x", len(params.Bytes()), moved)
	}
	l := device.Launch{Grid: device.Dim3{X: 1, Y: 1, Z: 1}, Block: device.Dim3{X: 1, Y: 1, Z: 1},
		Params: params.Bytes()}
	if err := g.Launch(t.Context(), fn, l); err != nil || f.launches[0].bufferedParams != len(moved) {
		t.Errorf("launched with %d bytes of arguments, error %v", f.launches[0].bufferedParams, err)
	}
}
