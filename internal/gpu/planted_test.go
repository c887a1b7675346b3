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

// wrong stands for a checker that compares the product with the right one, and refused for
// the emulator itself, which ends a launch that misuses an instruction or cannot go on.
const (
	wrong   check.Checker = 255
	refused check.Checker = 254
)

// fault is one in the text of a named, which may have a shape of its own or an epilogue, and the checker
// that must find it. Every place that the pattern matches is a fault of its own. One that shows only if the blocks
// run in a certain order has so many orders to be found in.
type fault struct {
	kernel        string
	in            dtype.Type
	name          string
	pattern, with string
	finds         check.Checker
	orders        uint64
}

var planted = []fault{
	{"tiled", dtype.F32, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"blocked", dtype.F32, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"tiled", dtype.F32, "only some threads wait", `\tbar\.sync 0;`, "\tsetp.lt.u32 %p0, %tid_x, 3;\n\t@%p0 bar.sync 0;", check.Barrier, 1},
	{"naive", dtype.F32, "no bound on rows", `(setp\.lt\.u32 %p\d+, )%row, %M;`, "${1}0, 1;", check.Bounds, 1},
	{"tiled", dtype.F32, "no bound on columns", `(setp\.lt\.u32 %p\d+, )%col, %N;`, "${1}0, 1;", check.Bounds, 1},
	{"tiled", dtype.F32, "no zeros at the edge", `\tmov\.f32 %f\d+, 0f00000000;\n`, "", check.Uninit, 1},
	{"naive", dtype.F32, "no first value", `\tmov\.f32 %sum, 0f00000000;\n`, "", check.Uninit, 1},
	{"blocked", dtype.F32, "tiles arrive where others are multiplied", `\tmov\.u32 %free, %present;\n`, "", check.Race, 1},
	{"mma", dtype.F64, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"mma", dtype.F64, "no wait for copies", `\tcp\.async\.wait_group [1-9];\n`, "", check.Race, 1},
	{"mma", dtype.F64, "a wait for too few copies", `wait_group 2;`, "wait_group 3;", check.Race, 1},
	{"mma", dtype.F64, "no zeros behind A's rows", `(cp\.async\.\S+ \[%r\d+(?:\+\d{1,4})?\], \[%rd\d+\], 8), %r\d+;`, "$1;", check.Bounds, 1},
	{"mma", dtype.F64, "fragments in another order", `(mma\.sync\S+ \{[^}]*\}, \{)(%fd\d+), (%fd\d+)`, "$1$3, $2", wrong, 1},
	{"mma", dtype.F64, "another lane's rows", `%lane, 2;`, "%lane, 3;", wrong, 1},
	{"mma", dtype.F16, "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race, 1},
	{"mma", dtype.F16, "no zeros behind A's rows", `(cp\.async\.\S+ \[%r\d+\], \[[^]]*\], 16), %r\d+;`, "$1;", check.Bounds, 1},
	{"mma", dtype.F16, "B is not transposed", `\.trans\.`, ".", wrong, 1},
	{"mma", dtype.I8, "bytes of other columns", `(prmt\.b32 .*), 25632;`, "$1, 30001;", wrong, 1},
	{"wgmma", dtype.BF16, "no fence behind mbarrier.init", `\tfence\.mbarrier_init\S*;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for a full stage", `(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %phase_2;`, "$1, %zero;", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for an empty stage", `(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %r\d+;`, "$1, %zero;", refused, 1},
	{"wgmma", dtype.BF16, "no wait for the warpgroup's turn", `(try_wait\.parity\S+ %p\d+, \[%r\d+\]), %mine;`, "$1, %zero;", refused, 1},
	{"wgmma", dtype.BF16, "too few bytes expected", `24576;`, "24448;", refused, 1},
	{"wgmma", dtype.BF16, "no wgmma.fence", `\twgmma\.fence\S*;\n`, "", refused, 1},
	{"wgmma", dtype.BF16, "no wait before a stage is given back", `\twgmma\.wait_group\S* 1;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for the sums", `\twgmma\.wait_group\S* 0;\n`, "", refused, 1},
	{"wgmma", dtype.BF16, "a stage is given back to one block alone", `cluster\.u32 %r\d+, (%r\d+), %member;`, "cluster.u32 %r120, $1, 0;", wrong, 1},
	{"wgmma", dtype.BF16, "a block's rank in B's descriptor", `(?s)^(.*and\.b32 %r\d+, %\w+), 262128;`, "$1, -1;", check.Race, 1},
	{"wgmma", dtype.BF16, "the sums of the tile before stay", `%i_2, 0;`, "%i_2, 99;", wrong, 1},
	{"wgmma", dtype.BF16, "no fence before C is copied", `\tfence\.proxy\S*;\n`, "", check.Race, 1},
	{"wgmma", dtype.BF16, "C is copied before all have written", `(\tfence\.proxy\S*;\n)\tbar\.sync \S+ 128;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "the last patch is written while another is copied", `(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 1;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "no wait for the last copies", `\tcp\.async\.bulk\.wait_group\.read 0;\n`, "", refused, 1},
	{"wgmma", dtype.BF16, "a block leaves before the others of its cluster", `(?s)^(.*)\tbarrier\.cluster\.arrive\.relaxed\.aligned;\n\tbarrier\.cluster\.wait\.aligned;\n`, "$1", check.Bounds, 40},
	{"wgmma", dtype.F8E4M3, "no fence before a part", `(?s)^(.*?)\twgmma\.fence\S*;\n`, "$1", refused, 1},
	{"wgmma", dtype.F8E4M3, "no wait for a part's sums", `(?s)^(.*?)\twgmma\.wait_group\S* 1;\n`, "$1", refused, 1},
	{"wgmma", dtype.F8E4M3, "a part begins with the sums of another", `(?s)^(.*?\{%odd0, [^;]*), 0, 1, 1;`, "$1, 1, 1, 1;", wrong, 1},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "no wait for the sums of other blocks", `(try_wait\.parity\.acquire\.cluster\S+ %p\d+, \[%r\d+\]), %round;`, "$1, 1;", check.Race, 1},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "sums are written where others read", `(try_wait\.parity\.acquire\.cluster\S+ %p\d+, \[%r\d+\]), %r\d+;`, "$1, 1;", check.Race, 40},
	{"wgmma:64x128x64/2x32/2k2", dtype.BF16, "some have not written their sums", `(st\.shared\.v2\.f32 [^\n]*\n)\tbar\.sync \S+ 128;\n`, "$1", check.Race, 1},
	{"wgmma+residual", dtype.BF16, "no wait for the residual", `(?s)^(.*?try_wait\.parity\S+ %p\d+, \[[^]]*\]), %came0;`, "$1, 1;", wrong, 1},
	{"wgmma+residual", dtype.BF16, "the residual comes where a patch is still copied to C", `(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 0;\n((?:\t[^\n]*\n){0,8}?\tmbarrier\.arrive\.expect)`, "$1$2", check.Race, 1},
	{turnedText, dtype.F32, "fragments are loaded where others are multiplied", `\twgmma\.wait_group\S* 1;\n`, "", refused, 1},
	{turnedText, dtype.F32, "a warp gives a stage back that its lanes still read", `(?s)^(.*?)\tbar\.warp\.sync -1;\n`, "$1", check.Race, 1},
	{turnedText, dtype.F32, "one warp gives a stage back for all", `(mbarrier\.init\S* \[empty\S*\]), 4;`, "$1, 1;", check.Race, 4},
	{turnedText, dtype.F32, "no fence behind the fragments", `\twgmma\.fence\S*;\n`, "", refused, 1},
	{turnedText, dtype.F32, "fragments in another order", `(wgmma\.mma_async[^{]*\{[^}]*\}, \{)(%\w+), (%\w+)`, "$1$3, $2", wrong, 1},
	{turnedText, dtype.F32, "the last patches are written while others are copied", `(?s)^(.*)\tcp\.async\.bulk\.wait_group\.read 1;\n`, "$1", check.Race, 1},
	{"wgmma", dtype.BF16, "rows of another piece", `(xor\.b32 %r\d+, %r\d+), 32;`, "$1, 64;", wrong, 1},
}

// turnedText is a kernel's text that multiplies float32 in tf32, with fragments in registers.
const turnedText = "wgmma:64x128x32/2x32/2t"

func TestPlantedFaults(t *testing.T) {
	shapes := map[string]kernel.Tile{
		"naive": kernel.Square(16, 0), "tiled": kernel.Square(16, 16),
		"blocked": {M: 64, N: 64, K: 8, RowsPerThread: 8, ColsPerThread: 4, Stages: 4},
		"mma":     {M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		"wgmma":   {M: 64, N: 128, K: 64, RowsPerThread: 2, ColsPerThread: 32, Stages: 2, ClusterM: 2},
	}
	var sound sync.Map // texts in which the checkers find nothing
	abreast(t, planted, func(f fault) string { return f.kernel + ", " + f.name }, func(t *testing.T, f fault) {
		named, does, _ := strings.Cut(f.kernel, "+")
		name, text, own := strings.Cut(named, ":")
		if name == "wgmma" && !testkit.Full() {
			t.Skip("they take their time")
		}
		k, err := choose.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		// Tiles that are not full, two of them in each direction and along K.
		n, depth, out, shape := 71, 19, f.in.Info().Results[0], shapes[k.Name]
		if own {
			if shape, err = k.ParseTile(text); err != nil {
				t.Fatal(err)
			}
		}
		narrow := f.in.Size() < 4 && !k.TMA
		switch {
		case k.TMA:
			n, depth, out = 136, 136, dtype.F32
		case narrow:
			depth, shape.K = 35, 32
		}
		bytes := k.TMA && f.in.Size() == 1
		if bytes {
			depth = 528 // five steps: the loop over two of them goes on
		}
		a, b := gemm.Dense(f.in, 70, depth), gemm.Dense(f.in, depth, n)
		if bytes {
			a, b, shape.K = kernel.Padded(a), kernel.Padded(gemm.Dense(f.in, n, depth).T()), 2*shape.K
		}
		if narrow { // or nothing would be copied past the registers
			a, b = kernel.Padded(a), kernel.Padded(b)
		}
		p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, 70, n), gemm.Epilogue{Residual: does == "residual"})
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
		text = strings.Replace(module.String(), "\tmov", "\t.reg .u32 %zero;\n\tmov.u32 %zero, 0;\n\tmov", 1)
		if _, known := sound.LoadOrStore(text, true); !known {
			if found := run(t, k, c, &p, text, 0); len(found) > 0 {
				t.Fatalf("without a fault the checkers find %v", found)
			}
		}
		re := regexp.MustCompile(f.pattern)
		places := re.FindAllStringIndex(text, -1)
		if len(places) == 0 {
			t.Errorf("the text has no %s", f.pattern)
		}
		for _, at := range places {
			broken := text[:at[0]] + re.ReplaceAllString(text[at[0]:at[1]], f.with) + text[at[1]:]
			var found map[check.Checker]int
			for seed := uint64(0); seed < f.orders && found[f.finds] == 0; seed++ {
				found = run(t, k, c, &p, broken, seed)
			}
			if found[f.finds] == 0 {
				t.Errorf("%.100s: the checkers find %v, want %v", strings.TrimSpace(text[at[0]:at[1]]), found, f.finds)
			}
		}
	})
}

// abreast tests what a list holds, each in a test of its own, which run in parallel.
func abreast[T any](t *testing.T, list []T, name func(T) string, test func(t *testing.T, x T)) {
	for _, x := range list {
		t.Run(name(x), func(t *testing.T) {
			t.Parallel()
			test(t, x)
		})
	}
}

// run runs a kernel's text under the checkers and counts the errors of each, and the
// wrong elements of C.
func run(t *testing.T, k *kernel.Kernel, c kernel.Config, p *gemm.Problem, text string, seed uint64) map[check.Checker]int {
	t.Helper()
	found := map[check.Checker]int{}
	// Blocks one by one: a race between those of the kernel would be one of Go too.
	d := devicetest.FewSMs(t, emu.Options{Workers: 1, Seed: seed, MaxInstructions: 1 << 20, Watch: emu.Checking(check.Options{}, func(r *check.Report) {
		for _, f := range r.Findings {
			if f.Severity == check.Error {
				found[f.Checker]++
			}
		}
	})})
	module, err := d.Load(t.Context(), text)
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
	}{{&m[gemm.A], p.Layouts[gemm.A], true}, {&m[gemm.B], p.Layouts[gemm.B], true}, {&m[gemm.C], p.Layouts[gemm.C], false}, {&m[gemm.Residual], p.Layouts[gemm.Residual], true}} {
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
		for i := range n / x.l.Type.Size() {
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
