package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"tilework/internal/ints"
	"tilework/internal/testkit"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/build"
)

// problems returns products that together make Emit take every path: all types, precisions,
// transposes, epilogue operations and kinds of batches.
func problems(t *testing.T) []*gemm.Problem {
	t.Helper()
	var all []*gemm.Problem
	add := func(in, out dtype.Type, m, n, k int, transA, transB bool, e gemm.Epilogue) {
		a, b := gemm.Dense(in, m, k), gemm.Dense(in, k, n)
		if transA {
			a = gemm.Dense(in, k, m).T()
		}
		if transB {
			b = gemm.Dense(in, n, k).T()
		}
		p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, m, n), e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &p)
	}
	for _, precision := range gemm.Precisions()[1:] {
		for _, in := range precision.Info().For {
			for _, out := range in.Info().Results {
				for trans := range 4 {
					add(in, out, 64, 64, 64, trans&1 != 0, trans&2 != 0, gemm.Epilogue{})
					all[len(all)-1].Precision = precision
				}
			}
		}
	}
	for _, in := range dtype.All() {
		for _, out := range in.Info().Results {
			for trans := range 4 {
				add(in, out, 64, 64, 64, trans&1 != 0, trans&2 != 0, gemm.Epilogue{})
				add(in, out, 33, 35, 37, trans&1 != 0, trans&2 != 0, gemm.Epilogue{})
			}
			for _, act := range gemm.Activations() {
				if act.Info().Integer || !out.Info().Integer {
					add(in, out, 64, 64, 64, false, false, gemm.Epilogue{Bias: gemm.BiasDim(len(all) % 3), Activation: act})
				}
			}
			more := !out.Info().Integer
			add(in, out, 64, 64, 64, false, false, gemm.Epilogue{RowScale: more, ColScale: more, Residual: true, OutScale: more,
				Saturate: more})
			add(in, out, 64, 64, 64, false, false, gemm.Epilogue{Bias: gemm.BiasCol, Function: doubled(t)})
		}
		if len(in.Info().Results) > 0 {
			add(in, in.Info().Results[0], 1<<31, 1, 1, false, false, gemm.Epilogue{})
		}
	}
	for _, in := range []dtype.Type{dtype.F32, dtype.BF16} {
		add(in, in.Info().Results[0], 64, 64, 64, false, false, gemm.Epilogue{})
		p := all[len(all)-1]
		strided, err := p.Strided(3, gemm.Batch{Stride: gemm.Strides{gemm.A: 64 * 64, gemm.C: 64 * 64}})
		if err != nil {
			t.Fatal(err)
		}
		grouped, err := p.Grouped(3, 64*64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all[:len(all)-1], &strided, &grouped)
	}
	return all
}

// doubled returns an epilogue function that doubles each element.
func doubled(t *testing.T) *kernel.Function {
	t.Helper()
	f, err := kernel.NewFunction(func(k *build.Kernel, e kernel.Element) build.Reg { return k.Add(e.Value, e.Value) })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// configs calls call, from several goroutines, for every kernel, tile and problem that fit
// together, and for both launches of a split-K product. It returns when all calls have returned.
//
// Some problems emit the same code for all tiles and get the last tile only: problems with an
// epilogue, and with one operand transposed in types other than float32 and the kernel's first. The
// PTX of tensor core kernels is long, so their problems with another type of C or unaligned rows
// also get the last tile only. Batches get the last tile and, for kernels that use TMA, the first
// one, whose threads have the fewest registers to spare.
func configs(t *testing.T, call func(k *kernel.Kernel, p *gemm.Problem, c kernel.Config)) {
	all := problems(t)
	var calls sync.WaitGroup
	defer calls.Wait()
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	f := func(k *kernel.Kernel, p *gemm.Problem, c kernel.Config) {
		running <- struct{}{}
		calls.Go(func() {
			defer func() { <-running }()
			call(k, p, c)
		})
	}
	for _, k := range choose.Kernels() {
		for _, p := range all {
			if k.Check(p, kernel.Tile{}, kernel.Align{}, nil) != nil {
				continue
			}
			fitting := slices.DeleteFunc(slices.Clone(k.Tiles),
				func(s kernel.Tile) bool { return k.Check(p, s, kernel.Align{}, nil) != nil })
			for i, s := range fitting {
				last := i == len(fitting)-1
				special := p.Epilogue != gemm.Epilogue{} || p.In() != k.Types()[0] && p.In() != dtype.F32 &&
					p.A().Trans != p.B().Trans
				special = special || k.Tensor && (p.Out() != p.In().Info().Results[0] || p.M == 33 && p.In() != k.Types()[0])
				if batch := p.Batch.Kind != gemm.Single; (special || batch) && !last && !(batch && i == 0 && k.TMA) {
					continue
				}
				c := k.Config(p, s)
				f(k, p, c)
				if best := k.For(c, ptx.Target{SM: 90, Suffix: "a"}); best != c {
					f(k, p, best)
				}
			}
			if k.SplitsK && p.Batch.Kind == gemm.Single && len(fitting) > 0 &&
				ints.CeilDiv(p.M, fitting[len(fitting)-1].M) <= kernel.MaxGridRows {
				c := k.Config(p, fitting[len(fitting)-1])
				c.Tile.SplitK = 2
				f(k, p, c.PartialSums())
				f(kernel.SplitKSum, p, kernel.SplitKSumConfig(c))
				c.Tile.SplitK = 100
				f(kernel.SplitKSum, p, kernel.SplitKSumConfig(c))
			}
		}
	}
}

// TestEmit checks that every kernel emits PTX for every type, tile and epilogue, that ptx.Parse
// reads the PTX back unchanged, that its parameters match the launch, and that it has no atomic
// operation, whose order would differ from run to run. The seed selects one
// configuration in 12, or in 50 without testkit.Full.
func TestEmit(t *testing.T) {
	every, seed := uint64(testkit.Cases(50, 12)), testrand.Seed(t)
	configs(t, func(k *kernel.Kernel, p *gemm.Problem, c kernel.Config) {
		if !testrand.OneIn(every, seed, k.Name, p, c) {
			return
		}
		m, err := k.Emit(c)
		if err != nil {
			t.Errorf("%s, %v: %v", k.Name, c, err)
			return
		}
		if least := max(k.SM, c.SM); m.Target.SM > least {
			t.Errorf("%s, %v: the PTX targets %v, want at most sm_%d", k.Name, c, m.Target, least)
		}
		source := m.String()
		if op := atomics.FindString(source); op != "" {
			t.Errorf("%s, %v: the PTX has %s: want a fixed order of sums", k.Name, c, op)
		}
		again, err := ptx.Parse(k.Name, source)
		if err == nil {
			err = ptx.Verify(again)
		}
		if err != nil || again.String() != source {
			t.Errorf("%s, %v: ptx.Parse does not reproduce the PTX: %v", k.Name, c, err)
		}
		checkLaunch(t, k, p, c, m.Funcs()[0])
	})
}

// atomics matches the instructions that change memory atomically.
var atomics = regexp.MustCompile(`\b(atom|red|cp\.reduce)\.[a-z0-9_.:]+`)

// TestSnapshots compares the PTX of one configuration of each kernel with the reviewed snapshot in
// testdata. TILEWORK_UPDATE=1 writes the snapshots.
func TestSnapshots(t *testing.T) {
	for _, k := range choose.Kernels() {
		in := dtype.F32
		if !slices.Contains(k.Types(), in) {
			in = k.Types()[0]
		}
		p, _, err := gemm.New(1, gemm.Dense(in, 64, 64), gemm.Dense(in, 64, 64), 0, gemm.Dense(in, 64, 64), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		s := k.Tiles[len(k.Tiles)-1]
		if k == kernel.Tiled {
			s = kernel.Square(4, 4)
		}
		m, err := k.Emit(k.Config(&p, s))
		if err != nil {
			t.Fatal(err)
		}
		path, got := filepath.Join("testdata", k.Name+".ptx"), m.String()
		if os.Getenv("TILEWORK_UPDATE") != "" {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from the emitted PTX (TILEWORK_UPDATE=1 overwrites it):\n%s", path, got)
		}
	}
}

// checkLaunch checks that the arguments of a launch have the size of the entry's parameter list, in
// which each parameter is aligned to its size, and that the block size matches the entry.
func checkLaunch(t *testing.T, k *kernel.Kernel, p *gemm.Problem, c kernel.Config, entry *ptx.Func) {
	t.Helper()
	q, _ := k.Repack(p, c.Tile, kernel.Align{})
	args := kernel.Args{Config: &c, Problem: &q}
	if c.Tile.SplitK > 1 || k == kernel.SplitKSum {
		args.PartialSums, args.SplitLen = 1<<20, 8
	}
	l, err := k.Launch(args, devicetest.NewNull())
	if err != nil {
		t.Fatal(err)
	}
	if want := entry.ParamBytes(); len(l.Params) != want {
		t.Errorf("%s, %v: launch has %d bytes of arguments, want %d", k.Name, c, len(l.Params), want)
	}
	if got := l.Block; fmt.Sprint([]int{got.X, got.Y, got.Z}) != fmt.Sprint(entry.Attrs[0].Args) {
		t.Errorf("%s, %v: launch has blocks of %v, want %v", k.Name, c, got, entry.Attrs[0].Args)
	}
}

// TestGrid checks the grid for products of many rows and columns, within the limits of CUDA.
func TestGrid(t *testing.T) {
	for _, c := range []struct {
		m, n int
		want string // the grid, or part of the error
	}{
		{1, 1, "1×1×1"},
		{16, 17, "2×1×1"},
		{16 * 65535, 1, "1×65535×1"},
		{16*65535 + 1, 1, "1×32768×2"},
		{1 << 35, 1, "1×65535×32769"},
		{1 << 37, 1, "takes more blocks than a grid has"},
		{1, 1 << 36, "takes more blocks than a grid has"},
	} {
		g, err := kernel.TileGrid(&gemm.Problem{M: c.m, N: c.n}, kernel.Square(16, 0))
		switch {
		case err != nil && (!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d×%d: error %v, want %q", c.m, c.n, err, c.want)
		case err == nil && g.String() != c.want:
			t.Errorf("%d×%d: got %v, want %s", c.m, c.n, g, c.want)
		case err == nil && (g.Y*g.Z < ints.CeilDiv(c.m, 16) || g.Y > kernel.MaxGridRows || g.Z > kernel.MaxGridRows):
			t.Errorf("%d×%d: grid %v has too few or too many rows of blocks", c.m, c.n, g)
		}
	}
}

// TestShapes checks which tiles ParseTile accepts for naive, tiled, blocked and skinny, and its
// errors.
func TestShapes(t *testing.T) {
	for _, c := range []struct{ kernel, shape, want string }{
		{"naive", "16", ""},
		{"naive", "8", ""},
		{"tiled", "1", ""},
		{"tiled", "32", ""},
		{"tiled", "33", "size 33×33 with one thread per element: want at most 1024 threads"},
		{"tiled", "0", "tile 0: size 0: want at least 1"},
		{"tiled", "4294967296", "at most 1024 threads"},
		{"tiled", "16x8x16/1x1", "want a square tile"},
		{"tiled", "big", "not a tile of kernel tiled (want one like 32, 16, 8, 2)"},
		{"blocked", "128x128x8/8x8/3", ""},
		{"blocked", "128x64x16/8x4/2", ""},
		{"blocked", "128x64x16/8x4/2*7", ""},
		{"blocked", "64", "not a tile of kernel blocked (want one like 128x256x8/16x8/3"},
		{"blocked", "128x128x8/8x8", "not a tile"},
		{"blocked", "64x64x8/8x4/2 and more", "not a tile"},
		{"blocked", "64x64x8/8x4/2*", `split-K ""`},
		{"blocked", "64x64x8/8x4/2*0", `split-K "0"`},
		{"blocked", "64x64x8/8x4/2*65536", `split-K "65536"`},
		{"blocked", "128x64x16/8x4/2+7", ""},
		{"blocked", "64x64x8/8x4/2+0", `serial parts "0"`},
		{"skinny", "1x32x128/1x4+32", ""},
		{"skinny", "1x32x128/1x4+33", "33 serial parts: want at most 32, one for each thread along K"},
		{"tiled", "32*2", "kernel tiled"},
		{"tiled", "32+2", "kernel tiled"},
		{"blocked", "96x64x8/8x4/2", "size 96: want a power of two"},
		{"blocked", "64x64x8/2x4/2", "multiples of 4"},
		{"blocked", "64x64x8/16x16/2", "256 accumulators per thread: want at most 128"},
		{"blocked", "512x512x8/8x8/2", "a block of 4096 threads: want at most 1024"},
		{"blocked", "16x64x8/8x8/2", "a block of 16 threads: want at least a warp"},
		{"blocked", "64x64x2/4x4/2", "K is 2: want 4 to 32"},
		{"blocked", "128x128x64/8x8/2", "K is 64: want 4 to 32"},
		{"blocked", "128x128x8/8x8/1", "1 stages"},
		{"blocked", "128x128x32/8x8/2", "2 stages"},
	} {
		k, err := choose.Find(c.kernel)
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.ParseTile(c.shape)
		switch {
		case c.want != "" && (!errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: ParseTile(%q): error %v, want %q", c.kernel, c.shape, err, c.want)
		case c.want == "" && err != nil:
			t.Errorf("%s: ParseTile(%q): error %v", c.kernel, c.shape, err)
		case c.want == "" && s.String() != c.shape:
			t.Errorf("%s: ParseTile(%q) = %v, want the same tile", c.kernel, c.shape, s)
		}
	}
	if _, err := choose.Find("fastest"); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("Find of an unknown kernel: error %v, want ErrUnsupported", err)
	}
}

// TestOverlaps checks that kernels with programmatic dependent launch (PDL) execute
// griddepcontrol.wait before they access global memory, and that kernels without it do not wait.
func TestOverlaps(t *testing.T) {
	accesses := regexp.MustCompile(`\t(ld|st|atom|red|cp)\.[^\n]*(global|bulk)`)
	for _, k := range append(choose.Kernels(), kernel.Pack, kernel.SplitKSum, kernel.SignedSums) {
		in := dtype.F32
		if k == kernel.SignedSums {
			in = dtype.U8
		}
		if k.NativeTypes != nil {
			in = k.NativeTypes[0]
		}
		c := kernel.Config{In: in, Out: in.Info().Results[0], Tile: kernel.Square(kernel.PackSide, 0), VecA: 1, VecB: 1,
			VecC: 1}
		switch {
		case k == kernel.SplitKSum:
			c = kernel.SplitKSumConfig(kernel.Config{In: in, Out: in, VecC: 1, Tile: kernel.Tile{SplitK: 2}})
		case k.Tiles != nil:
			c.Tile = k.Tiles[len(k.Tiles)-1]
		}
		for _, c.PDL = range []bool{false, true} {
			m, err := k.Emit(c)
			if err != nil {
				t.Fatal(err)
			}
			source := m.String()
			first, wait := accesses.FindStringIndex(source), strings.Index(source, "griddepcontrol.wait")
			if first == nil || c.PDL != (wait >= 0) || wait > first[0] {
				t.Errorf("%s, PDL %v: griddepcontrol.wait is at offset %d, the first access to global memory at %v",
					k.Name, c.PDL, wait, first)
			}
		}
	}
}
