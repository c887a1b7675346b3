//go:build unix

package asm

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// TestEpilogue runs biases, scales and other epilogue functions of every kernel set at every tile
// width. They must write the tile only, and the result for an element must not depend on its
// position.
func TestEpilogue(t *testing.T) {
	eachKernel(t, testEpilogue[float32], testEpilogue[float64])
	for _, ks := range integerKernels {
		t.Run("int32/"+ks.ISA.Name, func(t *testing.T) { require(t, ks.ISA); testEpilogue(t, ks.Kernels) })
	}
}

func testEpilogue[T float32 | float64 | int32](t *testing.T, ks *Kernels[T]) {
	r := testrand.New(t)
	tiles, vectors := newArena[T](t, 1<<12), newArena[T](t, 1<<12)
	number := func() T {
		if v := any(r.Float64()*16 - 8); ks.GELU != nil {
			return T(v.(float64))
		}
		return T(r.Uint32())
	}
	// The operand of element (i, j) is v[i*down+j*across], or v[i*ldv+j] for a matrix.
	type call struct {
		name         string
		down, across int
		run          func(m, n int, c *T, ldc int, v *T)
		matrix       func(m, n int, c *T, ldc int, v *T, ldv int)
		one          func(x, v T) T
	}
	plus, times := func(x, v T) T { return x + v }, func(x, v T) T { return x * v }
	alone := func(name string, f func(m, n int, c *T, ldc int), one func(x, _ T) T) call {
		return call{name: name, run: func(m, n int, c *T, ldc int, _ *T) { f(m, n, c, ldc) }, one: one}
	}
	calls := []call{
		{name: "bias along rows", down: 1, run: ks.BiasRow, one: plus},
		{name: "bias along columns", across: 1, run: ks.BiasCol, one: plus},
		{name: "sum with a matrix", matrix: ks.Add, one: plus},
		alone("relu", ks.ReLU, func(x, _ T) T { return max(x, 0) }),
	}
	if ks.GELU != nil {
		itself := func(f func(m, n int, c *T, ldc int)) func(x, _ T) T {
			return func(x, _ T) T { f(1, 1, &x, 1); return x }
		}
		calls = append(calls,
			call{name: "scale of rows", down: 1, run: ks.ScaleRow, one: times},
			call{name: "scale of columns", across: 1, run: ks.ScaleCol, one: times},
			call{name: "scale of all", run: ks.Scale, one: times},
			call{name: "product with a matrix", matrix: ks.Times, one: times},
			alone("gelu", ks.GELU, itself(ks.GELU)), alone("gelu-tanh", ks.GELUTanh, itself(ks.GELUTanh)),
			alone("silu", ks.SiLU, itself(ks.SiLU)))
	}
	if ks.FromInt32 != nil {
		calls = append(calls, call{name: "conversion of int32", run: ks.FromInt32, one: func(x, v T) T {
			return T(*(*int32)(unsafe.Pointer(&x))) * v
		}})
	}
	for _, x := range calls {
		for n := 0; n <= 2*ks.NR+1; n++ {
			m := 1 + r.IntN(10)
			ldc, ldv := n+r.IntN(9), n+r.IntN(9)
			down, across := x.down, x.across
			if x.matrix != nil {
				down, across = ldv, 1
			}
			c, v := tiles.last(span(m, ldc, n, 1)), vectors.last(span(m, down, max(n, 1), across))
			for _, s := range [][]T{c, v} {
				for i := range s {
					s[i] = number()
				}
			}
			want := slices.Clone(c)
			for i := range m {
				for j := range n {
					want[i*ldc+j] = x.one(want[i*ldc+j], v[i*down+j*across])
				}
			}
			run := x.run
			if x.matrix != nil {
				run = func(m, n int, c *T, ldc int, v *T) { x.matrix(m, n, c, ldc, v, ldv) }
			}
			if fault := faults(func() { run(m, n, tiles.start(c), ldc, vectors.start(v)) }); fault != nil {
				t.Fatalf("%s of %d×%d: %v", x.name, m, n, fault)
			}
			if !slices.Equal(c, want) {
				t.Fatalf("%s of %d×%d, ldc %d: %v, want %v", x.name, m, n, ldc, c, want)
			}
		}
	}
}

// TestActivations compares the activations with the reference functions: to a few roundoffs of the
// argument, to some digits of the value, and for zeros, infinities and NaN.
func TestActivations(t *testing.T) {
	eachKernel(t, testActivations[float32], testActivations[float64])
}

func testActivations[T float32 | float64](t *testing.T, ks *Kernels[T]) {
	roundoff, relative, most := 0x1p-24, 1e-4, 3.0
	if _, ok := any(T(0)).(float64); ok {
		// The reference functions, also in float64, err by some roundoffs themselves.
		roundoff, relative, most = 0x1p-53, 1e-11, 10
	}
	for act, f := range map[gemm.Activation]func(m, n int, c *T, ldc int){
		gemm.ActReLU: ks.ReLU, gemm.ActGELU: ks.GELU, gemm.ActGELUTanh: ks.GELUTanh, gemm.ActSiLU: ks.SiLU,
	} {
		want := act.Info().F
		if act == gemm.ActGELUTanh { // the reference formula 1 + tanh cancels for negative arguments
			want = func(x float64) float64 { return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }
		}
		var xs []T
		for x := -40.0; x < 40; x += 1.0 / 512 {
			xs = append(xs, T(x+x/7000))
		}
		for e := -130; e < 120; e++ {
			xs = append(xs, T(math.Ldexp(1.3, e)), T(math.Ldexp(-1.7, e)))
		}
		got := slices.Clone(xs)
		f(1, len(got), &got[0], len(got))
		worst, at := 0.0, T(0)
		for i, x := range xs {
			y := want(float64(x))
			e := math.Abs(float64(got[i]) - y)
			if off := e / (roundoff * math.Abs(float64(x))); off > worst && e > 1e-30 {
				worst, at = off, x
			}
			if e > relative*math.Abs(y) && e > 1e-30 {
				t.Errorf("%v(%v) = %v, want %v", act, x, got[i], y)
				break
			}
		}
		t.Logf("%v errs by up to %.2f roundoffs of its argument, at %v", act, worst, at)
		if worst > most {
			t.Errorf("%v(%v) errs by %.3g roundoffs of its argument, want at most %v", act, at, worst, most)
		}
		for _, x := range []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN()} {
			v := T(x)
			f(1, 1, &v, 1)
			if y := act.Info().F(x); math.Abs(float64(v)-y) > 1e-30 || (v != v) != (y != y) ||
				math.IsInf(y, 0) && float64(v) != y {
				t.Errorf("%v(%v) = %v, want %v", act, x, v, y)
			}
		}
	}
}

// TestHalves checks that Narrow and AddOld round as package dtype does, and write the tile only.
func TestHalves(t *testing.T) {
	for _, h := range []struct {
		name   string
		packer Packer
		from   func(float32) uint16
		to     func(uint16) float32
	}{
		{"float16", PackerF16, func(f float32) uint16 { return uint16(dtype.Float16From32(f)) },
			func(h uint16) float32 { return dtype.Float16(h).Float32() }},
		{"bfloat16", PackerBF16, func(f float32) uint16 { return uint16(dtype.BFloat16From32(f)) },
			func(h uint16) float32 { return dtype.BFloat16(h).Float32() }},
	} {
		t.Run(h.name, func(t *testing.T) {
			if h.packer.Narrow == nil {
				require(t, AVX2)
				t.Skip("this CPU lacks F16C")
			}
			r := testrand.New(t)
			wides, narrows := newArena[float32](t, 1<<12), newArena[uint16](t, 1<<12)
			for round := range 2000 {
				m, n := r.IntN(5), 8*r.IntN(6)
				lds, ldd := n+r.IntN(9), n+r.IntN(9)
				wide, narrow := wides.last(span(m, lds, n, 1)), narrows.last(span(m, ldd, n, 1))
				for i := range wide {
					switch wide[i] = math.Float32frombits(r.Uint32()); r.IntN(4) {
					case 0: // at and around the midpoint of two neighbours
						wide[i] = math.Float32frombits(r.Uint32()&^0xffff | 0x7fff + uint32(r.IntN(3)))
					case 1:
						wide[i] = math.Float32frombits(uint32(0x33000000+r.IntN(0x14800000))&^0x1fff | 0xfff + uint32(r.IntN(3)))
					}
				}
				for i := range narrow {
					narrow[i] = uint16(r.Uint32())
				}
				old, sums := slices.Clone(narrow), slices.Clone(wide)
				if fault := faults(func() {
					h.packer.Narrow(m, n, narrows.start(narrow), ldd, wides.start(wide), lds)
				}); fault != nil {
					t.Fatalf("round %d: %v", round, fault)
				}
				for i := range narrow {
					want := old[i]
					if i%ldd < n {
						want = h.from(wide[i/ldd*lds+i%ldd])
					}
					if narrow[i] != want {
						t.Fatalf("%d×%d, ldd %d, lds %d: element %d is %#x, want %#x", m, n, ldd, lds, i, narrow[i],
							want)
					}
				}
				beta := finite[float32](r)
				if fault := faults(func() {
					h.packer.AddOld(m, n, wides.start(wide), lds, narrows.start(narrow), ldd, beta)
				}); fault != nil {
					t.Fatalf("round %d: %v", round, fault)
				}
				for i := range wide {
					want := sums[i]
					if i%lds < n {
						want += float32(beta * h.to(narrow[i/lds*ldd+i%lds]))
					}
					if !same(wide[i], want) {
						t.Fatalf("%d×%d, ldd %d, lds %d, β = %v: sum %d is %v, want %v", m, n, ldd, lds, beta, i,
							wide[i], want)
					}
				}
			}
		})
	}
}

// TestWidening checks that rows of 16-bit elements give the same bits as a panel of their widened
// copies.
func TestWidening(t *testing.T) {
	for _, ks := range F32 {
		t.Run(ks.ISA.Name, func(t *testing.T) {
			require(t, ks.ISA)
			if PackerF16.Zip == nil {
				t.Skip("this CPU lacks F16C")
			}
			r := testrand.New(t)
			as, bs, cs := newArena[float32](t, 1<<12), newArena[uint16](t, 1<<12), newArena[float32](t, 1<<10)
			for _, h := range []struct {
				kernels []Widening[float32]
				dots    []WideningDot[float32]
				to      func(uint16) float32
			}{
				{ks.WidenF16, ks.DotF16, func(h uint16) float32 { return dtype.Float16(h).Float32() }},
				{ks.WidenBF16, ks.DotBF16, func(h uint16) float32 { return dtype.BFloat16(h).Float32() }},
			} {
				testWideningDots(t, ks, h.dots, h.to)
				for _, k := range append(upTo(2*unroll+1), 67) {
					for m := 1; m <= ks.MR; m++ {
						height := (m + 1) / 2 * 2
						kernel := h.kernels[height/2-1]
						for n := 1; n <= ks.NR; n += 1 + r.IntN(3) {
							lda, ldb := height+r.IntN(3), ks.NR+r.IntN(3)
							a, b, c := as.last(max((k-1)*lda+height, 0)), bs.last(max((k-1)*ldb+ks.NR, 0)), cs.last(m*n)
							fill(a, r, finite)
							tall := make([]float32, ks.MR*k+1)
							for p := range k {
								copy(tall[p*ks.MR:], a[p*lda:][:height])
							}
							fill(c, r, finite)
							wide := make([]float32, ks.NR*k+1)
							for i := range b {
								if b[i] = uint16(r.Uint32()); i%ldb < ks.NR {
									wide[i/ldb*ks.NR+i%ldb] = h.to(b[i])
								}
							}
							want := slices.Clone(c)
							alpha, beta := finite[float32](r), finite[float32](r)
							ks.Packed(k, &tall[0], &wide[0], &want[0], &wide[0], n, m, n, alpha, beta)
							if fault := faults(func() {
								kernel(k, as.start(a), lda, bs.start(b), bs.start(b), ldb, 1, &c[0], n, m, n, alpha, beta)
							}); fault != nil {
								t.Fatalf("%d×%d×%d: %v", m, n, k, fault)
							}
							if !sameAll(c, want) {
								t.Fatalf("%d×%d×%d, α = %v, β = %v: %v, want %v", m, n, k, alpha, beta, c, want)
							}
						}
					}
				}
			}
		})
	}
}

// testWideningDots compares the sums of kernels that widen x with those of the kernels for a
// widened copy.
func testWideningDots(t *testing.T, ks *Kernels[float32], dots []WideningDot[float32], to func(uint16) float32) {
	r := testrand.New(t)
	xs, ys, all := newArena[uint16](t, 1<<14), newArena[float32](t, 1<<14), newArena[float32](t, 1<<10)
	for s, dot := range dots {
		lanes := ks.NR / 2
		for k := 0; k <= 9*lanes; k += lanes {
			ldx, ldy, tiles := k+r.IntN(9), k+r.IntN(9), 1+r.IntN(3)
			x, y := xs.last(span(tiles*DotRows, ldx, k, 1)), ys.last(span(s+1, ldy, k, 1))
			wide := make([]float32, len(x)+1)
			for i := range x {
				x[i] = uint16(r.Uint32())
				wide[i] = to(x[i])
			}
			fill(y, r, finite)
			got := all.last(tiles * (s + 1) * DotRows)
			want := make([]float32, len(got))
			ks.Dot[DotRows-1][s](tiles, k, &wide[0], ldx, ys.start(y), ldy, &want[0])
			if fault := faults(func() { dot(tiles, k, xs.start(x), ldx, ys.start(y), ldy, &got[0]) }); fault != nil {
				t.Fatalf("%d·%d rows with %d, k %d: %v", tiles, DotRows, s+1, k, fault)
			}
			if !sameAll(got, want) {
				t.Fatalf("%d·%d rows with %d, k %d, ldx %d, ldy %d: %v, want %v", tiles, DotRows, s+1, k, ldx, ldy, got, want)
			}
		}
	}
}
