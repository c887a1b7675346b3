package cpu

import (
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/cpu/asm"
	"tilework/internal/ints"
)

// TestTilesConform runs the suite on the amx entry of the kernel list with micro-kernels in plain
// Go. It checks the packing for AMX on any CPU.
func TestTilesConform(t *testing.T) {
	at, _ := find("amx")
	k := *kernels[at]
	k.f32, k.i32 = shrunk(k.f32), shrunk(k.i32)
	k.f32.Kernels = amxInGo(2, func(a, b, sum float32) float32 {
		for _, shift := range []int{0, 16} {
			half := func(w float32) float32 { return dtype.BFloat16(*wordAddr([]float32{w}) >> shift).Float32() }
			sum += float32(half(a) * half(b))
		}
		return sum
	})
	k.i32.Kernels = amxInGo(4, func(a, b, sum int32) int32 {
		for shift := 0; shift < 32; shift += 8 {
			sum += int32(int8(a>>shift)) * int32(int8(b>>shift))
		}
		return sum
	})
	k.i32.floatEpilogue = nil // its functions need AVX-512
	gemmtest.Run(t, implementation(&k, 3))
}

// amxInGo returns the micro-kernel of AMX in plain Go. dot adds one step to a sum.
func amxInGo[T scalar](group int, dot func(a, b, sum T) T) asm.Kernels[T] {
	const mr, nr, block = 32, 32, 16
	packed := func(k int, a, b, c, _ *T, ldc, m, n int, alpha, beta T) {
		as, bs := slice(a, ints.CeilDiv(m, mr)*mr*k), slice(b, k*nr)
		for i := range m {
			row := slice(c, (m-1)*ldc+n)[i*ldc:][:n]
			for j := range row {
				var sum T
				for p := range k {
					sum = dot(as[i/mr*mr*k+p/block*block*mr+i%mr*block+p%block], bs[p*nr+j], sum)
				}
				sum *= alpha
				if beta != 0 {
					sum += T(beta * row[j])
				}
				row[j] = sum
			}
		}
	}
	return asm.Kernels[T]{MR: mr, NR: nr, Packed: packed, Group: group, Block: block}
}
