package study

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"tilework/internal/matio"
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
		{func(q *OwnRequest) { q.PTX = "__global__ void k() {}" },
			"your.ptx:1:1: this is CUDA C: want PTX, such as that of nvcc -ptx"},
		{func(q *OwnRequest) { q.Args = q.Args[1:] }, "11 arguments: want one for each of the 12 parameters"},
		{func(q *OwnRequest) { q.Args[0].Value = "x" }, `M: "x": want a number of type .u32`},
		{func(q *OwnRequest) { q.Args[0].Kind = "in" }, "M: a .u32: want a number"},
		{func(q *OwnRequest) { q.Args[3].Rows = 1 << 40 }, "A: a matrix of 1099511627776×4: want 1 to 1,048,576 elements"},
		{func(q *OwnRequest) { q.Args[3].Type = "f31" }, "f31"},
		{func(q *OwnRequest) { q.Args[3] = Arg{Kind: "file"} }, "A: no file: want an .npy file"},
		{func(q *OwnRequest) { q.Args[3] = Arg{Kind: "file", File: "a.npy"} }, "A: a.npy: the file is empty or not chosen"},
		{func(q *OwnRequest) { q.Args[3] = Arg{Kind: "file", File: "a.npy", Data: []byte("1 2")} }, `file starts with "1 2`},
		{func(q *OwnRequest) { q.Args[3] = Arg{Kind: "file", File: "a.foo", Data: []byte("1 2")} }, `extension ".foo", want`},
		{func(q *OwnRequest) { q.Args[3] = Arg{Kind: "ptr"} }, `kind "ptr": want file, in, inout, out, update, zeros for`},
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

// TestOwnFiles multiplies matrices from .npy files and reads the result from its file. The file of
// B is in column-major order and big-endian.
func TestOwnFiles(t *testing.T) {
	q, err := OwnExample(&Request{Rung: "naive", GPU: "h200", Sizes: Sizes{2, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	array := func(descr, order, shape string, data any) []byte {
		var b bytes.Buffer
		header := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape)
		b.WriteString("\x93NUMPY\x01\x00")
		binary.Write(&b, binary.LittleEndian, uint16(len(header)))
		b.WriteString(header)
		var bytes binary.ByteOrder = binary.LittleEndian
		if descr[0] == '>' {
			bytes = binary.BigEndian
		}
		binary.Write(&b, bytes, data)
		return b.Bytes()
	}
	for i, a := range q.Args {
		switch {
		case a.Kind == "in" && a.Cols == 3:
			q.Args[i] = Arg{Kind: "file", File: "a.npy", Data: array("<f4", "False", "(2, 3)", []float32{1, 2, 3, 4, 5, 6})}
		case a.Kind == "in":
			q.Args[i] = Arg{Kind: "file", File: "b.npy", Data: array(">f4", "True", "(3, 2)", []float32{1, 0, 2, 0, 1, 0.5})}
		}
	}
	x, err := RunOwn(t.Context(), q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	o := x.Outputs[0]
	want := array("<f4", "False", "(2, 2)", []float32{7, 3.5, 16, 8}) // [1 2 3; 4 5 6]·[1 0; 0 1; 2 0.5]
	if n := len(o.NPY); !x.Solved || o.Values[1][0] != "16" || n < 16 || !bytes.HasSuffix(want, o.NPY[n-16:]) ||
		!bytes.HasPrefix(o.NPY, want[:8]) {
		t.Errorf("got %+v, want 7 3.5 16 8 in an .npy file", o)
	}
}

// TestOwnArrays doubles the elements of arrays of every type in place.
func TestOwnArrays(t *testing.T) {
	const text = `.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 x) {
	.reg .u64 %p, %i;
	.reg .%[1]s %v;
	.reg .u32 %t;
	ld.param.u64 %p, [x];
	mov.u32 %t, %tid.x;
	mul.wide.u32 %i, %t, %[2]d;
	add.u64 %p, %p, %i;
	ld.global.%[1]s %v, [%p];
	add.%[1]s %v, %v, %v;
	st.global.%[1]s [%p], %v;
}
`
	for name, of := range map[string]struct {
		ptx  string
		size int
	}{"u16": {"u16", 2}, "u32": {"u32", 4}, "u64": {"u64", 8}, "s16": {"s16", 2}, "s64": {"s64", 8}, "int32": {"s32", 4},
		"float32": {"f32", 4}, "float64": {"f64", 8}} {
		kernel := strings.NewReplacer("%[1]s", of.ptx, "%[2]d", fmt.Sprint(of.size)).Replace(text)
		q := &OwnRequest{PTX: kernel, Entry: "twice", Grid: [3]int{1, 1, 1}, Block: [3]int{3, 1, 1},
			Args: []Arg{{Kind: "in", Type: name, Rows: 3}}}
		m := &matrix{}
		if err := m.create(&q.Args[0]); err != nil {
			t.Fatal(err)
		}
		file := matio.Array{Type: m.array.Type, Shape: []int{3}, Data: m.digits()}
		q.Args[0] = Arg{Kind: "inout", File: "x.npy", Data: file.Encode()}
		x, err := RunOwn(t.Context(), q, quiet)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o := x.Outputs[0]; !reflect.DeepEqual(o.Values, [][]string{{"2", "4", "6"}}) || o.Type != m.array.Type {
			t.Errorf("%s: got %+v, want 2 4 6", name, o)
		}
	}
}

// TestOwnOddInput runs PTX that begins with an empty line, and refuses a file without elements.
func TestOwnOddInput(t *testing.T) {
	q, err := OwnExample(&Request{Rung: "naive", GPU: "h200", Sizes: Sizes{4, 4, 4}})
	if err != nil {
		t.Fatal(err)
	}
	q.PTX = "\n\n" + q.PTX
	x, err := RunOwn(t.Context(), q, quiet)
	if err != nil || !x.Solved || x.Listing.PTX[0].Text == "" {
		t.Errorf("got %+v, error %v; want a solved run without empty lines at the beginning", x, err)
	}
	for _, kind := range []string{"file", "inout"} {
		empty := matio.Array{Type: "f4", Shape: []int{0, 4}}
		for i, a := range q.Args {
			if a.Kind != "number" {
				q.Args[i] = Arg{Kind: kind, File: "a.npy", Data: empty.Encode()}
			}
		}
		if _, err := RunOwn(t.Context(), q, quiet); err == nil || !strings.Contains(err.Error(), "no elements") {
			t.Errorf("%s without elements: got error %v", kind, err)
		}
	}
}
