package cpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestCandidates checks every candidate that tuning may choose: with integers it gives the exact
// product, the same on any number of threads.
func TestCandidates(t *testing.T) {
	const seed = 20261121
	random := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct {
		in, out   dtype.Type
		m, n, k   int
		transA    bool
		blockings int // at least
	}{
		{dtype.F32, dtype.F32, 70, 65, 300, false, 6},
		{dtype.F32, dtype.F32, 1, 130, 1100, false, 5},
		{dtype.F64, dtype.F64, 130, 40, 200, true, 6},
		{dtype.BF16, dtype.F32, 60, 60, 60, false, 1},
		{dtype.I8, dtype.I32, 30, 30, 1200, false, 6},
	} {
		a := gemm.Dense(c.in, c.m, c.k)
		if c.transA {
			a = gemm.Dense(c.in, c.k, c.m).T()
		}
		p, _, err := gemm.New(1, a, gemm.Dense(c.in, c.k, c.n), 0, gemm.Dense(c.out, c.m, c.n), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		fill := func(l gemm.Layout) []byte {
			b := allocAligned(l.Bytes())
			for i := range l.Len() {
				l.Type.Set(b, i, float64(random.IntN(9)-4))
			}
			return b
		}
		buf := gemm.Buffers{gemm.A: fill(p.Layouts[gemm.A]), gemm.B: fill(p.Layouts[gemm.B])}
		compute := func(o backend.Options) []byte {
			t.Helper()
			pl, err := NewPlan(&p, o)
			if err != nil {
				t.Fatalf("%v with %+v: %v", &p, o, err)
			}
			buf[gemm.C] = allocAligned(p.C().Bytes())
			if err := pl.Run(context.Background(), &buf); err != nil {
				t.Fatal(err)
			}
			return buf[gemm.C]
		}
		want := compute(backend.Options{Choice: backend.Choice{Kernel: "loop"}})
		routes := Routes(&p, 3)
		for _, r := range routes {
			i, _ := find(r.Kernel)
			name := cmp.Or(r.Config.Method, kernels[i].tiles(p.Accum()).method(&p).String())
			blockings := Blockings(&p, r)
			if strings.HasPrefix(name, "blocked") && len(blockings) < c.blockings {
				t.Errorf("%v with %+v: %d blockings, want at least %d", &p, r, len(blockings), c.blockings)
			}
			for _, b := range append(blockings, r) {
				if got := compute(backend.Options{Choice: backend.Choice{Kernel: b.Kernel, Config: b.Config}}); !bytes.Equal(got,
					want) {
					t.Errorf("%v with %+v: C differs from the naive loop's (seed %d)", &p, b, seed)
				}
			}
		}
	}
}

// TestConfigThreads checks that the number of threads does not change the bits of a tuned product.
func TestConfigThreads(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 150, 700), gemm.Dense(dtype.F32, 700, 90), 0,
		gemm.Dense(dtype.F32, 150, 90), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	buf := gemm.Buffers{gemm.A: allocAligned(p.A().Bytes()), gemm.B: allocAligned(p.B().Bytes())}
	for _, b := range [][]byte{buf[gemm.A], buf[gemm.B]} {
		for i := range len(b) / 4 {
			dtype.F32.Set(b, i, random.Float64()-0.5)
		}
	}
	var want []byte
	for _, threads := range []int{1, 2, 5} {
		pl, err := NewPlan(&p, backend.Options{Choice: backend.Choice{Config: backend.Config{KC: 100, MC: 48,
			Method: "blocked-pack-A", Threads: threads}}})
		if err != nil {
			t.Fatal(err)
		}
		pl.Threads = threads // also on a machine with fewer cores
		buf[gemm.C] = allocAligned(p.C().Bytes())
		if err := pl.Run(context.Background(), &buf); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = buf[gemm.C]
		}
		if !bytes.Equal(buf[gemm.C], want) {
			t.Errorf("%d threads: bits differ from those of one thread (seed %d)", threads, seed)
		}
	}
}

// TestBadConfig checks that impossible configurations return ErrUnsupported.
func TestBadConfig(t *testing.T) {
	p, _, err := gemm.New(1, gemm.Dense(dtype.BF16, 8, 8), gemm.Dense(dtype.BF16, 8, 8), 0,
		gemm.Dense(dtype.F32, 8, 8), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []backend.Choice{
		{Config: backend.Config{KC: -1}}, {Config: backend.Config{MC: maxBlock + 1}},
		{Config: backend.Config{KC: math.MaxInt}},
		{Config: backend.Config{Threads: -1}},
		{Config: backend.Config{Method: "magic"}}, {Config: backend.Config{Method: "blocked-"}},
		{Config: backend.Config{Method: "direct"}}, {Config: backend.Config{Method: "blocked"}},
		{Kernel: "loop", Config: backend.Config{KC: 8}},
	} {
		if _, err := NewPlan(&p, backend.Options{Choice: o}); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("%+v: %v, want ErrUnsupported", o, err)
		}
	}
}
