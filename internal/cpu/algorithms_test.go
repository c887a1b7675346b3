package cpu

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestThinProducts compares products with few rows, columns or steps of K, which use special
// algorithms, with the naive loop. In integers the results are exact. It varies the transposes,
// strides, epilogue and number of threads, and checks that nothing is written between rows of C and
// that onTile reports every element once.
func TestThinProducts(t *testing.T) {
	rng := testrand.New(t)
	seen := map[algorithm]int{}
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		for i, s := range [][3]int{
			{6, 1030, 90}, {1, 70, 40}, {1, 333, 1000}, {2, 300, 33}, {3, 2100, 37}, {5, 129, 200}, {7, 70, 4500}, {8, 64, 64},
			{21, 200, 47}, {32, 300, 35}, {9, 1500, 300},
			{70, 1, 40}, {65, 2, 33}, {333, 3, 1000}, {2100, 5, 37}, {67, 8, 5000}, {300, 19, 50}, {259, 32, 41},
			{16, 16, 1000}, {13, 5, 333}, {4, 3, 70}, {37, 41, 300},
			{1, 1, 257}, {2, 2, 400}, {1, 5, 300}, {3, 1, 530}, {4, 4, 260}, {16, 2, 300}, {2, 16, 300},
			{33, 5, 257}, {9, 30, 271},
			{64, 70, 1}, {129, 1100, 2}, {100, 100, 3}, {333, 65, 4}, {70, 300, 7}, {65, 129, 8},
		} {
			for n, out := range typ.Info().Results {
				if !testkit.Full() && n != i%len(typ.Info().Results) {
					continue
				}
				for trans := range 4 {
					if (!testkit.Full() || typ.Bits() == 16 || n > 0) && trans != i%4 {
						continue
					}
					p, b := thinProblem(t, rng, typ, out, s, trans)
					want := naiveC(t, &p, b)
					for _, k := range kernelsFor(typ) {
						checkMethods(t, k, &p, b, want, 1+rng.IntN(3), seen)
					}
				}
			}
		}
	}
	if !slices.ContainsFunc(Kernels(), func(k *Kernel) bool { return k.ISA != "" && k.Available() }) {
		return // only assembly kernels have these algorithms
	}
	for a := algoDirect; a <= algoBlocked; a++ {
		if seen[a] < 3 && a != algoSplitK { // see TestSplitK
			t.Errorf("%v ran %d times, want at least 3", a, seen[a])
		}
	}
}

// thinProblem returns a product of small integers. Bit 0 of trans transposes A, bit 1 transposes B.
func thinProblem(t *testing.T, rng *rand.Rand, typ, out dtype.Type, s [3]int, trans int) (gemm.Problem, gemm.Buffers) {
	t.Helper()
	operand := func(typ dtype.Type, rows, cols int, trans bool) gemm.Layout {
		l := gemm.Dense(typ, rows, cols)
		if trans {
			l = gemm.Dense(typ, cols, rows).T()
		}
		l.LD += rng.IntN(3)
		return l
	}
	c := operand(out, s[0], s[1], false)
	e := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}
	if rng.IntN(2) == 0 {
		e.Activation = gemm.ActReLU
	}
	p, swapped, err := gemm.New(complex(float64(1+rng.IntN(2)), 0), operand(typ, s[0], s[2], trans&1 != 0),
		operand(typ, s[2], s[1], trans&2 != 0), complex(float64(rng.IntN(3)), 0), c, e)
	if err != nil || swapped {
		t.Fatal(swapped, err)
	}
	fill := func(typ dtype.Type, n int) []byte {
		b := allocAligned(typ.Bytes(n))
		for i := range n {
			typ.Set(b, i, float64(rng.IntN(9)-4))
		}
		return b
	}
	return p, gemm.Buffers{gemm.A: fill(typ, p.A().Len()), gemm.B: fill(typ, p.B().Len()),
		gemm.C:    fill(c.Type, p.C().Len()),
		gemm.Bias: fill(c.Type, max(s[0], s[1]))}
}

// kernelsFor returns the kernels of this CPU that multiply elements of type typ, without the naive
// loop.
func kernelsFor(typ dtype.Type) []*Kernel {
	return slices.DeleteFunc(slices.Clone(Kernels()), func(k *Kernel) bool {
		return k.naive || !k.Available() || !k.Multiplies(typ)
	})
}

// naiveC returns C as the naive loop computes it, without changing b. It takes longer than the
// kernels, so tests compute it once for all of them.
func naiveC(t *testing.T, p *gemm.Problem, b gemm.Buffers) []byte {
	t.Helper()
	b[gemm.C] = slices.Clone(b[gemm.C])
	naive, err := kernels[0].plan(p, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := naive.Run(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b[gemm.C]
}

// checkMethods checks that every method of k for a product computes want as C. It counts their
// algorithms in seen, unless that is nil. In the end C is as before.
func checkMethods(t *testing.T, k *Kernel, p *gemm.Problem, b gemm.Buffers, want []byte, threads int,
	seen map[algorithm]int) {
	t.Helper()
	old := slices.Clone(b[gemm.C])
	defer copy(b[gemm.C], old)
	reported := make([]atomic.Int32, p.M*p.N)
	pl, err := k.plan(p, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chosen, list := pl.method, k.tiles(p.Accum()).methods(p)
	if !slices.Contains(list, chosen) {
		t.Errorf("%s: %v: method %v is not one of %v", k.Name, p, chosen, list)
	}
	pl.CallTile(func(i, j, rows, cols int) {
		for x := range rows {
			for y := range cols {
				reported[(i+x)*p.N+j+y].Add(1)
			}
		}
	})
	pl.Threads = threads
	for _, pl.method = range list {
		if seen != nil {
			seen[pl.method.algorithm]++
		}
		copy(b[gemm.C], old)
		if err := pl.Run(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b[gemm.C], want) {
			t.Errorf("%s: %v, leading dims %d, %d, %d, α = %v, β = %v, %+v, %d threads, %v: C differs from the naive loop's",
				k.Name, p, p.A().LD, p.B().LD, p.C().LD, real(p.Alpha), real(p.Beta), p.Epilogue, threads, pl.method)
		}
		for i := range reported {
			if n := reported[i].Swap(0); n != 1 {
				t.Errorf("%s: %v, %v: Tile reported element %d %d times, want once", k.Name, p, pl.method, i, n)
				break
			}
		}
	}
}

// TestNonTemporal compares products that may write C with non-temporal stores with the naive loop,
// on one thread and on several.
func TestNonTemporal(t *testing.T) {
	rng := testrand.New(t)
	var tested []*Kernel
	for _, k := range Kernels() {
		if k.ISA == "" || !k.Available() || !k.Multiplies(dtype.F64) {
			continue
		}
		cached, f64, own := *k.f64.costs(), *k.f64, *k
		cached.cached = 8 << 20
		f64.costs = func() *costs { return &cached }
		own.f64 = &f64
		tested = append(tested, &own)
	}
	fill := func(l gemm.Layout) []byte {
		b := allocAligned(l.Bytes())
		for i := range l.Len() {
			l.Type.Set(b, i, float64(rng.IntN(9)-4))
		}
		return b
	}
	direct, packed := method{algorithm: algoDirect}, method{algorithm: algoDirect, packsB: true}
	blocks, packedA := method{algorithm: algoBlocked}, method{algorithm: algoBlocked, packsA: true}
	for _, s := range []struct {
		m, n, k int
		method  method
		streams bool
	}{{101, 1024, 8, direct, false}, {101, 1024, 64, packed, false}, {1030, 1024, 9, packed, true},
		{1030, 1032, 3, direct, true}, {1030, 1031, 5, direct, false},
		{3100, 1031, 4, method{algorithm: algoRows}, true}, {3100, 1031, 5, method{algorithm: algoRows}, false},
		{3100, 1031, 3, method{algorithm: algoRows, packsB: true}, true},
		{1030, 1024, 70, blocks, true}, {1030, 1024, 7, packedA, true}, {1030, 1040, nonTemporalK, blocks, true},
		{1030, 1024, nonTemporalK + 1, blocks, false}, {1030, 1031, 40, blocks, false}, {1000, 1024, 40, blocks, false}} {
		ofB := gemm.Dense(dtype.F64, s.k, s.n)
		if s.method.packsB {
			ofB = gemm.Dense(dtype.F64, s.n, s.k).T()
		}
		p, _, err := gemm.New(1, gemm.Dense(dtype.F64, s.m, s.k), ofB, 0, gemm.Dense(dtype.F64, s.m, s.n), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		b := gemm.Buffers{gemm.A: fill(p.Layouts[gemm.A]), gemm.B: fill(p.Layouts[gemm.B]),
			gemm.C: allocAligned(p.C().Bytes())}
		naive, err := kernels[0].plan(&p, backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := naive.Run(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(b[gemm.C])
		for _, k := range tested {
			pl, err := k.plan(&p, backend.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, pl.Threads = range []int{1, 3} {
				pl.method = s.method
				streams := false
				if s.method.algorithm == algoBlocked {
					streams = newBlocked(&pl, k.f64, &b).nonTemporal
				} else {
					streams = directOf(&pl, k.f64, b).nonTemporal
				}
				if streams != s.streams {
					t.Errorf("%s: %v: %v: non-temporal %v, want %v", k.Name, &p, s.method, streams, s.streams)
				}
				clear(b[gemm.C])
				if err := pl.Run(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(b[gemm.C], want) {
					t.Errorf("%s: %v on %d threads: C differs from the naive loop's", k.Name, &p, pl.Threads)
				}
			}
		}
	}
}

// TestSkinnyProducts compares products with a small and a large operand with the naive loop. They
// cover copies of B's panels by the first tile, strips of B and of A, streaming of A, and the
// transposed product. K ends with a shorter block, A is transposed or not, and the last panel is
// partial.
func TestSkinnyProducts(t *testing.T) {
	rng := testrand.New(t)
	for _, s := range [][4]int{
		{37 + rng.IntN(9), 170 + rng.IntN(9), 801, 0},
		{37 + rng.IntN(9), 170 + rng.IntN(9), 801, 1},
		{5 + rng.IntN(12), 2293, 1301, 0},
		{17 + rng.IntN(15), 2293, 1301, 1},
		{1293, 9 + rng.IntN(streamMaxN-8), 1301, 0},
		{1293, 9 + rng.IntN(streamMaxN-8), 1301, 2},
		{1293, 5 + rng.IntN(27), 1301, 1 + 2*rng.IntN(2)},
		{stripMinRows + rng.IntN(99), 1 + rng.IntN(stripMaxCols), stripDepth + 1 + rng.IntN(99), 1 + 2*rng.IntN(2)},
	} {
		p, b := thinProblem(t, rng, dtype.F64, dtype.F64, [3]int{s[0], s[1], s[2]}, s[3])
		want := naiveC(t, &p, b)
		for _, k := range kernelsFor(dtype.F64) {
			if k.ISA != "" {
				checkMethods(t, k, &p, b, want, 1+rng.IntN(3), nil)
			}
		}
	}
}

func directOf(pl *Plan, mk *microKernel[float64], b gemm.Buffers) (d direct[float64]) {
	d.prepare(pl.Problem, pl, mk, &b)
	return d
}

// TestEdgeColumns compares small products, whose last columns are computed without tiles, with the
// naive loop for every layout of A and B, on one thread and on several.
func TestEdgeColumns(t *testing.T) {
	rng := testrand.New(t)
	for _, k := range Kernels() {
		if k.ISA == "" || !k.Available() || !k.Multiplies(dtype.F64) {
			continue
		}
		for range 60 {
			last := 1 + rng.IntN(k.f64.maxDotCols())
			s := [3]int{asm.DotRows + rng.IntN(40), rng.IntN(5)*k.f64.NR + last, edgeMinK + rng.IntN(60)}
			p, b := thinProblem(t, rng, dtype.F64, dtype.F64, s, rng.IntN(4))
			checkMethods(t, k, &p, b, naiveC(t, &p, b), 1+rng.IntN(3), nil)
			if n := k.f64.edgeColumns(&p); n != last {
				t.Errorf("%s: %v: %d edge columns, want %d", k.Name, &p, n, last)
			}
		}
	}
}

// TestOwnPanels checks which products of several threads pack B in the tasks that read it, and
// compares them with the naive loop.
func TestOwnPanels(t *testing.T) {
	rng := testrand.New(t)
	for _, k := range Kernels() {
		if k.ISA == "" || !k.Available() || !k.Multiplies(dtype.F64) {
			continue
		}
		for _, s := range []struct {
			m, n, k, threads int
			algorithm        algorithm
			own              bool
		}{
			{49, 64, 288, 2, algoStream, true},
			{49, 64, 288, 1, algoStream, false},
			{49, 64, 288, 1, algoDirect, true},
			{49, 64, 32, 2, algoStream, false},  // a small B
			{49, 12, 900, 2, algoStream, false}, // too few columns for the second thread
			{5, 800 + rng.IntN(30), 300, 3, algoDirect, true},
			{300, 64, 40, 3, algoDirect, false},
		} {
			p, b := thinProblem(t, rng, dtype.F64, dtype.F64, [3]int{s.m, s.n, s.k}, 2)
			checkMethods(t, k, &p, b, naiveC(t, &p, b), s.threads, nil)
			pl, err := k.plan(&p, backend.Options{})
			if err != nil {
				t.Fatal(err)
			}
			pl.Threads, pl.method = s.threads, method{algorithm: s.algorithm, packsB: true}
			if d := directOf(&pl, k.f64, b); d.ownPanels != s.own {
				t.Errorf("%s: %v, %d threads, %v: tasks pack B is %v, want %v", k.Name, &p, s.threads, pl.method, d.ownPanels,
					s.own)
			}
		}
	}
}

// TestThreadCount checks the number of threads of products that are bound by arithmetic and by
// memory.
func TestThreadCount(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	for _, c := range []struct{ m, n, k, want int }{
		{60, 60, 60, 1},
		{64, 64, 64, 2}, // half of the work for another thread
		{128, 128, 128, 5},
		{1000, 1000, 1000, 8},
		{200, 1, 200, 1}, // 320 KB
		{300, 1, 300, 2}, // 720 KB
		{1000, 1, 1000, 8},
		{1, 500, 600, 4}, // 2.4 MB
		{500, 600, 1, 4},
	} {
		p, _, err := gemm.New(1, gemm.Dense(dtype.F64, c.m, c.k), gemm.Dense(dtype.F64, c.k, c.n), 0,
			gemm.Dense(dtype.F64, c.m, c.n), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if got := threadCount(&p, 0); got != c.want {
			t.Errorf("%v: %d threads, want %d", &p, got, c.want)
		}
	}
}
