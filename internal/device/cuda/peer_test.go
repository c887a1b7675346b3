package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/sentinel"
)

// TestPeers runs the suite of copies between devices with and without access to the other GPU's
// memory, and with a driver that has no memory pools.
func TestPeers(t *testing.T) {
	for name, set := range map[string]func(*fake){
		"access":                    func(*fake) {},
		"no access":                 func(f *fake) { f.alone = true },
		"no pools":                  func(f *fake) { f.pools = false },
		"rows far apart, no access": func(f *fake) { f.alone, f.pitch = true, 60 },
	} {
		t.Run(name, func(t *testing.T) {
			rights := 0 // in any part of the suite
			devicetest.TestPeers(t, func(t *testing.T) [2]device.Device {
				f := newFake()
				set(f)
				t.Cleanup(func() {
					rights = max(rights, len(f.peers))
					if len(f.leaks) > 0 {
						t.Errorf("leaked %v", f.leaks)
					}
				})
				return openPair(t, f)
			})
			// Each part copies in one direction, which needs two rights: to the context and to the pool.
			if want := map[string]int{"access": 2, "no access": 0, "no pools": 1}[name]; rights != want {
				t.Errorf("%d rights to access memory, want %d", rights, want)
			}
		})
	}
}

// TestAccess checks that access to the memory of another GPU is requested once, and refused for
// other devices.
func TestAccess(t *testing.T) {
	for _, alone := range []bool{false, true} {
		f := newFake()
		f.alone = alone
		pair := openPair(t, f)
		g := pair[0].(*GPU)
		for range 2 {
			if direct, err := g.Access(pair[1]); err != nil || direct == alone {
				t.Errorf("access is %v, error %v", direct, err)
			}
		}
		if want := map[bool]int{false: 2, true: 0}[alone]; len(f.peers) != want {
			t.Errorf("%d rights to access memory, want %d", len(f.peers), want)
		}
		if _, err := g.Access(struct{ device.Device }{pair[1]}); err == nil {
			t.Error("another kind of device has been accessed")
		}
	}
}

func openPair(t *testing.T, f *fake) (pair [2]device.Device) {
	t.Helper()
	d, err := newDriver(f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pair {
		g, err := d.open(i)
		if err != nil {
			t.Fatal(err)
		}
		if f.pitch > 0 {
			g.info.maxPitch = int(f.pitch)
		}
		pair[i] = g
	}
	return pair
}

// openGPUs returns the first two GPUs of this machine. With one GPU it skips the test.
func openGPUs(t *testing.T) (pair [2]device.Device) {
	t.Helper()
	all, err := List()
	if err != nil && os.Getenv("TILEWORK_REQUIRE_GPU") != "" {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Skipf("%d GPUs, want two (%v)", len(all), err)
	}
	for i := range pair {
		if pair[i], err = Open(i); err != nil {
			t.Fatal(err)
		}
	}
	return pair
}

// TestGPUPeers runs the suite of copies on two GPUs, with and without access to the other GPU's
// memory.
func TestGPUPeers(t *testing.T) {
	t.Run("access", func(t *testing.T) { devicetest.TestPeers(t, openGPUs) })
	t.Run("no access", func(t *testing.T) {
		devicetest.TestPeers(t, func(t *testing.T) [2]device.Device {
			pair := openGPUs(t)
			for i, d := range pair {
				d, peer := d.(*GPU), pair[1-i].(*GPU)
				d.links[peer] = &peerLink{out: &queue{gpu: peer}} // so access is not requested
			}
			return pair
		})
	})
}

// TestGPUPeersWhileLoading loads modules while two GPUs copy rows from each other.
func TestGPUPeersWhileLoading(t *testing.T) {
	pair := openGPUs(t)
	const rows, width = 4096, 512
	var at [2][2]device.Ptr // by GPU: source and destination
	for i, d := range pair {
		for j := range at[i] {
			var err error
			if at[i][j], err = d.Alloc(2 * rows * width); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wait sync.WaitGroup
	for i, d := range pair {
		wait.Go(func() {
			for n := range 20 {
				for range 16 {
					err := d.CopyPeer(at[i][1], pair[1-i], at[1-i][0],
						device.PeerRows{Count: rows, Width: width, FromPitch: 2 * width, ToPitch: width})
					if err != nil {
						t.Error(err)
						return
					}
				}
				m, err := d.Load(t.Context(), fmt.Sprintf("// %d of process %d\n", n, os.Getpid())+kernelsPTX)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(d.Sync(t.Context()), m.Unload()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	for i, d := range pair {
		if err := errors.Join(d.Free(at[i][0]), d.Free(at[i][1]), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestPeersAgain checks that access is requested once per pair, that access that another user of
// the context has enabled is no error, and that a closed GPU is refused.
func TestPeersAgain(t *testing.T) {
	f := newFake()
	f.peers[[2]uintptr{contextOf(0), contextOf(1)}] = true
	pair := openPair(t, f)
	p, err := pair[0].Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	q, err := pair[1].Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	before := f.calls
	for range 3 {
		if err := pair[0].CopyPeer(p, pair[1], q, device.WholePeer(10)); err != nil {
			t.Fatal(err)
		}
	}
	// Each copy makes the context current, and so does the first request, which queries, enables and
	// extends the access.
	if got := f.calls - before; got != 3*2+4 {
		t.Errorf("%d driver calls for three copies, want 10", got)
	}
	e, err := pair[1].Record()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pair[0].Sync(t.Context()), pair[1].Close()); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"copy": pair[0].CopyPeer(p, pair[1], q, device.WholePeer(10)), "wait": pair[0].Wait(e),
	} {
		if !errors.Is(err, sentinel.ErrNoDevice) {
			t.Errorf("%s: error %v of a closed GPU, want %v", name, err, sentinel.ErrNoDevice)
		}
	}
	if err := pair[0].Close(); err != nil {
		t.Error(err)
	}
}

// usePeers copies between two GPUs, with and without gaps, and releases all resources. The error
// joins the first failure with the failures to release.
func usePeers(f *fake) (err error) {
	d, err := newDriver(f)
	if err != nil {
		return err
	}
	ctx := context.Background()
	var pair [2]*GPU
	var at [2]device.Ptr
	for i := range pair {
		g, err2 := d.open(i)
		if err2 != nil {
			return err2
		}
		defer func() { err = errors.Join(err, g.Close()) }()
		p, err2 := g.Alloc(100)
		if err2 != nil {
			return err2
		}
		defer func() { err = errors.Join(err, g.Free(p)) }()
		pair[i], at[i] = g, p
	}
	// The reader is closed first: its copies must end before the source is freed.
	in, out := bytes.Repeat([]byte{5}, 100), make([]byte, 100)
	if err := pair[0].CopyIn(ctx, at[0], in, device.Whole(100)); err != nil {
		return err
	}
	e, err := pair[0].Record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Free()) }()
	if err := pair[1].Wait(e); err != nil {
		return err
	}
	for _, r := range []device.PeerRows{device.WholePeer(100), {Count: 3, Width: 5, FromPitch: 20, ToPitch: 10}} {
		if err := pair[1].CopyPeer(at[1], pair[0], at[0], r); err != nil {
			return err
		}
	}
	if err := pair[1].CopyOut(ctx, out, at[1], device.Whole(100)); err != nil {
		return err
	}
	if !bytes.Equal(in, out) {
		return errors.New("the copy has other bytes")
	}
	return nil
}

// TestEveryPeerCallFails makes each driver call of copies between GPUs fail in turn.
func TestEveryPeerCallFails(t *testing.T) {
	for n := 1; ; n++ {
		f := newFake()
		f.failAt, f.failWith = n, 999
		err := usePeers(f)
		if f.failed == nil {
			if err != nil {
				t.Fatalf("no call failed: %v", err)
			}
			if n < 60 {
				t.Errorf("%d calls, want at least 59", n-1)
			}
			return
		}
		var e *Error
		switch {
		case err == nil && strings.HasPrefix(f.failed.name, "cuDevice"): // optional properties
		case !errors.As(err, &e) || e.Call != f.failed.name || code(e.Code) != 999:
			t.Errorf("call %d, %s: got error %v, want that of the call", n, f.failed.name, err)
		}
		if len(f.leaks) > 0 || f.retained[0]+f.retained[1] > 0 {
			t.Errorf("call %d, %s: leaked %v, users of the contexts %v", n, f.failed.name, f.leaks, f.retained)
		}
	}
}
