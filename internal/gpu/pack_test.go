package gpu

import (
	"errors"
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/ptx/emu/check"
)

// TestPack: a packed matrix has the elements of the one that it was made of, whatever their
// size and wherever its rows begin, and packing costs few bank conflicts and no sectors
// beside those that rows end in.
func TestPack(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.I8, dtype.BF16, dtype.I32} {
		for _, turn := range []bool{false, true} {
			t.Run(fmt.Sprint(ty, turn), func(t *testing.T) {
				from := gemm.Layout{Type: ty, Rows: 131, Cols: 77, LD: 79}
				to := from
				if turn {
					to.Rows, to.Cols, to.Trans = from.Cols, from.Rows, true
				}
				to = Padded(to)
				d := checked(t, check.Options{MaxConflicts: 1, MaxScatter: 3})
				host := make([]byte, from.Bytes())
				for i := range from.Len() {
					ty.Set(host, i, float64(i%113))
				}
				source, err := d.Alloc(len(host))
				if err != nil {
					t.Fatal(err)
				}
				if err := d.CopyIn(t.Context(), source, host, device.Whole(len(host))); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, to.Rows*to.LD*ty.Size())
				target, err := d.Alloc(len(got))
				if err != nil {
					t.Fatal(err)
				}
				pl := &Plan{backend: New(d)}
				pl.Config.Lines = true
				if err := pl.pack(t.Context(), repacked{from: from, to: to, source: source, target: target, count: 1}); err != nil {
					t.Fatal(err)
				}
				if err := d.CopyOut(t.Context(), got, target, device.Whole(len(got))); err != nil {
					t.Fatal(err)
				}
				for i := range from.Rows {
					for j := range from.Cols {
						if want, have := ty.At(host, from.Index(i, j)), ty.At(got, to.Index(i, j)); want != have {
							t.Fatalf("element (%d, %d) is %v, want %v", i, j, have, want)
						}
					}
				}
			})
		}
	}
}

// TestPacking: what is packed and what is not.
func TestPacking(t *testing.T) {
	lay := func(ty dtype.Type, ld int, trans bool) gemm.Layout {
		return gemm.Layout{Type: ty, Rows: 40, Cols: 40, LD: ld, Trans: trans}
	}
	for _, c := range []struct {
		name  string
		a, b  gemm.Layout
		align Align
		want  packs
	}{
		{"as it lies", lay(dtype.BF16, 40, false), lay(dtype.BF16, 48, true), Align{}, packs{}},
		{"odd rows", lay(dtype.BF16, 41, true), lay(dtype.BF16, 44, false), Align{}, packs{true, true}},
		{"an odd address", lay(dtype.BF16, 40, false), lay(dtype.BF16, 40, false), Align{A: 16, B: 2}, packs{false, true}},
		{"bytes along K", lay(dtype.I8, 48, false), lay(dtype.I8, 48, true), Align{}, packs{}},
		{"bytes across K", lay(dtype.I8, 48, true), lay(dtype.I8, 48, false), Align{}, packs{true, true}},
	} {
		out := c.a.Type.Info().Results[0]
		p, _, err := gemm.New(1, c.a, c.b, 0, gemm.Dense(out, 40, 40), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		q, got := wgmma.packing(&p, Shape{}, c.align)
		if got != c.want {
			t.Errorf("%s: packs %v, want %v", c.name, got, c.want)
		}
		if again, got := wgmma.packing(&q, Shape{}, Align{}); got.any() || again != q {
			t.Errorf("%s: what is packed is packed again: %v", c.name, got)
		}
		if q.A.OpRows() != 40 || q.B.OpCols() != 40 || q.A.Trans != c.a.Trans && c.a.Type.Size() == 2 {
			t.Errorf("%s: %v, %v", c.name, q.A, q.B)
		}
		if _, err := wgmma.Launch(wgmma.Config(&p, wgmmaShapes()[0]), &p, Memory{}, newDouble()); (err != nil) != (c.want != packs{}) && c.align == (Align{}) {
			t.Errorf("%s: launched as it lies: %v", c.name, err)
		}
	}
	// A matrix that is used a few times only is not packed for that.
	p := testkit.Product(t, dtype.BF16, dtype.BF16, 4, 4095, 4095)
	if rowOf(wgmma).worthPacking(p, Align{}) || !rowOf(wgmma).worthPacking(testkit.Product(t, dtype.BF16, dtype.BF16, 4095, 4095, 4095), Align{}) || !rowOf(wgmma).worthPacking(testkit.Product(t, dtype.BF16, dtype.BF16, 4, 4096, 4096), Align{}) {
		t.Error("worthPacking")
	}
}

// TestPackFails: whichever call to the device fails while operands are packed, multiplied
// in parts and added, its error comes out and nothing stays allocated.
func TestPackFails(t *testing.T) {
	p, _, err := gemm.New(1, gemm.Dense(dtype.I8, 40, 2000), gemm.Dense(dtype.I8, 2000, 40), 0, gemm.Dense(dtype.I32, 40, 40), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	b := gemm.Buffers{A: make([]byte, p.A.Bytes()), B: make([]byte, p.B.Bytes()), C: make([]byte, p.C.Bytes())}
	calls := 0
	for n := 1; ; n++ {
		d := newDouble()
		d.info.Target, d.info.MaxShared = wgmma.Target(), 227<<10
		d.failAt, d.err = n, device.ErrLaunch
		backend := NewHost(d)
		plan, err := backend.Plan(&p, Options{Kernel: "wgmma", Shape: "64x64x128/2x16/8*4"})
		if err != nil {
			t.Fatal(err)
		}
		err = plan.Run(t.Context(), b)
		if len(d.live) != 0 {
			t.Errorf("call %d, %s, failed: %d allocations are left", n, d.failed, len(d.live))
		}
		failed := d.calls >= n
		d.failAt = 0
		if err := backend.Close(); err != nil || d.loaded != 0 {
			t.Errorf("call %d, %s, failed: close: %v, %d modules are left", n, d.failed, err, d.loaded)
		}
		if !failed {
			if err != nil {
				t.Errorf("no call failed: %v", err)
			}
			break
		}
		if calls = n; !errors.Is(err, device.ErrLaunch) {
			t.Errorf("call %d, %s, failed: %v", n, d.failed, err)
		}
	}
	// Among them three texts, loaded and looked up, and three launches.
	if calls < 9 {
		t.Errorf("only %d calls", calls)
	}
}
