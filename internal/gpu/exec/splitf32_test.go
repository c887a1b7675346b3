package exec

import (
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

// TestSplitF32 splits random and special float32 values into bf16 terms. The terms of a finite
// value are finite, their sum is the value, and the first is zero only for zero. An infinity or
// NaN is the last term, and the first is 1 with its sign. The columns of padding are zero.
func TestSplitF32(t *testing.T) {
	rng := testrand.New(t)
	from := gemm.Layout{Type: dtype.F32, Rows: 131, Cols: 77, LD: 79}
	host := make([]byte, from.Bytes())
	set := func(i int, bits uint32) { dtype.F32.Set(host, i, float64(math.Float32frombits(bits))) }
	for i := range from.Len() {
		set(i, rng.Uint32()>>rng.IntN(2)>>(rng.IntN(8)/7*16)) // all magnitudes, and subnormal values
	}
	for i, bits := range []uint32{
		0, 1 << 31, 1, 0x8000, 0x8001, 0x80007fff, 0x10000, 0x18000, 0x007fffff, 0x00800000, 0x3f800000, 0x3f808000,
		0x3f818000,
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
	pack(t, d, operandCopy{from: from, to: to, source: source, target: target, count: 1})
	terms := make([]byte, to.Bytes())
	if err := d.CopyOut(t.Context(), terms, target, device.Whole(len(terms))); err != nil {
		t.Fatal(err)
	}
	for i := range from.Rows {
		for j := range to.Cols / kernel.SplitTerms {
			var term [kernel.SplitTerms]float64
			for n := range term {
				term[n] = dtype.BF16.At(terms, i*to.LD+n*to.Cols/kernel.SplitTerms+j)
			}
			x := 0.
			if j < from.Cols {
				x = dtype.F32.At(host, from.Index(i, j))
			}
			sum, ok := term[0]+term[1]/kernel.SplitTermScale+term[2]/kernel.SplitTermScale/kernel.SplitTermScale, true
			if math.IsInf(x, 0) || x != x {
				ok = math.Abs(term[0]) == 1 && term[1] == 0 && (term[2] == x || x != x && term[2] != term[2])
				ok = ok && (x != x || math.Signbit(term[0]) == math.Signbit(x))
			} else {
				ok = sum == x && (term[0] == 0) == (x == 0)
			}
			if !ok {
				t.Fatalf("element (%d, %d), %v (%#x), has terms %v", i, j, x, math.Float32bits(float32(x)), term)
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
