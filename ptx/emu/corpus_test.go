package emu

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// forEachCorpusFile calls do for each compiled PTX file of a CUDA source in the corpus.
func forEachCorpusFile(t *testing.T, source string, do func(t *testing.T, p *Program)) {
	files, err := filepath.Glob("../testdata/nvcc/" + source + ".sm_*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of %s.cu: %v", source, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { do(t, loadFile(t, filepath.Base(file))) })
	}
}

// runKernel runs the kernel whose name contains part. The default grid is one block.
func runKernel(t *testing.T, p *Program, part string, mem *Memory, l Launch, args ...any) (Stats, error) {
	t.Helper()
	l.Entry = findKernel(t, p, part)
	l.Params = pack(t, p, l.Entry, args...)
	if l.Grid == (Dim3{}) {
		l.Grid = Dim3{1, 1, 1}
	}
	return p.Run(context.Background(), mem, l)
}

func TestCalls(t *testing.T) {
	forEachCorpusFile(t, "calls", func(t *testing.T, p *Program) {
		mem := NewMemory(MemoryOptions{})
		f := upload(t, mem, []float32{1, 2, 3})
		i := upload(t, mem, []int32{0, 20, 5})
		pairs := upload(t, mem, []uint64{0, 0, math.Float64bits(1.5), 7})
		if _, err := runKernel(t, p, "5calls", mem, Launch{Block: Dim3{1, 1, 1}}, f, i, pairs); err != nil {
			t.Fatal(err)
		}
		got, ints, pair := make([]float32, 3), make([]int32, 3), make([]uint64, 4)
		download(t, mem, f, got)
		download(t, mem, i, ints)
		download(t, mem, pairs, pair)
		if got[0] != 2 || got[1] != 1 || ints[0] != 40+120 || math.Float64frombits(pair[0]) != 1.5+9 || uint32(pair[1]) != 6 {
			t.Errorf("got %v, %v, %v", got, ints, pair)
		}

		const n = 11
		out := upload(t, mem, make([]int32, 64))
		if _, err := runKernel(t, p, "6locals", mem, Launch{Block: Dim3{64, 1, 1}}, out, int32(n)); err != nil {
			t.Fatal(err)
		}
		ints = make([]int32, 64)
		download(t, mem, out, ints)
		for thread, got := range ints {
			var a [16]int32
			for k := range a {
				a[k] = int32(k * n)
			}
			for k := range n {
				a[(k*7+n)&15] += a[(k+thread)&15]
			}
			if got != a[n&15] {
				t.Fatalf("thread %d got %d, want %d", thread, got, a[n&15])
			}
		}
	})
}

func TestPrintfAndAssert(t *testing.T) {
	forEachCorpusFile(t, "calls", func(t *testing.T, p *Program) {
		mem := NewMemory(MemoryOptions{})
		x := upload(t, mem, []int32{42, 3})
		var text bytes.Buffer
		l := Launch{Grid: Dim3{3, 1, 1}, Block: Dim3{40, 1, 1}, Printf: &text}
		if _, err := runKernel(t, p, "4says", mem, l, x, int32(9)); err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat("42 of 9: 1.500000\n", 3); text.String() != want {
			t.Errorf("printed %q, want %q", text.String(), want)
		}
		_, err := runKernel(t, p, "4says", mem, l, x, int32(-1))
		if !errors.Is(err, ErrAssert) {
			t.Fatalf("got %v, want a failed assertion", err)
		}
		for _, part := range []string{"thread (0,0,0) of block (0,0,0)", "calls.cu:", `"n > 0"`, "says"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not contain %q", err, part)
			}
		}
	})
}

func TestMathematics(t *testing.T) {
	forEachCorpusFile(t, "calls", func(t *testing.T, p *Program) {
		f := make([]float32, 32)
		for i := range f {
			f[i] = float32(i) * 0.37
		}
		d := []float64{0, 2, 3, 7, 0.5, 1e9 + 0.75, -4.5, 0}
		mem := NewMemory(MemoryOptions{})
		fa, da := upload(t, mem, f), upload(t, mem, d)
		if _, err := runKernel(t, p, "11mathematics", mem, Launch{Block: Dim3{1, 1, 1}}, fa, da); err != nil {
			t.Fatal(err)
		}
		got, gotD := make([]float32, 32), make([]float64, 8)
		download(t, mem, fa, got)
		download(t, mem, da, gotD)
		x := func(i int) float64 { return float64(f[i]) }
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"f[0]", float64(got[0]), math.Sin(x(1)) + math.Exp(x(2)) + math.Sqrt(x(3))/x(4) + 1/math.Sqrt(x(5)) + x(6)*x(7) +
				x(8)},
			{"f[9]", float64(got[9]), x(10)/x(11) + min(x(12), x(13)) + math.Tanh(x(14)) + math.Log2(x(15)) + math.Floor(x(16)) +
				math.RoundToEven(x(17))},
			{"d[0]", gotD[0], math.Sqrt(2) + 3.0/7 + math.Exp(0.5) + x(18) + 1e9},
			{"f[19]", float64(got[19]), -4.5 + 7 + 7},
		} {
			if math.Abs(c.got-c.want) > 1e-5*math.Abs(c.want) {
				t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
			}
		}
	})
}

func TestReduction(t *testing.T) {
	forEachCorpusFile(t, "reduce", func(t *testing.T, p *Program) {
		mem := NewMemory(MemoryOptions{})
		const n = 5000
		x := make([]float32, n)
		want := float32(0)
		weights := [4]float32{1, 0.5, 0.25, 0.125}
		for i := range x {
			x[i] = float32(i%17 - 5)
			if i&31 < 4 {
				want += x[i] * weights[i&31]
			}
		}
		xa, out := upload(t, mem, x), upload(t, mem, []float32{0})
		_, err := runKernel(t, p, "3sum", mem, Launch{Grid: Dim3{5, 1, 1}, Block: Dim3{128, 1, 1}, Shared: 128}, xa, out,
			int32(n))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 1)
		if download(t, mem, out, got); got[0] != want {
			t.Errorf("sum is %v, want %v", got[0], want)
		}

		// The kernel calls __any_sync with masks that do not contain the calling lanes.
		a := upload(t, mem, make([]int32, 64))
		_, err = runKernel(t, p, "7atomics", mem, Launch{Block: Dim3{64, 1, 1}}, a, a, a, a)
		if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "member mask") {
			t.Errorf("got %v, want a misused member mask", err)
		}
		if addr, size, err := mem.Global(p, "letters"); err != nil || size != 9 {
			t.Errorf("letters: %d bytes, %v", size, err)
		} else {
			text := make([]byte, 8)
			if download(t, mem, addr, text); string(text) != "tilework" {
				t.Errorf("letters contains %q", text)
			}
		}
	})
}

func TestTensorCores(t *testing.T) {
	rng := testrand.New(t)
	forEachCorpusFile(t, "half", func(t *testing.T, p *Program) {
		const k = 48
		a, b := make([]uint16, 16*k), make([]uint16, 16*k)
		value := func() uint16 { return uint16(number.F16.Encode(float64(rng.IntN(15) - 7))) }
		for i := range a {
			a[i], b[i] = value(), value()
		}
		mem := NewMemory(MemoryOptions{})
		c := upload(t, mem, make([]float32, 256))
		aa := upload(t, mem, a)
		if _, err := runKernel(t, p, "6tensor", mem, Launch{Block: Dim3{32, 1, 1}}, aa, upload(t, mem, b), c, int32(16),
			int32(k)); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 256)
		download(t, mem, c, got)
		for i := range 16 {
			for j := range 16 {
				want := 0.0
				for q := range k {
					want += number.F16.Decode(uint64(a[i*k+q])) * number.F16.Decode(uint64(b[j*k+q]))
				}
				if float64(got[i*16+j]) != want {
					t.Fatalf("element %d, %d is %v, want %v", i, j, got[i*16+j], want)
				}
			}
		}
		if _, err := runKernel(t, p, "10inline_ptx", mem, Launch{Block: Dim3{32, 1, 1}}, aa, c); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUnsupportedInstructions checks that the error names the unsupported feature and its position.
func TestUnsupportedInstructions(t *testing.T) {
	const head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
	kernel := func(body string) string { return head + ".entry k () {\n" + body + "\nret;\n}\n" }
	for _, c := range []struct{ text, want string }{
		{kernel(".reg .b64 %a;\ndiscard.global.L2 [%a], 128;"),
			"x.ptx:6:1: emulator: discard.global.L2 (a cache line without its contents) is not supported"},
		{kernel(".reg .b32 %r;\nmov.u32 %r, %pm0;"), "special register %pm0"},
		{head + ".extern .func f ();\n" + ".entry k () {\ncall f;\nret;\n}\n",
			"function f, which is declared but not defined,"},
		{head + ".extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2 ();\n" +
			".entry k () {\n.reg .b64 %a;\ncall (%a), __cudaCDP2GetParameterBufferV2;\nret;\n}\n",
			"dynamic parallelism: function __cudaCDP2GetParameterBufferV2, which is declared but not defined,"},
		{strings.Replace(kernel(""), "64", "32", 1), "address size 32 is not supported"},
	} {
		m, err := ptx.Parse("x.ptx", c.text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Load(m)
		if !errors.Is(err, ptx.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
