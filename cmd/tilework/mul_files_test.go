package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/matio"
)

// numpyFile writes an array of 64-bit integers, the default integer type of NumPy.
func numpyFile(t *testing.T, name, shape string, elements ...int64) {
	t.Helper()
	header := fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': %s, }", shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	file = append(file, header...)
	for _, e := range elements {
		file = binary.LittleEndian.AppendUint64(file, uint64(e))
	}
	if err := os.WriteFile(name, file, 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeText writes a file of text.
func writeText(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMulReadsVariants reads 64-bit integers, 1-D arrays and text with different delimiters.
func TestMulReadsVariants(t *testing.T) {
	t.Chdir(t.TempDir())
	numpyFile(t, "m.npy", "(2, 3)", 1, -2, 3, 4, 5, 6)
	numpyFile(t, "v2.npy", "(2,)", 7, 8)
	numpyFile(t, "v3.npy", "(3,)", 1, 10, 100)
	writeText(t, "semicolons.csv", "x;y;z\n1;-2;3\n4;5;6\n")
	writeText(t, "two.dat", "of two\nlines\n1 -2 3\n4 5 6\n")
	writeText(t, "missing.csv", "1,NA,\n4,5,6\n")
	writeText(t, "bars.csv", "1|-2|3\n4|5|6\n")
	writeText(t, "blanks.csv", "1 -2  3\n4 5 6\n")
	for args, want := range map[string][][]float64{
		"m.npy v3.npy --dtype float64":                           {{281}, {654}},
		"m.npy v3.npy --dtype int8":                              {{281}, {654}},
		"v2.npy m.npy --dtype float32":                           {{39, 26, 69}},
		"v3.npy v3.npy --dtype float64":                          {{10101}},
		"v3.npy v3.npy --dtype float64 --transpose-b":            nil,
		"v3.npy v2.npy --dtype int8 --transpose-a --transpose-b": {{7, 8}, {70, 80}, {700, 800}},
		"semicolons.csv v3.npy --dtype float64 --csv-header":     {{281}, {654}},
		"two.dat v3.npy --dtype float64 --csv-header=2":          {{281}, {654}},
		"missing.csv v3.npy --dtype float64 --csv-missing":       {{math.NaN()}, {654}},
		"bars.csv v3.npy --dtype float64 --csv-delimiter |":      {{281}, {654}},
		"blanks.csv v3.npy --dtype float64":                      {{281}, {654}},
	} {
		_, stderr, code := run(t.Context(), strings.Fields("mul "+args+" -o c.npy --force")...)
		if (code == 0) != (want != nil) {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
		if code != 0 {
			continue
		}
		got := element(t, "c.npy")
		for i := range want {
			for j := range want[i] {
				if g, w := got(i, j), want[i][j]; g != w && (g == g || w == w) {
					t.Errorf("%s: element (%d, %d) is %v, want %v", args, i, j, g, w)
				}
			}
		}
	}
	numpyFile(t, "cube.npy", "(1, 1, 1)", 1)
	for args, want := range map[string]string{
		"cube.npy v3.npy": "cube.npy: not supported: array has 3 dimensions, shape (1, 1, 1): want 1 or 2",
		"m.npy v3.npy": "m.npy: not supported without a conversion: elements of type int64; --dtype float64 converts A " +
			"and B, as do float32, float16,",
		"m.npy v3.npy --dtype float64 --csv-delimiter ab": "--csv-delimiter ab: want one character",
		"m.npy v3.npy --dtype float64 --csv-delimiter 5":  "--csv-delimiter 5: want one character",
		"m.npy v3.npy --dtype float64 --csv-header=-1":    "--csv-header=-1: want a number of lines",
		"missing.csv v3.npy --dtype float64":              `"NA" is not a number`,
		"semicolons.csv v3.npy --dtype float64":           "--csv-header skips a header line",
	} {
		_, stderr, code := run(t.Context(), strings.Fields("mul "+args+" -o new.npy")...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q; want %q", args, code, stderr, want)
		}
	}
}

// TestMulRefusesOverflow checks that a number too large for the type is an error in every input of
// mul, and with --allow-overflow an infinity and a warning.
func TestMulRefusesOverflow(t *testing.T) {
	t.Chdir(t.TempDir())
	one, large := gemm.Dense(dtype.F64, 1, 1), make([]byte, 8)
	one.Type.Set(large, 0, 1e300)
	if err := matio.Write(t.Context(), "large.npy", one, large, false); err != nil {
		t.Fatal(err)
	}
	writeText(t, "one.csv", "1\n")
	writeText(t, "larger.csv", "1e400\n")
	for _, args := range []string{
		"large.npy one.csv", "one.csv large.npy", "one.csv one.csv --beta 1 --c large.npy",
		"one.csv one.csv --bias large.npy", "one.csv one.csv --row-scale large.npy",
		"one.csv one.csv --col-scale large.npy", "one.csv one.csv --residual large.npy",
		"one.csv one.csv --activation relu --up large.npy", "one.csv larger.csv", "larger.csv larger.csv",
	} {
		const refusal = "is too large for float32: want at most 3.4028234663852886e+38"
		line := strings.Fields("mul " + args + " -o c.npy --dtype float32 --device cpu")
		_, stderr, code := run(t.Context(), line...)
		if code != 2 || !strings.Contains(stderr, ": overflow: row 1, column 1: 1e") ||
			!strings.Contains(stderr, refusal+"; --allow-overflow reads such numbers as infinities") {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
		if _, err := os.Stat("c.npy"); err == nil {
			t.Fatalf("%s wrote c.npy", args)
		}
		_, stderr, code = run(t.Context(), append(line, "--allow-overflow")...)
		if code != 0 || !strings.HasPrefix(stderr, "warning: ") ||
			strings.Count(stderr, refusal+"; read 1 number as infinite\n") != 1 {
			t.Errorf("%s --allow-overflow: exit code %d, %q", args, code, stderr)
		}
		if got := element(t, "c.npy")(0, 0); !math.IsInf(got, 1) {
			t.Errorf("%s --allow-overflow: C is %v", args, got)
		}
		if err := os.Remove("c.npy"); err != nil {
			t.Fatal(err)
		}
	}
	writeText(t, "fraction.csv", "1.5\n")
	if _, stderr, code := run(t.Context(), strings.Fields("mul fraction.csv one.csv -o c.npy --dtype int8 "+
		"--allow-overflow")...); code != 2 ||
		!strings.Contains(stderr, "fraction.csv: out of range: row 1, column 1: 1.5 in line 1 is out of range for int8: "+
			"want an integer from -128 to 127") {
		t.Errorf("fraction read as an integer: exit code %d, %q", code, stderr)
	}
}

// TestMulPipes checks - as standard input and output. With -o - the report goes to standard error.
func TestMulPipes(t *testing.T) {
	t.Chdir(t.TempDir())
	writeText(t, "b.csv", "1,0\n0,1\n")
	pipe := func(input string, args ...string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		c := newCommand()
		c.SetIn(strings.NewReader(input))
		c.SetOut(&out)
		c.SetErr(&errs)
		err := execute(t.Context(), c, args)
		if err != nil {
			errs.WriteString(err.Error())
		}
		return out.String(), errs.String(), exitCode(err)
	}
	for _, args := range []string{"mul - b.csv -o -.csv", "mul b.csv - -o -.csv",
		"mul b.csv b.csv -o -.csv --row-scale - --transpose-a", "mul b.csv - -o -.csv --verify --format json"} {
		input, want := "1,2\n3,4\n", "1,2\n3,4\n"
		if strings.Contains(args, "row-scale") {
			input, want = "5\n6\n", "5,0\n0,6\n"
		}
		stdout, stderr, code := pipe(input, strings.Fields(args)...)
		if code != 0 || stdout != want || !strings.Contains(stderr, "2") {
			t.Errorf("%s: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	// Pipe one command into the next.
	npy, stderr, code := pipe("1,2\n3,4\n", "mul", "-", "b.csv", "-o", "-")
	if code != 0 || !strings.HasPrefix(npy, "\x93NUMPY") || !strings.Contains(stderr, "GFLOP/s") {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	if stdout, stderr, code := pipe(npy, "mul", "-", "b.csv", "-o", "-.csv"); code != 0 || stdout != "1,2\n3,4\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	// Name the format, or an array of standard input.
	for _, args := range []string{"mul -.csv b.csv -o -.csv", "mul b.csv --verify -.csv -o -.csv",
		"mul /dev/stdin b.csv -o -.csv", "mul /dev/stdin.csv b.csv -o=-.csv"} {
		if stdout, stderr, code := pipe("1,2\n3,4\n", strings.Fields(args)...); code != 0 || stdout != "1,2\n3,4\n" {
			t.Errorf("%s: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	archive, stderr, code := pipe("1,2\n3,4\n", "mul", "-", "b.csv", "-o", "-.npz::w")
	if code != 0 {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	for _, args := range []string{"mul -::w b.csv -o -.csv", "mul -.npz::w b.csv -o -.csv",
		"mul b.csv -::w -o -.csv --threads 1"} {
		if stdout, stderr, code := pipe(archive, strings.Fields(args)...); code != 0 || stdout != "1,2\n3,4\n" {
			t.Errorf("%s: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	for args, want := range map[string]string{
		"mul -::w /dev/stdin::v -o c.npy":                    "A and B are standard input (-): want at most one",
		"mul - - -o c.npy":                                   "A and B are standard input (-): want at most one",
		"mul - b.csv --bias - -o c.npy":                      "A and --bias are standard input (-)",
		"mul - b.csv -o c.npy":                               "standard input: malformed: the file is empty",
		"mul b.csv b.csv -o -.py":                            `extension ".py"`,
		"mul b.csv b.csv -o - --dtype bfloat16":              "cannot hold bfloat16",
		"emulate k.ptx --entry k --grid 1 --block 1 --arg -": "no such file",
	} {
		if stdout, stderr, code := pipe("", strings.Fields(args)...); code != 2 || stdout != "" ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, %q; want %q", args, code, stdout, stderr, want)
		}
	}
}

// TestListedNames multiplies every array by the name that files prints for it, from a file and from
// standard input.
func TestListedNames(t *testing.T) {
	t.Chdir(t.TempDir())
	writeText(t, "b.csv", "1\n")
	for _, file := range []string{"a.npz", "a.safetensors", "none"} {
		for _, name := range []string{"w", "a.npy", "x::y.npz::z"} {
			spec := file + "::" + name
			if file == "none" { // without an extension, the content gives the format
				spec = "a.npz::" + name
			}
			if err := matio.Write(t.Context(), spec, gemm.Dense(dtype.F64, 1, 1), make([]byte, 8),
				true); err != nil {
				t.Fatal(err)
			}
			if file == "none" {
				if err := os.Rename("a.npz", file); err != nil {
					t.Fatal(err)
				}
			}
			stdout, stderr, code := run(t.Context(), "files", file)
			_, rows, _ := strings.Cut(stdout, "\n")
			listed, _, _ := strings.Cut(rows, " ")
			if code != 0 || listed != file+"::"+name {
				t.Fatalf("%s: exit code %d, %q, %q", spec, code, stdout, stderr)
			}
			if stdout, stderr, code := run(t.Context(), "mul", listed, "b.csv", "-o", "-.csv"); code != 0 || stdout != "0\n" {
				t.Errorf("%s: exit code %d, %q, %q", listed, code, stdout, stderr)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestShellQuote quotes names for a shell.
func TestShellQuote(t *testing.T) {
	for name, want := range map[string]string{
		"": "''", "w.npz::layers.0/größe_1": "w.npz::layers.0/größe_1", "-::w": "-::w",
		"a b.npz": "'a b.npz'", "it's $x": `'it'\''s $x'`, "a.npz::\x1b[31m'\n\\": `$'a.npz::\033[31m\047\012\134'`,
		"\xff": `$'\377'`, "ä\t": `$'\303\244\011'`,
	} {
		if got := shellQuote(name); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", name, got, want)
		}
	}
}

// TestMulExpansion checks that the error for a matrix that is far larger than its file names the
// flag, and that the flag is accepted.
func TestMulExpansion(t *testing.T) {
	t.Chdir(t.TempDir())
	writeText(t, "sparse.mtx", "%%MatrixMarket matrix coordinate real general\n5793 5793 0\n")
	_, stderr, code := run(t.Context(), "mul", "sparse.mtx", "sparse.mtx", "-o", "c.npy")
	if code != 2 || !strings.HasSuffix(stderr, "; --allow-expansion reads it if it fits into memory") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if strconv.IntSize < 64 {
		return // no matrix that the addresses allow is certain not to fit into memory
	}
	writeText(t, "sparse.mtx", "%%MatrixMarket matrix coordinate real general\n1000000 1000000 0\n")
	_, stderr, code = run(t.Context(), "mul", "sparse.mtx", "sparse.mtx", "-o", "c.npy", "--allow-expansion")
	if code != 2 || !strings.HasPrefix(stderr, "out of memory: the 1000000×1000000 float64 matrix of sparse.mtx takes ") {
		t.Errorf("with the flag: exit code %d, %q", code, stderr)
	}
}

// TestFiles lists the arrays of files.
func TestFiles(t *testing.T) {
	t.Chdir(folder(t))
	if err := matio.Write(t.Context(), "w.npz::w1", gemm.Dense(dtype.F32, 1, 2), make([]byte, 8),
		false); err != nil {
		t.Fatal(err)
	}
	numpyFile(t, "v.npy", "(3,)", 1, 2, 3)
	stdout, stderr, code := run(t.Context(), "files", "w.npz", "v.npy", "c0.csv")
	for _, want := range []string{"w.npz::w1", "<f4", "1×2", "v.npy", "<i8", "3", "c0.csv", "text", "3×5"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q lacks %q, %q", code, stdout, want, stderr)
		}
	}
	var rows []fileRow
	stdout, _, code = run(t.Context(), "files", "w.npz", "--format", "json")
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || code != 0 || len(rows) != 1 || rows[0].Member != "w1" ||
		rows[0].Shape[1] != 2 {
		t.Errorf("exit code %d, %v, %q", code, err, stdout)
	}
	if _, stderr, code := run(t.Context(), "files"); code != 2 || !strings.Contains(stderr, "no file: want one or more") {
		t.Errorf("files: exit code %d, %q", code, stderr)
	}
	rows = nil
	whole, err := os.ReadFile("a.npy")
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, "short.npy", string(whole[:len(whole)-1]))
	stdout, stderr, code = run(t.Context(), "files", "none.npy", "w.npz::w1", "text.npy", "short.npy", "w.npz", "--format",
		"json")
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || code != 2 || len(rows) != 5 ||
		stderr != "4 of 5 arrays cannot be read: see the column ERROR" {
		t.Fatalf("exit code %d, %q, error %v, %d rows", code, stderr, err, len(rows))
	}
	for i, want := range []string{"none.npy: no such file", "cannot list a member", "malformed",
		"needs 96 bytes, the file has 95"} {
		if !strings.Contains(rows[i].Error, want) {
			t.Errorf("%s: error %q, want %q", rows[i].File, rows[i].Error, want)
		}
	}
	if rows[4].Member != "w1" || rows[4].Error != "" {
		t.Errorf("row of a good file after bad ones: %+v", rows[4])
	}
}
