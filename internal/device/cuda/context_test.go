package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tilework/internal/device"
)

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
