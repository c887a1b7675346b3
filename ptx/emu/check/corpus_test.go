package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/ptx/emu"
)

// TestCompiledKernelsAreClean runs correct kernels compiled by nvcc, with and without
// optimization, with all checkers. There must be no errors.
func TestCompiledKernelsAreClean(t *testing.T) {
	const m, n, k = 34, 49, 50
	dim := func(x, y int) emu.Dim3 { return emu.Dim3{X: x, Y: y, Z: 1} }
	for _, c := range []struct {
		files   string
		program program
	}{
		{"matmul.*", program{entry: "naive", grid: dim(4, 3), block: dim(16, 16),
			args: []any{make([]float32, m*k), make([]float32, k*n), out(4 * m * n), int32(m), int32(n), int32(k)}}},
		{"matmul.*", program{entry: "tiledIfLi16E", grid: dim(4, 3), block: dim(16, 16),
			args: []any{make([]float32, m*k), make([]float32, k*n), out(4 * m * n), int32(m), int32(n), int32(k)}}},
		{"matmul.*", program{entry: "tiledIdLi8E", grid: dim(7, 5), block: dim(8, 8),
			args: []any{make([]float64, m*k), make([]float64, k*n), out(8 * m * n), int32(m), int32(n), int32(k)}}},
		{"matmul.*", program{entry: "vectors", grid: dim(2, 1), block: dim(64, 1),
			args: []any{make([]float32, 4*300), make([]float32, 4*300), out(16 * 300), int64(300), float32(2)}}},
		{"reduce.*", program{entry: "3sum", grid: dim(3, 1), block: dim(128, 1), shared: 16,
			args: []any{make([]float32, 1000), make([]float32, 1), int32(1000)}}},
		{"half.*", program{entry: "tensor", grid: dim(1, 1), block: dim(32, 1),
			args: []any{make([]dtype.Float16, 16*64), make([]dtype.Float16, 16*64), out(4 * 16 * 16), int32(16), int32(64)}}},
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

// TestCompiledKernelWithoutBarrier removes each barrier of nvcc's tiled kernel in turn. The
// findings must give the lines of the CUDA source.
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
		t.Fatalf("%s: the tiled kernel does not have two barriers", file)
	}
	for i, want := range []string{
		"want a __syncthreads() between matmul.cu:19 and matmul.cu:23",
		"want a __syncthreads() after matmul.cu:23, before the next iteration of the loop reaches matmul.cu:19",
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
			t.Errorf("barrier %d: report does not contain %q:\n%v", i+1, want, r)
		}
	}
}

// TestCompiledBarriers runs kernels compiled by nvcc whose barriers only 40 of 64 threads reach,
// under several schedules.
func TestCompiledBarriers(t *testing.T) {
	files, err := filepath.Glob("../../testdata/nvcc/barriers.*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	steps := make([]int32, 64)
	for i := range steps {
		steps[i] = 1 + int32(i)/10
	}
	x, y, n := make([]float32, 64), out(4*64), int32(40)
	for _, c := range []struct {
		entry string
		args  []any
		want  string // allowed severities
	}{
		{"all_reach", []any{x, y, n}, ""},
		{"early_returnP", []any{x, y, n}, "advice"},
		{"early_return_loop", []any{x, y, n, int32(2)}, "advice"},
		{"early_return_with_store", []any{x, y, n}, "advice"},
		{"in_ifP", []any{y, n}, "error"},
		{"in_if_at_the_end", []any{y, n}, "error"},
		{"in_if_with_work", []any{y, n}, "advice"}, // the same PTX as an early return
		{"in_loop", []any{steps, y}, "error"},
		{"grid_stride", []any{x, y, n}, "advice error"}, // error if the loop tests at the top
		{"votes", []any{x, y, n}, "advice"},
		{"in_functionP", []any{y, n}, "error"},
		{"in_function_after_return", []any{y, n}, "advice"},
	} {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := program{
				text: string(text), file: filepath.Base(file), entry: c.entry, args: c.args,
				grid: emu.Dim3{X: 1, Y: 1, Z: 1}, block: emu.Dim3{X: 64, Y: 1, Z: 1}, options: Options{Only: []Checker{Barrier}},
			}
			for p.seed = range uint64(schedules) {
				r, _, err := p.run(t)
				if err != nil {
					t.Fatal(err)
				}
				if (len(r.Findings) == 0) != (c.want == "") {
					t.Errorf("%s, %s, seed %d: found %q, want %q", c.entry, p.file, p.seed, r, c.want)
				}
				for _, f := range r.Findings {
					if !strings.Contains(c.want, f.Severity.String()) {
						t.Errorf("%s, %s, seed %d: found %v, want %s", c.entry, p.file, p.seed, &f, c.want)
					}
				}
				if strings.Contains(p.file, "lineinfo") && c.entry == "in_ifP" &&
					!strings.Contains(r.String(), "barriers.cu:51:5): bar.sync: error") {
					t.Errorf("report does not give the source line of the barrier:\n%v", r)
				}
			}
		}
	}
}
