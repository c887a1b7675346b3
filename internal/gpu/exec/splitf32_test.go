package exec

import (
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx/emu/check"
)

// TestPlanes: whatever float32 there is, its parts are finite and their sum is that number,
// and the first is zero for zero alone; what is not finite is the last part, beside 1 of its
// sign. Behind the columns there are zeros.
func TestPlanes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	from := gemm.Layout{Type: dtype.F32, Rows: 131, Cols: 77, LD: 79}
	host := make([]byte, from.Bytes())
	set := func(i int, bits uint32) { dtype.F32.Set(host, i, float64(math.Float32frombits(bits))) }
	for i := range from.Len() {
		set(i, rng.Uint32()>>rng.IntN(2)>>(rng.IntN(8)/7*16)) // all of them, and small ones
	}
	for i, bits := range []uint32{
		0, 1 << 31, 1, 0x8000, 0x8001, 0x80007fff, 0x10000, 0x18000, 0x007fffff, 0x00800000, 0x3f800000, 0x3f808000, 0x3f818000,
		0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001,
	} {
		set(i, bits)
	}
	to := kernel.SplitLayout(from)
	d := devicetest.Checked(t, check.Options{MaxScatter: 2})
	source, target := alloc(t, d, len(host)), alloc(t, d, to.Bytes())
	if err := d.CopyIn(t.Context(), source, host, device.Whole(len(host))); err != nil {
		t.Fatal(err)
	}
	pl := &Plan{backend: New(d)}
	pl.Config.Lines = true
	if err := pl.pack(t.Context(), operandCopy{from: from, to: to, source: source, target: target, count: 1}); err != nil {
		t.Fatal(err)
	}
	parts := make([]byte, to.Bytes())
	if err := d.CopyOut(t.Context(), parts, target, device.Whole(len(parts))); err != nil {
		t.Fatal(err)
	}
	for i := range from.Rows {
		for j := range to.Cols / kernel.SplitTerms {
			var part [kernel.SplitTerms]float64
			for n := range part {
				part[n] = dtype.BF16.At(parts, i*to.LD+n*to.Cols/kernel.SplitTerms+j)
			}
			x := 0.
			if j < from.Cols {
				x = dtype.F32.At(host, from.Index(i, j))
			}
			sum, ok := part[0]+part[1]/kernel.SplitTermScale+part[2]/kernel.SplitTermScale/kernel.SplitTermScale, true
			if math.IsInf(x, 0) || x != x {
				ok = math.Abs(part[0]) == 1 && part[1] == 0 && (part[2] == x || x != x && part[2] != part[2])
				ok = ok && (x != x || math.Signbit(part[0]) == math.Signbit(x))
			} else {
				ok = sum == x && (part[0] == 0) == (x == 0)
			}
			if !ok {
				t.Fatalf("element (%d, %d), %v (%#x), has the parts %v", i, j, x, math.Float32bits(float32(x)), part)
			}
		}
	}
}

func alloc(t *testing.T, d device.Device, n int) device.Ptr {
	t.Helper()
	at, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
