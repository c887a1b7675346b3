package cuda

import (
	"context"
	"errors"
	"testing"

	"tilework/internal/device"
	"tilework/internal/testkit/testrand"
)

// TestCopyBounds checks that copies outside the host slice or the allocation fail, as does Free of
// an address that was not allocated.
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
		{"whole allocation", p, device.Whole(1000), true},
		{"no bytes at the end", p + 1000, device.Whole(0), true},
		{"no rows at address 0", 0, device.Rows{Count: 0, Width: 10, HostPitch: 10, DevicePitch: 10}, true},
		{"up to the end", p + 900, device.Whole(100), true},
		{"rows up to the end", p, device.Rows{Count: 10, Width: 10, HostPitch: 10, DevicePitch: 110}, true},
		{"past the end", p + 900, device.Whole(101), false},
		{"before the start", p - 1, device.Whole(1), false},
		{"address 0", 0, device.Whole(1), false},
		{"rows past the end", p + 1, device.Rows{Count: 10, Width: 10, HostPitch: 10, DevicePitch: 110}, false},
		{"beyond the host slice", p, device.Rows{Count: 10, Width: 10, HostPitch: 200, DevicePitch: 20}, false},
		{"size overflows 64 bits", p, device.Rows{Count: 5, Width: 10, HostPitch: 10, DevicePitch: 1 << 62}, false},
		{"size overflows 63 bits", p, device.Rows{Count: 3, Width: 10, HostPitch: 10, DevicePitch: 1 << 62}, false},
	} {
		for name, f := range map[string]func(context.Context) error{
			"in":  func(ctx context.Context) error { return g.CopyIn(ctx, c.at, host, c.rows) },
			"out": func(ctx context.Context) error { return g.CopyOut(ctx, host, c.at, c.rows) },
		} {
			if err := f(t.Context()); (err == nil) != c.ok {
				t.Errorf("%s, copy %s: got error %v, want success %v", c.name, name, err, c.ok)
			}
		}
	}
	for _, q := range []device.Ptr{p + 1, 12345} {
		if err := g.Free(q); err == nil {
			t.Errorf("Free(%#x) succeeded, want an error", uint64(q))
		}
	}
	if err := errors.Join(g.Free(0), g.Free(p)); err != nil {
		t.Error(err)
	}
	if err := g.Free(p); err == nil {
		t.Error("second Free succeeded, want an error")
	}
	if _, err := g.Alloc(-1); err == nil {
		t.Error("Alloc(-1) succeeded, want an error")
	}
	if p, err := g.Alloc(0); p != 0 || err != nil {
		t.Errorf("Alloc(0) = %#x, error %v; want 0", uint64(p), err)
	}
}

// TestRegions compares regions with an unsorted list.
func TestRegions(t *testing.T) {
	rng := testrand.New(t)
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
				t.Fatalf("remove(%d) = %v", start, got)
			}
			delete(plain, start)
		}
		at, n := start-50+device.Ptr(rng.IntN(150)), rng.IntN(120)
		want := false
		for s, size := range plain {
			want = want || s <= at && at+device.Ptr(n) <= s+device.Ptr(size)
		}
		if got := r.contains(at, n); got != want {
			t.Fatalf("%d bytes at %d in %v: contains = %v", n, at, r, got)
		}
	}
}

// TestPartition checks that the pieces of a copy cover each byte once and fit in a buffer.
func TestPartition(t *testing.T) {
	const pitch = 1 << 31
	g := &GPU{info: Info{maxPitch: pitch}}
	s := newStaging(stagingSize{maxCopyWorkers, buffersPerWorker, bufferBytes})
	for _, r := range []device.Rows{
		{},
		{Count: 1, Width: 1},
		{Count: 1, Width: bufferBytes}, {Count: 1, Width: bufferBytes + 1}, {Count: 1, Width: 3*bufferBytes - 1},
		{Count: 3, Width: bufferBytes + 5},
		{Count: 7, Width: bufferBytes/2 + 1}, {Count: 7, Width: bufferBytes / 2},
		{Count: 300, Width: bufferBytes/2 + 1}, {Count: 300, Width: bufferBytes / 2},
		{Count: 1000, Width: 9999},
		{Count: 10, Width: 9999, DevicePitch: pitch + 1},
	} {
		c := (&transfer{queue: &queue{gpu: g}, rows: r, staging: s}).partition()
		covered, row, col := 0, 0, 0
		for i := range c.count {
			p := c.piece(i)
			if p.row != row || p.col != col || p.count < 1 || p.width < 1 || p.count*p.width > bufferBytes ||
				p.count > 1 && (p.width != r.Width || r.DevicePitch > pitch) {
				t.Fatalf("%+v: piece %+v, want one at row %d, column %d", r, p, row, col)
			}
			covered += p.count * p.width
			if col += p.width; col == r.Width {
				row, col = row+p.count, 0
			}
		}
		if covered != r.Count*r.Width {
			t.Errorf("%+v: pieces cover %d bytes, want %d", r, covered, r.Count*r.Width)
		}
	}
}
