package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/internal/device"
	"tilework/ptx"
)

// big is more than one slot, and bigger what the kernel of a test makes of it: three
// times in turn it adds 1 to the bytes around the slots' border.
var big, bigger = func() (in, out []byte) {
	in = make([]byte, slotBytes+1000)
	for i := range in {
		in[i] = byte(i * 7)
	}
	out = bytes.Clone(in)
	for i := slotBytes - border; i < slotBytes+border; i++ {
		out[i] += 3
	}
	return in, out
}()

const border = 500

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

	p, err := g.Alloc(len(big))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Free(p)) }()
	if err := copyBeside(ctx, g, p); err != nil {
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
		args.Ptr(p + slotBytes - border)
		args.U32(2 * border)
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
	if _, err := g.EncodeTensorMap(&ptx.TensorMap{Element: ptx.F32, Base: uint64(p) &^ 15, Dims: []int{64, 64}, Strides: []int{256}, Box: []int{32, 32}, Swizzle: 128}); err != nil {
		return err
	}

	got := make([]byte, len(big))
	if err := g.CopyOut(ctx, got, p, device.Whole(len(got))); err != nil {
		return err
	}
	if !bytes.Equal(got, bigger) {
		return errors.New("what comes back is not what the kernel made of what went in")
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

// copyBeside copies big to the GPU in a stream that the GPU's own then waits for.
func copyBeside(ctx context.Context, g *GPU, p device.Ptr) (err error) {
	s, err := g.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	there, err := g.Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, there.Free()) }()
	if err := s.Wait(there); err != nil {
		return err
	}
	if err := s.CopyIn(ctx, p, big, device.Whole(len(big))); err != nil {
		return err
	}
	arrived, err := s.Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, arrived.Free()) }()
	return g.Wait(arrived)
}

// absorbed are the functions whose failure may leave everything in order: they tell
// what is not needed, or are tried again.
var absorbed = []*symbol{cuDeviceAttribute, cuDeviceUUID, cuDevicePCIBusID}

// TestEveryCallFails: whichever call to the driver fails, and however, the error says
// so, and nothing is left behind. With -short, one call in seven fails.
func TestEveryCallFails(t *testing.T) {
	for i, mode := range []struct {
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
					f.lacks[cuDeviceUUID] = true
				}
				return f
			}
			n, step := 1, 1
			if testing.Short() {
				n, step = 1+i, 7
			}
			for ; ; n += step {
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
				// Of a device that is lost, whoever asks next may be the first to tell.
				case e.Call != f.failed.name && mode.kind != device.ErrLost || code(e.Code) != mode.with || e.Name == "" || e.Text == "":
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
			t.Logf("one in %d of %d calls failed in turn", step, n-1)
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
		"Sync":      func() error { return g.Sync(ctx) },
		"Record":    func() error { _, err := g.Record(); return err },
		"NewStream": func() error { _, err := g.NewStream(); return err },
		"Unload":    func() error { return m.Unload() },
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
	if _, err := g.Alloc(2 << 30); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "reserving 2147483648 bytes on Fake GPU, which has 1000 of its 2000 free: cuMem") {
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
