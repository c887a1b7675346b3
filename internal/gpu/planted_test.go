package gpu

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/emu/check"
)

// wrong stands for a checker that compares the product with the right one.
const wrong check.Checker = 255

// planted are faults in the kernels' texts and the checker that must find each. Every
// place that the pattern matches is a fault of its own.
var planted = []struct {
	kernel, name  string
	pattern, with string
	finds         check.Checker
}{
	{"tiled", "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race},
	{"blocked", "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race},
	{"tiled", "only some threads wait", `\tbar\.sync 0;`, "\tsetp.lt.u32 %p0, %tid_x, 3;\n\t@%p0 bar.sync 0;", check.Barrier},
	{"naive", "no bound on rows", `(setp\.lt\.u32 %p\d+, )%row, %M;`, "${1}0, 1;", check.Bounds},
	{"tiled", "no bound on columns", `(setp\.lt\.u32 %p\d+, )%col, %N;`, "${1}0, 1;", check.Bounds},
	{"tiled", "no zeros at the edge", `\tmov\.f32 %f\d+, 0f00000000;\n`, "", check.Uninit},
	{"naive", "no first value", `\tmov\.f32 %sum, 0f00000000;\n`, "", check.Uninit},
	{"blocked", "tiles arrive where others are multiplied", `\tmov\.u32 %free, %present;\n`, "", check.Race},
	{"mma", "a barrier is missing", `\tbar\.sync 0;\n`, "", check.Race},
	{"mma", "no wait for copies", `\tcp\.async\.wait_group [1-9];\n`, "", check.Race},
	{"mma", "a wait for too few copies", `wait_group 2;`, "wait_group 3;", check.Race},
	{"mma", "no zeros behind A's rows", `(cp\.async\.\S+ \[%r\d+(?:\+\d{1,4})?\], \[%rd\d+\], 8), %r\d+;`, "$1;", check.Bounds},
	{"mma", "fragments in another order", `(mma\.sync\S+ \{[^}]*\}, \{)(%fd\d+), (%fd\d+)`, "$1$3, $2", wrong},
	{"mma", "another lane's rows", `%lane, 2;`, "%lane, 3;", wrong},
}

func TestPlantedFaults(t *testing.T) {
	shapes := map[string]Shape{
		"naive": square(16, 0), "tiled": square(16, 16),
		"blocked": {M: 64, N: 64, K: 8, RowsPerThread: 8, ColsPerThread: 4, Stages: 4},
		"mma":     {M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
	}
	for _, f := range planted {
		k, err := Find(f.kernel)
		if err != nil {
			t.Fatal(err)
		}
		// Tiles that are not full, two of them in each direction and along K.
		in := k.Types()[0]
		if slices.Contains(k.Types(), dtype.F32) {
			in = dtype.F32
		}
		p, _, err := gemm.New(1, gemm.Dense(in, 70, 19), gemm.Dense(in, 19, 71), 0, gemm.Dense(in, 70, 71), gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		c := k.For(k.Config(&p, shapes[k.Name]), ptx.Target{SM: 90})
		m, err := k.Emit(c)
		if err != nil {
			t.Fatal(err)
		}
		text := m.String()
		if found := run(t, k, c, &p, text); len(found) > 0 {
			t.Fatalf("%s: without a fault the checkers find %v", k.Name, found)
		}
		re := regexp.MustCompile(f.pattern)
		places := re.FindAllStringIndex(text, -1)
		if len(places) == 0 {
			t.Errorf("%s, %s: the text has no %s", f.kernel, f.name, f.pattern)
		}
		for _, at := range places {
			broken := text[:at[0]] + re.ReplaceAllString(text[at[0]:at[1]], f.with) + text[at[1]:]
			found := run(t, k, c, &p, broken)
			if found[f.finds] == 0 {
				t.Errorf("%s, %s (%s): the checkers find %v, want %v", f.kernel, f.name, strings.TrimSpace(text[at[0]:at[1]]), found, f.finds)
			}
		}
	}
}

// run runs a kernel's text under the checkers and counts the errors of each, and the
// wrong elements of C.
func run(t *testing.T, k *Kernel, c Config, p *gemm.Problem, text string) map[check.Checker]int {
	t.Helper()
	found := map[check.Checker]int{}
	// Blocks one by one: a race between those of the kernel would be one of Go too.
	d, err := emu.Open(emu.Options{Workers: 1, Watch: emu.Checking(check.Options{}, func(r *check.Report) {
		for _, f := range r.Findings {
			if f.Severity == check.Error {
				found[f.Checker]++
			}
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	module, err := d.Load(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	f, err := module.Function(k.Entry())
	if err != nil {
		t.Fatal(err)
	}
	var m Memory
	var operands [][]byte // A and B
	for _, x := range []struct {
		at   *device.Ptr
		l    gemm.Layout
		read bool
	}{{&m.A, p.A, true}, {&m.B, p.B, true}, {&m.C, p.C, false}} {
		n := x.l.Bytes()
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
	l, err := k.Launch(c, p, m, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(t.Context(), f, l); err != nil && len(found) == 0 {
		t.Logf("%s: %v", k.Name, err)
	}
	product := make([]byte, p.C.Bytes())
	if err := d.CopyOut(t.Context(), product, m.C, device.Whole(len(product))); err != nil {
		t.Fatal(err)
	}
	for i := range p.M {
		for j := range p.N {
			sum := 0.0
			for q := range p.K {
				sum += p.A.Type.At(operands[0], i*p.K+q) * p.B.Type.At(operands[1], q*p.N+j)
			}
			if p.C.Type.At(product, i*p.N+j) != sum {
				found[wrong]++
			}
		}
	}
	return found
}
