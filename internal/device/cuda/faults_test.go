package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/internal/device"
)

// all is a use of everything that a device does. It gives back what it took, as far
// as it came; the error joins the first failure with those of giving back.
func all(f *fake) (err error) {
	d, err := newDriver(f)
	if err != nil {
		return err
	}
	if _, err := d.list(); err != nil {
		return err
	}
	g, err := d.open(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	ctx := context.Background()

	big := make([]byte, slotBytes+1000)
	for i := range big {
		big[i] = byte(i * 7)
	}
	p, err := g.Alloc(len(big))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Free(p)) }()
	if err := g.CopyIn(ctx, p, big, device.Whole(len(big))); err != nil {
		return err
	}

	m, err := g.Load(ctx, "a text")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Unload()) }()
	k, err := m.Function("increment")
	if err != nil {
		return err
	}
	if r := k.Resources(); r != (device.Resources{Registers: 40, Spilled: 16, Shared: 1024}) {
		return fmt.Errorf("resources %+v", r)
	}
	from, err := g.Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Free()) }()
	for _, l := range []device.Launch{
		{},
		{Shared: 100 << 10},
		{Cluster: device.Dim3{X: 2, Y: 1, Z: 1}, Cooperative: true},
	} {
		l.Grid, l.Block = device.Dim3{X: 4, Y: 1, Z: 1}, device.Dim3{X: 32, Y: 1, Z: 1}
		var args device.Params
		args.Ptr(p)
		args.U32(uint32(len(big)))
		l.Params = args.Bytes()
		if err := g.Launch(ctx, k, l); err != nil {
			return err
		}
	}
	to, err := g.Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Free()) }()
	if took, err := to.Since(ctx, from); err != nil || took != 1500*time.Microsecond {
		return fmt.Errorf("time %v: %w", took, err)
	}
	if err := g.Sync(ctx); err != nil {
		return err
	}
	if _, err := g.Encode(TensorMap{Element: TensorF32, Base: p, Dims: []int{64, 64}, Strides: []int{256}, Box: []int{32, 32}, Swizzle: Swizzle128}); err != nil {
		return err
	}

	got := make([]byte, len(big))
	if err := g.CopyOut(ctx, got, p, device.Whole(len(got))); err != nil {
		return err
	}
	for i := range big {
		if got[i] != big[i]+3 {
			return fmt.Errorf("byte %d is %d, want %d", i, got[i], big[i]+3)
		}
	}
	rows := device.Rows{Count: 5, Width: 30, Host: 40, Device: 100}
	if err := g.CopyIn(ctx, p+8, big[:190], rows); err != nil {
		return err
	}
	clear(got)
	if err := g.CopyOut(ctx, got, p+8, rows); err != nil {
		return err
	}
	for i := range 190 {
		if want := big[i]; i%40 < 30 && got[i] != want || i%40 >= 30 && got[i] != 0 {
			return fmt.Errorf("of rows, byte %d is %d", i, got[i])
		}
	}
	return nil
}

// absorbed are the functions whose failure may leave everything in order: they tell
// what is not needed, or are tried again.
var absorbed = []*symbol{cuDeviceAttribute, cuDeviceUUID, cuDevicePCIBusID}

// TestEveryCallFails: whichever call to the driver fails, and however, the error says
// so, and nothing is left behind.
func TestEveryCallFails(t *testing.T) {
	for _, mode := range []struct {
		name string
		with code
		kind error // what the error is besides an *Error
		bare bool  // a driver without pools and without what came late
	}{
		{name: "unknown", with: 999},
		{name: "unknown, old driver", with: 999, bare: true},
		{name: "out of memory", with: 2, kind: device.ErrOutOfMemory},
		{name: "illegal address", with: 700, kind: device.ErrLost},
		{name: "ECC", with: 214, kind: device.ErrLost},
	} {
		t.Run(mode.name, func(t *testing.T) {
			prepare := func() *fake {
				f := newFake()
				if mode.bare {
					f.pools = false
					f.lacks[cuFuncGetParamInfo], f.lacks[cuDeviceUUID] = true, true
				}
				return f
			}
			n := 1
			for ; ; n++ {
				f := prepare()
				f.failAt, f.failWith = n, mode.with
				err := all(f)
				if f.failed == nil {
					if err != nil {
						t.Fatalf("no call failed: %v", err)
					}
					break
				}
				retried := mode.with == outOfMemory && f.failed == cuMemAllocFromPool
				var e *Error
				switch {
				case err == nil && (slices.Contains(absorbed, f.failed) || retried):
				case mode.kind == device.ErrLost && slices.Contains(absorbed, f.failed) && errors.Is(err, mode.kind):
					// What is not needed failed, and with it what was.
				case !errors.As(err, &e):
					t.Errorf("call %d, %s: the error is %v, no *Error", n, f.failed.name, err)
				case e.Call != f.failed.name || code(e.Code) != mode.with || e.Name == "" || e.Text == "":
					t.Errorf("call %d, %s: the error is %+v", n, f.failed.name, e)
				case mode.kind != nil && !errors.Is(err, mode.kind):
					t.Errorf("call %d, %s: %v is not %v", n, f.failed.name, err, mode.kind)
				}
				if len(f.leaks) > 0 {
					t.Errorf("call %d, %s: left %v", n, f.failed.name, f.leaks)
				}
				for dev, users := range f.retained {
					if users != 0 {
						t.Errorf("call %d, %s: the context of device %d has %d users", n, f.failed.name, dev, users)
					}
				}
			}
			t.Logf("%d calls failed in turn", n-1)
			if n < 100 {
				t.Errorf("only %d calls", n-1)
			}
		})
	}
}

// opened is a device of a fake, closed with the test, and what it must not leave.
func opened(t *testing.T, f *fake, index int) *GPU {
	t.Helper()
	d, err := newDriver(f)
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.open(index)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if len(f.leaks) > 0 {
			t.Errorf("left: %v", f.leaks)
		}
	})
	return g
}

// TestLost: after a kernel's bad address every method says that the device is lost,
// and a device opened anew is not.
func TestLost(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	ctx := t.Context()
	p, err := g.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Load(ctx, "text")
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	f.lost = 700
	if err := g.Sync(ctx); !errors.Is(err, device.ErrLost) || !errors.Is(err, device.ErrLaunch) {
		t.Errorf("first: %v", err)
	}
	f.lost = 0 // the device remembers without the driver
	host := make([]byte, 10)
	for name, call := range map[string]func() error{
		"Alloc":    func() error { _, err := g.Alloc(1); return err },
		"Free":     func() error { return g.Free(p) },
		"CopyIn":   func() error { return g.CopyIn(ctx, p, host, device.Whole(10)) },
		"Load":     func() error { _, err := g.Load(ctx, "other"); return err },
		"Function": func() error { _, err := m.Function("f"); return err },
		"Launch": func() error {
			one := device.Dim3{X: 1, Y: 1, Z: 1}
			return g.Launch(ctx, k, device.Launch{Grid: one, Block: one, Params: make([]byte, 12)})
		},
		"Sync":   func() error { return g.Sync(ctx) },
		"Record": func() error { _, err := g.Record(); return err },
		"Unload": func() error { return m.Unload() },
	} {
		before := f.calls
		if name == "CopyIn" {
			p = 0x1 // what Free forgot is checked before
			g.memory.add(region{p, 10})
		}
		if err := call(); !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "cuCtxSetCurrent") {
			t.Errorf("%s: %v", name, err)
		}
		if f.calls != before {
			t.Errorf("%s asked the driver", name)
		}
	}
	f.lost = 700
	if err := g.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	again := opened(t, f, 0)
	if err := again.Sync(ctx); err != nil {
		t.Errorf("opened anew: %v", err)
	}
}

// TestOutOfMemoryIsRecoverable: a device that lacked memory goes on.
func TestOutOfMemoryIsRecoverable(t *testing.T) {
	g := opened(t, newFake(), 0)
	if _, err := g.Alloc(2 << 30); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "2147483648 bytes") {
		t.Errorf("2 GiB of 1: %v", err)
	}
	p, err := g.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Free(p); err != nil {
		t.Error(err)
	}
}

// TestContextEnds: whatever waits on a device that never answers returns when its
// context ends; the caller's memory is then his own; and when the device answers
// again all is as before.
func TestContextEnds(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	data := make([]byte, 2*slotBytes+5)
	for i := range data {
		data[i] = byte(i % 251)
	}
	p, err := g.Alloc(len(data))
	if err != nil {
		t.Fatal(err)
	}
	whole := device.Whole(len(data))
	if err := g.CopyIn(t.Context(), p, data, whole); err != nil {
		t.Fatal(err)
	}
	e, err := g.Record()
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.stuck = true
	f.mu.Unlock()
	out := make([]byte, len(data))
	for _, c := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"Sync", g.Sync},
		{"Since", func(ctx context.Context) error { _, err := e.Since(ctx, e); return err }},
		{"CopyOut", func(ctx context.Context) error { return g.CopyOut(ctx, out, p, whole) }},
		{"CopyIn", func(ctx context.Context) error { return g.CopyIn(ctx, p, out, whole) }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		start := time.Now()
		if err := c.call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", c.name, err)
		}
		cancel()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s took %v to return", c.name, took)
		}
		if c.name == "CopyOut" {
			for i := range out {
				out[i] = 0xee
			}
		}
	}
	f.mu.Lock()
	f.stuck = false
	f.mu.Unlock()
	if err := g.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out, bytes.Repeat([]byte{0xee}, len(out))) {
		t.Error("a copy that was left wrote to the caller's memory")
	}
	if err := g.CopyIn(t.Context(), p, data, whole); err != nil {
		t.Fatal(err)
	}
	if err := g.CopyOut(t.Context(), out, p, whole); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out, data) {
		t.Error("after copies that were left, a copy brings other bytes")
	}
}

// TestContextHasEnded: no work begins under a context that has ended.
func TestContextHasEnded(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := g.Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.CopyIn(ctx, p, make([]byte, 10), device.Whole(10)); !errors.Is(err, context.Canceled) {
		t.Errorf("CopyIn: %v", err)
	}
	if _, err := g.Load(ctx, "text"); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: %v", err)
	}
	if err := g.Launch(ctx, &kernel{}, device.Launch{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Launch: %v", err)
	}
}

// TestConcurrent: several goroutines on two devices, each with memory and a kernel of
// its own, in random order.
func TestConcurrent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := newFake()
	devices := []*GPU{opened(t, f, 0)}
	if thread() != 0 {
		devices = append(devices, opened(t, f, 1))
	}
	done := make(chan error)
	const goroutines = 8
	for i := range goroutines {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		go func() {
			for range 10 {
				if err := oneOfMany(devices[rng.IntN(len(devices))], rng); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range goroutines {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// oneOfMany copies random bytes in, adds 1 to each, and copies them out.
func oneOfMany(g *GPU, rng *rand.Rand) (err error) {
	ctx := context.Background()
	data := make([]byte, 1+rng.IntN(3000))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	p, err := g.Alloc(len(data))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Free(p)) }()
	if err := g.CopyIn(ctx, p, data, device.Whole(len(data))); err != nil {
		return err
	}
	m, err := g.Load(ctx, fmt.Sprintf("text %d", rng.IntN(3)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Unload()) }()
	k, err := m.Function("increment")
	if err != nil {
		return err
	}
	var args device.Params
	args.Ptr(p)
	args.U32(uint32(len(data)))
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	if err := g.Launch(ctx, k, device.Launch{Grid: one, Block: one, Shared: 50<<10 + rng.IntN(1000), Params: args.Bytes()}); err != nil {
		return err
	}
	got := make([]byte, len(data))
	if err := g.CopyOut(ctx, got, p, device.Whole(len(got))); err != nil {
		return err
	}
	for i := range data {
		if got[i] != data[i]+1 {
			return fmt.Errorf("byte %d of %d is %d, want %d", i, len(data), got[i], data[i]+1)
		}
	}
	return nil
}
