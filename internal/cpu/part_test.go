package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestParts computes parts of products, from any row or column to any other, with each method whose
// parts have an order. They must have the bits of the whole.
func TestParts(t *testing.T) {
	rng := testrand.New(t)
	seen := map[algorithm]int{}
	for _, k := range Kernels() {
		if !k.Available() {
			continue
		}
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I8} {
			if !k.Multiplies(typ) {
				continue
			}
			most := 250
			if k.ISA == "" { // slow
				most = 40
			}
			for range testkit.Repeats(40, 2000) {
				s := [3]int{1 + rng.IntN(most), 1 + rng.IntN(most), 1 + rng.IntN(most)}
				switch rng.IntN(3) {
				case 0: // no columns beside whole tiles, and several blocks of K
					s[1], s[2] = 64*(1+rng.IntN(4)), s[2]*5
				case 1: // edge columns
					s[1] = 64*(1+rng.IntN(2)) + 1 + rng.IntN(3)
				}
				results := typ.Info().Results
				p, b := thinProblem(t, rng, typ, results[rng.IntN(len(results))], s, rng.IntN(4))
				p.Layouts[gemm.C] = gemm.Dense(p.Out(), p.M, p.N)
				if rng.IntN(4) == 0 && p.In().Info().Results[0] == p.Out() && !typ.Info().Integer {
					p.Epilogue.Gated, p.Layouts[gemm.Up] = true, p.Layouts[gemm.B]
					b[gemm.Up] = bytes.Clone(b[gemm.B])
				}
				if rng.IntN(4) == 0 && !k.naive && k.ordered {
					p = p.WithRowInvariance()
				}
				for o, m := range b {
					if l := p.Layout(gemm.Operand(o)); p.Uses(gemm.Operand(o)) && !l.Type.Info().Integer {
						for i := range l.Type.Elements(len(m)) {
							l.Type.Set(m, i, rng.Float64()*4-2)
						}
					}
				}
				checkParts(t, rng, k, &p, b, seen)
			}
		}
	}
	for _, a := range []algorithm{algoNaive, algoDirect, algoBlocked} {
		if seen[a] < 3 && !testing.Short() {
			t.Errorf("%v ran %d times, want at least 3", a, seen[a])
		}
	}
}

// checkParts compares two parts of p with the whole, for each method whose parts have an order.
func checkParts(t *testing.T, rng *rand.Rand, k *Kernel, p *gemm.Problem, b gemm.Buffers, seen map[algorithm]int) {
	t.Helper()
	old := bytes.Clone(b[gemm.C])
	pl, err := k.plan(p, backend.Options{Threads: 1 + rng.IntN(2)})
	if err != nil {
		t.Fatal(err)
	}
	methods := []method{pl.method}
	if !k.naive {
		methods = k.tiles(p.Accum()).methods(p)
	}
	for _, pl.method = range methods {
		if pl.Order() == "" {
			continue
		}
		seen[pl.method.algorithm]++
		copy(b[gemm.C], old)
		if err := pl.Run(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		row, col := rng.IntN(p.M), rng.IntN(p.N)
		for _, a := range []gemm.Area{
			{Row: row, Rows: 1 + rng.IntN(p.M-row), Cols: p.N}, {Col: col, Rows: p.M, Cols: 1 + rng.IntN(p.N-col)},
		} {
			q, m, err := p.Part(a, &b)
			if err != nil {
				t.Fatal(err)
			}
			m[gemm.C] = area(p, old, a)
			part, err := pl.Part(&q, a.Row, a.Col)
			if err != nil {
				t.Fatal(err)
			}
			if err := part.Run(t.Context(), &m); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m[gemm.C], area(p, b[gemm.C], a)) {
				t.Errorf("%v, A transposed %v, B transposed %v, %+v, %s: %v differ from the whole", p, p.A().Trans, p.B().Trans,
					p.Epilogue, pl.Order(), a)
			}
		}
	}
}

// area returns an area of p's C.
func area(p *gemm.Problem, c []byte, a gemm.Area) []byte {
	l := gemm.Dense(p.Out(), a.Rows, a.Cols)
	part := make([]byte, l.Bytes())
	for i := range a.Rows {
		from := p.Out().Bytes(p.C().Index(a.Row+i, a.Col))
		copy(part[l.Type.Bytes(i*l.LD):][:l.Type.Bytes(a.Cols)], c[from:])
	}
	return part
}
