package matfile_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tilework"
	"tilework/dtype"
	"tilework/matfile"
)

// Multiply two files.
func Example() {
	folder, err := os.MkdirTemp("", "matfile")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ctx, in, out := context.Background(), filepath.Join(folder, "a.csv"), filepath.Join(folder, "c.npy")
	if err := os.WriteFile(in, []byte("1,2\n3,4\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	a, err := matfile.Read[float32](ctx, in, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := tilework.Mul(ctx, a, a)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := matfile.Write(ctx, out, c); err != nil {
		fmt.Println(err)
		return
	}
	arrays, err := matfile.List(ctx, out, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(filepath.Base(arrays[0].Name), arrays[0].Type, arrays[0].Shape)
	fmt.Println(c)
	// Output:
	// c.npy float32 [2 2]
	// 2×2 float32
	// [[ 7 10]
	//  [15 22]]
}

// Read a matrix that a client sends, whose content selects the format.
func ExampleDecode() {
	body := strings.NewReader("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 0.5\n2 2 3\n")
	m, err := matfile.Decode[float64](context.Background(), body, "", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m)
	// Output:
	// 2×2 float64
	// [[0.5 0]
	//  [  0 3]]
}

// Write one array of a .safetensors file to a stream, and read it by its name.
func ExampleEncode() {
	ctx, m := context.Background(), tilework.FromSlice(2, 2, []float32{1, 2, 3, 4})
	var file bytes.Buffer
	if err := matfile.Encode(ctx, &file, "w.safetensors::layer.weight", m); err != nil {
		fmt.Println(err)
		return
	}
	w, err := matfile.Decode[int8](ctx, &file, "w.safetensors::layer.weight", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w)
	// Output:
	// 2×2 int8
	// [[1 2]
	//  [3 4]]
}

// Use a matrix that may be larger than the machine's memory.
func ExampleMap() {
	weights, err := matfile.Map[float32](context.Background(), filepath.Join("..", "examples", "data", "a.npy"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer weights.Close()
	fmt.Println(weights.Matrix().Rows(), weights.Matrix().Cols())
	// Output: 256 512
}

// Keep the type that the file has.
func ExampleReadAny() {
	name := filepath.Join("..", "examples", "data", "model.safetensors::bias")
	m, err := matfile.ReadAny(context.Background(), name, dtype.Invalid, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	switch m.Type {
	case dtype.F32:
		bias, err := matfile.As[float32](m)
		fmt.Println("float32", bias.Rows(), bias.Cols(), err)
	case dtype.BF16:
		bias, err := matfile.As[dtype.BFloat16](m)
		fmt.Println("bfloat16", bias.Rows(), bias.Cols(), err)
	}
	// Output: float32 1 6 <nil>
}

// The error names the line and the number.
func ExampleDecode_error() {
	_, err := matfile.Decode[float32](context.Background(), strings.NewReader("1,2\n3\n"), "a.csv", nil)
	fmt.Println(err)
	// Output: a.csv: malformed: line 2 ends after column 1: want 2 columns as in the first line
}
