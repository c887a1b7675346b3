package choose_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
)

var update = flag.Bool("update", false, "rewrite testdata/choices.txt")

// The GPUs whose choices are recorded.
var (
	h200 = &device.Info{Name: "h200", SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10,
		Target: ptx.Target{SM: 90, Suffix: "a"}}
	a100 = &device.Info{Name: "a100", SMs: 108, MaxThreads: 1024, MaxShared: 163 << 10, Target: ptx.Target{SM: 80}}
	t4   = &device.Info{Name: "t4", SMs: 40, MaxThreads: 1024, MaxShared: 64 << 10, Target: ptx.Target{SM: 75}}
)

// choiceGroup is a list of products that differ only in their shape.
type choiceGroup struct {
	gpu       *device.Info
	in, out   dtype.Type
	precision gemm.Precision
	transB    bool
	// batch returns the batch of p; nil leaves p a single product.
	batch func(p gemm.Problem) (gemm.Problem, error)
	// epilogue is applied to every product.
	epilogue gemm.Epilogue
	// dense keeps leading dimensions without padding.
	dense  bool
	name   string // of the batch or the epilogue
	shapes []bench.Shape
}

// String returns the group's line in testdata/choices.txt.
func (g *choiceGroup) String() string {
	layout := "NN"
	if g.transB {
		layout = "NT"
	}
	s := fmt.Sprintf("%s %v->%v %v %s", g.gpu.Name, g.in, g.out, g.precision, layout)
	if g.dense {
		s += " dense"
	}
	return strings.TrimSpace(s + " " + g.name)
}

// problem returns the group's product of the given shape.
func (g *choiceGroup) problem(s bench.Shape) (*gemm.Problem, error) {
	pad := gemm.Padded
	if g.dense {
		pad = func(l gemm.Layout) gemm.Layout { return l }
	}
	b := gemm.Dense(g.in, s.K, s.N)
	if g.transB {
		b = gemm.Dense(g.in, s.N, s.K).T()
	}
	p, _, err := gemm.New(1, pad(gemm.Dense(g.in, s.M, s.K)), pad(b), 0, pad(gemm.Dense(g.out, s.M, s.N)), g.epilogue)
	if err == nil && g.precision != gemm.Native {
		p, err = p.WithPrecision(g.precision)
	}
	if err == nil && g.batch != nil {
		p, err = g.batch(p)
	}
	return &p, err
}

// strided returns the batch of count products in consecutive memory.
func strided(count int) func(p gemm.Problem) (gemm.Problem, error) {
	return func(p gemm.Problem) (gemm.Problem, error) {
		return p.Strided(count, gemm.Batch{Stride: gemm.Strides{p.A().Len(), p.B().Len(), p.C().Len()}})
	}
}

// grouped returns the batch of count groups of rows.
func grouped(count int) func(p gemm.Problem) (gemm.Problem, error) {
	return func(p gemm.Problem) (gemm.Problem, error) { return p.Grouped(count, p.B().Len()) }
}

// suite returns the shapes of a committed suite.
func suite(t *testing.T, name string) (shapes []bench.Shape) {
	t.Helper()
	samples, err := bench.Suite(name, bench.Draw{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		shapes = append(shapes, s.Shape)
	}
	return shapes
}

// choiceGroups returns the products whose choices are recorded.
func choiceGroups(t *testing.T) []choiceGroup {
	fp32, tensor := suite(t, "fp32"), suite(t, "tensor")
	for _, n := range []int{200, 300, 320, 328, 384} { // where mma and wgmma meet
		tensor = append(tensor, bench.Cube(n))
	}
	const half, single, double, integer, e4m3 = dtype.BF16, dtype.F32, dtype.F64, dtype.I8, dtype.F8E4M3
	batched := []bench.Shape{bench.Cube(32), bench.Cube(64), bench.Cube(128), bench.Cube(512), bench.Cube(1024),
		{M: 16, N: 4096, K: 1024}, {M: 1, N: 512, K: 512}}
	groups := []bench.Shape{{M: 256, N: 1024, K: 512}, {M: 4096, N: 14336, K: 4096}, {M: 8192, N: 14336, K: 4096}}
	return []choiceGroup{
		{gpu: h200, in: single, out: single, shapes: tensor},
		{gpu: h200, in: single, out: single, transB: true, shapes: fp32},
		{gpu: h200, in: double, out: double, shapes: fp32},
		{gpu: h200, in: half, out: half, shapes: tensor},
		{gpu: h200, in: half, out: half, transB: true, shapes: fp32},
		{gpu: h200, in: half, out: half, dense: true, shapes: fp32},
		{gpu: h200, in: half, out: single, shapes: fp32},
		{gpu: h200, in: single, out: single, precision: gemm.TF32, shapes: tensor},
		{gpu: h200, in: single, out: single, precision: gemm.TF32, transB: true, shapes: tensor},
		{gpu: h200, in: single, out: single, precision: gemm.F32x3, shapes: fp32},
		{gpu: h200, in: integer, out: dtype.I32, shapes: fp32},
		{gpu: h200, in: integer, out: dtype.I32, transB: true, shapes: tensor},
		{gpu: h200, in: e4m3, out: half, transB: true, shapes: tensor},
		{gpu: h200, in: e4m3, out: single, shapes: fp32},
		{gpu: h200, in: half, out: half, batch: strided(64), name: "strided", shapes: batched},
		{gpu: h200, in: single, out: single, batch: strided(64), name: "strided", shapes: batched},
		{gpu: h200, in: double, out: double, batch: strided(64), name: "strided", shapes: batched},
		{gpu: h200, in: integer, out: dtype.I32, batch: strided(64), name: "strided", shapes: batched},
		{gpu: h200, in: half, out: half, transB: true, batch: grouped(8), name: "grouped", shapes: groups},
		{gpu: h200, in: single, out: single, batch: grouped(8), name: "grouped", shapes: groups},
		{gpu: h200, in: half, out: half, epilogue: gemm.Epilogue{Activation: gemm.ActGELU}, name: "gelu", shapes: fp32},
		{gpu: a100, in: single, out: single, shapes: tensor},
		{gpu: a100, in: double, out: double, shapes: fp32},
		{gpu: a100, in: half, out: half, shapes: tensor},
		{gpu: a100, in: single, out: single, precision: gemm.TF32, shapes: fp32},
		{gpu: a100, in: integer, out: dtype.I32, shapes: fp32},
		{gpu: t4, in: single, out: single, shapes: fp32},
		{gpu: t4, in: half, out: half, shapes: fp32},
	}
}

// TestChoices compares the kernel and tile of every product of the suites with
// testdata/choices.txt. Run it with -update after a change that is meant to alter a choice, and
// justify each difference with a measurement.
func TestChoices(t *testing.T) {
	var got bytes.Buffer
	for _, g := range choiceGroups(t) {
		fmt.Fprintf(&got, "# %v\n", &g)
		for _, s := range g.shapes {
			p, err := g.problem(s)
			if err != nil {
				t.Fatal(err)
			}
			c, err := choose.Best(p, kernel.Align{}, g.gpu)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%dx%dx%d %s:%v\n", s.M, s.N, s.K, c.Kernel.Name, c.Config.Tile)
		}
	}
	const path = "testdata/choices.txt"
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	group := ""
	gotLines, wantLines := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	if len(gotLines) != len(wantLines) {
		t.Fatalf("%d lines, want %d: run with -update after adding products", len(gotLines), len(wantLines))
	}
	for i, line := range gotLines {
		if strings.HasPrefix(line, "#") {
			group = line
		}
		if line != wantLines[i] {
			t.Errorf("%s: %s, want %s", group, line, wantLines[i])
		}
	}
}

// BenchmarkBest measures the choice for one product.
func BenchmarkBest(b *testing.B) {
	for _, g := range []choiceGroup{
		{gpu: h200, in: dtype.F32, out: dtype.F32},
		{gpu: h200, in: dtype.F64, out: dtype.F64},
		{gpu: h200, in: dtype.BF16, out: dtype.BF16},
		{gpu: h200, in: dtype.F32, out: dtype.F32, precision: gemm.TF32},
		{gpu: h200, in: dtype.I8, out: dtype.I32},
	} {
		for _, s := range []bench.Shape{bench.Cube(4096), {M: 16, N: 4096, K: 4096}} {
			p, err := g.problem(s)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%v/%v/%dx%dx%d", g.in, g.precision, s.M, s.N, s.K), func(b *testing.B) {
				for b.Loop() {
					if _, err := choose.Best(p, kernel.Align{}, g.gpu); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
