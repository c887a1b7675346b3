package cpu

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestRowInvariantISAs checks that row-invariant products have the same bits on all kernels that
// multiply in float32 or float64 with fused multiply-add, by every method and for packed B.
func TestRowInvariantISAs(t *testing.T) {
	rng := testrand.New(t)
	for range testkit.Cases(30, 200) {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
			m, n, k := 1+rng.IntN(40), 1+rng.IntN(100), 1+rng.IntN([]int{8, 1500}[rng.IntN(2)])
			p := testkit.Product(t, typ, typ, m, n, k).WithRowInvariance()
			b := gemm.Buffers{gemm.A: someBytes(rng, p.Layouts[gemm.A]), gemm.B: someBytes(rng, p.Layouts[gemm.B])}
			if tiny := tinyOf[typ]; tiny > 0 && rng.IntN(3) == 0 { // all products underflow, and sum to -0
				b = gemm.Buffers{gemm.A: equalBytes(p.Layouts[gemm.A], tiny), gemm.B: equalBytes(p.Layouts[gemm.B], -tiny)}
			}
			var want []byte
			for _, k := range kernels {
				if k.naive || k.Name == "portable" || !k.Available() || !k.Multiplies(typ) || k.flushes {
					continue
				}
				for _, o := range k.optionsOf(t, &p, &b) {
					c := b
					c[gemm.C] = make([]byte, p.C().Bytes())
					pl, err := NewPlan(&p, o)
					if err == nil {
						err = pl.Run(t.Context(), &c)
					}
					if err != nil {
						t.Fatal(err)
					}
					if want == nil {
						want = c[gemm.C]
					}
					if !bytes.Equal(c[gemm.C], want) {
						t.Errorf("%v on kernel %s, %+v: other bits", &p, k.Name, o.Config)
					}
				}
			}
		}
	}
}

// optionsOf returns options for a row-invariant p on kernel k: each method, and a packed B.
func (k *Kernel) optionsOf(t *testing.T, p *gemm.Problem, b *gemm.Buffers) (all []backend.Options) {
	t.Helper()
	named := backend.Options{Choice: backend.Choice{Kernel: k.Name}, RowInvariant: true}
	for _, w := range k.tiles(p.Accum()).methods(p) {
		o := named
		o.Config.Method = w.String()
		all = append(all, o)
	}
	packed, err := Pack(t.Context(), p.Layouts[gemm.B], b[gemm.B], &named)
	if err != nil {
		t.Fatal(err)
	}
	named.Packed = packed
	return append(all, named)
}

// tinyOf maps types to numbers whose products underflow in the type of the sums.
var tinyOf = map[dtype.Type]float64{dtype.F32: 0x1p-100, dtype.BF16: 0x1p-100, dtype.F64: 0x1p-600}

// equalBytes returns the memory of a matrix of equal numbers.
func equalBytes(l gemm.Layout, x float64) []byte {
	b := make([]byte, l.Bytes())
	for i := range l.Len() {
		l.Type.Set(b, i, x)
	}
	return b
}

// someBytes returns the memory of a matrix of random numbers from -1 to 1.
func someBytes(rng *rand.Rand, l gemm.Layout) []byte {
	b := make([]byte, l.Bytes())
	for i := range l.Len() {
		l.Type.Set(b, i, 2*rng.Float64()-1)
	}
	return b
}

// TestRowInvariantRefused checks that kernels, block sizes, methods and packed matrices with
// another order of summation are refused.
func TestRowInvariantRefused(t *testing.T) {
	p := testkit.Product(t, dtype.F32, dtype.F32, 3, 40, 5000).WithRowInvariance()
	packed, err := Pack(t.Context(), p.Layouts[gemm.B], make([]byte, p.B().Bytes()), &backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []backend.Options{
		{Choice: backend.Choice{Kernel: "loop"}}, {Packed: packed},
		{Choice: backend.Choice{Config: backend.Config{KC: 64}}},
		{Choice: backend.Choice{Config: backend.Config{Method: "split-K"}}},
		{Choice: backend.Choice{Config: backend.Config{Method: "axpy"}}},
	} {
		if _, err := NewPlan(&p, o); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%+v: error %v, want ErrUnsupported", o, err)
		}
	}
}
