package gpu

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"tilework/internal/testkit"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/emu/check"
)

// wrong and refused extend check.Checker. wrong means that an element of C differs from the
// reference. refused means that the emulator ended the launch, because of a misused instruction or
// a deadlock.
const (
	wrong   check.Checker = 255
	refused check.Checker = 254
)

// fault describes an edit of a kernel's PTX, and the checker that must report it.
type fault struct {
	// kernel is the name of a kernel, with ":" and a tile or "+residual" for an epilogue after it.
	kernel string
	in     dtype.Type
	name   string
	// pattern is a regular expression, and with the replacement. The test replaces each match on
	// its own, and the checker must report every one of these faults.
	pattern, with string
	finds         check.Checker
	// orders is the maximum number of block orders to try. It is more than 1 for a fault that has
	// an effect in some orders only.
	orders uint64
}

// planted lists the faults of TestPlantedFaults.
var planted = []fault{
	{"tiled", dtype.F32, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"blocked", dtype.F32, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"tiled", dtype.F32, "only some threads arrive at a barrier",
		`\tbar\.sync 0;`, "\tsetp.lt.u32 %p0, %tid_x, 3;\n\t@%p0 bar.sync 0;", check.Barrier, 1},
	{"naive", dtype.F32, "no bounds check of rows", `(setp\.lt\.u32 %p\d+, )%row, %M;`, "${1}0, 1;", check.Bounds, 1},
	{"tiled", dtype.F32, "no bounds check of columns",
		`(setp\.lt\.u32 %p\d+, )%col, %N;`, "${1}0, 1;", check.Bounds, 1},
	{"tiled", dtype.F32, "no zero fill at the edge", `\tmov\.f32 %f\d+, 0f00000000;\n`, "", check.Uninit, 1},
	{"naive", dtype.F32, "accumulator is not initialized", `\tmov\.f32 %sum, 0f00000000;\n`, "", check.Uninit, 1},
	{"blocked", dtype.F32, "a copy writes the stage that is being multiplied",
		`\tmov\.u32 %free, %present;\n`, "", check.Race, 1},
	{"mma", dtype.F64, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"mma", dtype.F64, "no cp.async.wait_group", `\tcp\.async\.wait_group [1-9];\n`, "", check.Race, 1},
	{"mma", dtype.F64, "cp.async.wait_group waits for too few copies", `wait_group 2;`, "wait_group 3;", check.Race, 1},
	{"mma", dtype.F64, "no zero fill past the rows of A",
		`(cp\.async\.\S+ \[%r\d+(?:\+\d{1,4})?\], \[%rd\d+\], 8), %r\d+;`, "$1;", check.Bounds, 1},
	{"mma", dtype.F64, "fragment registers are swapped",
		`(mma\.sync\S+ \{[^}]*\}, \{)(%fd\d+), (%fd\d+)`, "$1$3, $2", wrong, 1},
	{"mma", dtype.F64, "rows of another lane", `%lane, 2;`, "%lane, 3;", wrong, 1},
	{"mma", dtype.F16, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"mma", dtype.F16, "no zero fill past the rows of A",
		`(cp\.async\.\S+ \[%r\d+\], \[[^]]*\], 16), %r\d+;`, "$1;", check.Bounds, 1},
	{"mma", dtype.F16, "ldmatrix does not transpose B", `\.trans\.`, ".", wrong, 1},
	{"mma", dtype.I8, "bytes of other columns", `(prmt\.b32 .*), 25632;`, "$1, 30001;", wrong, 1},
	{"wgmma", dtype.BF16, "no fence after mbarrier.init", `\tfence\.mbarrier_init\S*;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for a full stage",
		`(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %phase_2;`, "$1, %zero;", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for an empty stage",
		`(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %r\d+;`, "$1, %zero;", refused, 1},
	{"wgmma", dtype.BF16, "no wait for the warpgroup's turn in ping-pong",
		`(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %mine;`, "$1, %zero;", refused, 1},
	{"wgmma", dtype.BF16, "mbarrier expects too few bytes", `24576;`, "24448;", refused, 1},
	{"wgmma", dtype.BF16, "no wgmma.fence", `\twgmma\.fence\S*;\n`, "", refused, 1},
	{"wgmma", dtype.BF16, "no wgmma.wait_group before a stage is released",
		`\twgmma\.wait_group\S* 1;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no wgmma.wait_group before the epilogue", `\twgmma\.wait_group\S* 0;\n`, "", refused, 1},
	{"wgmma", dtype.BF16, "a stage is released to only one block of the cluster",
		`cluster\.u32 %r\d+, (%r\d+), %member;`, "cluster.u32 %r120, $1, 0;", wrong, 1},
	{"wgmma", dtype.BF16, "the block rank is not masked out of B's descriptor",
		`(?s)^(.*and\.b32 %r\d+, %\w+), 262128;`, "$1, -1;", check.Race, 1},
	{"wgmma", dtype.BF16, "the accumulators of the previous tile are kept", `%i_2, 0;`, "%i_2, 99;", wrong, 1},
	{"wgmma", dtype.BF16, "no proxy fence before the TMA store of C", `\tfence\.proxy\S*;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no barrier before the TMA store of C",
		`(\tfence\.proxy\S*;\n)\tbar\.sync \S+ 128;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "the last epilogue subtile is overwritten during its TMA store",
		`(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 1;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for the last TMA stores",
		`\tcp\.async\.bulk\.wait_group\.read 0;\n`, "", refused, 1},
	{"wgmma", dtype.BF16, "a block exits before the others of its cluster",
		`(?s)^(.*)\tbarrier\.cluster\.arrive\.relaxed\.aligned;\n\tbarrier\.cluster\.wait\.aligned;\n`,
		"$1", check.Bounds, 40},
	{"wgmma", dtype.F8E4M3, "no wgmma.fence before a promotion interval",
		`(?s)^(.*?)\twgmma\.fence\S*;\n`, "$1", refused, 1},
	{"wgmma", dtype.F8E4M3, "no wgmma.wait_group before accumulator promotion",
		`(?s)^(.*?)\twgmma\.wait_group\S* 1;\n`, "$1", refused, 1},
	{"wgmma", dtype.F8E4M3, "a promotion interval keeps the accumulators of another",
		`(?s)^(.*?\{%odd0, [^;]*), 0, 1, 1;`, "$1, 1, 1, 1;", wrong, 1},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "no wait for the partial sums of other blocks",
		`(try_wait\.parity\.acquire\.cluster\S+ %p\d+, \[%r\d+\]), %round;`, "$1, 1;", check.Race, 1},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "partial sums are overwritten while other blocks read them",
		`(try_wait\.parity\.acquire\.cluster\S+ %p\d+, \[%r\d+\]), %r\d+;`, "$1, 1;", check.Race, 40},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "no barrier after the partial sums are written",
		`(st\.shared\.v2\.f32 [^\n]*\n)\tbar\.sync \S+ 128;\n`, "$1", check.Race, 1},
	{"wgmma+residual", dtype.BF16, "no wait for the residual",
		`(?s)^(.*?try_wait\.parity\S+ %p\d+, \[[^]]*\]), %came0;`, "$1, 1;", wrong, 1},
	{"wgmma+residual", dtype.BF16, "the residual is loaded into a subtile during its TMA store",
		`(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 0;\n((?:\t[^\n]*\n){0,8}?\tmbarrier\.arrive\.expect)`,
		"$1$2", check.Race, 1},
	{swapABTile, dtype.F32, "fragments are loaded into registers that wgmma reads",
		`\twgmma\.wait_group\S* 1;\n`, "", refused, 1},
	{swapABTile, dtype.F32, "a warp releases a stage that its lanes still read",
		`(?s)^(.*?)\tbar\.warp\.sync -1;\n`, "$1", check.Race, 1},
	{swapABTile, dtype.F32, "one warp releases a stage for all",
		`(mbarrier\.init\S* \[empty\S*\]), 4;`, "$1, 1;", check.Race, 4},
	{swapABTile, dtype.F32, "no wgmma.fence after the fragments are loaded", `\twgmma\.fence\S*;\n`, "", refused, 1},
	{swapABTile, dtype.F32, "fragment registers are swapped",
		`(wgmma\.mma_async[^{]*\{[^}]*\}, \{)(%\w+), (%\w+)`, "$1$3, $2", wrong, 1},
	{swapABTile, dtype.F32, "the last epilogue subtiles are overwritten during their TMA store",
		`(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 1;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "wrong swizzle of the epilogue subtile", `(xor\.b32 %r\d+, %r\d+), 32;`, "$1, 64;", wrong, 1},
}

// swapABTile selects the kernel wgmma with a swapAB tile, which multiplies float32 in TF32 with
// fragments of B in registers.
const swapABTile = "wgmma:64x128x32/2x32/2t"

// TestPlantedFaults checks that the checkers report every fault of planted at every match of its
// pattern, and nothing in the unmodified kernels.
func TestPlantedFaults(t *testing.T) {
	shapes := map[string]kernel.Tile{
		"naive": kernel.Square(16, 0), "tiled": kernel.Square(16, 16),
		"blocked": {M: 64, N: 64, K: 8, RowsPerThread: 8, ColsPerThread: 4, Stages: 4},
		"mma":     {M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		"wgmma":   {M: 64, N: 128, K: 64, RowsPerThread: 2, ColsPerThread: 32, Stages: 2, ClusterM: 2},
	}
	var sound sync.Map // PTX of unmodified kernels that have been checked
	parallel(t, planted, func(f fault) string { return f.kernel + ", " + f.name }, func(t *testing.T, f fault) {
		named, epilogue, _ := strings.Cut(f.kernel, "+")
		name, tile, hasTile := strings.Cut(named, ":")
		if name == "wgmma" && !testkit.Full() {
			t.Skip("faults of wgmma are slow to emulate: runs only with TILEWORK_FULL")
		}
		k, err := choose.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		// The sizes need two tiles along M, N and K. The last tile in each dimension is partial.
		n, depth, out, shape := 71, 19, f.in.Info().Results[0], shapes[k.Name]
		if hasTile {
			if shape, err = k.ParseTile(tile); err != nil {
				t.Fatal(err)
			}
		}
		narrow := f.in.Bits() < 32 && !k.TMA
		switch {
		case k.TMA:
			n, depth, out = 136, 136, dtype.F32
		case narrow:
			depth, shape.K = 35, 32
		}
		bytes := k.TMA && f.in.Bits() == 8
		if bytes {
			depth = 528 // five K steps, so that the loop over two of them repeats
		}
		a, b := gemm.Dense(f.in, 70, depth), gemm.Dense(f.in, depth, n)
		if bytes {
			a, b, shape.K = kernel.Padded(a), kernel.Padded(gemm.Dense(f.in, n, depth).T()), 2*shape.K
		}
		if narrow { // the kernel uses cp.async only for aligned rows
			a, b = kernel.Padded(a), kernel.Padded(b)
		}
		p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, 70, n), gemm.Epilogue{Residual: epilogue == "residual"})
		if err != nil {
			t.Fatal(err)
		}
		if k.TMA && f.in == dtype.F32 {
			if p, err = p.WithPrecision(gemm.TF32); err != nil {
				t.Fatal(err)
			}
		}
		c := k.For(k.Config(&p, shape), ptx.Target{SM: 90})
		module, err := k.Emit(c)
		if err != nil {
			t.Fatal(err)
		}
		source := strings.Replace(module.String(), "\tmov", "\t.reg .u32 %zero;\n\tmov.u32 %zero, 0;\n\tmov", 1)
		if _, known := sound.LoadOrStore(source, true); !known {
			if found := run(t, k, c, &p, source, 0); len(found) > 0 {
				t.Fatalf("the unmodified kernel: the checkers report %v, want nothing", found)
			}
		}
		re := regexp.MustCompile(f.pattern)
		places := re.FindAllStringIndex(source, -1)
		if len(places) == 0 {
			t.Errorf("the PTX has no match of %s", f.pattern)
		}
		for _, at := range places {
			broken := source[:at[0]] + re.ReplaceAllString(source[at[0]:at[1]], f.with) + source[at[1]:]
			var found map[check.Checker]int
			for seed := uint64(0); seed < f.orders && found[f.finds] == 0; seed++ {
				found = run(t, k, c, &p, broken, seed)
			}
			if found[f.finds] == 0 {
				t.Errorf("%.100s: the checkers report %v, want %v", strings.TrimSpace(source[at[0]:at[1]]), found, f.finds)
			}
		}
	})
}

// parallel runs test for each element of list, in parallel subtests with the given names.
func parallel[T any](t *testing.T, list []T, name func(T) string, test func(t *testing.T, x T)) {
	for _, x := range list {
		t.Run(name(x), func(t *testing.T) {
			t.Parallel()
			test(t, x)
		})
	}
}

// run runs the PTX source of kernel k under the checkers. It returns the number of errors by
// checker, with the wrong elements of C and a launch that the emulator ended among them. seed
// selects the order of the blocks.
func run(t *testing.T, k *kernel.Kernel, c kernel.Config, p *gemm.Problem, source string,
	seed uint64) map[check.Checker]int {
	t.Helper()
	found := map[check.Checker]int{}
	// With one worker, a race between blocks of the kernel is not a data race in Go.
	d := devicetest.FewSMs(t, emu.Options{Workers: 1, Seed: seed, MaxInstructions: 1 << 20,
		Watch: emu.Checking(check.Options{}, func(r *check.Report) {
			for _, f := range r.Findings {
				if f.Severity == check.Error {
					found[f.Checker]++
				}
			}
		})})
	module, err := d.Load(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	f, err := module.Function(k.Entry())
	if err != nil {
		t.Fatal(err)
	}
	var m kernel.Memory
	var operands [][]byte // A, B and the residual
	for _, x := range []struct {
		at   *device.Ptr
		l    gemm.Layout
		read bool
	}{{&m[gemm.A], p.Layouts[gemm.A], true}, {&m[gemm.B], p.Layouts[gemm.B], true}, {&m[gemm.C], p.Layouts[gemm.C], false},
		{&m[gemm.Residual], p.Layouts[gemm.Residual], true}} {
		n := x.l.Bytes()
		if n == 0 {
			continue
		}
		if *x.at, err = d.Alloc(n); err != nil {
			t.Fatal(err)
		}
		if !x.read {
			continue
		}
		mem := make([]byte, n)
		for i := range x.l.Type.Elements(n) {
			x.l.Type.Set(mem, i, float64(i*i%7+i%5))
		}
		operands = append(operands, mem)
		if err := d.CopyIn(t.Context(), *x.at, mem, device.Whole(n)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := k.Launch(kernel.Args{Config: &c, Problem: p, Memory: m}, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(t.Context(), f, l); err != nil && len(found) == 0 {
		found[refused]++
	}
	product := make([]byte, p.C().Bytes())
	if err := d.CopyOut(t.Context(), product, m[gemm.C], device.Whole(len(product))); err != nil {
		t.Fatal(err)
	}
	for i := range p.M {
		for j := range p.N {
			sum := 0.0
			for q := range p.K {
				sum += p.In().At(operands[0], p.A().Index(i, q)) * p.B().Type.At(operands[1], p.B().Index(q, j))
			}
			if p.Epilogue.Residual {
				sum += p.Out().At(operands[2], p.Layouts[gemm.Residual].Index(i, j))
			}
			if p.Out().At(product, i*p.N+j) != sum {
				found[wrong]++
			}
		}
	}
	return found
}
