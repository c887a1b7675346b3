package cuda

import (
	"context"
	"testing"

	"tilework/internal/device"
)

// enqueuing returns the calls that enqueue work on a GPU whose driver does nothing, by name.
func enqueuing(t testing.TB) map[string]func() error {
	t.Helper()
	f := newFake()
	g := opened(t, f, 0)
	at, err := g.Alloc(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	m, err := g.Load(t.Context(),
		".visible .entry k(\n\t.param .u64 at,\n\t.param .align 64 .b8 map[128],\n\t.param .u32 n\n)\n{ ret; }")
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	e, err := g.Record()
	if err != nil {
		t.Fatal(err)
	}
	f.ignores = true
	t.Cleanup(func() { f.ignores = false }) // before the GPU is closed
	launch := func(l device.Launch) func() error {
		l.Grid, l.Block, l.Params = device.Dim3{X: 8, Y: 1, Z: 1}, device.Dim3{X: 64, Y: 1, Z: 1}, make([]byte, 196)
		return func() error { return g.Launch(context.Background(), k, l) }
	}
	return map[string]func() error{
		"launch": launch(device.Launch{}),
		"launch with attributes": launch(device.Launch{PDL: true, Cooperative: true,
			Cluster: device.Dim3{X: 2, Y: 1, Z: 1}}),
		"copy": func() error { return g.CopyPeer(at, g, at+512, device.WholePeer(512)) },
		"copy 2D": func() error {
			return g.CopyPeer(at, g, at+512, device.PeerRows{Count: 8, Width: 32, FromPitch: 64, ToPitch: 64})
		},
		"wait": func() error { return g.Wait(e) },
		"record": func() error {
			e, err := g.Record()
			if err != nil {
				return err
			}
			return e.Free()
		},
	}
}

// BenchmarkEnqueue measures the time of the calls that enqueue work, without the driver's time.
func BenchmarkEnqueue(b *testing.B) {
	for name, call := range enqueuing(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLaunchAllocates checks that a launch allocates no more than the arguments of two calls of the
// driver.
func TestLaunchAllocates(t *testing.T) {
	calls := enqueuing(t)
	for _, name := range []string{"launch", "launch with attributes"} {
		if n := testing.AllocsPerRun(100, func() {
			if err := calls[name](); err != nil {
				t.Fatal(err)
			}
		}); n > 2 {
			t.Errorf("%s: %v allocations, want at most 2", name, n)
		}
	}
}
