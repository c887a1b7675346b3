package gpu

import (
	"strings"
	"sync"
	"testing"
	"tilework/internal/testkit"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/planted"
	"tilework/ptx"
	"tilework/ptx/emu/check"
)

// TestPlantedFaults checks that the checkers report every fault of planted at every match of its
// pattern, and nothing in the unmodified kernels.
func TestPlantedFaults(t *testing.T) {
	shapes := map[string]kernel.Tile{
		"naive": kernel.Square(16, 0), "tiled": kernel.Square(16, 16),
		"blocked": {M: 64, N: 64, K: 8, RowsPerThread: 8, ColsPerThread: 4, Stages: 4},
		"mma":     {M: 64, N: 64, K: 16, RowsPerThread: 4, ColsPerThread: 4, Stages: 4},
		"wgmma":   {M: 64, N: 128, K: 64, RowsPerThread: 2, ColsPerThread: 32, Stages: 2, ClusterM: 2},
	}
	name := func(f planted.Fault) string { return f.Kernel + ", " + f.Name }
	var sound sync.Map // PTX of unmodified kernels that have been checked
	parallel(t, planted.Faults, name, func(t *testing.T, f planted.Fault) {
		named, epilogue, _ := strings.Cut(f.Kernel, "+")
		name, tile, hasTile := strings.Cut(named, ":")
		if name == "wgmma" && !testkit.Full() {
			t.Skip("faults of wgmma are slow to emulate: runs only with TILEWORK_FULL")
		}
		k, err := choose.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		// The sizes need two tiles along M, N and K. The last tile in each dimension is partial.
		n, depth, out, shape := 71, 19, f.In.Info().Results[0], shapes[k.Name]
		if hasTile {
			if shape, err = k.ParseTile(tile); err != nil {
				t.Fatal(err)
			}
		}
		narrow := f.In.Bits() < 32 && !k.TMA
		switch {
		case k.TMA:
			n, depth, out = 136, 136, dtype.F32
		case narrow:
			depth, shape.K = 35, 32
		}
		bytes := k.TMA && f.In.Bits() == 8
		if bytes {
			depth = 528 // five K steps, so that the loop over two of them repeats
		}
		a, b := gemm.Dense(f.In, 70, depth), gemm.Dense(f.In, depth, n)
		if bytes {
			a, b, shape.K = gemm.Padded(a), gemm.Padded(gemm.Dense(f.In, n, depth).T()), 2*shape.K
		}
		if narrow { // the kernel uses cp.async only for aligned rows
			a, b = gemm.Padded(a), gemm.Padded(b)
		}
		p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, 70, n), gemm.Epilogue{Residual: epilogue == "residual"})
		if err != nil {
			t.Fatal(err)
		}
		if k.TMA && f.In == dtype.F32 {
			if p, err = p.WithPrecision(gemm.TF32); err != nil {
				t.Fatal(err)
			}
		}
		c := k.For(k.Config(&p, shape), ptx.Target{SM: 90})
		module, err := k.Emit(c)
		if err != nil {
			t.Fatal(err)
		}
		source := strings.Replace(module.String(), "\tmov", "\t.reg .u32 %zero;\n\tmov.u32 %zero, 0;\n\tmov", 1)
		if _, known := sound.LoadOrStore(source, true); !known {
			if found := run(t, k, c, &p, source, 0); len(found) > 0 {
				t.Fatalf("the unmodified kernel: the checkers report %v, want nothing", found)
			}
		}
		versions := f.Plant(source)
		if len(versions) == 0 {
			t.Errorf("the PTX has no match of %s", f.Pattern)
		}
		for i, broken := range versions {
			var found map[check.Checker]int
			for seed := uint64(0); seed < f.Orders && found[f.Finds] == 0; seed++ {
				found = run(t, k, c, &p, broken, seed)
			}
			if found[f.Finds] == 0 {
				t.Errorf("match %d of %s: the checkers report %v, want %v", i, f.Pattern, found, f.Finds)
			}
		}
	})
}

// parallel runs test for each element of list, in parallel subtests with the given names.
func parallel[T any](t *testing.T, list []T, name func(T) string, test func(t *testing.T, x T)) {
	for _, x := range list {
		t.Run(name(x), func(t *testing.T) {
			t.Parallel()
			test(t, x)
		})
	}
}

// run runs the PTX source of kernel k under the checkers. It returns the number of errors by
// checker, with the wrong elements of C and a launch that the emulator ended among them. seed
// selects the order of the blocks.
func run(t *testing.T, k *kernel.Kernel, c kernel.Config, p *gemm.Problem, source string,
	seed uint64) map[check.Checker]int {
	t.Helper()
	found := map[check.Checker]int{}
	// With one worker, a race between blocks of the kernel is not a data race in Go.
	d := devicetest.FewSMs(t, emu.Options{Workers: 1, Seed: seed, MaxInstructions: 1 << 20,
		Watch: emu.Checking(check.Options{}, func(r *check.Report) {
			for _, f := range r.Findings {
				if f.Severity == check.Error {
					found[f.Checker]++
				}
			}
		})})
	module, err := d.Load(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	f, err := module.Function(k.Entry())
	if err != nil {
		t.Fatal(err)
	}
	var m kernel.Memory
	var operands [][]byte // A, B and the residual
	for _, x := range []struct {
		at   *device.Ptr
		l    gemm.Layout
		read bool
	}{{&m[gemm.A], p.Layouts[gemm.A], true}, {&m[gemm.B], p.Layouts[gemm.B], true}, {&m[gemm.C], p.Layouts[gemm.C], false},
		{&m[gemm.Residual], p.Layouts[gemm.Residual], true}} {
		n := x.l.Bytes()
		if n == 0 {
			continue
		}
		if *x.at, err = d.Alloc(n); err != nil {
			t.Fatal(err)
		}
		if !x.read {
			continue
		}
		mem := make([]byte, n)
		for i := range x.l.Type.Elements(n) {
			x.l.Type.Set(mem, i, float64(i*i%7+i%5))
		}
		operands = append(operands, mem)
		if err := d.CopyIn(t.Context(), *x.at, mem, device.Whole(n)); err != nil {
			t.Fatal(err)
		}
	}
	args := kernel.Args{Config: &c, Problem: p, Memory: m}
	if c.Tile.StreamK {
		elements, flags := k.HandedTiles(&c, p, d.Info())*c.Tile.M*c.Tile.N, make([]byte, kernel.FlagBytes(d.Info()))
		if args.Handed, err = d.Alloc(p.Accum().Bytes(elements)); err != nil {
			t.Fatal(err)
		}
		if args.Flags, err = d.Alloc(len(flags)); err != nil {
			t.Fatal(err)
		}
		if err := d.CopyIn(t.Context(), args.Flags, flags, device.Whole(len(flags))); err != nil {
			t.Fatal(err)
		}
	}
	l, err := k.Launch(args, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(t.Context(), f, l); err != nil && len(found) == 0 {
		found[planted.Refused]++
	}
	product := make([]byte, p.C().Bytes())
	if err := d.CopyOut(t.Context(), product, m[gemm.C], device.Whole(len(product))); err != nil {
		t.Fatal(err)
	}
	for i := range p.M {
		for j := range p.N {
			sum := 0.0
			for q := range p.K {
				sum += p.In().At(operands[0], p.A().Index(i, q)) * p.B().Type.At(operands[1], p.B().Index(q, j))
			}
			if p.Epilogue.Residual {
				sum += p.Out().At(operands[2], p.Layouts[gemm.Residual].Index(i, j))
			}
			if p.Out().At(product, i*p.N+j) != sum {
				found[planted.Wrong]++
			}
		}
	}
	return found
}
