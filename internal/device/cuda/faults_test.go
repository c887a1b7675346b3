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
	"tilework/internal/testkit"
	"tilework/ptx"
)

// input is larger than one pinned buffer. output is the result of a kernel that adds 1 three times
// to the bytes around the border between the buffers.
var input, output = func() (in, out []byte) {
	in = make([]byte, bufferBytes+1000)
	for i := range in {
		in[i] = byte(i * 7)
	}
	out = bytes.Clone(in)
	for i := bufferBytes - border; i < bufferBytes+border; i++ {
		out[i] += 3
	}
	return in, out
}()

// border is the number of bytes on either side of the buffer border that the kernel changes.
const border = 500

// useAll uses every feature of a device and releases all resources, also after a failure. The error
// joins the first failure with the failures to release.
func useAll(f *fake) (err error) {
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

	p, err := g.Alloc(len(input))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Free(p)) }()
	if err := copyInOtherStream(ctx, g, p); err != nil {
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
		return fmt.Errorf("unexpected resources %+v", r)
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
		args.Ptr(p + bufferBytes - border)
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
		return fmt.Errorf("Since = %v: %w", took, err)
	}
	if err := g.Sync(ctx); err != nil {
		return err
	}
	if _, err := g.EncodeTensorMap(&ptx.TensorMap{Element: ptx.F32, Base: uint64(p) &^ 15, Dims: []int{64, 64},
		Strides: []int{256}, Box: []int{32, 32}, Swizzle: 128}); err != nil {
		return err
	}

	got := make([]byte, len(input))
	if err := g.CopyOut(ctx, got, p, device.Whole(len(got))); err != nil {
		return err
	}
	if !bytes.Equal(got, output) {
		return errors.New("CopyOut did not return the output of the kernel")
	}
	rows := device.Rows{Count: 5, Width: 30, HostPitch: 40, DevicePitch: 100}
	if err := g.CopyIn(ctx, p+8, input[:190], rows); err != nil {
		return err
	}
	clear(got)
	if err := g.CopyOut(ctx, got, p+8, rows); err != nil {
		return err
	}
	for i := range 190 {
		if want := input[i]; i%40 < 30 && got[i] != want || i%40 >= 30 && got[i] != 0 {
			return fmt.Errorf("strided copy: byte %d is %d", i, got[i])
		}
	}
	return nil
}

// copyInOtherStream copies input to p in an additional stream, for which the default stream then
// waits.
func copyInOtherStream(ctx context.Context, g *GPU, p device.Ptr) (err error) {
	s, err := g.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	allocated, err := g.Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, allocated.Free()) }()
	if err := s.Wait(allocated); err != nil {
		return err
	}
	if err := s.CopyIn(ctx, p, input, device.Whole(len(input))); err != nil {
		return err
	}
	copied, err := s.Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Free()) }()
	return g.Wait(copied)
}

// optional lists the functions whose failure need not cause an error, because they only query
// optional properties.
var optional = []*symbol{cuDeviceAttribute, cuDeviceUUID, cuDevicePCIBusID}

// TestEveryCallFails makes each driver call fail in turn, with several codes. The error must
// describe the failure, and no resource may leak. With -short, it tests one call in seven.
func TestEveryCallFails(t *testing.T) {
	for _, mode := range []struct {
		name string
		with code
		kind error // the error of package device that must match
		old  bool  // a driver without memory pools and newer functions
	}{
		{name: "unknown", with: 999},
		{name: "unknown, old driver", with: 999, old: true},
		{name: "out of memory", with: 2, kind: device.ErrOutOfMemory},
		{name: "illegal address", with: 700, kind: device.ErrLost},
		{name: "ECC", with: 214, kind: device.ErrLost},
	} {
		if mode.name == "ECC" && !testkit.Full() {
			continue // like an illegal address
		}
		t.Run(mode.name, func(t *testing.T) {
			prepare := func() *fake {
				f := newFake()
				if mode.old {
					f.pools = false
					f.lacks[cuDeviceUUID] = true
				}
				return f
			}
			n := 1
			for ; ; n++ {
				f := prepare()
				f.failAt, f.failWith = n, mode.with
				err := useAll(f)
				if f.failed == nil {
					if err != nil {
						t.Fatalf("no call failed: %v", err)
					}
					break
				}
				retried := mode.with == outOfMemory && f.failed == cuMemAllocFromPool
				var e *Error
				switch {
				case err == nil && (slices.Contains(optional, f.failed) || retried):
				case mode.kind == device.ErrLost && slices.Contains(optional, f.failed) && errors.Is(err, mode.kind):
					// The optional call failed with a code that made the whole device unusable.
				case !errors.As(err, &e):
					t.Errorf("call %d, %s: got error %v, want an *Error", n, f.failed.name, err)
				// A lost device may be reported by a later call first.
				case e.Call != f.failed.name && mode.kind != device.ErrLost || code(e.Code) != mode.with ||
					e.Name == "" || e.Text == "":
					t.Errorf("call %d, %s: got error %+v, want code and text of the failed call", n, f.failed.name, e)
				case mode.kind != nil && !errors.Is(err, mode.kind):
					t.Errorf("call %d, %s: got error %v, want %v", n, f.failed.name, err, mode.kind)
				}
				if len(f.leaks) > 0 {
					t.Errorf("call %d, %s: leaked %v", n, f.failed.name, f.leaks)
				}
				for dev, users := range f.retained {
					if users != 0 {
						t.Errorf("call %d, %s: the context of device %d has %d users left", n, f.failed.name, dev,
							users)
					}
				}
			}
			t.Logf("injected a failure into each of %d calls", n-1)
			if n < 100 {
				t.Errorf("%d calls, want at least 99", n-1)
			}
		})
	}
}

// opened returns a GPU of a fake. When the test ends, it closes the GPU and checks for leaks.
func opened(t testing.TB, f *fake, index int) *GPU {
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
			t.Errorf("leaked %v", f.leaks)
		}
	})
	return g
}

// TestLost checks that every method reports a lost device after an invalid address in a kernel, and
// that the device can be opened again.
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
		t.Errorf("first Sync: got error %v, want %v and %v", err, device.ErrLost, device.ErrLaunch)
	}
	f.lost = 0 // the GPU must report the loss without a driver call
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
			p = 0x1 // Free removed the allocation, which CopyIn checks first
			g.memory.add(region{p, 10})
		}
		if err := call(); !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "cuCtxSetCurrent") {
			t.Errorf("%s: got error %v, want %v with the failed call", name, err, device.ErrLost)
		}
		if f.calls != before {
			t.Errorf("%s called the driver", name)
		}
	}
	f.lost = 700
	if err := g.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	again := opened(t, f, 0)
	if err := again.Sync(ctx); err != nil {
		t.Errorf("opening the device again: %v", err)
	}
}

func TestOutOfMemoryIsRecoverable(t *testing.T) {
	g := opened(t, newFake(), 0)
	if _, err := g.Alloc(2 << 30); !errors.Is(err, device.ErrOutOfMemory) ||
		!strings.Contains(err.Error(), "allocating 2147483648 bytes on Fake GPU (1000 of 2000 free): cuMem") {
		t.Errorf("Alloc of 2 GiB with 1 GiB free: got error %v", err)
	}
	p, err := g.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Free(p); err != nil {
		t.Error(err)
	}
}
