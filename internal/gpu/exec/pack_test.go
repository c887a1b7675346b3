package exec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/ptx/emu/check"
)

// TestPack packs matrices whose rows are not aligned, with limits on bank conflicts and on the
// extra sectors at the ends of rows.
func TestPack(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.I8, dtype.BF16, dtype.I32} {
		for _, transpose := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,transpose=%v", ty, transpose), func(t *testing.T) {
				from := gemm.Layout{Type: ty, Rows: 131, Cols: 77, LD: 79}
				to := from
				if transpose {
					to.Rows, to.Cols, to.Trans = from.Cols, from.Rows, true
				}
				to = gemm.Padded(to)
				d := devicetest.Checked(t, check.Options{MaxConflicts: 1, MaxScatter: 3})
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
				got := make([]byte, ty.Bytes(to.Rows*to.LD))
				target, err := d.Alloc(len(got))
				if err != nil {
					t.Fatal(err)
				}
				pack(t, d, operandCopy{from: from, to: to, source: source, target: target, count: 1})
				if err := d.CopyOut(t.Context(), got, target, device.Whole(len(got))); err != nil {
					t.Fatal(err)
				}
				for i := range from.Rows {
					for j := range from.Cols {
						want, have := ty.At(host, from.Index(i, j)), ty.At(got, to.Index(i, j))
						if want != have {
							t.Fatalf("element (%d, %d) is %v, want %v", i, j, have, want)
						}
					}
				}
			})
		}
	}
}

// pack packs a matrix.
func pack(t *testing.T, d device.Device, x operandCopy) {
	t.Helper()
	pl := &Plan{backend: New(d)}
	pl.Config.Lines = true
	var r recorder
	pl.addPacking(&r, []operandCopy{x})
	all, err := pl.backend.prepare(t.Context(), r.steps)
	if err == nil {
		err = all.enqueue(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDistantOperands checks the distance of two operands that one launch packs, which an int may
// not hold.
func TestDistantOperands(t *testing.T) {
	l := gemm.Layout{Type: dtype.BF16, Rows: 40, Cols: 40, LD: 41}
	const apart = 5 << 33
	copies := []operandCopy{{from: l, to: gemm.Padded(l), count: 1, source: 256 + apart, target: 512},
		{from: l, to: gemm.Padded(l), count: 1, source: 256, target: 1024}}
	params := new(Plan).packKernel(l, gemm.Padded(l)).packLaunch(copies).Params
	if want := binary.LittleEndian.AppendUint64(nil, 1<<64-apart); !bytes.Contains(params, want) {
		t.Errorf("parameters %x without the distance %x", params, want)
	}
}

// TestRepack compares the operands that a product must pack with the ones that can stay in place.
func TestRepack(t *testing.T) {
	layout := func(ty dtype.Type, ld int, trans bool) gemm.Layout {
		return gemm.Layout{Type: ty, Rows: 40, Cols: 40, LD: ld, Trans: trans}
	}
	for _, c := range []struct {
		name  string
		a, b  gemm.Layout
		align kernel.Align
		want  kernel.Repacked
	}{
		{"in place", layout(dtype.BF16, 40, false), layout(dtype.BF16, 48, true), kernel.Align{}, kernel.Repacked{}},
		{"unaligned leading dimension", layout(dtype.BF16, 41, true), layout(dtype.BF16, 44, false), kernel.Align{},
			kernel.Repacked{gemm.A: true, gemm.B: true}},
		{"unaligned address", layout(dtype.BF16, 40, false), layout(dtype.BF16, 40, false),
			kernel.Align{gemm.A: 16, gemm.B: 2}, kernel.Repacked{gemm.B: true}},
		{"K-major int8", layout(dtype.I8, 48, false), layout(dtype.I8, 48, true), kernel.Align{}, kernel.Repacked{}},
		{"MN-major int8", layout(dtype.I8, 48, true), layout(dtype.I8, 48, false), kernel.Align{},
			kernel.Repacked{gemm.A: true, gemm.B: true}},
	} {
		out := c.a.Type.Info().Results[0]
		p, _, err := gemm.New(1, c.a, c.b, 0, gemm.Dense(out, 40, 40), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		q, got := sm90.WGMMA.Repack(&p, kernel.Tile{}, c.align)
		if got != c.want {
			t.Errorf("%s: packs %v, want %v", c.name, got, c.want)
		}
		if again, got := sm90.WGMMA.Repack(&q, kernel.Tile{}, kernel.Align{}); got.Any() || again != q {
			t.Errorf("%s: packed operands %v are packed again", c.name, got)
		}
		if q.A().OpRows() != 40 || q.B().OpCols() != 40 || q.A().Trans != c.a.Trans && c.a.Type.Bits() == 16 {
			t.Errorf("%s: packed to A %v and B %v", c.name, q.Layouts[gemm.A], q.Layouts[gemm.B])
		}
		config := sm90.WGMMA.Config(&p, sm90.TileList()[0])
		_, err = sm90.WGMMA.Launch(kernel.Args{Config: &config, Problem: &p}, devicetest.NewNull())
		if (err != nil) != c.want.Any() && c.align == (kernel.Align{}) {
			t.Errorf("%s: launched without packing: %v", c.name, err)
		}
	}
}
