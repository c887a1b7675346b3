package cuda

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"tilework/internal/device"
)

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
		{Count: 300, Width: slotBytes/2 + 1}, {Count: 300, Width: slotBytes / 2},
		{Count: 1000, Width: 9999},
		{Count: 10, Width: 9999, Device: pitch + 1},
	} {
		c := (&transfer{queue: &queue{gpu: g}, rows: r}).cut()
		covered, row, col := 0, 0, 0
		for i := range c.count {
			p := c.piece(i)
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
