package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
)

func TestMulFlags(t *testing.T) {
	dir := folder(t)
	t.Chdir(dir)
	writeText(t, "nan.csv", "nan\n") // C0 is not read if beta is 0
	a, b, c0 := element(t, "a.npy"), element(t, "b.npy"), element(t, "c0.csv")
	col, row := element(t, "col.npy"), element(t, "row.csv")
	// A second B and C0 in column-major order, and the transposes of B and of the second B.
	up := func(i, j int) float64 { return b(i, j) - float64(j) }
	byColumns(t, "b2.npy", 4, 5, up)
	byColumns(t, "c0f.npy", 3, 5, c0)
	for name, f := range map[string]func(i, j int) float64{"bt.npy": b, "b2t.npy": up} {
		data := make([]float64, 20)
		for i := range data {
			data[i] = f(i%4, i/4)
		}
		if err := matio.Write(t.Context(), name, gemm.Dense(dtype.F64, 5, 4), dtype.Bytes(data),
			true); err != nil {
			t.Fatal(err)
		}
	}
	product := func(i, j int) float64 {
		sum := 0.0
		for k := range 4 {
			sum += a(i, k) * b(k, j)
		}
		return sum
	}
	gated := func(i, j int) float64 {
		other := 0.0
		for k := range 4 {
			other += a(i, k) * up(k, j)
		}
		return max(product(i, j), 0)*other + c0(i, j)
	}
	for _, test := range []struct {
		args string
		want func(i, j int) float64
	}{
		{"a.npy b.npy -o c.npy", product},
		{"a.npy b.npy -o c.npz", product},
		{"a.npy b.npy -o c.npy --beta 0 --c nan.csv --verify-within 5", product},
		{"a.npy b.npy -o c.npy --verify-within 5%", product},
		{"a.npy b.npy -o c.csv --kernel loop --threads 1", product},
		{"a.npy b.npy -o c.mtx --device cpu --verify", product},
		{"b.npy a.npy -o c.npy --transpose-a --transpose-b", func(j, i int) float64 { return product(i, j) }},
		{"a.npy b.npy -o c.npy --alpha -2 --beta 3 --c c0.csv",
			func(i, j int) float64 { return -2*product(i, j) + 3*c0(i, j) }},
		{"a.npy b.npy -o c.npy --bias col.npy", func(i, j int) float64 { return product(i, j) + col(0, j) }},
		{"a.npy b.npy -o c.npy --bias row.csv --bias-along rows --activation relu --verify",
			func(i, j int) float64 { return max(product(i, j)+row(i, 0), 0) }},
		{"a.npy b.npy -o c.npy --row-scale row.csv --col-scale col.npy --bias col.npy --residual c0.csv --output-scale " +
			"0.5 --verify", func(i, j int) float64 {
			return (row(i, 0)*col(0, j)*product(i, j) + col(0, j) + c0(i, j)) / 2
		}},
		{"a.npy b.npy -o c.npy --activation relu --up b2.npy --residual c0f.npy", gated},
		{"a.npy b.npy -o c.npy --activation relu --up b2.npy --residual c0.csv --device emu --verify", gated},
		{"a.npy bt.npy -o c.npy --transpose-b --activation relu --up b2t.npy --residual c0.csv", gated},
		{"a.npy b.npy -o c.npy --dtype float16 --alpha 16384 --saturate",
			func(i, j int) float64 { return min(max(16384*product(i, j), -65504), 65504) }},
		{"a.npy b.npy -o c.npy --device emu", product},
		{"a.npy b.npy -o c.npy --device emu:t4 --kernel naive --verify", product},
		{"a.npy b.npy -o c.npy --device emu --kernel tiled:2 --bias col.npy",
			func(i, j int) float64 { return product(i, j) + col(0, j) }},
		{"b.npy a.npy -o c.npy --device emu --kernel blocked --transpose-a --transpose-b",
			func(j, i int) float64 { return product(i, j) }},
		{"a.npy b.npy -o c.safetensors --dtype bfloat16", product},
		{"a.npy b.npy -o c.npy --dtype int8", product},
		{"a.npy b.npy -o c.npy --dtype int8 --out-dtype float32 --row-scale row.csv --col-scale col.npy --bias col.npy " +
			"--activation relu --alpha 0.5 --verify", func(i, j int) float64 {
			return max(row(i, 0)*col(0, j)*product(i, j)/2+col(0, j), 0)
		}},
		{"a.npy b.npy -o c.npy --dtype int8 --out-dtype float16 --device emu --output-scale 0.25 --verify",
			func(i, j int) float64 { return product(i, j) / 4 }},
		{"a.npy b.npy -o c.npy --dtype float32 --out-dtype float16", product},
		{"a.npy b.npy -o c.safetensors --dtype float32 --out-dtype bfloat16 --device emu --verify", product},
		{"a.npy b.npy -o c.npy --dtype float16 --out-dtype float32", product},
	} {
		args := strings.Fields("mul " + test.args + " --force")
		stdout, stderr, code := run(t.Context(), args...)
		if code != 0 || !strings.Contains(stdout, "GFLOP/s") {
			t.Errorf("%s: exit code %d, %q, %q", test.args, code, stdout, stderr)
			continue
		}
		out := args[4]
		got := element(t, out)
		rows, cols := 3, 5
		if strings.Contains(test.args, "transpose-a") {
			rows, cols = 5, 3
		}
		for i := range rows {
			for j := range cols {
				if got(i, j) != test.want(i, j) {
					t.Errorf("%s: element (%d, %d) is %v, want %v", test.args, i, j, got(i, j), test.want(i, j))
				}
			}
		}
	}
}

// byColumns writes a rows×cols float64 matrix in column-major order, as NumPy does.
func byColumns(t *testing.T, name string, rows, cols int, f func(i, j int) float64) {
	t.Helper()
	header := fmt.Sprintf("{'descr': '<f8', 'fortran_order': True, 'shape': (%d, %d), }", rows, cols)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	data := make([]float64, rows*cols)
	for i := range data {
		data[i] = f(i%rows, i/rows)
	}
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	if err := os.WriteFile(name, append(append(file, header...), dtype.Bytes(data)...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMulReportsJSON(t *testing.T) {
	t.Chdir(folder(t))
	stdout, stderr, code := run(t.Context(), "mul", "a.npy", "b.npy", "-o", "c.npy", "--format", "json", "--verify",
		"--kernel", "portable", "--verbose")
	var r mulResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v in %q", code, err, stdout)
	}
	if r.M != 3 || r.N != 5 || r.K != 4 || r.In != "float64" || r.Kernel != "portable" || r.File != "c.npy" ||
		r.Verified == nil {
		t.Errorf("JSON report %+v", r)
	}
	if !strings.Contains(stderr, "requested by name") {
		t.Errorf("--verbose does not print why the kernel was chosen: %q", stderr)
	}
}

// TestMulInPlace checks that with --force C can replace C0, the residual or an operand.
func TestMulInPlace(t *testing.T) {
	t.Chdir(folder(t))
	for _, args := range []string{
		"mul a.npy b.npy -o c0.csv --beta 1 --c c0.csv --force",
		"mul a.npy b.npy -o c0.csv --residual c0.csv --force",
		"mul a.npy b.npy -o ./b.npy --force",
	} {
		if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 0 {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
	a, c0, c := element(t, "a.npy"), element(t, "c0.csv"), element(t, "b.npy")
	for i := range 3 {
		for j := range 5 {
			var sum float64
			for k := range 4 {
				sum += a(i, k) * float64((k*5+j)%7-3) // the element of B that folder wrote
			}
			if c(i, j) != sum || c0(i, j) != 2*sum+float64((i*5+j)%7-3) {
				t.Errorf("(%d, %d): %v and %v, want %v, and twice that plus C0", i, j, c(i, j), c0(i, j), sum)
			}
		}
	}
}

// TestEmptyMatrices multiplies and copies a matrix with many rows and no columns, 2⁴¹ if an int has
// 64 bits. Both take no time.
func TestEmptyMatrices(t *testing.T) {
	t.Chdir(t.TempDir())
	const banner = "%%MatrixMarket matrix array real general\n"
	writeText(t, "tall.mtx", fmt.Sprintf("%s%d 0\n", banner, math.MaxInt>>22))
	writeText(t, "none.mtx", banner+"0 0\n")
	writeText(t, "k.ptx", idle)
	for _, args := range []string{
		"mul tall.mtx none.mtx -o c.npy --beta 1 --c tall.mtx --device cpu",
		"emulate k.ptx --arg tall.mtx",
	} {
		if _, stderr, code := run(t.Context(), strings.Fields(args)...); code != 0 {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestFillCEnds checks that a context that has ended stops the copy of C0.
func TestFillCEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := gemm.Dense(dtype.F64, 1, 1)
	p, _, err := gemm.New(1, l, l, 1, l, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	c0 := &input{Layout: l, Data: make([]byte, 8)}
	if err := fillC(ctx, &p, make([]byte, 8), c0, gemm.Area{Rows: 1, Cols: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestMulResultTooLarge(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, l := range map[string]gemm.Layout{"col.npy": gemm.Dense(dtype.F64, 1<<21, 1),
		"row.npy": gemm.Dense(dtype.F64, 1, 1<<21)} {
		if err := matio.Write(t.Context(), name, l, make([]byte, l.Bytes()), true); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"c.mtx": "out of memory: the product with its 2097152×2097152 result takes 32 TiB",
		"c.npy": "c.npy needs 32 TiB, and ", // of the disk
	} {
		_, stderr, code := run(t.Context(), "mul", "col.npy", "row.npy", "-o", file)
		if _, known := host.Available(); known && (code != 2 || !strings.Contains(stderr, want)) {
			t.Errorf("%s: exit code %d, %q, want %q", file, code, stderr, want)
		}
	}
}
