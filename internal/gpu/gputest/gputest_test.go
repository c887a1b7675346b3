package gputest

import (
	"slices"
	"testing"

	"tilework/gemmtest"
	"tilework/internal/device/emu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// TestAll checks that All has every kernel with each of its tiles, with split-K where it is
// possible, that each way supports some type, and that its name is parsed as the same way.
func TestAll(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, seen := stream.New(d), map[string]bool{}
	for _, w := range All(d.Info()) {
		if seen[w.String()] {
			t.Errorf("%v is listed twice", w)
		}
		seen[w.String()] = true
		if s, err := w.Kernel.ParseTile(w.Tile()); err != nil || s != w.Shape {
			t.Errorf("%v is parsed as %v, %v", w, s, err)
		}
		if len(w.On(b).Types) == 0 {
			t.Errorf("%v supports no type", w)
		}
	}
	for _, k := range choose.Kernels() {
		for _, w := range (Way{Kernel: k}).Shapes() {
			split, serial, both := w, w, w
			split.Shape.SplitK, serial.Shape.SerialK = parts, parts
			both.Shape.SplitK, both.Shape.SerialK = parts, parts
			for _, more := range []Way{w, split, serial, both} {
				if s, err := k.ParseTile(more.Tile()); err == nil && s == more.Shape && more.Fits() &&
					max(s.SplitK, s.SerialK, s.ClusterK) <= parts && !seen[more.String()] {
					t.Errorf("%v is missing", more)
				}
			}
		}
		for _, precision := range k.Precisions() {
			if w := (Way{Kernel: k, Precision: precision}); len(w.Shapes()) == 0 {
				t.Errorf("%v has no tile", w)
			}
		}
	}
}

// TestSmallest checks that Smallest has every element type of every kernel and precision, from the
// list of All.
func TestSmallest(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, types := All(d.Info()), map[string][]gemmtest.Pair{}
	for _, w := range Smallest(d.Info()) {
		if !slices.Contains(all, w) {
			t.Errorf("%v is not in the list of all ways", w)
		}
		types[w.Name()] = append(types[w.Name()], w.Types()...)
	}
	for _, w := range all {
		for _, pair := range w.Types() {
			if !slices.Contains(types[w.Name()], pair) {
				t.Errorf("%s has no tile for %v", w.Name(), pair)
			}
		}
	}
}

// TestOn runs the suite on ways with a chosen tile, with a certain tile and in a precision, and
// checks that single products and batches are among the cases.
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
