package gputest

import (
	"testing"

	"tilework/gemmtest"
	"tilework/internal/device/emu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/stream"
)

// TestAll: every kernel is there in each of its shapes, and split where that can be; each way
// multiplies something, and its name says which it is.
func TestAll(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, seen := stream.New(d), map[string]bool{}
	for _, w := range All(d.Info()) {
		if seen[w.String()] {
			t.Errorf("%v is there twice", w)
		}
		seen[w.String()] = true
		if s, err := w.Kernel.ParseTile(w.Tile()); err != nil || s != w.Shape {
			t.Errorf("%v reads as %v, %v", w, s, err)
		}
		if len(w.On(b).Types) == 0 {
			t.Errorf("%v multiplies nothing", w)
		}
	}
	for _, k := range choose.Kernels() {
		for _, w := range (Way{Kernel: k}).Shapes() {
			split := w
			split.Shape.SplitK = parts
			if s, err := k.ParseTile(split.Tile()); !seen[w.String()] || err == nil && s == split.Shape && !seen[split.String()] {
				t.Errorf("%v, or its parts, are not there", w)
			}
		}
		for _, precision := range k.Precisions() {
			if w := (Way{Kernel: k, Precision: precision}); len(w.Shapes()) == 0 {
				t.Errorf("%v has no tile", w)
			}
		}
	}
}

// TestOn: what one way multiplies in its precision, alone and in batches, is right.
func TestOn(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := choose.Find("skinny")
	if err != nil {
		t.Fatal(err)
	}
	b := stream.New(d)
	for _, w := range []Way{{Kernel: k}, {Kernel: k, Shape: k.Tiles[0]}, {Kernel: k, Precision: k.Precisions()[0]}} {
		report := gemmtest.Check(t.Context(), w.On(b), gemmtest.Options{Cases: 7, Seed: 1})
		for _, c := range report.Checks {
			if (c.Name == "exact" || c.Name == "batch") && c.Cases == 0 {
				t.Errorf("%v: no case of check %s", w, c.Name)
			}
		}
		if err := report.Err(); err != nil {
			t.Errorf("%v: %v", w, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Used(); n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
}
