package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"tilework/internal/device"
	"tilework/ptx"
)

// TestLayouts: the structures are those of cuda.h 13.0 on 64-bit systems.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUDA_MEMCPY2D", unsafe.Sizeof(memcpy2D{}), 128},
		{"CUDA_MEMCPY2D.srcMemoryType", unsafe.Offsetof(memcpy2D{}.src) + unsafe.Offsetof(side2D{}.kind), 16},
		{"CUDA_MEMCPY2D.srcHost", unsafe.Offsetof(side2D{}.host), 24},
		{"CUDA_MEMCPY2D.srcDevice", unsafe.Offsetof(side2D{}.device), 32},
		{"CUDA_MEMCPY2D.srcPitch", unsafe.Offsetof(side2D{}.pitch), 48},
		{"CUDA_MEMCPY2D.dstXInBytes", unsafe.Offsetof(memcpy2D{}.dst), 56},
		{"CUDA_MEMCPY2D.WidthInBytes", unsafe.Offsetof(memcpy2D{}.width), 112},
		{"CUDA_MEMCPY2D.Height", unsafe.Offsetof(memcpy2D{}.height), 120},
		{"CUlaunchConfig", unsafe.Sizeof(launchConfig{}), 56},
		{"CUlaunchConfig.sharedMemBytes", unsafe.Offsetof(launchConfig{}.shared), 24},
		{"CUlaunchConfig.hStream", unsafe.Offsetof(launchConfig{}.stream), 32},
		{"CUlaunchConfig.attrs", unsafe.Offsetof(launchConfig{}.attributes), 40},
		{"CUlaunchConfig.numAttrs", unsafe.Offsetof(launchConfig{}.count), 48},
		{"CUlaunchAttribute", unsafe.Sizeof(launchAttribute{}), 72},
		{"CUlaunchAttribute.value", unsafe.Offsetof(launchAttribute{}.value), 8},
		{"CUmemPoolProps", unsafe.Sizeof(poolProps{}), 88},
		{"CUmemPoolProps.location", unsafe.Offsetof(poolProps{}.locationType), 8},
		{"CUmemPoolProps.win32SecurityAttributes", unsafe.Offsetof(poolProps{}.security), 16},
		{"CUmemPoolProps.maxSize", unsafe.Offsetof(poolProps{}.maxSize), 24},
		{"CUmemPoolProps.usage", unsafe.Offsetof(poolProps{}.usage), 32},
		{"extra", unsafe.Sizeof(extra{}), 40},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
}

func TestList(t *testing.T) {
	d, err := newDriver(newFake())
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.list()
	if err != nil || len(all) != 2 {
		t.Fatalf("%d devices, %v", len(all), err)
	}
	got := all[1]
	got.handle, got.maxPitch, got.pools = 0, 0, false
	want := Info{
		Info: device.Info{
			Name: "Fake GPU", Target: ptx.Target{SM: 90, Suffix: "a"}, SMs: 132, Memory: 1 << 30,
			MaxThreads: 1024, MaxShared: 227 << 10, MaxGrid: device.Dim3{X: math.MaxInt32, Y: 65535, Z: 65535},
		},
		Index: 1, UUID: "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", PCI: "0000:ff:00.0", Driver: "CUDA 13.0",
		Clock: 1980, MemoryClock: 3201, MemoryBus: 6144, L2: 60 << 20,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		driver       version
		want         string
	}{
		{7, 5, 13000, "sm_75"},
		{8, 9, 13000, "sm_89"},
		{9, 0, 11080, "sm_90"},
		{9, 0, 12000, "sm_90a"},
		{10, 0, 12080, "sm_100a"},
		{19, 0, 20000, "sm_190"},
	} {
		if got := target(c.major, c.minor, c.driver).String(); got != c.want {
			t.Errorf("%d.%d on %v: %s, want %s", c.major, c.minor, c.driver, got, c.want)
		}
	}
}

// TestNoDevice: what is missing is said, in one line.
func TestNoDevice(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "7")
	try := func(f *fake, index int) error {
		d, err := newDriver(f)
		if err != nil {
			return err
		}
		if _, err = d.open(index); err == nil {
			_, err = d.list()
		}
		return err
	}
	fails := func(with code) *fake {
		f := newFake()
		f.failAt, f.failWith = 2, with // cuInit
		return f
	}
	none, old := newFake(), newFake()
	none.devices = 0
	old.lacks[cuPrimaryCtxRelease] = true
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"none", try(none, 0), `shows no GPU (CUDA_VISIBLE_DEVICES is "7")`},
		{"negative", try(newFake(), -1), "GPU -1: the NVIDIA driver shows 2"},
		{"too many", try(newFake(), 2), "GPU 2: the NVIDIA driver shows 2"},
		{"cuInit finds none", try(fails(100), 0), "cuInit: error 100"},
		{"mismatch", try(fails(803), 0), "cuInit: error 803"},
		{"old", try(old, 0), "lacks cuDevicePrimaryCtxRelease_v2: it is older than CUDA 11.0"},
	} {
		if !errors.Is(c.err, device.ErrNoDevice) || !strings.Contains(c.err.Error(), c.want) || strings.Contains(c.err.Error(), "\n") {
			t.Errorf("%s: %v, want a line with %q", c.name, c.err, c.want)
		}
	}
}

// TestNoDriver: the real library, where there is none.
func TestNoDriver(t *testing.T) {
	if _, err := openLibrary(); err == nil {
		t.Skip("this machine has the driver")
	} else if !errors.Is(err, device.ErrNoDevice) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want a line that wraps ErrNoDevice", err)
	}
	if _, err := Open(0); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("Open: %v", err)
	}
	if _, err := List(); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("List: %v", err)
	}
}

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

func TestLaunch(t *testing.T) {
	f := newFake()
	g, other := opened(t, f, 0), opened(t, f, 0)
	kernelOf := func(g *GPU) device.Function {
		m, err := g.Load(t.Context(), "text")
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
	good := TensorMap{Element: TensorBF16, Base: 1 << 20, Dims: []int{77, 64}, Strides: []int{160}, Box: []int{64, 128}, Swizzle: Swizzle128}
	m, err := g.Encode(good)
	if err != nil || m[0] != 77 || m[127] != 3 {
		t.Errorf("dimension %d, swizzle %d, %v", m[0], m[127], err)
	}
	for name, change := range map[string]func(*TensorMap){
		"no dimensions":  func(m *TensorMap) { m.Dims = nil },
		"six dimensions": func(m *TensorMap) { m.Dims, m.Strides, m.Box = make([]int, 6), make([]int, 5), make([]int, 6) },
		"strides":        func(m *TensorMap) { m.Strides = nil },
		"box":            func(m *TensorMap) { m.Box = []int{64} },
		"large box":      func(m *TensorMap) { m.Box = []int{64, 257} },
		"empty":          func(m *TensorMap) { m.Dims = []int{0, 64} },
		"negative":       func(m *TensorMap) { m.Strides = []int{-160} },
	} {
		m := good
		change(&m)
		if _, err := g.Encode(m); !errors.Is(err, device.ErrLaunch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCopyBounds: no copy leaves the memory on either side, and no memory is freed
// that was not reserved.
func TestCopyBounds(t *testing.T) {
	g := opened(t, newFake(), 0)
	p, err := g.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	host := make([]byte, 1000)
	for _, c := range []struct {
		name string
		at   device.Ptr
		rows device.Rows
		ok   bool
	}{
		{"all", p, device.Whole(1000), true},
		{"nothing", p + 1000, device.Whole(0), true},
		{"nothing nowhere", 0, device.Rows{Count: 0, Width: 10, Host: 10, Device: 10}, true},
		{"end", p + 900, device.Whole(100), true},
		{"rows to the end", p, device.Rows{Count: 10, Width: 10, Host: 10, Device: 110}, true},
		{"past the end", p + 900, device.Whole(101), false},
		{"before", p - 1, device.Whole(1), false},
		{"zero", 0, device.Whole(1), false},
		{"rows past the end", p + 1, device.Rows{Count: 10, Width: 10, Host: 10, Device: 110}, false},
		{"host", p, device.Rows{Count: 10, Width: 10, Host: 200, Device: 20}, false},
		{"overflow", p, device.Rows{Count: 5, Width: 10, Host: 10, Device: 1 << 62}, false},
		{"sign", p, device.Rows{Count: 3, Width: 10, Host: 10, Device: 1 << 62}, false},
	} {
		for name, f := range map[string]func(context.Context) error{
			"in":  func(ctx context.Context) error { return g.CopyIn(ctx, c.at, host, c.rows) },
			"out": func(ctx context.Context) error { return g.CopyOut(ctx, host, c.at, c.rows) },
		} {
			if err := f(t.Context()); (err == nil) != c.ok {
				t.Errorf("%s %s: %v", c.name, name, err)
			}
		}
	}
	for _, q := range []device.Ptr{p + 1, 12345} {
		if err := g.Free(q); err == nil {
			t.Errorf("freed %#x", uint64(q))
		}
	}
	if err := errors.Join(g.Free(0), g.Free(p)); err != nil {
		t.Error(err)
	}
	if err := g.Free(p); err == nil {
		t.Error("freed twice")
	}
	if _, err := g.Alloc(-1); err == nil {
		t.Error("reserved -1 bytes")
	}
	if p, err := g.Alloc(0); p != 0 || err != nil {
		t.Errorf("0 bytes at %#x, %v", uint64(p), err)
	}
}

// TestRegions: against a plain list.
func TestRegions(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var r regions
	plain := map[device.Ptr]int{}
	for range 5000 {
		cell := device.Ptr(1 + rng.IntN(50))
		start, size := 100*cell, 1+rng.IntN(100)
		if plain[start] == 0 && rng.IntN(2) == 0 {
			r.add(region{start, size})
			plain[start] = size
		} else if rng.IntN(2) == 0 {
			if got := r.remove(start); got != (plain[start] > 0) {
				t.Fatalf("remove %d: %v", start, got)
			}
			delete(plain, start)
		}
		at, n := start-50+device.Ptr(rng.IntN(150)), rng.IntN(120)
		want := false
		for s, size := range plain {
			want = want || s <= at && at+device.Ptr(n) <= s+device.Ptr(size)
		}
		if got := r.hold(at, n); got != want {
			t.Fatalf("%d bytes from %d of %v: %v", n, at, r, got)
		}
	}
}

// TestPieces: the pieces of a copy cover each byte once and fit in a slot.
func TestPieces(t *testing.T) {
	const pitch = 1 << 31
	g := &GPU{info: Info{maxPitch: pitch}}
	for _, r := range []device.Rows{
		{},
		{Count: 1, Width: 1},
		{Count: 1, Width: slotBytes}, {Count: 1, Width: slotBytes + 1}, {Count: 1, Width: 3*slotBytes - 1},
		{Count: 3, Width: slotBytes + 5},
		{Count: 7, Width: slotBytes/2 + 1}, {Count: 7, Width: slotBytes / 2},
		{Count: 1000, Width: 9999},
		{Count: 10, Width: 9999, Device: pitch + 1},
	} {
		tr := transfer{gpu: g, rows: r}
		covered, row, col := 0, 0, 0
		for p := range tr.pieces() {
			if p.row != row || p.col != col || p.count < 1 || p.width < 1 || p.count*p.width > slotBytes ||
				p.count > 1 && (p.width != r.Width || r.Device > pitch) {
				t.Fatalf("%+v: piece %+v after row %d, column %d", r, p, row, col)
			}
			covered += p.count * p.width
			if col += p.width; col == r.Width {
				row, col = row+p.count, 0
			}
		}
		if covered != r.Count*r.Width {
			t.Errorf("%+v: %d bytes of %d", r, covered, r.Count*r.Width)
		}
	}
}

// TestClosed: a closed device says so; closing again does nothing.
func TestClosed(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	if _, err := g.Alloc(10); err != nil {
		t.Fatal(err)
	}
	e, err := g.Record()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Load(t.Context(), "text"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Error(err)
	}
	if _, err := g.Alloc(10); !errors.Is(err, device.ErrNoDevice) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Alloc: %v", err)
	}
	if err := e.Free(); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("Free: %v", err)
	}
	if len(f.objects) > 0 || len(f.leaks) > 0 {
		t.Errorf("left %v", f.leaks)
	}
}
