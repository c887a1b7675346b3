package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	emulator "tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/matio"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// tiledEntry is the name of the textbook kernel with tiles of 16 in matmul.ptx.
const tiledEntry = "_Z5tiledIfLi16EEvPKT_S2_PS0_iii"

// nvccFolder changes to a temporary folder with the float32 matrices a.npy and b.npy, both 48×48,
// and matmul.ptx, the textbook kernels compiled by nvcc. It returns the text of matmul.ptx.
func nvccFolder(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "ptx", "testdata", "nvcc", "matmul.sm_80.O3.ptx"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("matmul.ptx", text, 0o644); err != nil {
		t.Fatal(err)
	}
	for k, name := range []string{"a.npy", "b.npy"} {
		l := gemm.Dense(dtype.F32, 48, 48)
		data := make([]byte, l.Bytes())
		for i := range l.Len() {
			l.Type.Set(data, i, float64(i*(k+3)%7-3))
		}
		if err := matio.Write(t.Context(), name, l, data, true); err != nil {
			t.Fatal(err)
		}
	}
	return string(text)
}

// emulateTiled runs the tiled kernel of a PTX file on a.npy and b.npy.
func emulateTiled(t *testing.T, file string, more ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(t.Context(), append([]string{
		"emulate", file, "--force", "--entry", tiledEntry, "--grid", "3,3", "--block", "16,16", "--arg", "a.npy", "--arg",
		"b.npy",
		"--arg", "out:f32:48x48:c.npy", "--arg", "s32:48", "--arg", "s32:48", "--arg", "s32:48",
	}, more...)...)
}

func TestEmulateRunsNvccOutput(t *testing.T) {
	nvccFolder(t)
	stdout, stderr, code := emulateTiled(t, "matmul.ptx")
	if code != 0 || !strings.Contains(stdout, "0 errors, 0 advisory findings") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if _, _, code := run(t.Context(), "mul", "a.npy", "b.npy", "-o", "want.npy"); code != 0 {
		t.Fatal("mul failed")
	}
	got, want := element(t, "c.npy"), element(t, "want.npy")
	for i := range 48 {
		for j := range 48 {
			if got(i, j) != want(i, j) {
				t.Fatalf("element (%d, %d) is %v, want %v", i, j, got(i, j), want(i, j))
			}
		}
	}
}

// TestEmulateFindsInjectedFaults runs kernels with typical mistakes of students. The findings must
// name the mistakes.
func TestEmulateFindsInjectedFaults(t *testing.T) {
	text := nvccFolder(t)
	start := strings.Index(text, ".entry "+tiledEntry)
	end := start + strings.Index(text[start:], "\n}")
	kernel := text[start:end]
	barriers := strings.Split(kernel, "bar.sync \t0;")
	if len(barriers) != 3 {
		t.Fatalf("the kernel has %d barriers, want 2", len(barriers)-1)
	}
	// The last branch is the bound check of the store of C.
	last := strings.LastIndex(kernel, "@%p")
	bound := kernel[:last] + kernel[last+len("@%p11 bra \t$L__BB1_9;"):]
	swapped := strings.NewReplacer("%tid.x", "%tid.y", "%tid.y", "%tid.x").Replace(kernel)
	for _, test := range []struct {
		name, kernel string
		code         int
		text         string
		more         []string
	}{
		{"no first barrier", barriers[0] + barriers[1] + "bar.sync 0;" + barriers[2], 1, "want a __syncthreads() between",
			nil},
		{"no second barrier", barriers[0] + "bar.sync 0;" + barriers[1] + barriers[2], 1, "want a __syncthreads() after",
			nil},
		{"no bound", bound, 1, "want a bounds check", []string{"--grid", "4,3", "--workers", "1"}},
		{"swapped indexes", swapped, 0, "check whether threadIdx.x and threadIdx.y are swapped", nil},
		{"a conflicting layout", swapped, 0, "pad each row by one element", nil},
	} {
		if err := os.WriteFile("fault.ptx", []byte(text[:start]+test.kernel+text[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := emulateTiled(t, "fault.ptx", test.more...)
		if code != test.code || !strings.Contains(stdout, test.text) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s%s", test.name, code, test.code, test.text, stdout, stderr)
		}
		if !strings.Contains(stdout, "fault.ptx:") {
			t.Errorf("%s: no position in the file in\n%s", test.name, stdout)
		}
	}
}

func TestEmulateErrors(t *testing.T) {
	nvccFolder(t)
	if err := os.WriteFile("empty.ptx", []byte(".version 8.0\n.target sm_80\n.address_size 64\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const endless = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry loop()\n{\nagain:\n\tbra again;\n}\n"
	if err := os.WriteFile("loop.ptx", []byte(endless), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kernel.cu": "#include <cuda.h>", "kernel.cubin": "\x7fELF\x02"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := matio.Write(t.Context(), "w.npz::w", gemm.Dense(dtype.F32, 1, 1), make([]byte, 4),
		true); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("a.npy")
	if err != nil {
		t.Fatal(err)
	}
	tiled := "emulate matmul.ptx --entry " + tiledEntry + " "
	const exampleOfTiled = "--arg a.npy --arg b.npy --arg out:f32:64x64:out.npy --arg u32:64 --arg u32:64 --arg u32:64"
	for _, test := range []struct {
		args string
		text string
	}{
		{"emulate", "takes one PTX file, found 0: want"},
		{"emulate matmul.ptx a.npy",
			"found 2 (matmul.ptx, a.npy): want the kernel's arguments as --arg, such as tilework emulate"},
		{"emulate missing.ptx", "missing.ptx: no such file"},
		{"emulate a.npy", "a.npy:1:1"},
		{"emulate kernel.cu", "kernel.cu:1:1: this is CUDA C: want PTX, such as that of nvcc -ptx"},
		{"emulate kernel.cubin", "kernel.cubin:1:1: this is machine code: want PTX"},
		{"emulate empty.ptx", "no kernel"},
		{"emulate matmul.ptx", "has 5 kernels: want --entry with one of"},
		{"emulate empty.ptx --entry foo", "no kernel"},
		{"emulate matmul.ptx --entry foo", `--entry of matmul.ptx: unknown kernel "foo": want one of _Z5naive`},
		{"emulate matmul.ptx --entry _Z5naivePKfS0_Pfii", `(did you mean "_Z5naivePKfS0_Pfiii"?)`},
		{"emulate matmul.ptx --entry naive", "kernel _Z5naivePKfS0_Pfiii has 6 parameters, found 0"},
		{"emulate matmul.ptx --entry tiled",
			"--entry tiled: matmul.ptx has several kernels of this name, want one of _Z5tiled"},
		{tiled, "has 6 parameters, found 0 --arg: want one for each, such as " + exampleOfTiled},
		{tiled + "--arg a.npy --arg b.npy", "has 6 parameters, found 2 --arg: want one for each, such as " + exampleOfTiled},
		{tiled + "--arg a.npy --arg b.npy --arg a.npy --arg u64:48 --arg s32:48 --arg s32:48",
			"--arg u64:48 (argument 4): parameter " + tiledEntry +
				"_param_3 is a .u32: want u32:NUMBER or s32:NUMBER, such as --arg u32:64"},
		{tiled + "--arg a.npy --arg b.npy --arg s32:1 --arg u64:48 --arg s32:48 --arg s32:48",
			"--arg s32:1 (argument 3): parameter " + tiledEntry +
				"_param_2 is a .u64: want a file, out:TYPE:MxN:FILE or u64:NUMBER, such as --arg a.npy"},
		{tiled + "--arg 48", "--arg 48 (argument 1): neither a file nor a number with a type: want A.npy"},
		{tiled + "--arg s32:x", `"x" is not a number of type s32: want an integer from -2147483648 to 2147483647`},
		{tiled + "--arg u8:256", `"256" is not a number of type u8: want an integer from 0 to 255, such as u8:64`},
		{tiled + "--arg out:f32:4:c.csv", "4: 1 dimension, want 64x32"},
		{tiled + "--arg out:u16:4x4x4x4x4x4:c.npy", "6 dimensions, want 1000, 64x32 or 4x64x32"},
		{tiled + "--arg out:u16:4:c.csv", `unknown element type "u16"`},
		{tiled + "--arg inout:a.npy", "want inout:FILE:FILE"},
		{tiled + "--arg inout:a.npy:b.npy --arg b.npy --force", "(argument 2): argument 1 has the same file"},
		{tiled + "--arg struct:u32:1,x", "field x: neither a file nor a number"},
		{tiled + "--arg struct:out:f32:4x4:c.npy,out:f32:4x4:c.npy", "another field has the same file"},
		{tiled + "--arg struct:" + strings.Repeat("u8:1,", 33000) + "u8:1", "more than 32764 bytes"},
		{tiled + "--arg struct:u32:1,tensor:8x8:0:a.npy", "field tensor:8x8:0:a.npy: want a number"},
		{tiled + "--arg out:f32:4x4", "want out:TYPE:MxN:FILE"},
		{tiled + "--arg out:f33:4x4:c.npy", `unknown element type "f33"`},
		{tiled + "--arg out:f32:4x4:c.py", `extension ".py"`},
		{tiled + "--arg none.npy", "none.npy: no such file"},
		{tiled + "--arg a.npy --arg b.npy --arg out:f32:48x48:./a.npy --force",
			"--arg out:f32:48x48:./a.npy (argument 3): argument 1 has the same file, want another"},
		{tiled + "--arg out:f32:48x48:b.npy --arg tensor:8x8:0:b.npy --force", "(argument 2): argument 1 has the same file"},
		{tiled + "--arg out:f32:4x4:c.npy --arg out:f32:4x4:./c.npy",
			"--arg out:f32:4x4:./c.npy (argument 2): argument 1 has the same file"},
		{tiled + "--arg out:f32:4x4:c.npz::x --arg u32:4 --arg tensor:4x4:0:out:f32:4x4:c.npz::y",
			"(argument 3): argument 1 has the same file"},
		{tiled + "--arg out:f32:4x4:w.npz::y", `w.npz::y: file already exists: it holds "w", which would be lost`},
		{tiled + "--grid 0", `--grid 0: "0" is not a size`},
		{tiled + "--grid 1,2,3,4", "--grid 1,2,3,4: 4 dimensions, want 16, 16x16 or 4x4x2"},
		{tiled + "--block 16,,16", `--block 16,,16: "" is not a size`},
		{tiled + "--smem lots", "--smem lots: want bytes"},
		{tiled + "--checkers races", `unknown checker "races" (did you mean "race"?): want one of race, barrier, bounds, ` +
			`uninit, banks, coalesce, count, all, none`},
		{tiled + "--script s.json --grid 2", "--script and --grid exclude each other: want only one"},
		{tiled + "--workers -1", "--workers -1"},
		{tiled + "--max-instructions -1", "--max-instructions -1"},
		{"emulate loop.ptx --max-instructions 1000", "instruction limit exceeded"},
	} {
		_, stderr, code := run(t.Context(), strings.Fields(test.args)...)
		if code != 2 || !strings.Contains(stderr, test.text) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", test.args, code, stderr, test.text)
		}
	}
	for _, args := range []string{"--grid 99999,99999", "--block 33,33", "--smem 1MB"} {
		_, stderr, code := emulateTiled(t, "matmul.ptx", strings.Fields(args)...)
		if code != 2 || !strings.Contains(stderr, "invalid launch") {
			t.Errorf("%s: exit code %d, %q", args, code, stderr)
		}
	}
	if _, err := os.Stat("c.npy"); err == nil {
		t.Error("a refused launch wrote its output")
	}
	if after, err := os.ReadFile("a.npy"); err != nil || !bytes.Equal(after, before) {
		t.Errorf("a refused launch changed its input: %v", err)
	}
}

// TestEmulateRefusesPerKernel runs a kernel of a file in which another one uses an unsupported
// instruction. --list names both.
func TestEmulateRefusesPerKernel(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry good(.param .u32 n)\n{\nret;\n}\n" +
		".visible .entry bad()\n{\n.reg .f32 %f;\ntex.1d.v4.f32.f32 {%f, %f, %f, %f}, [%f, {%f}];\n}\n"
	if err := os.WriteFile("two.ptx", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	const reason = `two.ptx:11:1: tex.1d.v4.f32.f32: instruction "tex" is not supported (textures)`
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"--arg u32:1", "0 errors", 0},
		{"--entry bad", "--entry bad: the emulator cannot run this kernel: " + reason, 2},
		{"--list --format json", `"refused": "` + strings.ReplaceAll(reason, `"`, `\"`) + `"`, 0},
		{"--list", "--arg u32:64", 0},
	} {
		stdout, stderr, code := run(t.Context(), append([]string{"emulate", "two.ptx"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%s: exit code %d, %q, %q; want %d and %q", test.args, code, stdout, stderr, test.code, test.want)
		}
	}
}

// TestExampleArgs checks the examples of arguments for each kind of parameter.
func TestExampleArgs(t *testing.T) {
	param := func(typ ptx.Type, dims ...int) *ptx.Var { return &ptx.Var{Name: "p", Type: typ, Dims: dims} }
	for _, test := range []struct {
		want   string
		params []*ptx.Var
	}{
		{"", nil},
		{"--arg a.npy", []*ptx.Var{param(ptx.U64)}},
		{"--arg f32:1.5 --arg a.npy --arg u8:64 --arg out:f32:64x64:out.npy", []*ptx.Var{
			param(ptx.F32), param(ptx.B64), param(ptx.S8), param(ptx.U64),
		}},
		{"--arg struct:u32:64,f32:1.5,a.npy", []*ptx.Var{param(ptx.B8, 24)}},
		{"--arg tensor:64x64:0:a.npy --arg u16:0x3c00", []*ptx.Var{param(ptx.B8, ptx.TensorMapBytes), param(ptx.F16)}},
	} {
		if got := flagArgs(exampleArgs(test.params)); got != test.want {
			t.Errorf("flagArgs(exampleArgs(%v)) = %q, want %q", test.params, got, test.want)
		}
	}
}

// TestPrintFindings checks that races of the loads of an unrolled loop with one store are grouped,
// separately from races with another store.
func TestPrintFindings(t *testing.T) {
	site := func(line int, opcode string) *emu.Site {
		return &emu.Site{Opcode: opcode, Pos: ptx.Pos{File: "k.ptx", Line: line}}
	}
	race := func(site, other *emu.Site) check.Finding {
		return check.Finding{Checker: check.Race, Site: site, Other: other, Message: site.Pos.String()}
	}
	load, store := "ld.shared.f32", "st.shared.f32"
	var b strings.Builder
	printFindings(&b, []check.Finding{
		race(site(20, load), site(10, store)), race(site(21, load), site(11, store)), race(site(22, load), site(10, store)),
		race(site(12, store), site(30, load)), race(site(12, store), site(31, load)),
	})
	groups, grouped := strings.Count(b.String(), "race"), 0
	for _, line := range []string{"22", "31"} {
		grouped += strings.Count(b.String(), "and the same at 1 other line: "+line+"\n")
	}
	if groups != 3 || grouped != 2 {
		t.Errorf("%d groups, %d of them with a second line, want 3 and 2:\n%s", groups, grouped, b.String())
	}
}

// TestPrintManyFindings checks that at most five groups of findings of the same cause are printed.
func TestPrintManyFindings(t *testing.T) {
	var findings []check.Finding
	for n := range 12 {
		opcode := "ld.global.f32"
		if n%2 == 1 {
			opcode = "st.global.f32"
		}
		findings = append(findings, check.Finding{Checker: check.Bounds, Message: strconv.Itoa(n),
			Site: &emu.Site{Opcode: opcode, Pos: ptx.Pos{File: "k.ptx", Line: n}}})
	}
	var b strings.Builder
	printFindings(&b, findings[:11])
	if n := strings.Count(b.String(), "k.ptx:"); n != 10 ||
		!strings.Contains(b.String(), "1 more finding like these: error: bounds at ld.global.f32") {
		t.Errorf("%d findings of 2 causes, want 5 each:\n%s", n, b.String())
	}
}

// TestEmulateCountsFailures checks that a launch that ends early counts as an error.
func TestEmulateCountsFailures(t *testing.T) {
	t.Chdir(t.TempDir())
	const header = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r;\n"
	for name, test := range map[string]struct{ body, text string }{
		"deadlock": {"\tbar.sync 1, 96;\n", "2 errors"}, // one of the checker barrier
		"spin":     {"again: bra again;\n", "1 error,"},
		"trap":     {"\ttrap;\n", "1 error,"},
		"misuse":   {"\tmov.u32 %r, 40;\n\tbar.sync %r;\n", "1 error,"},
	} {
		if err := os.WriteFile("k.ptx", []byte(header+test.body+"\tret;\n}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := run(t.Context(), "emulate", "k.ptx", "--block", "64")
		if code != 1 || !strings.Contains(stdout, test.text) {
			t.Errorf("%s: exit code %d, %q, %q; want 1 and %q", name, code, stdout, stderr, test.text)
		}
		stdout, _, _ = run(t.Context(), "emulate", "k.ptx", "--block", "64", "--format", "json")
		if !strings.Contains(stdout, `"failure": "`) {
			t.Errorf("%s: no failure in %s", name, stdout)
		}
	}
}

// loadRecorder is a device that records the PTX that it compiles.
type loadRecorder struct {
	device.Device
	texts *[]string
}

func (r *loadRecorder) Load(ctx context.Context, text string) (device.Module, error) {
	*r.texts = append(*r.texts, text)
	return r.Device.Load(ctx, text)
}

// TestUsersPTX checks that a PTX file of the user is compiled for a GPU only if --peer-path names
// it.
func TestUsersPTX(t *testing.T) {
	text := nvccFolder(t)
	var opened, texts []string
	restore := gpu.Substitute(func(d backend.DeviceName) (device.Device, error) {
		opened = append(opened, d.String())
		inner, err := emulator.Open(emulator.Options{})
		return &loadRecorder{inner, &texts}, err
	})
	t.Cleanup(func() {
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
	if _, stderr, code := emulateTiled(t, "matmul.ptx"); code != 0 || len(opened) > 0 {
		t.Errorf("emulate: exit code %d, %q; devices opened: %v", code, stderr, opened)
	}
	bench := []string{"bench", "--device", "gpu", "--kernels", "naive", "--sizes", "16", "--min-time", "1us", "--max-time",
		"1us", "--warmup", "1us", "--peers", "cuda:" + tiledEntry + ":16x16/16x16"}
	if _, stderr, code := run(t.Context(), bench...); code != 2 || slices.Contains(texts, text) {
		t.Errorf("without --peer-path: exit code %d, %q; file compiled: %v", code, stderr, slices.Contains(texts, text))
	}
	_, stderr, _ := run(t.Context(), append(bench, "--peer-path", "cuda=matmul.ptx")...)
	if !slices.Contains(texts, text) {
		t.Errorf("with --peer-path the file is not compiled: %q", stderr)
	}
}

// TestEmulateFindsMissedBarriers checks that a barrier that only some threads reach is an error
// with every schedule. It is advice if the other threads returned before.
func TestEmulateFindsMissedBarriers(t *testing.T) {
	t.Chdir(t.TempDir())
	const (
		header = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\t.reg .pred %p;\n\t.reg .b32 " +
			"%t, %n;\n" +
			"\t.shared .b32 s[64];\n\tmov.u32 %t, %tid.x;\n"
		upTo = "\tsetp.ge.u32 %p, %t, 40;\n"
		work = "\tst.shared.u32 [s], 1;\n"
	)
	for _, test := range []struct {
		name, body string
		code       int
		text       string
	}{
		{"all threads", "\tbar.sync 0;\n", 0, "0 errors, 0 advisory findings"},
		{"if", upTo + "\t@%p bra on;\n\tbar.sync 0;\non:\n", 1, "k.ptx:12:2: bar.sync: error: barrier: threads (0,0,0) " +
			"to (39,0,0) reach this barrier, but threads (40,0,0) to (63,0,0) skip it"},
		{"guard", upTo + "\t@!%p bar.sync 0;\n", 1, "k.ptx:11:2: bar.sync: error"},
		{"whole warp", "\tsetp.ge.u32 %p, %t, 32;\n\t@%p bra on;\n\tbar.sync 0;\non:\n", 1,
			"threads (0,0,0) to (31,0,0) reach this barrier, but threads (32,0,0) to (63,0,0) skip it"},
		{"uneven loop", "\tshr.u32 %n, %t, 5;\nagain:\n\tbar.sync 0;\n\tsub.u32 %n, %n, 1;\n\tsetp.ge.s32 %p, %n, " +
			"0;\n\t@%p bra again;\n", 1, "k.ptx:12:2: bar.sync: error"},
		{"reduction", upTo + "\t@%p bra on;\n\tbar.red.popc.u32 %n, 0, %p;\non:\n", 1, "k.ptx:12:2: bar.red.popc.u32: error"},
		{"arrival", upTo + "\t@%p bra on;\n\tbar.arrive 1, 96;\non:\n", 1, "k.ptx:12:2: bar.arrive: error"},
		{"cluster", upTo + "\t@%p bra on;\n\tbarrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;\non:\n", 1,
			"k.ptx:12:2: barrier.cluster.arrive.aligned: error"},
		{"two lines of a warp", upTo + "\t@%p bra other;\n\tbar.sync 0;\n\tbra on;\nother:\n\tbar.sync 0;\non:\n", 1,
			"of the same warp are at k.ptx:15"},
		{"early return", upTo + "\t@%p ret;\n\tbar.sync 0;\n" + work, 0,
			"k.ptx:12:2: bar.sync: advice: barrier: threads (0,0,0) to (39,0,0) reach this barrier, but threads (40,0,0) to " +
				"(63,0,0) leave the kernel at k.ptx:11 without reaching it"},
		{"not aligned", upTo + "\t@%p bra on;\n\tbarrier.sync 0;\non:\n", 0, "0 errors, 0 advisory findings"},
		{"thread count", "\tsetp.ge.u32 %p, %t, 32;\n\t@%p ret;\n\tbar.sync 1, 32;\n", 0, "0 errors, 0 advisory findings"},
	} {
		if err := os.WriteFile("k.ptx", []byte(header+test.body+"\tret;\n}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for seed := 1; seed <= 8; seed++ {
			stdout, stderr, code := run(t.Context(), "emulate", "k.ptx", "--block", "64", "--seed", strconv.Itoa(seed),
				"--checkers", "barrier")
			if code != test.code || !strings.Contains(stdout, test.text) {
				t.Errorf("%s, seed %d: exit code %d, want %d and %q in\n%s%s",
					test.name, seed, code, test.code, test.text, stdout, stderr)
			}
		}
	}
}

// TestEmulatePrintf checks that a kernel's printf is on stdout, but not within JSON.
func TestEmulatePrintf(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = `.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 format[4] = {104, 105, 10, 0};
.visible .entry k()
{
	.reg .b64 %f;
	.param .b64 pf;
	.param .b64 pa;
	.param .b32 pr;
	mov.u64 %f, format;
	cvta.global.u64 %f, %f;
	st.param.b64 [pf], %f;
	mov.b64 %f, 0;
	st.param.b64 [pa], %f;
	call (pr), vprintf, (pf, pa);
	ret;
}
`
	if err := os.WriteFile("hi.ptx", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := run(t.Context(), "emulate", "hi.ptx", "--block", "1")
	if code != 0 || !strings.HasPrefix(stdout, "hi\n") {
		t.Errorf("exit code %d, %q, %q; want hi on stdout", code, stdout, stderr)
	}
	stdout, stderr, code = run(t.Context(), "emulate", "hi.ptx", "--block", "1", "--format", "json")
	if code != 0 || !json.Valid([]byte(stdout)) || stderr != "hi\n" {
		t.Errorf("exit code %d, %q, %q; want JSON on stdout and hi on stderr", code, stdout, stderr)
	}
}
