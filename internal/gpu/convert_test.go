package gpu

import (
	"encoding/binary"
	"math"
	"testing"

	"tilework/dtype"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// TestWiden: every pattern of an 8-bit float becomes the float16 of its value, in each of the
// four places of a register, and so does what kernels without tensor cores make of it.
func TestWiden(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F8E4M3, dtype.F8E5M2} {
		k := build.New("widen")
		k.Threads(256, 1, 1)
		x := k.Pointer("x", ptx.B32).At(k.Mul(k.ThreadIdx(build.X), 4))
		four := k.Bits(ptx.B32, x.Load())
		g := &product{Kernel: k, config: Config{In: typ}, acc: ptx.F32}
		single := g.sum(k.Bits(ptx.U32, k.And(k.To(ptx.U32, four), 0xff)))
		x.At(2).Store(k.Bits(ptx.B32, single))
		for half := range 2 {
			x.At(half).Store(frag.Widen(k, elements[typ], four, half))
		}
		memory := make([]byte, 256*16)
		for p := range 256 { // number p stands in the first place, and others behind it
			for place := range 4 {
				memory[16*p+place] = byte(p + 85*place)
			}
		}
		got := make([]byte, len(memory))
		execute(t, k, memory, got)
		for p := range 256 {
			for place := range 4 {
				want := typ.At(memory, 16*p+place)
				if half := dtype.F16.At(got[16*p:], place); half != want && (half == half || want == want) || math.Signbit(half) != math.Signbit(want) && want == want {
					t.Errorf("%v %#02x in place %d becomes %v, want %v", typ, memory[16*p+place], place, half, want)
				}
			}
			want, single := typ.At(memory, 16*p), float64(math.Float32frombits(binary.NativeEndian.Uint32(got[16*p+8:])))
			if single != want && (single == single || want == want) {
				t.Errorf("%v %#02x by itself becomes %v, want %v", typ, p, single, want)
			}
		}
	}
}
