package gpu

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// mma multiplies on the tensor cores: a warp holds 64×32 elements of C, its lanes 64 sums
// each, and adds products of 16×8 and 8×8 elements to them with one instruction each.
// The tiles come to shared memory with cp.async, past the registers, several steps ahead;
// there is one barrier a step. A tile stands in shared memory as it does in memory, along
// K or across, and as an element of float64 is loaded by itself, both cost the same.
//
// What limits it: nothing but the tensor cores, where there are tiles enough for all SMs.
var mma = &Kernel{
	Name:   "mma",
	Adds:   "multiplies on the tensor cores with mma.sync, several steps' tiles under way with cp.async",
	SM:     80,
	Tensor: true,
	better: []int{90},
	types:  []dtype.Type{dtype.F64},
	shapes: []Shape{
		{128, 128, 16, 8, 8, 4}, {64, 64, 16, 4, 4, 4}, {32, 32, 32, 2, 4, 4},
	},
	check:   checkMMA,
	vectors: mmaVectors,
	threads: func(s Shape) device.Dim3 { return device.Dim3{X: mmaThreads(s), Y: 1, Z: 1} },
	shared: func(c Config) int {
		a, b := mmaTiles(c)
		elem := elements[c.In]
		return a.Bytes(elem) + b.Bytes(elem)
	},
	limits: func(c Config) Limits { return Limits{Scatter: rowScatter(c, c.Shape.K, c.Shape.N)} },
	write:  writeMMA,
}

// warpTile is the part of C that a warp computes.
func warpTile(s Shape) (rows, cols int) {
	return s.RowsPerThread * frag.Eight, s.ColsPerThread * frag.Quad
}

func mmaThreads(s Shape) int {
	rows, cols := warpTile(s)
	return s.M / rows * (s.N / cols) * frag.Lanes
}

// mmaTiles are the shapes of the tiles of A and B.
func mmaTiles(c Config) (a, b frag.Shape) {
	s := c.Shape
	a = frag.Shape{Side: s.M, Depth: s.K, Stages: s.Stages, AlongK: !c.TransA}
	b = frag.Shape{Side: s.N, Depth: s.K, Stages: s.Stages, AlongK: c.TransB}
	return a, b
}

func checkMMA(s Shape) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: kernel mma with tile %v: %s", gemm.ErrUnsupported, s, fmt.Sprintf(format, args...))
	}
	for _, n := range []int{s.M, s.N, s.K, s.RowsPerThread, s.ColsPerThread} {
		if n < 1 || n > maxThreads || n&(n-1) != 0 {
			return bad("%d is no power of two up to %d", n, maxThreads)
		}
	}
	rows, cols := warpTile(s)
	switch {
	case s.RowsPerThread < 2 || s.ColsPerThread < 2 || s.RowsPerThread*s.ColsPerThread < 8:
		// One instruction's sums alone would be added to again and again, and from one
		// turn of a loop to the next NVIDIA's assemblers (12.9 to 13.5 were seen) forget
		// to wait for the addition before: sums go missing.
		return bad("a thread has at least 2×4 or 4×2 elements")
	case s.M < rows || s.N < cols:
		return bad("a warp alone has %d×%d", rows, cols)
	case s.K < 16:
		return bad("K is at least 16")
	case s.Stages < 2 || s.Stages > 16:
		return bad("%d stages: want 2 to 16", s.Stages)
	case mmaThreads(s) > maxThreads:
		return bad("a block has at most %d threads, not %d", maxThreads, mmaThreads(s))
	}
	for _, tile := range []frag.Shape{
		{Side: s.M, Depth: s.K}, {Side: s.N, Depth: s.K}, {Side: s.M, Depth: s.K, AlongK: true}, {Side: s.N, Depth: s.K, AlongK: true},
	} {
		for _, vec := range []int{1, 2} {
			if err := tile.Check(vec, mmaThreads(s)); err != nil {
				return bad("%v", err)
			}
		}
	}
	return nil
}

func mmaVectors(s Shape, c *Config, p *gemm.Problem) {
	most := maxVector / p.A.Type.Size()
	c.VecA, c.VecB, c.VecC = vector(p.A, most), vector(p.B, most), vector(p.C, 2)
}

func writeMMA(k *build.Kernel, c Config) {
	g := declare(k, c)
	s := c.Shape
	threads := mmaThreads(s)
	k.Threads(threads, 1, 1)
	k.MinBlocks(1)
	in, _ := frag.Best(g.a.Elem(), c.SM)
	row0, col0 := g.grouped(8)
	shapeA, shapeB := mmaTiles(c)
	a := frag.NewTiles(k, "A", g.a, row0, g.from, g.to, shapeA, c.VecA, threads)
	b := frag.NewTiles(k, "B", g.b.T(), col0, g.from, g.to, shapeB, c.VecB, threads)
	ring := frag.NewRing(k, s.Stages, a, b)

	tid := k.ThreadIdx(build.X)
	lane, warp := k.Named("lane", k.Rem(tid, frag.Lanes)), k.Named("warp", k.Div(tid, frag.Lanes))
	eight, quad := k.Named("eight", k.Div(lane, frag.Quad)), k.Named("quad", k.Rem(lane, frag.Quad))
	rows, cols := warpTile(s)
	side := s.N / cols // warps side by side
	i := k.Mad(k.Div(warp, side), rows, eight)
	j := k.Mul(k.Rem(warp, side), cols)

	acc := make([][][]build.Reg, rows/in.M)
	for m := range acc {
		acc[m] = make([][]build.Reg, cols/in.N)
		for n := range acc[m] {
			acc[m][n] = k.Vars(fmt.Sprintf("acc%d_%d_", m, n), g.acc, len(in.C()), 0)
		}
	}
	w := &warpLoads{k: k, in: in, ms: len(acc), ns: len(acc[0])}
	now, next := w.fresh(g.a.Elem()), w.fresh(g.a.Elem())
	view := func() (frag.Tile, frag.Tile) {
		return a.In(ring.Use(), i, quad), b.In(ring.Use(), k.Add(j, eight), quad)
	}

	k.Comment("the first tiles set out; behind K they are zeros")
	ring.Start()
	ta, tb := view()
	for _, load := range w.loads(now, ta, tb, 0) {
		load()
	}
	k.For(0, k.CeilDiv(k.Sub(g.to, g.from), s.K), func(build.Reg) {
		ta, tb := view()
		for p := 0; p < s.K; p += in.K {
			ahead := p + in.K
			if ahead == s.K {
				k.Comment("the last fragments are in registers: on to the next tiles")
				ring.Next()
				ta, tb = view()
				ahead = 0
			}
			// Meanwhile the next fragments come, and more tiles set out.
			meanwhile := w.loads(next, ta, tb, ahead)
			if p == 0 {
				meanwhile = append(meanwhile, ring.Fill()...)
			}
			for m := range acc {
				for n := range acc[m] {
					at, all := m*w.ns+n, w.ms*w.ns
					for _, piece := range meanwhile[at*len(meanwhile)/all : (at+1)*len(meanwhile)/all] {
						piece()
					}
					k.MMA(in.Shape(), in.In, acc[m][n], now.a[m], now.b[n])
				}
			}
			now, next = next, now
		}
	})

	k.Comment("write the warp's part of C")
	row, col := k.Add(row0, i), k.Add(col0, k.Mad(quad, 2, j))
	places := in.C()
	for m := range acc {
		for e := 0; e < len(places); e += 2 { // a row of the instruction's, two sums side by side
			var at []build.Reg
			var sums [][]build.Reg
			for n := range acc[m] {
				for d := 0; d < 2; d += c.VecC {
					at = append(at, k.Add(col, n*in.N+d))
					sums = append(sums, acc[m][n][e+d:e+d+c.VecC])
				}
			}
			g.storeRow(k.Add(row, m*in.M+places[e].Row), at, sums)
		}
	}
}

// fragments are what a warp's lanes hold of a row of tiles of A and a column of tiles
// of B.
type mmaFragments struct{ a, b [][]build.Reg }

// warpLoads loads them.
type warpLoads struct {
	k      *build.Kernel
	in     frag.Instruction
	ms, ns int
}

func (w *warpLoads) fresh(elem ptx.Type) mmaFragments {
	var f mmaFragments
	some := func(n int) []build.Reg {
		r := make([]build.Reg, n)
		for i := range r {
			r[i] = w.k.Fresh(elem)
		}
		return r
	}
	for range w.ms {
		f.a = append(f.a, some(len(w.in.A())))
	}
	for range w.ns {
		f.b = append(f.b, some(len(w.in.B())))
	}
	return f
}

// loads are the loads of fragments from element p along K of the tiles on, those first
// that the first products need.
func (w *warpLoads) loads(f mmaFragments, a, b frag.Tile, p int) []func() {
	var all []func()
	for n, regs := range f.b {
		for e, at := range w.in.B() {
			all = append(all, func() { b.At(n*w.in.N+at.Col, p+at.Row).LoadTo(regs[e]) })
		}
	}
	for m, regs := range f.a {
		for e, at := range w.in.A() {
			all = append(all, func() { a.At(m*w.in.M+at.Row, p+at.Col).LoadTo(regs[e]) })
		}
	}
	return all
}
