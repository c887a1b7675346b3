package gpu

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
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
	Name:    "mma",
	Adds:    "multiplies on the tensor cores with mma.sync, several steps' tiles under way with cp.async",
	SM:      80,
	Tensor:  true,
	better:  []int{90},
	splits:  true,
	types:   []dtype.Type{dtype.F64},
	shapes:  mmaShapes(),
	prefer:  preferMMA,
	check:   checkMMA,
	vectors: mmaVectors,
	threads: func(s Shape) device.Dim3 { return device.Dim3{X: mmaThreads(s), Y: 1, Z: 1} },
	shared: func(c Config) int {
		a, b := operandTiles(c)
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

// operandTiles are the shapes of the tiles of A and B.
func operandTiles(c Config) (a, b frag.Shape) {
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
	k.MinBlocks(1) // or the compiler saves registers, and stores them in memory
	row0, col0 := g.grouped(mmaGroup)
	shapeA, shapeB := operandTiles(c)
	a := frag.NewTiles(k, "A", g.a, row0, g.from, g.to, shapeA, c.VecA, threads)
	b := frag.NewTiles(k, "B", g.b.T(), col0, g.from, g.to, shapeB, c.VecB, threads)
	w := g.warp()

	k.Comment("the first tiles set out; behind K they are zeros")
	ring := frag.NewRing(k, s.Stages, a, b)
	ring.Start()
	now, next := w.fragments(), w.fragments()
	emit(w.loads(now, a, b, ring.Use(), 0))
	k.For(0, k.CeilDiv(k.Sub(g.to, g.from), s.K), func(build.Reg) {
		for p := 0; p < s.K; p += w.in.K {
			ahead := p + w.in.K
			if ahead == s.K {
				k.Comment("the last fragments are in registers: on to the next tiles")
				ring.Next()
				ahead = 0
			}
			// While these are multiplied the next fragments come, early, and behind them
			// more tiles set out.
			loads := w.loads(next, a, b, ring.Use(), ahead)
			var copies []func()
			if p == 0 {
				copies = ring.Fill()
			}
			w.multiply(now, loads, copies)
			now, next = next, now
		}
	})
	ring.End()
	k.Comment("write the warp's part of C")
	w.store(row0, col0)
}

// mmaGroup is how many rows of tiles are computed side by side, so that what is read
// at the same time fits the L2 cache.
const mmaGroup = 8

// warp is a warp's part of the product, as each of its lanes sees it.
type warp struct {
	*product
	in  frag.Instruction
	acc [][][]build.Reg // the lane's sums, by the instruction's rows and columns
	// row and col are where the warp's part of the tile begins; eight and quad are the
	// lane's place in fragments.
	row, col, eight, quad build.Reg
}

func (g *product) warp() *warp {
	s := g.config.Shape
	w := &warp{product: g}
	w.in, _ = frag.Best(g.a.Elem(), g.config.SM) // the kernel's list of types has no other
	tid := g.ThreadIdx(build.X)
	lane, n := g.Named("lane", g.Rem(tid, frag.Lanes)), g.Named("warp", g.Div(tid, frag.Lanes))
	w.eight, w.quad = g.Named("eight", g.Div(lane, frag.Quad)), g.Named("quad", g.Rem(lane, frag.Quad))
	rows, cols := warpTile(s)
	side := s.N / cols // warps side by side
	w.row, w.col = g.Mul(g.Div(n, side), rows), g.Mul(g.Rem(n, side), cols)

	w.acc = make([][][]build.Reg, rows/w.in.M)
	for i := range w.acc {
		w.acc[i] = make([][]build.Reg, cols/w.in.N)
		for j := range w.acc[i] {
			w.acc[i][j] = g.Vars(fmt.Sprintf("acc%d_%d_", i, j), g.acc, len(w.in.C()), 0)
		}
	}
	return w
}

// mmaFragments are a lane's elements of a few columns of A's tile and rows of B's: for each
// of the instruction's rows and columns those that one instruction takes.
type mmaFragments struct{ a, b [][]build.Reg }

func (w *warp) fragments() mmaFragments {
	some := func(count, each int) [][]build.Reg {
		all := make([][]build.Reg, count)
		for i := range all {
			all[i] = make([]build.Reg, each)
			for e := range all[i] {
				all[i][e] = w.Fresh(w.a.Elem())
			}
		}
		return all
	}
	return mmaFragments{some(len(w.acc), len(w.in.A())), some(len(w.acc[0]), len(w.in.B()))}
}

// loads are the loads of fragments from element p along K of a stage's tiles on.
func (w *warp) loads(f mmaFragments, a, b *frag.Tiles, stage build.Reg, p int) []func() {
	ta := a.In(stage, w.Add(w.row, w.eight), w.quad)
	tb := b.In(stage, w.Add(w.col, w.eight), w.quad)
	var all []func()
	for j, regs := range f.b {
		for e, at := range w.in.B() {
			all = append(all, func() { tb.At(j*w.in.N+at.Col, p+at.Row).LoadTo(regs[e]) })
		}
	}
	for i, regs := range f.a {
		for e, at := range w.in.A() {
			all = append(all, func() { ta.At(i*w.in.M+at.Row, p+at.Col).LoadTo(regs[e]) })
		}
	}
	return all
}

// multiply adds the products of fragments to the sums. Between the instructions, each
// of which keeps the tensor cores busy for many cycles, it writes first the pieces of
// what is wanted early, then those of what may come late.
func (w *warp) multiply(f mmaFragments, early, late []func()) {
	all := len(w.acc) * len(w.acc[0])
	half := all / 2
	for i := range w.acc {
		for j := range w.acc[i] {
			n := i*len(w.acc[i]) + j
			if n < half {
				emit(share(early, n, half))
			} else {
				emit(share(late, n-half, all-half))
			}
			w.MMA(w.in.Shape(), w.in.In, w.acc[i][j], f.a[i], f.b[j])
		}
	}
}

// share is the n-th of so many shares of the pieces.
func share(pieces []func(), n, of int) []func() {
	return pieces[n*len(pieces)/of : (n+1)*len(pieces)/of]
}

func emit(pieces []func()) {
	for _, piece := range pieces {
		piece()
	}
}

// store writes the sums to C, whose tile begins at (row, col), or hands them over to
// whoever adds up the parts of K.
func (w *warp) store(row, col build.Reg) {
	vec := w.config.VecC
	row = w.Add(row, w.Add(w.row, w.eight))
	col = w.Add(col, w.Mad(w.quad, 2, w.col))
	places := w.in.C()
	for i := range w.acc {
		for e := 0; e < len(places); e += 2 { // a lane has two sums side by side
			at := w.Add(row, i*w.in.M+places[e].Row)
			if w.config.Shape.Split > 1 { // they stay side by side until the parts are added
				for j, acc := range w.acc[i] {
					c := w.Add(col, j*w.in.N)
					w.If(w.c.Inside(at, c), func() { w.deliver(at, c, acc[e:e+2]) })
				}
				continue
			}
			var cols []build.Reg
			var sums [][]build.Reg
			for j, acc := range w.acc[i] {
				for d := 0; d < 2; d += vec {
					cols = append(cols, w.Add(col, j*w.in.N+d))
					sums = append(sums, acc[e+d:e+d+vec])
				}
			}
			w.storeRow(at, cols, sums)
		}
	}
}
