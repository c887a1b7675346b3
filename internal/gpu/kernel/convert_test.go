package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// TestWiden checks that every 8-bit float, in each byte of a register, converts to the float16 of
// the same value, both on the path for tensor cores and on the one for other kernels.
func TestWiden(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F8E4M3, dtype.F8E5M2} {
		k := build.New("widen")
		k.Threads(256, 1, 1)
		x := k.Pointer("x", ptx.B32).At(k.Mul(k.ThreadIdx(build.X), 4))
		four := k.Bits(ptx.B32, x.Load())
		g := &Writer{Kernel: k, Config: Config{In: typ}, AccType: ptx.F32}
		single := g.ToAccType(k.Bits(ptx.U32, k.And(k.To(ptx.U32, four), 0xff)))
		x.At(2).Store(k.Bits(ptx.B32, single))
		for half := range 2 {
			x.At(half).Store(frag.WidenFloat8(k, PTXTypes[typ], four, half))
		}
		memory := make([]byte, 256*16)
		for p := range 256 { // pattern p is in byte 0, and other patterns in the other bytes
			for place := range 4 {
				memory[16*p+place] = byte(p + 85*place)
			}
		}
		got := make([]byte, len(memory))
		execute(t, k, memory, got)
		for p := range 256 {
			for place := range 4 {
				want := typ.At(memory, 16*p+place)
				if half := dtype.F16.At(got[16*p:], place); half != want && (half == half || want == want) ||
					math.Signbit(half) != math.Signbit(want) && want == want {
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

// TestFloat8 checks that float32 rounds to 8-bit floats as in package dtype: ties between adjacent
// numbers, subnormals, overflow, and numbers that are not finite.
func TestFloat8(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, typ := range []dtype.Type{dtype.F8E4M3, dtype.F8E5M2} {
		var inputs []uint32
		for p := range 0x7f {
			low := math.Float32bits(float32(typ.At([]byte{byte(p)}, 0)))
			high := math.Float32bits(float32(typ.At([]byte{byte(p + 1)}, 0)))
			half := math.Float32bits((math.Float32frombits(low) + math.Float32frombits(high)) / 2)
			inputs = append(inputs, low, half-1, half, half+1)
		}
		for len(inputs) < 1024 {
			inputs = append(inputs, rng.Uint32())
		}
		for i, special := range []float64{math.Inf(1), math.NaN(), math.MaxFloat32, 464, 465, 61440, 61439, 0, 0x1p-149} {
			inputs[600+i] = math.Float32bits(float32(special))
		}
		for i := range inputs {
			if i%2 != 0 && i >= 512 {
				inputs[i] ^= 1 << 31
			}
		}
		for _, sm := range []int{float8SM - 1, float8SM} {
			k := build.New("narrow")
			k.Threads(1024, 1, 1)
			x := k.Pointer("x", ptx.U32).At(k.ThreadIdx(build.X))
			x.Store(float8(k, k.Bits(ptx.F32, x.Load()), typ, sm))
			got := make([]byte, 4*len(inputs))
			execute(t, k, dtype.Bytes(words(inputs)), got)
			for i, bits := range inputs {
				value := math.Float32frombits(bits)
				want := []byte{0}
				typ.Set(want, 0, float64(value))
				result := binary.NativeEndian.Uint32(got[4*i:])
				is, should := typ.At([]byte{byte(result)}, 0), typ.At(want, 0)
				if result > 0xff || is != should && (is == is || should == should) || math.Signbit(is) != math.Signbit(should) &&
					is == is {
					t.Errorf("%v of %v (%#08x) on sm_%d is %#x, %v, want %v", typ, value, bits, sm, result, is, should)
				}
			}
		}
	}
}

// words converts x to int32.
func words(x []uint32) []int32 {
	all := make([]int32, len(x))
	for i, v := range x {
		all[i] = int32(v)
	}
	return all
}
