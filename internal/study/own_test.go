package study

import (
	"os"
	"strings"
	"testing"
)

// TestOwn runs the example, whose result is known: A and B count from 1 to 9 repeatedly.
func TestOwn(t *testing.T) {
	q, err := OwnExample(&Request{Rung: "tiled-2", GPU: "h200", Sizes: Sizes{4, 4, 4}})
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := OwnKernels(q)
	if err != nil || len(kernels.Kernels) != 1 || len(kernels.Kernels[0].Params) != len(q.Args) {
		t.Fatalf("got kernels %+v, error %v", kernels, err)
	}
	x, err := RunOwn(t.Context(), q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	// Row 0 of A is 1 2 3 4, and column 0 of B is 1 5 9 4.
	if !x.Solved || len(x.Outputs) != 1 || x.Outputs[0].Values[0][0] != "54" {
		t.Errorf("got %+v, want 54 = 1·1 + 2·5 + 3·9 + 4·4", x)
	}
}

// TestOwnBroken runs PTX from nvcc with a missing barrier. The race is at its line of CUDA C.
func TestOwnBroken(t *testing.T) {
	text, err := os.ReadFile("../../examples/data/broken.ptx")
	if err != nil {
		t.Fatal(err)
	}
	q := &OwnRequest{PTX: string(text), Grid: [3]int{2, 2, 1}, Block: [3]int{16, 16, 1}}
	kernels, err := OwnKernels(q)
	if err != nil {
		t.Fatal(err)
	}
	q.Entry = kernels.Kernels[0].Name
	q.Args = []Arg{
		{Kind: "in", Type: "float32", Rows: 32, Cols: 32}, {Kind: "in", Type: "float32", Rows: 32, Cols: 32},
		{Kind: "out", Type: "float32", Rows: 32, Cols: 32}, {Kind: "number", Value: "32"}, {Kind: "number", Value: "32"},
		{Kind: "number", Value: "32"},
	}
	x, err := RunOwn(t.Context(), q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if x.Solved || len(x.Findings) == 0 || x.Findings[0].Checker != "race" ||
		!strings.HasSuffix(x.Findings[0].At.File, "matmul.cu") {
		t.Errorf("got %+v, want a race in matmul.cu", x.Findings)
	}
}

// TestOwnErrors checks the messages for bad input.
func TestOwnErrors(t *testing.T) {
	example, err := OwnExample(&Request{Rung: "naive", GPU: "h200", Sizes: Sizes{4, 4, 4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(q *OwnRequest)
		want   string
	}{
		{func(q *OwnRequest) { q.PTX = "int main()" }, "your.ptx:1"},
		{func(q *OwnRequest) { q.Args = q.Args[1:] }, "11 arguments: want one for each of the 12 parameters"},
		{func(q *OwnRequest) { q.Args[0].Value = "x" }, `M: "x": want a number of type .u32`},
		{func(q *OwnRequest) { q.Args[0].Kind = "in" }, "M: a .u32: want a number"},
		{func(q *OwnRequest) { q.Args[3].Rows = 1 << 40 }, "A: a matrix of 1099511627776×4: want 1 to 1,048,576 elements"},
		{func(q *OwnRequest) { q.Args[3].Type = "f31" }, "f31"},
		{func(q *OwnRequest) { q.Block[0] = 0 }, "block is (0,16,1): want sides from 1"},
		{func(q *OwnRequest) { q.Entry = "other" }, "other"},
	} {
		q := *example
		q.Args = append([]Arg{}, example.Args...)
		c.change(&q)
		if _, err := RunOwn(t.Context(), &q, quiet); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
	// A loop that repeats itself is a deadlock, and any other endless loop ends with the budget.
	for body, want := range map[string]string{"": "deadlock", "\tadd.u32 %n, %n, 1;\n": "instructions"} {
		q := *example
		q.PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f()\n{\n\t.reg .u32 %n;\n" +
			"\tmov.u32 %n, 0;\nagain:\n" + body + "\tbra again;\n}\n"
		q.Entry, q.Args = "f", nil
		x, err := RunOwn(t.Context(), &q, quiet)
		if err != nil || !strings.Contains(x.Stopped, want) {
			t.Errorf("got %+v, error %v; want the launch stopped by %s", x, err, want)
		}
	}
}
