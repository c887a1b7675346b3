package cpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestPackedSameBits checks that a packed B gives the same bits as the blocked algorithm with an
// unpacked B, for every kernel, type and layout of B, with and without an epilogue.
func TestPackedSameBits(t *testing.T) {
	rng := testrand.New(t)
	for _, k := range Kernels() {
		if k.naive || !k.Available() {
			continue
		}
		small := *k
		small.f32, small.f64, small.i32 = shrunk(k.f32), shrunk(k.f64), shrunk(k.i32)
		all := []*Kernel{k, &small}
		if copying := copyingTiles(k); copying != nil {
			all = append(all, copying)
		}
		for _, k := range all {
			for _, pair := range gemmtest.Pairs() {
				if !slices.Contains(k.Types(), pair.In) {
					continue
				}
				for round := range testkit.Short(24) {
					m, n, depth := 1+rng.IntN(40), 1+rng.IntN(90), rng.IntN(200)
					if round == 0 {
						m, n, depth = 3, 70, 1100 // several blocks of K
					}
					b := gemm.Dense(pair.In, depth, n)
					if rng.IntN(2) == 0 {
						b = gemm.Dense(pair.In, n, depth).T()
					}
					b.LD += rng.IntN(3)
					e := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}
					if !pair.Out.Info().Integer {
						e.Activation = gemm.Activation(rng.IntN(5))
					}
					alpha, beta := complex(float64(rng.IntN(3)), 0), complex(float64(rng.IntN(2)), 0)
					p, _, err := gemm.New(alpha, gemm.Dense(pair.In, m, depth), b, beta, gemm.Dense(pair.Out, m, n), e)
					if err != nil {
						t.Fatal(err)
					}
					buf := gemm.Buffers{gemm.A: noise(rng, p.Layouts[gemm.A]), gemm.B: noise(rng, p.Layouts[gemm.B]),
						gemm.C:    noise(rng, p.Layouts[gemm.C]),
						gemm.Bias: noise(rng, gemm.Dense(pair.Out, 1, max(m, n)))}
					checkPacked(t, k, &p, buf, 1+rng.IntN(3))
				}
			}
		}
	}
}

// noise returns memory for l with random values.
func noise(rng *rand.Rand, l gemm.Layout) []byte {
	b := allocAligned(l.Bytes())
	for i := range l.Len() {
		v := rng.NormFloat64()
		if l.Type.Info().Integer {
			v = float64(rng.IntN(256) - 128)
		}
		l.Type.Set(b, i, v)
	}
	return b
}

func checkPacked(t *testing.T, k *Kernel, p *gemm.Problem, b gemm.Buffers, threads int) {
	t.Helper()
	old := slices.Clone(b[gemm.C])
	run := func(o backend.Options, b gemm.Buffers) []byte {
		copy(b[gemm.C], old)
		pl, err := k.plan(p, o)
		if err != nil {
			t.Fatal(err)
		}
		pl.Threads = threads
		if pl.method.algorithm != algoDirect || hasOwnOrder(k, p) { // may use another order of summation
			pl.method = method{algorithm: algoBlocked, packsA: true}
		}
		if err := pl.Run(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(b[gemm.C])
	}
	want := run(backend.Options{}, b)
	packed, err := k.pack(t.Context(), p, b[gemm.B], threads)
	if err != nil {
		t.Fatal(err)
	}
	b[gemm.B] = nil
	if got := run(backend.Options{Packed: packed}, b); !slices.Equal(got, want) {
		t.Errorf("%s: %v, α = %v, β = %v, %+v, %d threads: a packed B changes the bits", k.Name, p, real(p.Alpha),
			real(p.Beta), p.Epilogue, threads)
	}
}

// hasOwnOrder reports whether a direct p is summed in another order than by the blocked algorithm.
func hasOwnOrder(k *Kernel, p *gemm.Problem) bool {
	switch p.Accum() {
	case dtype.F32:
		return k.f32.edgeColumns(p) > 0
	case dtype.F64:
		return k.f64.edgeColumns(p) > 0
	}
	return false
}

func TestPackErrors(t *testing.T) {
	f32 := gemm.Dense(dtype.F32, 8, 8)
	data := allocAligned(f32.Bytes())
	if _, err := Pack(t.Context(), f32, data, &backend.Options{Choice: backend.Choice{Kernel: "loop"}}); !errors.Is(err,
		gemm.ErrUnsupported) {
		t.Errorf("Pack for the naive kernel: error %v, want ErrUnsupported", err)
	}
	packed, err := Pack(t.Context(), f32, data, &backend.Options{Choice: backend.Choice{Kernel: "portable"}})
	if err != nil {
		t.Fatal(err)
	}
	if packed.Bytes() != f32.Bytes() {
		t.Errorf("8×8 matrix packed for 4×4 tiles: %d bytes, want %d", packed.Bytes(), f32.Bytes())
	}
	p, _, err := gemm.New(1, f32, f32, 0, f32, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(&p, backend.Options{Choice: backend.Choice{Kernel: "loop"}, Packed: packed}); !errors.Is(err,
		gemm.ErrUnsupported) {
		t.Errorf("B packed for another kernel: error %v, want ErrUnsupported", err)
	}
	pl, err := NewPlan(&p, backend.Options{Packed: packed})
	if want := "portable"; err != nil || pl.Kernel.Name != want {
		t.Errorf("kernel %v, error %v, want %s", pl.Kernel, err, want)
	}
	if got, want := fmt.Sprint(pl.Detail()), "4×4 tiles, MC 128, KC 256, A packed, B prepacked"; got != want {
		t.Errorf("detail %q, want %q", got, want)
	}
}

// TestPackedHalvesPadLittle checks that products of few rows with a packed B of 16-bit elements
// use tiles with at most one row more than an equal division of the rows needs.
func TestPackedHalvesPadLittle(t *testing.T) {
	for _, k := range Kernels() {
		for _, in := range []dtype.Type{dtype.F16, dtype.BF16} {
			if k.naive || !k.Available() || !k.Multiplies(in) || len(k.f32.WidenF16) == 0 {
				continue
			}
			for m := 1; m <= widenPerTileRows; m++ {
				p, _, err := gemm.New(1, gemm.Dense(in, m, 20), gemm.Dense(in, 20, 50), 0, gemm.Dense(in, m, 50),
					gemm.Epilogue{})
				if err != nil {
					t.Fatal(err)
				}
				packed, err := k.pack(t.Context(), &p, allocAligned(p.B().Bytes()), 1)
				if err != nil {
					t.Fatal(err)
				}
				pl, err := k.plan(&p, backend.Options{Packed: packed, Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				d := newBlocked(&pl, k.f32, &gemm.Buffers{})
				least := ints.CeilDiv(m, ints.CeilDiv(m, d.mk.MR))
				if d.tiles.kernels == nil || d.height < least || d.height > least+1 {
					t.Errorf("%s, %v: %d rows in tiles of %d: want %d or %d", k.Name, in, m, d.height, least, least+1)
				}
			}
		}
	}
}
