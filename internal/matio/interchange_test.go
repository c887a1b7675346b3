package matio

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// rule returns element (i, j) of the matrices that testdata/make.py writes.
func rule(t dtype.Type, i, j int) float64 {
	v := float64((7*i+3*j)%23 - 11)
	switch {
	case t == dtype.U8:
		return v + 11
	case t.Info().Integer:
		return v
	}
	return v / 4
}

func integerRule(i, j int) float64 { return rule(dtype.I32, i, j) }
func floatRule(i, j int) float64   { return rule(dtype.F64, i, j) }

// at returns element (i, j) of op(m).
func at(m *Matrix, i, j int) float64 { return m.Type.At(m.Data, m.Index(i, j)) }

// checkMatrix compares every element of op(m), including the signs of zeros.
func checkMatrix(t *testing.T, m *Matrix, typ dtype.Type, rows, cols int, want func(i, j int) float64) {
	t.Helper()
	if m.Type != typ || m.OpRows() != rows || m.OpCols() != cols {
		t.Fatalf("got %v, want %d×%d %v", m.Layout, rows, cols, typ)
	}
	if err := m.Check("m"); err != nil || len(m.Data) != m.Bytes() {
		t.Fatalf("layout %+v with %d bytes: %v", m.Layout, len(m.Data), err)
	}
	for i := range rows {
		for j := range cols {
			if got, want := at(m, i, j), want(i, j); !same(got, want) {
				t.Fatalf("element (%d, %d) is %v, want %v", i, j, got, want)
			}
		}
	}
}

// same reports whether values are equal. All NaNs are equal, and zeros of different sign differ.
func same(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b
}

func mustRead(t *testing.T, spec string, o ReadOptions) *Matrix {
	t.Helper()
	m, err := Read(t.Context(), spec, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReadFilesOfOtherPrograms(t *testing.T) {
	type row struct {
		spec       string
		typ        dtype.Type
		rows, cols int
		want       func(i, j int) float64
	}
	special := func(_, j int) float64 {
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 5e-324, math.MaxFloat64, 0.1,
			-1. / 3}[j]
	}
	symmetric := func(i, j int) float64 { return floatRule(max(i, j), min(i, j)) }
	skew := func(i, j int) float64 { return float64((i - j) * (i + j + 1)) }
	rows := []row{
		{"version1.npy", dtype.F32, 3, 5, floatRule},
		{"version2.npy", dtype.F32, 3, 5, floatRule},
		{"version3.npy", dtype.F32, 3, 5, floatRule},
		{"empty.npy", dtype.F32, 0, 3, nil},
		{"column.npy", dtype.F32, 5, 1, floatRule},
		{"special.npy", dtype.F64, 1, 8, special},

		{"stored.npz", dtype.F32, 3, 5, floatRule},
		{"stored.npz::a", dtype.F32, 3, 5, floatRule},
		{"stored.npz::a.npy", dtype.F32, 3, 5, floatRule},
		{"deflated.npz", dtype.F64, 3, 5, floatRule},
		{"bias.npz", dtype.F32, 3, 5, floatRule},
		{"several.npz::a", dtype.F32, 3, 5, floatRule},
		{"several.npz::b", dtype.F64, 3, 5, floatRule},
		{"several.npz::i", dtype.I8, 3, 5, integerRule},

		{"one.safetensors", dtype.F32, 3, 5, floatRule},
		{"bias.safetensors", dtype.BF16, 3, 5, floatRule},
		{"all.safetensors::layer.0.f64", dtype.F64, 3, 5, floatRule},
		{"all.safetensors::layer.0.f32", dtype.F32, 3, 5, floatRule},
		{"all.safetensors::layer.0.f16", dtype.F16, 3, 5, floatRule},
		{"all.safetensors::layer.0.bf16", dtype.BF16, 3, 5, floatRule},
		{"all.safetensors::layer.0.i8", dtype.I8, 3, 5, integerRule},
		{"all.safetensors::layer.0.i32", dtype.I32, 3, 5, integerRule},
		{"all.safetensors::layer.0.u8", dtype.U8, 3, 5, func(i, j int) float64 { return 0 }},
		{"all.safetensors::layer.0.none", dtype.F32, 0, 4, nil},

		{"array-real.mtx", dtype.F64, 3, 5, floatRule},
		{"array-integer.mtx", dtype.F64, 3, 5, integerRule},
		{"array-symmetric.mtx", dtype.F64, 4, 4, symmetric},
		{"array-skew.mtx", dtype.F64, 4, 4, skew},
		{"coordinate-real.mtx", dtype.F64, 3, 5, floatRule},
		{"coordinate-integer.mtx", dtype.F64, 3, 5, integerRule},
		{"coordinate-symmetric.mtx", dtype.F64, 4, 4, symmetric},
		{"coordinate-skew.mtx", dtype.F64, 4, 4, skew},
		{"coordinate-twice.mtx", dtype.F64, 3, 5, floatRule},
		{"coordinate-pattern.mtx", dtype.F64, 4, 4, func(i, j int) float64 { return float64((i + j + 1) % 2) }},
		{"special.mtx", dtype.F64, 1, 8, special},

		{"comma.csv", dtype.F64, 3, 5, floatRule},
		{"full.csv", dtype.F64, 3, 5, floatRule},
		{"tab.csv", dtype.F64, 3, 5, floatRule},
		{"windows.csv", dtype.F64, 3, 5, floatRule},
		{"integer.csv", dtype.F64, 3, 5, integerRule},
	}
	for _, typ := range formatOf(".npy").Types() {
		for _, order := range []string{"le", "be"} {
			for _, memory := range []string{"c", "fortran"} {
				rows = append(rows, row{
					fmt.Sprintf("%s-%s-%s.npy", typ.Info().Short, order, memory), typ, 3, 5,
					func(i, j int) float64 { return rule(typ, i, j) },
				})
			}
		}
	}
	for _, r := range rows {
		t.Run(r.spec, func(t *testing.T) {
			m := mustRead(t, "testdata/"+r.spec, ReadOptions{})
			checkMatrix(t, m, r.typ, r.rows, r.cols, r.want)
			if m.Trans != (strings.Contains(r.spec, "fortran") || strings.HasSuffix(r.spec, "::b") ||
				strings.Contains(r.spec, "array-") || r.spec == "special.mtx") {
				t.Errorf("Trans is %v, want the opposite", m.Trans)
			}
		})
	}
}

func TestReadVector(t *testing.T) {
	for _, spec := range []string{
		"vector.npy", "column.npy", "bias.npz", "bias.npz::bias",
		"bias.safetensors", "all.safetensors::layer.0.bias", "bias.safetensors::bias",
	} {
		m := mustRead(t, "testdata/"+spec, ReadOptions{OneD: Vector, Type: dtype.F32})
		want := floatRule
		if spec == "column.npy" {
			want = func(_, j int) float64 { return floatRule(j, 0) }
		}
		checkMatrix(t, m, dtype.F32, 1, 5, want)
	}
}

func TestConvert(t *testing.T) {
	for _, from := range []string{"f64-be-fortran.npy", "several.npz::a", "comma.csv", "coordinate-real.mtx",
		"array-real.mtx", "bias.safetensors::w"} {
		for _, to := range []dtype.Type{dtype.F64, dtype.F32, dtype.F16, dtype.BF16} {
			m := mustRead(t, "testdata/"+from, ReadOptions{Type: to})
			checkMatrix(t, m, to, 3, 5, floatRule)
		}
	}
	for _, from := range []string{"i32-be-fortran.npy", "integer.csv", "coordinate-integer.mtx", "array-integer.mtx"} {
		for _, to := range dtype.All() {
			if to.Info().Exact < 16 {
				continue // the type cannot represent 11
			}
			if to == dtype.U8 {
				_, err := Read(t.Context(), "testdata/"+from, ReadOptions{Type: to})
				checkError(t, err, ErrRange, from, "out of range for uint8: want an integer from 0 to 255")
				continue
			}
			m := mustRead(t, "testdata/"+from, ReadOptions{Type: to})
			checkMatrix(t, m, to, 3, 5, integerRule)
		}
	}
}

// TestPythonReadsOutput reads written files with Python. It uses the interpreter in
// TILEWORK_PYTHON, or python3, which needs the packages of testdata/make.py.
func TestPythonReadsOutput(t *testing.T) {
	python := os.Getenv("TILEWORK_PYTHON")
	if python == "" {
		python = "python3"
		if out, err := exec.Command(python, "-c",
			"import numpy, scipy, safetensors, ml_dtypes").CombinedOutput(); err != nil {
			t.Skipf("TILEWORK_PYTHON is not set, and python3 does not have numpy, scipy, safetensors and ml_dtypes: "+
				"%v %s", err, lastLine(out))
		}
	}
	folder := t.TempDir()
	files := 0
	for _, f := range Formats() {
		for _, typ := range f.Types() {
			for _, size := range [][2]int{{1, 1}, {3, 5}, {130, 70}} {
				for name, l := range layouts(typ, size[0], size[1]) {
					path := filepath.Join(folder,
						fmt.Sprintf("%s-%dx%d-%s%s", typ.Info().Short, size[0], size[1], name, f.Ext))
					if err := Write(t.Context(), path, l, fill(l), replace); err != nil {
						t.Fatal(err)
					}
					files++
				}
			}
		}
	}
	out, err := exec.Command(python, "testdata/readback.py", folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := fmt.Sprintf("%d files", files); lastLine(out) != want {
		t.Errorf("Python printed %q, want %q", lastLine(out), want)
	}
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// layouts returns all kinds of layouts of a rows×cols matrix.
func layouts(t dtype.Type, rows, cols int) map[string]gemm.Layout {
	padded, transposed := gemm.Dense(t, rows, cols), gemm.Dense(t, cols, rows).T()
	padded.LD += 3
	both := transposed
	both.LD += 5
	return map[string]gemm.Layout{"dense": gemm.Dense(t, rows, cols), "padded": padded, "transposed": transposed,
		"both": both}
}

// fill returns memory for l with the values of rule and other values in the padding.
func fill(l gemm.Layout) []byte {
	data := alloc(l.Bytes())
	for n := range l.Len() {
		l.Type.Set(data, n, 99)
	}
	for i := range l.OpRows() {
		for j := range l.OpCols() {
			l.Type.Set(data, l.Index(i, j), rule(l.Type, i, j))
		}
	}
	return data
}
