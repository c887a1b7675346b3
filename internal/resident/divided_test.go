package resident

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/model"
	"tilework/internal/sentinel"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// gpus are the emulated GPUs of a device, which can be made to fail.
type gpus struct {
	emulated []*emu.Device
	faulty   []*faulty.Device
	// lost reports that a GPU was lost. Emulated GPUs still execute the work that was enqueued before,
	// so that closing their streams fails.
	lost bool
}

// openSeveral opens emulated GPUs as one device, and checks in the end that nothing is left on
// them. They divide matrices at every row or column, and gather operands in small panels.
func openSeveral(t testing.TB, o emu.Options, models ...string) (*GPUs, *gpus) {
	t.Helper()
	all := &gpus{}
	restore := gpu.Substitute(func(name backend.DeviceName) (device.Device, error) {
		m, err := model.Lookup(name.Model)
		if err != nil {
			return nil, err
		}
		o := o
		o.Model, o.Seed = m, o.Seed+uint64(name.Index)
		inner, err := emu.Open(o)
		if err != nil {
			return nil, err
		}
		all.emulated = append(all.emulated, inner)
		all.faulty = append(all.faulty, faulty.New(inner))
		return all.faulty[len(all.faulty)-1], nil
	})
	name := backend.DeviceName{Kind: backend.Emulator, List: strings.Join(models, ",")}
	if len(models) == 1 {
		name = backend.DeviceName{Kind: backend.Emulator, Model: models[0]}
	}
	d, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	d.unit, d.panelBytes, d.dividesAll = 1, 2000, true
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), restore()); err != nil && !all.lost {
			t.Error(err)
		}
		for i, below := range all.faulty {
			left := below.Leaks()
			if all.lost {
				left = slices.DeleteFunc(left, func(s string) bool { return s == "stream" })
			}
			if len(left) > 0 || all.emulated[i].Used() != 0 {
				t.Errorf("left on GPU %d: %v, %d bytes", i, left, all.emulated[i].Used())
			}
		}
	})
	return d, all
}

// several returns the names of n emulated H200s.
func several(n int) []string { return slices.Repeat([]string{"h200"}, n) }

// pickAny makes a device use all divisions of products in turn, and mostly another tile than one
// GPU.
func pickAny(d *GPUs) {
	rng := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	d.pick = func(all []split.Division) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(len(all))
	}
	d.pickTile = func(all []choose.Candidate) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(len(all)+1) - 1
	}
}

// TestDividedConformance multiplies parts of divided matrices with every kernel, on 1 to 8 GPUs.
func TestDividedConformance(t *testing.T) {
	for i, k := range choose.Kernels() {
		all := []int{2, 3, 4, 8, 1}
		counts := []int{all[i%4]}
		if testkit.Full() {
			counts = append(counts, all[(i+1)%5])
		}
		for _, n := range counts {
			t.Run(fmt.Sprintf("%s on %d", k.Name, n), func(t *testing.T) {
				d, _ := openSeveral(t, emu.Options{}, several(n)...)
				pickAny(d)
				conform(t, d, k, testkit.Cases(8, 30), 1<<13)
			})
		}
	}
}

// TestGPUDividedConformance is TestDividedConformance on all GPUs of this machine.
func TestGPUDividedConformance(t *testing.T) {
	d := openGPU(t, backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs})
	d.unit, d.panelBytes, d.dividesAll = 16, 1<<16, true
	pickAny(d)
	for _, k := range choose.Kernels() {
		t.Run(k.Name, func(t *testing.T) { conform(t, d, k, 500, 0) })
	}
}

// someElements returns n elements between -1 and 1, that of every tenth zero.
func someElements(rng *rand.Rand, t dtype.Type, n int) []byte {
	b := make([]byte, t.Bytes(n))
	for i := range n {
		x := float64(rng.IntN(10))
		if x > 0 {
			x = rng.Float64()*2 - 1
		}
		if t.Info().Integer {
			x = float64(rng.IntN(21) - 10)
		}
		t.Set(b, i, x)
	}
	return b
}

// bitsCase is a product whose bits are compared on different numbers of GPUs.
type bitsCase struct {
	in, out        dtype.Type
	m, n, k        int
	transA, transB bool
	transC         bool
	beta           complex128
	epilogue       gemm.Epilogue
	precision      gemm.Precision
	rowInvariant   bool
	kernel         string
	hostVectors    bool
	splits         [gemm.Operands]split.By
	offsets        [gemm.Operands]int // columns before the operand in its matrix
	seed           uint64
	verify         bool
}

// run computes the product on a device.
func (c *bitsCase) run(ctx context.Context, d *GPUs) (_ []byte, err error) {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	layout := func(t dtype.Type, rows, cols int, trans bool) gemm.Layout {
		if trans {
			return gemm.Dense(t, cols, rows).T()
		}
		return gemm.Dense(t, rows, cols)
	}
	layouts := [gemm.Operands]gemm.Layout{
		gemm.A: layout(c.in, c.m, c.k, c.transA), gemm.B: layout(c.in, c.k, c.n, c.transB),
		gemm.C: layout(c.out, c.m, c.n, c.transC),
	}
	problem, _, err := gemm.New(1, layouts[gemm.A], layouts[gemm.B], c.beta, layouts[gemm.C], c.epilogue)
	if err != nil {
		return nil, err
	}
	p := product(1, c.beta, nil)
	p.Epilogue, p.Precision, p.Kernel, p.Verify = c.epilogue, c.precision, c.kernel, c.verify
	if c.rowInvariant {
		p.Invariance = gemm.InvariantRows
	}
	var all []Matrix
	defer func() {
		for _, m := range all {
			err = device.Join(err, m.Memory.Close())
		}
	}()
	for i := range layouts {
		o := gemm.Operand(i)
		if o > gemm.C {
			if !c.epilogue.Reads(o) {
				continue
			}
			of := o
			if c.transC {
				of = o.Transposed()
			}
			layouts[o] = problem.Layout(of)
			if o == gemm.Residual {
				layouts[o] = layout(c.out, c.m, c.n, false)
			}
		}
		l := layouts[o]
		data := someElements(rng, l.Type, l.Rows*l.LD)
		if o >= gemm.Bias && c.hostVectors {
			p.Operands[o] = Operand{Host: data, Layout: l}
			continue
		}
		wide := gemm.Dense(l.Type, l.Rows, l.Cols+c.offsets[o])
		m, err := New(d, wide, c.splits[o])
		if err != nil {
			return nil, err
		}
		all = append(all, m)
		m.Offset = l.Type.Bytes(c.offsets[o])
		m.Layout.Cols, m.Layout.Trans = l.Cols, l.Trans
		if err := m.CopyIn(ctx, data, l); err != nil {
			return nil, err
		}
		p.Operands[o].On = m
	}
	if err := compute(ctx, p); err != nil {
		return nil, err
	}
	l := layouts[gemm.C]
	got := make([]byte, l.Bytes())
	return got, p.c().CopyOut(ctx, got, l)
}

// randomCase returns a random product of every kind.
func randomCase(rng *rand.Rand) *bitsCase {
	types := [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {dtype.BF16, dtype.F32},
		{dtype.F64, dtype.F64}, {dtype.I8, dtype.I32}, {dtype.F16, dtype.F16}, {dtype.F8E4M3, dtype.F32}}
	pair := types[rng.IntN(len(types))]
	side := func() int { return 1 + rng.IntN([]int{3, 40, 150}[rng.IntN(3)]) }
	flip := func() bool { return rng.IntN(2) == 0 }
	c := &bitsCase{in: pair[0], out: pair[1], m: side(), n: side(), k: side(), transA: flip(), transB: flip(),
		transC: flip(), beta: complex(float64(rng.IntN(2)), 0), hostVectors: flip(), seed: rng.Uint64()}
	if c.in != dtype.I8 && rng.IntN(3) == 0 { // in parts of K
		c.m, c.n, c.k = 1+rng.IntN(40), 1+rng.IntN(40), 200+rng.IntN(2000)
		c.kernel = []string{"blocked", "mma"}[rng.IntN(2)]
		if c.in == dtype.F32 {
			c.kernel = "blocked"
		}
	}
	if !c.in.Info().Integer {
		c.epilogue = gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3)), Residual: rng.IntN(3) == 0, RowScale: rng.IntN(4) == 0}
		c.rowInvariant = rng.IntN(4) == 0
	}
	if !c.in.Info().Integer && rng.IntN(4) == 0 { // half of them with K of 1: then a gathered B is contiguous
		c.epilogue, c.kernel = gemm.Epilogue{Gated: true, Activation: gemm.ActGELU}, "wgmma"
		c.k = 1 + rng.IntN(2)*rng.IntN(40)
	}
	if c.in == dtype.F32 && flip() {
		c.precision = gemm.Precisions()[rng.IntN(len(gemm.Precisions()))]
	}
	for o := range c.splits {
		c.splits[o] = split.By(rng.IntN(3))
		c.offsets[o] = rng.IntN(3) / 2 * rng.IntN(20)
	}
	return c
}

// TestDividedBits compares random products on several GPUs with those on one, bit for bit, with
// every division and, for many of them, with another tile.
func TestDividedBits(t *testing.T) {
	seed := testrand.Seed(t)
	one, _ := openSeveral(t, emu.Options{}, "h200")
	for _, n := range []int{2, 3, 4, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			d, _ := openSeveral(t, emu.Options{Seed: seed}, several(n)...)
			pickAny(d)
			for range testkit.Cases(12, 50) {
				c := randomCase(rng)
				want, err := c.run(t.Context(), one)
				if err != nil {
					if errors.Is(err, gemm.ErrUnsupported) {
						continue
					}
					t.Fatalf("%+v on one GPU: %v", c, err)
				}
				got, err := c.run(t.Context(), d)
				if err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%+v: the bits differ from those of one GPU", c)
				}
			}
			other, divisions := 0, d.divisions.All()
			for key, x := range divisions {
				if x.plan.Spec() != key.plan.Spec() {
					other++
				}
			}
			if other < len(divisions)/4 {
				t.Errorf("%d of %d products with another tile than on one GPU", other, len(divisions))
			}
		})
	}
}

// TestBreakdown measures products on 1 to 4 GPUs. The times of each GPU must add up, and the copied
// bytes must be those of the plan.
func TestBreakdown(t *testing.T) {
	rng := testrand.New(t)
	for _, n := range []int{1, 2, 3, 4} {
		d, _ := openSeveral(t, emu.Options{}, several(n)...)
		pickAny(d)
		for range testkit.Cases(5, 30) {
			p := product(1, 0, nil)
			for o, l := range []gemm.Layout{gemm.Dense(dtype.F32, 90, 40), gemm.Dense(dtype.F32, 40, 70),
				gemm.Dense(dtype.F32, 90, 70)} {
				m, err := New(d, l, split.By(rng.IntN(3)))
				if err != nil {
					t.Fatal(err)
				}
				if err := m.CopyIn(t.Context(), someElements(rng, dtype.F32, l.Len()), l); err != nil {
					t.Fatal(err)
				}
				p.Operands[o].On = m
			}
			if err := p.complete(); err != nil {
				t.Fatal(err)
			}
			traffic := make([][]int, n)
			if err := p.with(func(x planned) error {
				if x.division != nil {
					traffic = x.division.Traffic(&x.division.Division)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			all, err := RunBreakdown(t.Context(), p, 1+rng.IntN(3))
			if err != nil || len(all) != n {
				t.Fatalf("%d splits on %d GPUs, error %v", len(all), n, err)
			}
			computing := 0
			for i, s := range all {
				want := 0
				for _, bytes := range traffic[i] {
					want += bytes
				}
				if s.FromGPUs != want || s.FromHost+s.ToHost != 0 || s.Device != d.members[i].name.String() {
					t.Errorf("GPU %d of %d: %+v, want %d bytes from GPUs", i, n, s, want)
				}
				if sum := s.Compute + s.Copies + s.Waiting; math.Abs(sum-s.Seconds) > 1e-9 || s.Waiting < 0 ||
					want > 0 != (s.Copies+s.Overlapped > 0) {
					t.Errorf("GPU %d of %d: %+v, want times that add up", i, n, s)
				}
				if s.Compute > 0 {
					computing++
				}
			}
			if computing == 0 {
				t.Errorf("no GPU of %d computes: %+v", n, all)
			}
			for o := range gemm.C + 1 {
				if err := p.Operands[o].On.Memory.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if _, err := RunBreakdown(t.Context(), &Job{}, 1); !errors.Is(err, sentinel.ErrNoDevice) {
		t.Errorf("without operands: error %v, want ErrNoDevice", err)
	}
}

// TestGPUDividedBits compares random products on all GPUs of this machine with those on the first.
func TestGPUDividedBits(t *testing.T) {
	one := openGPU(t, backend.DeviceName{Kind: backend.GPU})
	all := openGPU(t, backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs})
	all.unit, all.panelBytes, all.dividesAll = 16, 1<<14, true
	pickAny(all)
	t.Logf("%d GPUs", len(all.members))
	rng := testrand.New(t)
	for range 1000 {
		c := randomCase(rng)
		want, err := c.run(t.Context(), one)
		if errors.Is(err, gemm.ErrUnsupported) {
			continue
		}
		got, errAll := c.run(t.Context(), all)
		if err != nil || errAll != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v: errors %v and %v, same bits: %v", c, err, errAll, slices.Equal(got, want))
		}
	}
}
