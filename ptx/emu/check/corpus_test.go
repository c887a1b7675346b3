package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/ptx/emu"
)

// TestCompiledKernelsAreClean runs what nvcc made of correct kernels, with and without
// optimisation, with all checkers: they find no error.
func TestCompiledKernelsAreClean(t *testing.T) {
	const m, n, k = 34, 49, 50
	dim := func(x, y int) emu.Dim3 { return emu.Dim3{X: x, Y: y, Z: 1} }
	for _, c := range []struct {
		files   string
		program program
	}{
		{"matmul.*", program{entry: "naive", grid: dim(4, 3), block: dim(16, 16), args: []any{make([]float32, m*k), make([]float32, k*n), out(4 * m * n), int32(m), int32(n), int32(k)}}},
		{"matmul.*", program{entry: "tiledIfLi16E", grid: dim(4, 3), block: dim(16, 16), args: []any{make([]float32, m*k), make([]float32, k*n), out(4 * m * n), int32(m), int32(n), int32(k)}}},
		{"matmul.*", program{entry: "tiledIdLi8E", grid: dim(7, 5), block: dim(8, 8), args: []any{make([]float64, m*k), make([]float64, k*n), out(8 * m * n), int32(m), int32(n), int32(k)}}},
		{"matmul.*", program{entry: "vectors", grid: dim(2, 1), block: dim(64, 1), args: []any{make([]float32, 4*300), make([]float32, 4*300), out(16 * 300), int64(300), float32(2)}}},
		{"reduce.*", program{entry: "3sum", grid: dim(3, 1), block: dim(128, 1), shared: 16, args: []any{make([]float32, 1000), make([]float32, 1), int32(1000)}}},
		{"half.*", program{entry: "tensor", grid: dim(1, 1), block: dim(32, 1), args: []any{make([]dtype.Float16, 16*64), make([]dtype.Float16, 16*64), out(4 * 16 * 16), int32(16), int32(64)}}},
	} {
		files, err := filepath.Glob("../../testdata/nvcc/" + c.files + ".ptx")
		if err != nil || len(files) == 0 {
			t.Fatalf("no corpus: %v", err)
		}
		for _, file := range files {
			t.Run(c.program.entry+"/"+filepath.Base(file), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				p := c.program
				p.text, p.file = string(text), filepath.Base(file)
				r, _, err := p.run(t)
				if err != nil {
					t.Fatal(err)
				}
				if r.Errors() > 0 {
					t.Errorf("found\n%v", r)
				}
			})
		}
	}
}

// TestCompiledKernelWithoutBarrier takes one barrier after the other out of nvcc's
// tiled kernel: the findings name the lines of the CUDA source.
func TestCompiledKernelWithoutBarrier(t *testing.T) {
	const file = "matmul.sm_90.lineinfo.ptx"
	text, err := os.ReadFile("../../testdata/nvcc/" + file)
	if err != nil {
		t.Fatal(err)
	}
	const barrier = "bar.sync \t0;"
	head, kernel, ok := strings.Cut(string(text), ".visible .entry _Z5tiledIfLi16EEvPKT_S2_PS0_iii(")
	parts := strings.SplitN(kernel, barrier, 3)
	if !ok || len(parts) < 3 {
		t.Fatal("the corpus has changed")
	}
	for i, want := range []string{
		"__syncthreads() missing between matmul.cu:19 and matmul.cu:23?",
		"__syncthreads() missing after matmul.cu:23, before the loop's next round comes to matmul.cu:19?",
	} {
		const n = 64
		faulty := [][]string{{parts[0], "", parts[1], barrier, parts[2]}, {parts[0], barrier, parts[1], "", parts[2]}}[i]
		p := product(head+".visible .entry _Z5tiledIfLi16EEvPKT_S2_PS0_iii("+strings.Join(faulty, ""), n, n, n)
		p.entry, p.file = "tiledIfLi16E", file
		p.args = append(p.args[:3:3], int32(n), int32(n), int32(n))
		r, _, err := p.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.String(), want) {
			t.Errorf("barrier %d: %q is not said in\n%v", i+1, want, r)
		}
	}
}
