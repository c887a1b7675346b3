package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/matio"
	"tilework/internal/model"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// run runs the command and returns its output and exit code.
func run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var errs bytes.Buffer
	stdout, code = runTo(ctx, &errs, args...)
	return stdout, errs.String(), code
}

// runTo is [run] with a writer for the messages and the error.
func runTo(ctx context.Context, stderr io.Writer, args ...string) (stdout string, code int) {
	var out bytes.Buffer
	c := newCommand()
	c.SetOut(&out)
	c.SetErr(stderr)
	err := execute(ctx, c, args)
	if err != nil {
		_, _ = io.WriteString(stderr, err.Error())
	}
	return out.String(), exitCode(err)
}

// folder returns a temporary folder with matrices of whole numbers. In float64: a is 3×4, b is 4×5,
// c0 is 3×5, col is a vector of 5 elements and row one of 3. a32 is a in float32.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, l := range map[string]gemm.Layout{
		"a.npy": gemm.Dense(dtype.F64, 3, 4), "b.npy": gemm.Dense(dtype.F64, 4, 5),
		"c0.csv": gemm.Dense(dtype.F64, 3, 5), "a32.npy": gemm.Dense(dtype.F32, 3, 4),
		"col.npy": gemm.Dense(dtype.F64, 1, 5), "row.csv": gemm.Dense(dtype.F64, 3, 1),
		"one.csv": gemm.Dense(dtype.F64, 1, 1), "i8.npy": gemm.Dense(dtype.I8, 4, 4), "i32.npy": gemm.Dense(dtype.I32, 4, 4),
		"big.npy": gemm.Dense(dtype.F32, 600, 600),
	} {
		data := make([]byte, l.Bytes())
		for i := range l.Len() {
			l.Type.Set(data, i, float64(i%7-3))
		}
		if err := matio.Write(t.Context(), filepath.Join(dir, name), l, data, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cut.npy"), []byte("\x93NUMPY\x01\x00\x76\x00{'descr'"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text.npy"), []byte("1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// element reads a matrix and returns a function that returns its elements.
func element(t *testing.T, path string) func(i, j int) float64 {
	t.Helper()
	m, err := matio.Read(t.Context(), path, matio.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func(i, j int) float64 { return m.Type.At(m.Data, m.Index(i, j)) }
}

// TestUsageErrors checks that wrong arguments lead to an error of one line, the right exit code and
// no output files.
func TestUsageErrors(t *testing.T) {
	dir := folder(t)
	t.Chdir(dir)
	before, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	const mul = "mul a.npy b.npy -o c.npy "
	for _, test := range []struct {
		args string
		code int
		text string
	}{
		{"mull", 2, `unknown command "mull" (did you mean "mul"?)`},
		{"mull a.npy b.npy -o c.npy", 2, `unknown command "mull" (did you mean "mul"?)`},
		{"mul a.npy b.npy --ouput c.npy", 2, "unknown flag: --ouput (did you mean --out? see tilework mul --help)"},
		{"mul a.npy b.npy -o c.npy --xyz", 2, "unknown flag: --xyz (see tilework mul --help)"},
		{"mul", 2, "two files"},
		{"mul a.npy", 2, "two files"},
		{"mul a.npy b.npy", 2, "no output file: want -o FILE"},
		{"mul a.npy missing.npy -o c.npy", 2, "missing.npy: no such file"},
		{"mul b.npy a.npy -o c.npy", 2, "A is 4×5 and B is 3×4: want a B of 5×4"},
		{"mul a.npy a.npy -o c.npy", 2, "A is 3×4 and B is 3×4: want a B of 4×4 (the shapes match with --transpose-b)"},
		{"mul b.npy col.npy -o c.npy --transpose-b --transpose-a", 2, "(the shapes match without --transpose-a)"},
		{"mul i8.npy i8.npy -o ./i8.npy", 2, "-o: ./i8.npy: file already exists: name another file, or replace it with " +
			"--force"},
		{"mul a.npy b.npy -o col.npy --bias col.npy", 2, "-o: col.npy: file already exists: name another file"},
		{"mul a32.npy b.npy -o c.npy", 2, "a32.npy holds float32 and b.npy holds float64, want the same type; --dtype"},
		{"mul cut.npy b.npy -o c.npy", 2, "cut.npy: malformed"},
		{"mul text.npy b.npy -o c.npy", 2, "text.npy: malformed"},
		{"mul . b.npy -o c.npy", 2, "is a directory: want a file"},
		{"mul i32.npy i32.npy -o c.npy", 2, "i32.npy: not supported without a conversion: elements of type int32; " +
			"--dtype float64 converts A and B, as do float32, "},
		{mul + "--dtype int32", 2, "--dtype: not supported: matrices of int32 cannot be multiplied: want float64, float32, " +
			"float16, bfloat16, float8_e4m3fn, float8_e5m2, int8"},
		{"mul a.npy b.npy -o c.py", 2, `-o: c.py: not supported: extension ".py"`},
		{"mul a.npy b.npy -o no/c.npy", 2, "-o: folder no: no such file"},
		{"mul a.npy b.npy -o c.npy --dtype bfloat16", 2, "cannot hold bfloat16"},
		{mul + "--dtype float33", 2, `--dtype: unknown element type "float33"`},
		{mul + "--out-dtype int8", 2, "float64 matrices as int8 (want float64)"},
		{mul + "--verify-within 0%", 2, "--verify-within 0%: want a percentage above 0, such as 5%"},
		{mul + "--verify-within 1e-20%", 1, "cannot be verified to better than"},
		{mul + "--device tpu", 2, `--device: unknown device "tpu"`},
		{mul + "--device gpu:x", 2, `"x" is not the number of a GPU`},
		{mul + "--device gpu:99", 3, "no such device: "},
		{mul + "--device emu:h300", 3, `no such device: emu:h300: unknown GPU "h300"`},
		{mul + "--device emu --kernel avx2", 2, `--kernel: kernel "avx2" is for device cpu: on emu want one of naive, ` +
			`tiled, blocked, mma, wgmma, skinny`},
		{mul + "--device emu --kernel tiled:33", 2, "size 33×33 with one thread per element: want at most 1024 threads"},
		{mul + "--device emu --kernel tiled:x", 2, `"x" is not a tile of kernel tiled`},
		{mul + "--kernel fast", 2, `--kernel: unknown kernel "fast": want one of loop,`},
		{mul + "--kernel tield:16", 2, `--kernel: unknown kernel "tield" (did you mean "tiled"?)`},
		{mul + "--kernel defaul", 2, `--kernel: unknown kernel "defaul" (did you mean "default"?)`},
		{mul + "--kernel default:16", 2, `--kernel: unknown kernel "default": want one of loop,`},
		{mul + "--device cpu --kernel avx521", 2, `--kernel: unknown kernel "avx521" (did you mean "avx512"?)`},
		{mul + "--bias a.npy", 2, "--bias: a.npy: shapes do not fit: got a 3×4 matrix, want a vector"},
		{"mul a.npy b.npy -o none/c.npy", 2, "-o: folder none: no such file or directory"},
		{mul + "--precision tf32", 2, `precision tf32`},
		{mul + "--activation tanh", 2, `--activation: unknown activation "tanh"`},
		{mul + "--activation gleu", 2, `(did you mean "gelu"?)`},
		{mul + "--up a.npy", 2, "--up a.npy is 3×4, want 4×5"},
		{mul + "--up b.npy --bias col.npy", 2, "a gated product with a bias"},
		{mul + "--up b.npy --beta 1 --c c0.csv", 2, "a gated product"},
		{mul + "--residual a.npy", 2, "--residual a.npy is 3×4, want 3×5"},
		{mul + "--row-scale col.npy", 2, "--row-scale col.npy has 5 elements and C has 3 rows: want one element for each"},
		{mul + "--col-scale no.npy", 2, "no.npy: no such file"},
		{mul + "--output-scale half", 2, "half: want a number"},
		{"mul i8.npy i8.npy -o c.npy --saturate", 2, "saturation on a result of int32: want zero points, bias, relu and " +
			"residual alone, or a result of float32"},
		{"mul i8.npy i8.npy -o c.npy --output-scale 0.5", 2, "scales on a result of int32: want zero points, bias, relu " +
			"and residual alone, or a result of float32"},
		{"mul i8.npy i8.npy -o c.npy --alpha 2.0000000000000000000001", 2, "want a whole number"},
		{"mul i8.npy i8.npy -o c.npy --alpha 0.5", 2, "alpha = 0.5 for a result of int32: want a whole number up to " +
			"±2147483647, or a result of float32"},
		{mul + "--threads -1", 2, "--threads: not supported: -1 threads"},
		{mul + "--threads many", 2, "--threads many: want a whole number"},
		{mul + "--beta 1", 2, "--beta 1 without --c"},
		{mul + "--c c0.csv", 2, "--c c0.csv without --beta"},
		{mul + "--device cpu --gpu-memory 1GiB", 2, "--gpu-memory 1GiB with --device cpu: want a GPU or emu"},
		{mul + "--rank-timeout 0s", 2, "--rank-timeout 0s: want more than 0"},
		{mul + "--beta 1 --c a.npy", 2, "--c a.npy is 3×4 and the product is 3×5: want the same shape"},
		{"mul i8.npy i8.npy -o c.npy --bias one.csv", 2, "--bias one.csv has 1 element and C has 4 columns: want"},
		{mul + "--bias row.csv", 2, "--bias row.csv has 3 elements and C has 5 columns: want one element for each"},
		{mul + "--bias a.npy", 2, "a.npy"},
		{mul + "--bias-along rows", 2, "--bias-along rows without --bias"},
		{mul + "--bias col.npy --bias-along k", 2, "--bias-along k"},
		{mul + "--format yaml", 2, "--format: unknown format \"yaml\": want one of table, json"},
		{mul + "--fast", 2, "unknown flag: --fast (see tilework mul --help)"},
		{"gpus --help", 2, `unknown command "gpus"`},
		{"help mull", 2, `unknown command "mull" (did you mean "mul"?)`},
		{"kernels extra", 2, `unexpected argument "extra"`},
		{"bench --sizes 0", 2, "--sizes"},
		{"bench --epilogue bias-cl", 2, `(did you mean "bias-col"?)`},
		{"bench --epilogue residual+swigul", 2, `(did you mean "swiglu"?)`},
		{"bench --sizes 10:5", 2, "--sizes"},
		{"bench --shape 3x4", 2, "--shape"},
		{"bench --dtypes float33", 2, "--dtypes"},
		{"bench --dtypes int32", 2, "int32 cannot be multiplied"},
		{"bench --kernels warp", 2, `unknown kernel "warp"`},
		{"bench --kernels tiled", 2, `kernel "tiled" is for device gpu or emu: on cpu want one of loop,`},
		{"bench --device gpu:99", 3, "no such device"},
		{"bench --peers numpy", 2, "numpy"},
		{"bench --peer-path numpy=x", 2, "--peer-path numpy=x: want NAME=FILE"},
		{"bench --threads -2", 2, "--threads: not supported: -2 threads"},
		{"bench --sizes 8 --min-time -1s", 2, "--min-time -1s: want more than 0"},
		{"bench --sizes 8 --min-time 0s", 2, "--min-time 0s: want more than 0"},
		{"bench --sizes 8 --max-time 0s", 2, "--max-time 0s: want more than 0"},
		{"bench --sizes 8 --min-time 2s --max-time 1s", 2, "--max-time 1s: want --min-time, which is 2s, or more"},
		{"bench --preset quick --max-time 1ms", 2, "--max-time 1ms: want --min-time, which is 50ms, or more"},
		{"bench --sizes 8 --warmup -1s", 2, "--warmup -1s: want 0 or more"},
		{"bench --format xml", 2, `--format: unknown format "xml"`},
		{"bench --suite fp33", 2, "--suite: unknown suite \"fp33\""},
		{"bench --cold=maybe", 2, "--cold"},
		{"bench --transfers", 2, "--transfers: cpu has no copies to time"},
		{"bench --kernels none", 2, "nothing to measure"},
		{"bench --device emu --kernels warp", 2, `unknown kernel "warp"`},
		{"bench --device emu --kernels tiled:33", 2, "at most 1024 threads"},
		{"bench --device emu --peers openblas", 2, `openblas is a peer on the CPU: on a GPU want one of cublaslt`},
		{"bench --device emu --peers cublaslt", 2,
			"cublaslt: not supported: the library contains machine code, which h200 does not run"},
		{"bench --device emu --peers cuda:k:1x1/1x1", 2, "no file for the kernel, want --peer-path cuda=FILE.ptx"},
		{"bench --device emu --peers cuda:k --peer-path cuda=x.ptx", 2, `kernel "k": want ENTRY:ROWSxCOLS/XxY`},
		{"bench --device emu --peers cuda:k:1x1/1x1 --peer-path cuda=x.ptx", 2, "cuda: x.ptx: no such file"},
		{"bench --device emu --transfers", 2, "--transfers: emu has no copies to time"},
		{"occupancy", 2, "--threads 256"},
		{"occupancy --threads 256", 2, "no GPU: want --gpu"},
		{"occupancy --threads 0 --gpu h200", 2, "--threads 0"},
		{"occupancy --threads 16xx --gpu h200", 2, "--threads 16xx"},
		{"occupancy --threads 33x33 --gpu h200", 2, "a block with 1,089 (33×33) threads: want at most 1,024"},
		{"occupancy --threads 256 --gpu h300", 2, `unknown GPU "h300"`},
		{"occupancy --threads 256 --gpu h200 --sm-blocks 3", 2, "exclude each other"},
		{"occupancy --threads 256 --smem 2GB --gpu h200", 2, "2,147,483,648 bytes of shared memory: want at most"},
		{"occupancy --threads 256 --smem 2QB --gpu h200", 2, "--smem 2QB: want bytes"},
		{"scaling --gpu sm_90", 2, `--gpu: unknown GPU "sm_90": want one of t4`},
		{"scaling --hosts 2 --network 1e300", 2, "--network 1e+300: want 0.001 to 1000000 GB/s"},
		{"scaling --network inf", 2, "--network +Inf: want 0.001 to 1000000 GB/s"},
		{"scaling --peer nan", 2, "--peer NaN: want 0.001 to 1000000 GB/s"},
		{"study --addr here", 2, "--addr here: want a host and a port, such as localhost:8080"},
		{"mul a.npy b.npy -o", 2, "--out without a value: want --out FILE (see tilework mul --help)"},
		{"mul a.npy b.npy -o c.npy --bias", 2, "--bias without a value: want --bias FILE"},
		{"scaling --gpu h300", 2, `unknown GPU "h300"`},
		{"scaling --hosts 0", 2, "--hosts: size 0: want at least 1"},
		{"scaling --gpus 1,x", 2, "--gpus: "},
		{"scaling --shape 2x3x4", 2, "2×3 elements of C on 8 GPUs: want a part for each"},
		{"scaling --efficiency 85 --sizes 8", 2, "--efficiency finds the size: want no --sizes"},
		{"scaling --efficiency 101", 2, "--efficiency 101: want more than 0% and at most 100%, such as 85%"},
		{"scaling --efficiency 0%", 2, "--efficiency 0%: want more than 0%"},
		{"scaling --efficiency most", 2, "--efficiency most: want more than 0%"},
		{"scaling --efficiency 100 --hosts 128", 2, "an efficiency of 100 % on 1024 GPUs with up to 1048576 rows"},
		{"scaling --hosts 99999 --gpus 99999", 2, "99999 hosts of 99999 GPUs: want at most 65536 GPUs"},
		{"scaling --gpus 131072", 2, "1 host of 131072 GPUs: want at most 65536 GPUs"},
		{"scaling --peer 0", 2, "--peer 0: want 0.001 to 1000000 GB/s"},
		{"scaling --gpu t4", 2, "--gpu t4: no known rate of copies between these GPUs, want --peer, such as --peer 20"},
		{"scaling --network NaN", 2, "--network NaN: want 0.001 to 1000000 GB/s"},
		{"scaling --dtypes int32", 2, "matrices of int32 cannot be multiplied"},
		{"scaling --dtypes int4", 2, `--dtypes: unknown element type "int4"`},
		{"mul a.npy b.npy -o c.npy --gpu-memory 16GG", 2, "--gpu-memory 16GG: want bytes, such as 2048, 2KB or 16GiB"},
		{"mul a.npy b.npy -o c.npy --gpu-memory 9999999999G", 2, "--gpu-memory 9999999999G: want fewer than 2^63 bytes"},
		{"mul a.npy b.npy -o c.npy --gpu-memory -1", 2, "--gpu-memory -1: want bytes"},
		{"mul a.npy b.npy -o c.npy --gpu-memory 0", 2, "--gpu-memory 0: want 1 byte or more"},
		{"bench --device emu --gpu-memory 1GiB", 2, "--gpu-memory 1GiB: want --transfers"},
		{"occupancy --threads 256 --smem 400KB --gpu h200", 2, "shared memory"},
		{"occupancy --threads 256 --regs 300 --gpu h200", 2, "registers"},
		{"selftest --kernels warp", 2, `unknown kernel "warp"`},
		{"selftest --device auto", 2, "--device auto: want a certain device (cpu, gpu, gpu:N, emu)"},
		{"selftest --device emu --kernels avx2", 2, `kernel "avx2" is for device cpu: on emu`},
		{"selftest --device emu --kernels tiled-tf32", 2, `unknown kernel "tiled-tf32"`},
		{"selftest --device emu --kernels tiled:7x7", 2, `not a tile of kernel tiled`},
		{"selftest --kernels portable:8", 2, `unknown kernel "portable:8"`},
		{"selftest --device emu:a100-sxm-40gb --kernels wgmma", 2, "kernel wgmma needs"},
		{"selftest --cases 0", 2, "--cases 0: want 1 or more"},
		{"selftest --full --cases 0", 2, "--cases 0: want 1 or more"},
		{"selftest --part 2/1 --seed 1", 2, "--part 2/1: want i/n"},
		{"selftest --part 1/2", 2, "--part 1/2 without --seed"},
		{"selftest --processes 0", 2, "--processes 0: want 1 to"},
		{"selftest --device gpu:99", 3, "no such device"},
	} {
		_, stderr, code := run(t.Context(), strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stderr, test.text) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", test.args, code, stderr, test.code, test.text)
		}
		if strings.Contains(strings.TrimSpace(stderr), "\n") {
			t.Errorf("%s: error of more than one line: %q", test.args, stderr)
		}
	}
	after, err := os.ReadDir(".")
	if err != nil || len(after) != len(before) {
		t.Errorf("wrong commands wrote files: %v, error %v", after, err)
	}
}

// TestMissingFiles checks that all commands have the same error for a missing file.
func TestMissingFiles(t *testing.T) {
	t.Chdir(folder(t))
	writeText(t, "k.ptx", idle)
	for _, args := range []string{
		"mul none.npy a.npy -o c.npy", "report none.npy -o r.html", "emulate none.npy", "emulate k.ptx --script none.npy",
	} {
		_, stderr, code := run(t.Context(), strings.Fields(args)...)
		if code != 2 || stderr != "none.npy: no such file or directory" {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
}

// TestHelp checks that help texts fit a terminal of 80 columns, and that each flag names the value
// that it takes, such as FILE, instead of a type of Go.
func TestHelp(t *testing.T) {
	root := newCommand()
	for _, c := range append(root.Commands(), root) {
		var help bytes.Buffer
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(help.String()) {
			if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > 80 {
				t.Errorf("%s --help: %d columns: %s", c.Name(), utf8.RuneCountInString(line), line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); value != strings.ToUpper(value) && value != "MxNxK" {
				t.Errorf("%s --%s %s: want a name in capitals, in back quotes in the usage", c.Name(), f.Name, value)
			}
		})
	}
}

// TestOutputsAreKept checks that every command that writes files replaces an existing file only
// with --force, and documents that.
func TestOutputsAreKept(t *testing.T) {
	t.Chdir(folder(t))
	if err := os.WriteFile("k.ptx", []byte(idle), 0o644); err != nil {
		t.Fatal(err)
	}
	const measure = "bench --sizes 8 --kernels loop --min-time 1ms --warmup 1ms -o "
	if _, stderr, code := run(t.Context(), strings.Fields(measure+"r.jsonl")...); code != 0 {
		t.Fatal(stderr)
	}
	for _, c := range []struct{ args, out string }{
		{"mul a.npy b.npy -o out.npy", "out.npy"},
		{"mul a.npy b.npy -o out.npz::x", "out.npz"},
		{"mul a.npy b.npy -o out.safetensors", "out.safetensors"},
		{"mul a.npy b.npy -o out.csv --device emu", "out.csv"},
		{measure + "out.jsonl", "out.jsonl"},
		{"report r.jsonl -o out.html", "out.html"},
		{"emulate k.ptx --arg out:i32:1x32:out.mtx", "out.mtx"},
	} {
		for _, old := range []string{"old", ""} {
			if err := os.WriteFile(c.out, []byte(old), 0o644); err != nil {
				t.Fatal(err)
			}
			_, stderr, code := run(t.Context(), strings.Fields(c.args)...)
			if code != 2 || !strings.Contains(stderr, c.out+": file already exists: name another file, or replace it with "+
				"--force") || strings.Contains(strings.TrimSpace(stderr), "\n") {
				t.Errorf("%s: exit code %d, %q", c.args, code, stderr)
			}
			if now, err := os.ReadFile(c.out); err != nil || string(now) != old {
				t.Errorf("%s: %s has %d bytes, %v", c.args, c.out, len(now), err)
			}
		}
		if _, stderr, code := run(t.Context(), strings.Fields(c.args+" --force")...); code != 0 {
			t.Errorf("%s --force: exit code %d, %q", c.args, code, stderr)
		}
		if now, err := os.ReadFile(c.out); err != nil || len(now) == 0 {
			t.Errorf("%s --force: %s has %d bytes, %v", c.args, c.out, len(now), err)
		}
		help, _, _ := run(t.Context(), strings.Fields(c.args)[0], "--help")
		if !strings.Contains(strings.Join(strings.Fields(help), " "), forceUsage) {
			t.Errorf("%s --help does not describe --force", strings.Fields(c.args)[0])
		}
	}
}

// idle is a kernel that takes a pointer and does nothing.
const idle = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry idle(.param .u64 p)\n{\n\tret;\n}\n"

func TestInterruption(t *testing.T) {
	t.Chdir(folder(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	interrupted, stop := context.WithCancel(t.Context())
	context.AfterFunc(ctx, stop)
	_, stderr, code := run(interrupted, "mul", "big.npy", "big.npy", "-o", "c.npy", "--kernel", "loop")
	if code != 130 {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if _, err := os.Stat("c.npy"); err == nil {
		t.Error("an interrupted mul wrote its output")
	}
}

// TestOccupancyOfTextbook computes a textbook exercise: blocks of 16×16 threads with 2 KB of shared
// memory, on an SM with 48 KB, 2,048 threads and 16 blocks.
func TestOccupancyOfTextbook(t *testing.T) {
	stdout, stderr, code := run(t.Context(), strings.Fields("occupancy --threads 16x16 --smem 2KB --sm-threads 2048 "+
		"--sm-smem 48KB --sm-blocks 16")...)
	if code != 0 || !strings.Contains(stdout, "8 blocks per SM, bound by threads") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	stdout, _, code = run(t.Context(), strings.Fields("occupancy --threads 256 --regs 40 --gpu h200 --format json")...)
	var o model.Occupancy
	if err := json.Unmarshal([]byte(stdout), &o); err != nil || code != 0 || o.Blocks != 6 {
		t.Errorf("exit code %d, %v, %q", code, err, stdout)
	}
}
