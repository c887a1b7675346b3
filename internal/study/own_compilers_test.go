package study

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/matio"
)

// compiled returns the launch that the page suggests for PTX of a compiler.
func compiled(t *testing.T, compiler string) *OwnRequest {
	t.Helper()
	text, err := os.ReadFile("testdata/compilers/" + compiler + ".ptx")
	if err != nil {
		t.Fatal(err)
	}
	return suggested(t, string(text))
}

func suggested(t *testing.T, text string) *OwnRequest {
	t.Helper()
	q := &OwnRequest{PTX: text}
	kernels, err := OwnKernels(q)
	if err != nil {
		t.Fatal(err)
	}
	k := kernels.Kernels[0]
	q.Entry, q.Grid, q.Block, q.Shared = k.Name, k.Grid, k.Block, k.Shared
	for _, p := range k.Params {
		q.Args = append(q.Args, p.Arg)
	}
	return q
}

// digit is an element of the page's matrices.
func digit(row, col, cols int) float64 { return float64((row*cols+col)%9 + 1) }

// TestOwnCompilers runs PTX of each compiler, with the launch that the page suggests and with
// another one.
func TestOwnCompilers(t *testing.T) {
	product := func(k, n int) func(row, col int) float64 {
		return func(row, col int) (sum float64) {
			for i := range k {
				sum += digit(row, i, k) * digit(i, col, n)
			}
			return sum
		}
	}
	softmax := func(n int) func(row, col int) float64 {
		return func(row, col int) float64 {
			sum := 0.0
			for i := range n {
				sum += math.Exp(digit(row, i, n))
			}
			return math.Exp(digit(row, col, n)) / sum
		}
	}
	scan := func(_, col int) (sum float64) {
		for i := range col + 1 {
			sum += digit(0, i, 0)
		}
		return sum
	}
	transposed := func(row, col int) float64 { return digit(col, row, 33) }

	const m, n, k = 20, 33, 7
	shapes := func(q *OwnRequest, grid, block [3]int, shapes ...[2]int) {
		q.Grid, q.Block = grid, block
		for i, shape := range shapes {
			q.Args[i].Rows, q.Args[i].Cols = shape[0], shape[1]
		}
	}
	others := func(q *OwnRequest) {
		shapes(q, [3]int{3, 2, 1}, q.Block, [2]int{m, k}, [2]int{k, n}, [2]int{m, n})
		q.Args[3].Value, q.Args[4].Value, q.Args[5].Value = fmt.Sprint(m), fmt.Sprint(n), fmt.Sprint(k)
	}
	for _, c := range []struct {
		compiler   string
		change     func(q *OwnRequest)
		rows, cols int // that the kernel writes
		want       func(row, col int) float64
	}{
		{"nvcc", nil, 32, 32, product(32, 32)},
		{"nvcc", others, m, n, product(k, n)},
		{"clang", nil, 32, 32, product(32, 32)},
		{"clang", others, m, n, product(k, n)},
		{"numba-scan", nil, 1, 128, scan},
		{"numba-transpose", func(q *OwnRequest) {
			shapes(q, [3]int{2, 1, 1}, [3]int{32, 8, 1}, [2]int{m, n}, [2]int{n, m})
		}, n, m, transposed},
		{"triton", nil, 1, 32, softmax(32)},
		{"triton", func(q *OwnRequest) {
			shapes(q, [3]int{m, 1, 1}, q.Block, [2]int{m, n}, [2]int{m, n})
			q.Args[2].Value = fmt.Sprint(n)
		}, m, n, softmax(n)},
	} {
		q := compiled(t, c.compiler)
		if c.change != nil {
			c.change(q)
		}
		x, err := RunOwn(t.Context(), q, quiet)
		if err != nil {
			t.Fatalf("%s: %v", c.compiler, err)
		}
		if !x.Solved || len(x.Findings) > 0 || len(x.Outputs) != 1 {
			t.Fatalf("%s: got findings %+v, %d outputs, stopped by %q", c.compiler, x.Findings, len(x.Outputs), x.Stopped)
		}
		o := x.Outputs[0]
		if all := o.Shape[0] * o.Shape[len(o.Shape)-1]; len(o.Shape) == 2 && o.Unwritten != all-c.rows*c.cols {
			t.Errorf("%s: %d of %d elements are unwritten, want %d", c.compiler, o.Unwritten, all, all-c.rows*c.cols)
		}
		cols := o.Shape[len(o.Shape)-1]
		file, err := matio.ReadArray(t.Context(), "x.npy", matio.ReadOptions{Files: map[string][]byte{"x.npy": o.NPY}})
		if err != nil {
			t.Fatal(err)
		}
		for row := range c.rows {
			for col := range c.cols {
				got, err := strconv.ParseFloat(file.Element(row*cols+col), 64)
				if err != nil {
					t.Fatal(err)
				}
				if want := c.want(row, col); math.Abs(got-want) > 1e-5*want {
					t.Fatalf("%s: element %d, %d is %v, want %v", c.compiler, row, col, got, want)
				}
			}
		}
	}
}

// TestOwnPlanted removes a barrier of kernels by Triton and clang. The race is at the line of the
// source.
func TestOwnPlanted(t *testing.T) {
	for compiler, at := range map[string]string{"triton": "triton_kernels.py", "clang": "matmul.cu"} {
		q := compiled(t, compiler)
		q.PTX = withoutBarrier(q.PTX, 1)
		x, err := RunOwn(t.Context(), q, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if x.Solved || len(x.Findings) == 0 || x.Findings[0].Checker != "race" || x.Findings[0].At.File != at {
			t.Errorf("%s: got %+v, want a race in %s", compiler, x.Findings, at)
		}
	}
}

// withoutBarrier removes a barrier, counted from 0.
func withoutBarrier(text string, k int) string {
	parts := strings.Split(text, "\tbar.sync \t0;\n")
	return strings.Join(parts[:k+1], "\tbar.sync \t0;\n") + strings.Join(parts[k+1:], "\tbar.sync \t0;\n")
}
