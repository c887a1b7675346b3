package gpu

import (
	"fmt"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
	"tilework/internal/gpu/sm90"
	"tilework/internal/testkit"
)

// TestAssembles checks that NVIDIA's ptxas assembles the PTX of every kernel and keeps its values
// in registers.
func TestAssembles(t *testing.T) {
	assemble := ptxas.Sampler(t)
	var assembled sync.Map
	configs(t, func(k *kernel.Kernel, p *gemm.Problem, c kernel.Config) {
		// One configuration for each kernel, types and tile, with both operands transposed or
		// neither: the others use the same instructions at other addresses.
		kind := fmt.Sprintln(k.Name, c.In, c.Out, c.Precision, c.Tile, c.SM, c.TransA && c.TransB, c.Batch)
		if !testkit.Full() && c.In != c.Out || p.A().Trans != p.B().Trans || p.M == 33 && !k.TMA {
			return
		}
		if k.TMA {
			last := k.Tiles[len(k.Tiles)-1]
			if (c.In == dtype.F8E5M2 || c.Precision == gemm.Fast) && (c.Tile.M != last.M || c.Tile.N != last.N) {
				return // the PTX of e4m3 or int8, but for the type in the instruction names
			}
			kind += fmt.Sprint(c.VecC) // if TMA cannot store C
		}
		if _, was := assembled.LoadOrStore(kind, true); !was {
			assemble(k, c)
		}
	})
}

// TestEpiloguesAssemble checks that ptxas assembles the tensor core kernels without spills for the
// epilogues that need the most registers. It takes every tile that is a candidate for a product
// with such an epilogue.
func TestEpiloguesAssemble(t *testing.T) {
	t.Parallel()
	assemble, info := ptxas.Sampler(t), devicetest.FewSMs(t, emu.Options{}).Info()
	epilogues := []string{"swiglu", "bias-col+gelu+residual", "bias-col+gelu-tanh+residual", "row-scale+col-scale",
		"geglu+residual+out-scale+saturate"}
	if !testkit.Full() {
		epilogues = epilogues[1:2] // it needs the most registers
	}
	for _, name := range epilogues {
		e, err := gemm.ParseEpilogue(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			in, out   dtype.Type
			precision gemm.Precision
			m, n      int // TMA cannot store C with 4095 columns; narrowed tiles are for small products
			transB    bool
		}{
			{dtype.BF16, dtype.BF16, gemm.Native, 4096, 4096, false},
			{dtype.BF16, dtype.BF16, gemm.Native, 4096, 4095, true},
			{dtype.BF16, dtype.BF16, gemm.Native, 100, 480, true},
			{dtype.F16, dtype.F32, gemm.Native, 4096, 4096, true},
			{dtype.F8E4M3, dtype.BF16, gemm.Native, 4096, 4096, true},
			{dtype.F8E4M3, dtype.F32, gemm.Native, 100, 480, true},
			{dtype.F32, dtype.F32, gemm.TF32, 4096, 4096, false},
			{dtype.F32, dtype.F32, gemm.F32x3, 4096, 4096, false},
			{dtype.F32, dtype.F32, gemm.F32x3, 4096, 4095, true},
			{dtype.F32, dtype.BF16, gemm.TF32, 4096, 4096, false},
			{dtype.F32, dtype.F16, gemm.F32x3, 4096, 4096, false},
			{dtype.I8, dtype.F32, gemm.Native, 4096, 4096, true},
			{dtype.I8, dtype.BF16, gemm.Native, 4096, 4096, true},
			{dtype.I8, dtype.F32, gemm.Native, 4096, 4095, true},
		} {
			t.Run(fmt.Sprintf("%s/%v %v %v %d %d %t", name, x.in, x.out, x.precision, x.m, x.n, x.transB), func(t *testing.T) {
				t.Parallel()
				b := gemm.Dense(x.in, 4096, x.n)
				if x.transB {
					b = gemm.Dense(x.in, x.n, 4096).T()
				}
				p, _, err := gemm.New(1, gemm.Dense(x.in, x.m, 4096), b, 0, gemm.Dense(x.out, x.m, x.n), e)
				if err == nil {
					p, err = p.WithPrecision(x.precision)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range []*kernel.Kernel{kernel.MMA, sm90.WGMMA} {
					all := choose.CandidatesOf(k, &p, kernel.Align{}, info)
					if choose.Fastest(all) == nil && (k == sm90.WGMMA || x.precision != gemm.F32x3) {
						t.Errorf("%s has no tile for %v with epilogue %v", k.Name, &p, e)
					}
					for _, c := range all {
						if c.Rejected == nil && c.Config.Tile.SplitK < 2 {
							assemble(k, c.Config)
						}
					}
				}
			})
		}
	}
}

// TestSerialPartsAssemble checks that ptxas assembles the tiles with serial parts of K without
// spills, with and without an epilogue that needs many registers.
func TestSerialPartsAssemble(t *testing.T) {
	t.Parallel()
	assemble, info := ptxas.Sampler(t), devicetest.FewSMs(t, emu.Options{}).Info()
	for _, x := range []struct {
		in, out   dtype.Type
		precision gemm.Precision
		epilogue  string
	}{
		{dtype.BF16, dtype.BF16, gemm.Native, "none"}, {dtype.BF16, dtype.BF16, gemm.Native, "bias-col+gelu+residual"},
		{dtype.BF16, dtype.BF16, gemm.Native, "swiglu"}, {dtype.F8E4M3, dtype.BF16, gemm.Native, "bias-col+gelu+residual"},
		{dtype.F8E4M3, dtype.BF16, gemm.Fast, "none"}, {dtype.F32, dtype.F32, gemm.TF32, "bias-col+gelu+residual"},
		{dtype.F32, dtype.F32, gemm.F32x3, "bias-col+gelu+residual"}, {dtype.F32, dtype.F32, gemm.Native, "none"},
		{dtype.F64, dtype.F64, gemm.Native, "none"},
	} {
		t.Run(fmt.Sprint(x), func(t *testing.T) {
			t.Parallel()
			e, err := gemm.ParseEpilogue(x.epilogue)
			if err != nil {
				t.Fatal(err)
			}
			l := gemm.Dense(x.in, 4096, 4096)
			p, _, err := gemm.New(1, l, l, 0, gemm.Dense(x.out, 4096, 4096), e)
			if err == nil {
				p, err = p.WithPrecision(x.precision)
			}
			if err != nil {
				t.Fatal(err)
			}
			all := []gemm.Problem{p.WithRowInvariance()}
			if x.in == dtype.F8E4M3 && x.precision == gemm.Native {
				all = append(all, testkit.BlockScaled(t, 4096, 4096, 4096, x.out, 1, 128),
					testkit.BlockScaled(t, 4096, 4096, 4096, x.out, 1, 1))
			}
			for _, k := range choose.Kernels() {
				for _, s := range k.Tiles {
					s.SerialK = 4
					for i := range all {
						if k.SplitsK && k.Check(&all[i], s, kernel.Align{}, info) == nil {
							assemble(k, k.For(k.Config(&all[i], s), info.Target))
						}
					}
				}
			}
		})
	}
}

// TestStreamKAssembles checks that ptxas assembles the tiles with stream-K without spills, and
// without serialising wgmma, with and without an epilogue that needs many registers.
func TestStreamKAssembles(t *testing.T) {
	t.Parallel()
	assemble := ptxas.Sampler(t)
	for _, x := range []tileCase{
		{in: dtype.BF16, out: dtype.BF16, transB: true}, {in: dtype.F8E4M3, out: dtype.F32, transB: true},
		{in: dtype.I8, out: dtype.F32, transB: true}, {in: dtype.F32, out: dtype.F32, precision: gemm.TF32, transB: true},
	} {
		for _, name := range []string{"none", "bias-col+gelu", "swiglu", "row-scale+col-scale+gelu-tanh"} {
			t.Run(fmt.Sprintf("%v %s", x.in, name), func(t *testing.T) {
				t.Parallel()
				e, err := gemm.ParseEpilogue(name)
				if err != nil {
					t.Fatal(err)
				}
				p := x.problem(t, 1024, 1024, 1024)
				if p.Epilogue = e; e.Gated {
					p.Layouts[gemm.Up] = p.Layouts[gemm.B]
				}
				for _, s := range sm90.WGMMA.Tiles {
					if s.StreamK = true; sm90.WGMMA.Check(p, s, kernel.Align{}, nil) == nil {
						assemble(sm90.WGMMA, sm90.WGMMA.Config(p, s))
					}
				}
			})
		}
	}
}
