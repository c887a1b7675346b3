//go:build unix

package asm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/testkit/testrand"
)

// integerKernels lists the int8 kernels. Each has a function that adds one step, of the words a and
// b, to a sum.
var integerKernels = []struct {
	*Kernels[int32]
	step func(a, b, sum int32) int32
}{
	{&I8VNNI, func(a, b, sum int32) int32 {
		for i := range 4 {
			sum += int32(uint8(a>>(8*i))) * int32(int8(b>>(8*i)))
		}
		return sum
	}},
	{&I8AVX2, func(a, b, sum int32) int32 {
		return sum + int32(int16(a))*int32(int16(b)) + a>>16*(b>>16)
	}},
	{&I8AMX, func(a, b, sum int32) int32 {
		for i := range 4 {
			sum += int32(int8(a>>(8*i))) * int32(int8(b>>(8*i)))
		}
		return sum
	}},
}

// inPanel returns the position of word p of row i in panels of A with k steps.
func inPanel[T any](ks *Kernels[T], i, p, k int) int {
	if b := ks.Block; b > 0 {
		return i/ks.MR*ks.MR*k + p/b*b*ks.MR + i%ks.MR*b + p%b
	}
	return p*ks.MR + i
}

// heights returns the numbers of rows to test. panels returns the number of panels for rows of A.
func heights[T any](ks *Kernels[T]) []int {
	all := upTo(ks.MR)[1:]
	if ks.Block > 0 {
		all = append(all, ks.MR+1, 3*ks.MR-1)
	}
	return all
}

func panels[T any](ks *Kernels[T], rows int) int { return (rows + ks.MR - 1) / ks.MR }

// depths returns the numbers of steps to test.
func depths[T any](ks *Kernels[T]) []int {
	if b := ks.Block; b > 0 {
		return []int{0, b, 2 * b, 3 * b, 256}
	}
	return append(upTo(2*unroll+1), 67, 256)
}

// words fills s with random words, sometimes with the extreme bytes only.
func words[T int32 | uint32 | uint64 | byte](s []T, r *rand.Rand) {
	extreme := r.IntN(3) == 0
	for i := range s {
		if s[i] = T(r.Uint64()); extreme {
			s[i] = T([]uint32{0x80808080, 0x7f7f7f7f, 0xffffffff, 0x80008000}[r.IntN(4)])
		}
	}
}

func TestInt8(t *testing.T) {
	for _, ks := range integerKernels {
		t.Run(ks.ISA.Name, func(t *testing.T) {
			require(t, ks.ISA)
			r := testrand.New(t)
			as, bs, cs := newArena[int32](t, 1<<15), newArena[int32](t, 1<<14), newArena[int32](t, 1<<14)
			top := 0 // rows of B's panel before its first step
			if ks.Compensate != nil {
				top = 1
			}
			for _, k := range depths(ks.Kernels) {
				for _, m := range heights(ks.Kernels) {
					for n := 1; n <= ks.NR; n++ {
						if k > 2*unroll+1 && m != ks.MR && n%7 != 0 {
							continue
						}
						ldc := n + r.IntN(2*ks.NR)
						a, b, c := as.last(panels(ks.Kernels, m)*ks.MR*k), bs.last(ks.NR*(top+k)), cs.last((m-1)*ldc+n)
						for _, s := range [][]int32{a, b, c} {
							words(s, r)
						}
						alpha, beta := int32(r.Uint32()), int32(r.Uint32())*int32(r.IntN(2))
						want := slices.Clone(c)
						for i := range m {
							for j := range n {
								var sum int32
								if top > 0 {
									sum = b[j]
								}
								for p := range k {
									sum = ks.step(a[inPanel(ks.Kernels, i, p, k)], b[(top+p)*ks.NR+j], sum)
								}
								want[i*ldc+j] = alpha*sum + beta*want[i*ldc+j]
							}
						}
						what := fmt.Sprintf("%d×%d×%d, ldc %d, α = %d, β = %d", m, n, k, ldc, alpha, beta)
						if fault := faults(func() {
							ks.Packed(k, as.start(a), bs.start(b), &c[0], bs.start(b), ldc, m, n, alpha, beta)
						}); fault != nil {
							t.Fatalf("%s: %v", what, fault)
						}
						if !slices.Equal(c, want) {
							t.Fatalf("%s: C differs from the reference loop", what)
						}
					}
				}
			}
		})
	}
}

func TestCompensate(t *testing.T) {
	for _, ks := range integerKernels {
		if ks.Compensate == nil {
			continue
		}
		require(t, ks.ISA)
		r := rand.New(rand.NewPCG(1, 1))
		bs := newArena[int32](t, 1<<14)
		for _, k := range []int{0, 1, 2, 5, 64} {
			b := bs.last(ks.NR * (k + 1))
			words(b, r)
			want := slices.Clone(b)
			for j := range ks.NR {
				want[j] = 0
				for p := range k {
					want[j] = ks.step(-0x7f7f7f80, b[(p+1)*ks.NR+j], want[j])
				}
				want[j] = -want[j]
			}
			if fault := faults(func() { ks.Compensate(k, &b[0]) }); fault != nil {
				t.Fatalf("k = %d: %v", k, fault)
			}
			if !slices.Equal(b, want) {
				t.Errorf("k = %d: compensation %v, want %v", k, b[:ks.NR], want[:ks.NR])
			}
		}
	}
}

// TestPackers compares packing in vectors with packing word by word.
func TestPackers(t *testing.T) {
	int8x2 := func(b ...byte) uint32 { return uint32(uint16(int8(b[0]))) | uint32(uint16(int8(b[1])))<<16 }
	int8x4 := func(b ...byte) uint32 {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	half := func(b ...byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }
	float := func(f float32) uint32 { return *(*uint32)(unsafe.Pointer(&f)) }
	for _, f := range []struct {
		name        string
		packer      Packer
		bytes, rows int // bytes per word along K, and rows per word of a column
		word        func(b ...byte) uint32
	}{
		{"f32", PackerF32, 4, 1, int8x4},
		{"f16", PackerF16, 2, 1, func(b ...byte) uint32 { return float(dtype.Float16(half(b...)).Float32()) }},
		// A NaN keeps its bits: only arithmetic makes it quiet.
		{"bf16", PackerBF16, 2, 1, func(b ...byte) uint32 { return uint32(half(b...)) << 16 }},
		{"bf16x2", PackerBF16x2, 4, 2, int8x4},
		{"i8x4", PackerI8x4, 4, 4, int8x4},
		{"u8x4", PackerU8x4, 4, 4, func(b ...byte) uint32 { return int8x4(b...) ^ 0x80808080 }},
		{"i8x2", PackerI8x2, 2, 2, int8x2},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.packer.Zip == nil {
				require(t, AVX2)
				t.Skip("this CPU lacks F16C")
			}
			r := testrand.New(t)
			src, dst := newArena[byte](t, 1<<14), newArena[uint32](t, 1<<13)
			element := f.bytes / f.rows
			for round := range 300 {
				take := (*arena[byte]).last
				if round%2 == 0 {
					take = (*arena[byte]).first
				}
				k, n, wide := r.IntN(20), 8*r.IntN(5), r.IntN(9)

				// Stored along K: at least eight words of each row.
				zipped, rows := 8+k, 8+n
				ld := zipped*f.bytes + r.IntN(9)*element
				from, to := take(src, span(rows, ld, zipped*f.bytes, 1)), dst.last(span(zipped, rows+wide, rows, 1))
				words(from, r)
				words(to, r)
				want := slices.Clone(to)
				for p := range zipped {
					for i := range rows {
						want[p*(rows+wide)+i] = f.word(from[i*ld+p*f.bytes:][:f.bytes]...)
					}
				}
				if fault := faults(func() {
					f.packer.Zip(zipped, rows, dst.start(to), rows+wide, src.start(from), ld)
				}); fault != nil {
					t.Fatalf("zip of %d×%d: %v", rows, zipped, fault)
				}
				if !slices.Equal(to, want) {
					t.Fatalf("zip of %d rows of %d words, %d wide, %d bytes apart: the panel differs from the reference", rows,
						zipped, rows+wide, ld)
				}

				// Adjacent columns.
				ld = n*element + r.IntN(9)*element
				from, to = take(src, span(k*f.rows, ld, n*element, 1)), dst.last(span(k, n+wide, n, 1))
				words(from, r)
				words(to, r)
				want = slices.Clone(to)
				for p := range k {
					for j := range n {
						var b []byte
						for row := range f.rows {
							b = append(b, from[(p*f.rows+row)*ld+j*element:][:element]...)
						}
						want[p*(n+wide)+j] = f.word(b...)
					}
				}
				if fault := faults(func() {
					f.packer.CopyRows(k, n, dst.start(to), n+wide, src.start(from), ld)
				}); fault != nil {
					t.Fatalf("rows of %d×%d: %v", k, n, fault)
				}
				if !slices.Equal(to, want) {
					t.Fatalf("rows of %d×%d words, %d wide, rows %d bytes apart: the panel differs from the reference",
						k, n, n+wide, ld)
				}
			}
		})
	}
}

// TestZipF64 compares packing of float64 in vectors with packing element by element.
func TestZipF64(t *testing.T) {
	require(t, AVX2)
	r := testrand.New(t)
	src, dst := newArena[uint64](t, 1<<10), newArena[uint64](t, 1<<10)
	for round := range 300 {
		take := (*arena[uint64]).last
		if round%2 == 0 {
			take = (*arena[uint64]).first
		}
		k, n := 4+r.IntN(20), 8+8*r.IntN(3)
		wide, ld := n+r.IntN(9), k+r.IntN(9)
		from, to := take(src, span(n, ld, k, 1)), dst.last(span(k, wide, n, 1))
		words(from, r)
		words(to, r)
		want := slices.Clone(to)
		for p := range k {
			for i := range n {
				want[p*wide+i] = from[i*ld+p]
			}
		}
		word := func(p *uint64) *uint32 { return (*uint32)(unsafe.Pointer(p)) }
		if fault := faults(func() {
			ZipF64(k, n, word(dst.start(to)), 2*wide, (*byte)(unsafe.Pointer(src.start(from))), 8*ld)
		}); fault != nil {
			t.Fatalf("zip of %d×%d: %v", n, k, fault)
		}
		if !slices.Equal(to, want) {
			t.Fatalf("zip of %d×%d, %d wide, rows %d apart: the panel differs from the reference", n, k, wide, ld)
		}
	}
}
