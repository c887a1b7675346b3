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
	"tilework/internal/testkit/testrand"
)

// TestContextEnds checks that calls that wait for a hanging device return when their context ends
// and do not touch the caller's memory afterwards. When the device continues, copies work again.
func TestContextEnds(t *testing.T) {
	f := newFake()
	g := opened(t, f, 0)
	data := make([]byte, 2*bufferBytes+5)
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
		if err := c.call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got error %v, want %v", c.name, err, context.DeadlineExceeded)
		}
		cancel()
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
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Since(ended, e); err != nil {
		t.Errorf("Since of a complete event with an ended context: got error %v", err)
	}
	if !bytes.Equal(out, bytes.Repeat([]byte{0xee}, len(out))) {
		t.Error("an abandoned copy wrote to the caller's memory")
	}
	if err := g.CopyIn(t.Context(), p, data, whole); err != nil {
		t.Fatal(err)
	}
	if err := g.CopyOut(t.Context(), out, p, whole); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out, data) {
		t.Error("a copy after abandoned copies read back wrong bytes")
	}
}

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
		t.Errorf("CopyIn: got error %v, want %v", err, context.Canceled)
	}
	if _, err := g.Load(ctx, "text"); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: got error %v, want %v", err, context.Canceled)
	}
	if err := g.Launch(ctx, &kernel{}, device.Launch{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Launch: got error %v, want %v", err, context.Canceled)
	}
}

// TestConcurrent runs several goroutines on two devices, each with its own memory and kernels.
func TestConcurrent(t *testing.T) {
	seed := testrand.Seed(t)
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
				if err := incrementRandom(devices[rng.IntN(len(devices))], rng); err != nil {
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

// incrementRandom copies random bytes in, adds 1 to each and copies them out.
func incrementRandom(g *GPU, rng *rand.Rand) (err error) {
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
	if err := g.Launch(ctx, k,
		device.Launch{Grid: one, Block: one, Shared: 50<<10 + rng.IntN(1000), Params: args.Bytes()}); err != nil {
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
