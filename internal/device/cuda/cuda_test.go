package cuda

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"tilework/internal/device"
	"tilework/internal/sentinel"
	"tilework/ptx"
)

// TestLayouts checks structure layouts against cuda.h 13.0 on 64-bit systems.
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

func TestFind(t *testing.T) {
	d, err := newDriver(newFake())
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.list()
	if err != nil {
		t.Fatal(err)
	}
	for want, in := range all {
		if got, err := d.find(in.UUID); err != nil || got != want {
			t.Errorf("find(%q) = %d, error %v; want %d", in.UUID, got, err, in.Index)
		}
	}
	for uuid, want := range map[string]string{"GPU-": "is ambiguous: want one of " + all[0].UUID,
		"GPU-none": "shows " + all[0].UUID} {
		if _, err := d.find(uuid); !errors.Is(err, sentinel.ErrNoDevice) || !strings.Contains(err.Error(), want) {
			t.Errorf("find(%q): got error %v, want one containing %q", uuid, err, want)
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
		t.Fatalf("list() returned %d devices, error %v", len(all), err)
	}
	got := all[1]
	got.handle, got.maxPitch, got.pools = 0, 0, false
	want := Info{
		Info: device.Info{
			Name: "Fake GPU", Driver: "CUDA 13.0", Target: ptx.Target{SM: 90, Suffix: "a"}, SMs: 132, Memory: 1 << 30,
			MaxThreads: 1024, MaxShared: 227 << 10, MaxGrid: device.Dim3{X: math.MaxInt32, Y: 65535, Z: 65535},
		},
		Index: 1, UUID: "GPU-01010203-0405-0607-0809-0a0b0c0d0e0f", PCI: "0000:ff:00.0",
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
			t.Errorf("compute capability %d.%d with a driver for %v: target %s, want %s", c.major, c.minor, c.driver,
				got, c.want)
		}
	}
}

// TestNoDevice checks that errors name the missing part on one line.
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
		kind error
		want string
	}{
		{"no GPU", try(none, 0), sentinel.ErrNoDevice, `shows no GPU (CUDA_VISIBLE_DEVICES is "7")`},
		{"negative index", try(newFake(), -1), device.ErrIndex, "GPU -1: the NVIDIA driver shows 2"},
		{"index too large", try(newFake(), 2), device.ErrIndex, "GPU 2: the NVIDIA driver shows 2"},
		{"cuInit without a GPU", try(fails(100), 0), sentinel.ErrNoDevice, "cuInit: fake error 100"},
		{"version mismatch", try(fails(803), 0), sentinel.ErrNoDevice, "cuInit: fake error 803"},
		{"old driver", try(old, 0), sentinel.ErrNoDevice,
			"lacks cuDevicePrimaryCtxRelease_v2: want a driver for CUDA 11.0 or later"},
	} {
		if !errors.Is(c.err, sentinel.ErrNoDevice) || !errors.Is(c.err, c.kind) ||
			!strings.Contains(c.err.Error(), c.want) || strings.Contains(c.err.Error(), "\n") {
			t.Errorf("%s: got error %v, want %v in one line containing %q", c.name, c.err, c.kind, c.want)
		}
	}
}

// TestNoDriver uses the real library on a machine without a driver.
func TestNoDriver(t *testing.T) {
	if _, err := openLibrary(); err == nil {
		t.Skip("this machine has the driver")
	} else if !errors.Is(err, sentinel.ErrNoDevice) || strings.Contains(err.Error(), "\n") {
		t.Errorf("openLibrary: got error %v, want one line that wraps ErrNoDevice", err)
	}
	if _, err := Open(0); !errors.Is(err, sentinel.ErrNoDevice) {
		t.Errorf("Open: got error %v, want %v", err, sentinel.ErrNoDevice)
	}
	if _, err := List(); !errors.Is(err, sentinel.ErrNoDevice) {
		t.Errorf("List: got error %v, want %v", err, sentinel.ErrNoDevice)
	}
}

// TestClosed checks that calls on a closed device fail and that closing again does nothing.
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
	if _, err := g.Alloc(10); !errors.Is(err, sentinel.ErrNoDevice) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Alloc: got error %v, want %v", err, sentinel.ErrNoDevice)
	}
	if err := e.Free(); !errors.Is(err, sentinel.ErrNoDevice) {
		t.Errorf("Free: got error %v, want %v", err, sentinel.ErrNoDevice)
	}
	if len(f.objects) > 0 || len(f.leaks) > 0 {
		t.Errorf("leaked %v", f.leaks)
	}
}
