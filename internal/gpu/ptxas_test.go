package gpu

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
)

// TestAssembles: NVIDIA's own assembler takes the texts, and the registers that it
// finds them do not spill.
func TestAssembles(t *testing.T) {
	assemble := assembler(t)
	var assembled sync.Map
	configs(t, func(k *Kernel, p *gemm.Problem, c Config) {
		// One text for each kernel, types and shape, and in full the product of
		// transposes: the rest is the same instructions in other places.
		kind := fmt.Sprintln(k.Name, c.In, c.Out, c.Precision, c.Shape, c.SM, c.TransA && c.TransB, c.Batch)
		if testing.Short() && c.In != c.Out || p.A.Trans != p.B.Trans || p.M == 33 && !k.boxed {
			return
		}
		if k.boxed {
			last := k.Shapes()[len(k.Shapes())-1]
			if (c.In == dtype.F8E5M2 || c.Precision == gemm.Fast) && (c.Shape.M != last.M || c.Shape.N != last.N) {
				return // the text of e4m3, or of int8, with another name in its instructions
			}
			kind += fmt.Sprint(c.VecC) // C that no bulk copy writes
		}
		if _, was := assembled.LoadOrStore(kind, true); !was {
			assemble(k, c)
		}
	})
}

// TestEpiloguesAssemble is TestAssembles for the tensor cores' kernels with epilogues that take
// registers, each tile once with all of those that it is offered for.
func TestEpiloguesAssemble(t *testing.T) {
	assemble, info := assembler(t), fewSMs(t, emu.Options{}).Info()
	texts := []string{"swiglu", "bias-col+gelu+residual", "bias-col+gelu-tanh+residual", "row-scale+col-scale", "geglu+residual+out-scale+saturate"}
	if testing.Short() {
		texts = texts[1:2] // which takes the most
	}
	for _, text := range texts {
		e, err := gemm.ParseEpilogue(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			in, out   dtype.Type
			precision gemm.Precision
			n         int // of 4095 columns no bulk copy writes C
			transB    bool
		}{
			{dtype.BF16, dtype.BF16, gemm.Native, 4096, false},
			{dtype.BF16, dtype.BF16, gemm.Native, 4095, true},
			{dtype.F16, dtype.F32, gemm.Native, 4096, true},
			{dtype.F8E4M3, dtype.BF16, gemm.Native, 4096, true},
			{dtype.F32, dtype.F32, gemm.TF32, 4096, false},
			{dtype.F32, dtype.F32, gemm.F32x3, 4096, false},
			{dtype.F32, dtype.F32, gemm.F32x3, 4095, true},
			{dtype.F32, dtype.BF16, gemm.TF32, 4096, false},
			{dtype.F32, dtype.F16, gemm.F32x3, 4096, false},
			{dtype.I8, dtype.F32, gemm.Native, 4096, true},
			{dtype.I8, dtype.BF16, gemm.Native, 4096, true},
			{dtype.I8, dtype.F32, gemm.Native, 4095, true},
		} {
			b := gemm.Dense(x.in, 4096, x.n)
			if x.transB {
				b = gemm.Dense(x.in, x.n, 4096).T()
			}
			p, _, err := gemm.New(1, gemm.Dense(x.in, 4096, 4096), b, 0, gemm.Dense(x.out, 4096, x.n), e)
			if err == nil {
				p, err = p.In(x.precision)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range []*Kernel{mma, wgmma} {
				configs := Configs(k, &p, info)
				if len(configs) == 0 && (k == wgmma || x.precision != gemm.F32x3) {
					t.Errorf("%s has no tile for %v, %v", k.Name, &p, e)
				}
				for _, c := range configs {
					if c.Shape.Split < 2 {
						assemble(k, c)
					}
				}
			}
		}
	}
}

// TestSweepAssembles is TestAssembles for what products are verified by.
func TestSweepAssembles(t *testing.T) {
	assemble := assembler(t)
	for _, typ := range dtype.All() {
		for _, k := range []*Kernel{sweep, sweepNorms} {
			assemble(k, Config{In: typ, Out: dtype.F64, TransA: true})
			for vec := 1; vec <= sweepElements(typ); vec *= 2 {
				assemble(k, Config{In: typ, Out: dtype.F64, VecA: vec})
				if typ == dtype.F8E4M3 {
					assemble(k, Config{In: typ, Out: dtype.F64, VecA: vec, ScaleA: 1, ScaleB: gemm.ScaleBlock})
				}
			}
		}
		for _, bias := range []gemm.BiasDim{gemm.BiasNone, gemm.BiasRow, gemm.BiasCol} {
			assemble(judge, Config{In: typ, Out: dtype.F64, Overlaps: true, Epilogue: gemm.Epilogue{Bias: bias}})
		}
		assemble(sweepNorms, Config{In: typ, Out: dtype.F64, VecA: sweepElements(typ), Overlaps: true})
	}
}

// assembler is a function that has ptxas assemble a kernel's text for a configuration, and names the file
// of what it makes of it, or none.
func assembler(t *testing.T) func(k *Kernel, c Config) string {
	t.Helper()
	ptxas := os.Getenv("TILEWORK_PTXAS")
	if ptxas == "" {
		path, err := exec.LookPath("ptxas")
		if err != nil {
			t.Skip("no ptxas: set TILEWORK_PTXAS or PATH to assemble the kernels")
		}
		ptxas = path
	}
	dir := t.TempDir()
	used := regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads[\s\S]*Used (\d+) registers`)
	return func(k *Kernel, c Config) string {
		m, err := k.Emit(c)
		if err != nil {
			t.Error(err)
			return ""
		}
		text := []byte(m.String())
		in := filepath.Join(dir, fmt.Sprintf("%x.ptx", sha256.Sum256(text)))
		out := in + ".cubin"
		if err := os.WriteFile(in, text, 0o600); err != nil {
			t.Error(err)
			return ""
		}
		said, err := exec.Command(ptxas, "-v", "-arch="+m.Target.String(), "-o", out, in).CombinedOutput()
		if err != nil {
			t.Errorf("%s, %v: %v\n%s", k.Name, c, err, said)
			return ""
		}
		found := used.FindSubmatch(said)
		if found == nil {
			t.Errorf("ptxas said %s", said)
			return ""
		}
		t.Logf("%s, %v: %s registers", k.Name, c, found[3])
		// Warnings C75xx: setmaxnreg is not obeyed, or wgmma waits for each product.
		if bytes.Contains(said, []byte("C75")) || bytes.Contains(said, []byte("Potential Performance Loss")) {
			t.Errorf("%s, %v: ptxas warns: %s", k.Name, c, said)
		}
		if string(found[1]) != "0" || string(found[2]) != "0" {
			t.Errorf("%s, %v: spills %s bytes", k.Name, c, found[1])
		}
		return out
	}
}
