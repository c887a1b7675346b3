package resident

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// groupsCase is a product of groups of rows whose bits are compared on different numbers of GPUs.
type groupsCase struct {
	in, out  dtype.Type
	n, k     int
	ends     []int32
	after    int // rows after the last group
	transB   bool
	beta     complex128
	bias     gemm.BiasDim
	kernel   string
	arranged arrangement // of the matrices of B
	splits   [gemm.C + 1]split.By
	onDevice split.By // of the ends
	onHost   bool     // instead
	verify   bool
	seed     uint64
}

// run computes the groups on a device, and returns all of C.
func (c *groupsCase) run(ctx context.Context, d *GPUs) (_ []byte, err error) {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	m, count := c.after, len(c.ends)
	if count > 0 {
		m += int(c.ends[count-1])
	}
	var all []Matrix
	defer func() {
		for _, m := range all {
			err = device.Join(err, m.Memory.Close())
		}
	}()
	place := func(l gemm.Layout, by split.By, data []byte) (m Matrix, err error) {
		if m, err = New(d, l, by); err == nil {
			all = append(all, m)
			err = m.CopyIn(ctx, data, l)
		}
		return m, err
	}
	p := product(1, c.beta, nil)
	p.Epilogue.Bias, p.Kernel, p.Verify = c.bias, c.kernel, c.verify
	one := gemm.Dense(c.in, c.k, c.n)
	if c.transB {
		one = gemm.Dense(c.in, c.n, c.k)
	}
	block, step := one, split.Step{}
	switch c.arranged {
	case stacked, apart:
		step.Rows = one.Rows + 2*int(c.arranged)
		block.Rows = step.Rows * max(count, 1)
	case beside:
		step.Cols = one.Cols + 3
		block = gemm.Dense(c.in, one.Rows, step.Cols*max(count, 1))
	}
	layouts := [...]gemm.Layout{gemm.Dense(c.in, m, c.k), block, gemm.Dense(c.out, m, c.n)}
	for o, l := range layouts {
		if p.Operands[o].On, err = place(l, c.splits[o], someElements(rng, l.Type, l.Len())); err != nil {
			return nil, err
		}
	}
	b := &p.Operands[gemm.B].On
	p.Batch = gemm.Batch{Kind: gemm.Grouped, Count: count,
		Stride: gemm.Strides{gemm.B: step.Rows*b.Layout.LD + step.Cols}}
	b.Layout.Rows, b.Layout.Cols, b.Layout.Trans = one.Rows, one.Cols, c.transB
	if c.bias != gemm.BiasNone {
		l := gemm.Dense(c.out, 1, c.n)
		if c.bias == gemm.BiasRow {
			l = gemm.Dense(c.out, 1, m)
		}
		p.Operands[gemm.Bias] = Operand{Host: someElements(rng, c.out, l.Len()), Layout: l}
	}
	ends := gemm.Dense(dtype.I32, 1, count)
	data := make([]byte, ends.Bytes())
	for i, end := range c.ends {
		dtype.I32.Set(data, i, float64(end))
	}
	p.Operands[gemm.GroupEnds] = Operand{Host: data, Layout: ends}
	if !c.onHost {
		on, err := place(ends, c.onDevice, data)
		if err != nil {
			return nil, err
		}
		p.Operands[gemm.GroupEnds] = Operand{On: on}
	}
	if err := compute(ctx, p); err != nil {
		return nil, err
	}
	got := make([]byte, layouts[gemm.C].Bytes())
	return got, p.c().CopyOut(ctx, got, layouts[gemm.C])
}

// randomGroups returns random groups of rows, some of them empty.
func randomGroups(rng *rand.Rand) *groupsCase {
	types := [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {dtype.BF16, dtype.F32},
		{dtype.F64, dtype.F64}, {dtype.I8, dtype.I32}, {dtype.F8E4M3, dtype.F32}}
	pair := types[rng.IntN(len(types))]
	flip := func() bool { return rng.IntN(2) == 0 }
	c := &groupsCase{in: pair[0], out: pair[1], n: 1 + rng.IntN(150), k: 1 + rng.IntN(40),
		after: rng.IntN(2) * rng.IntN(9), transB: flip(), beta: complex(float64(rng.IntN(2)), 0),
		arranged: arrangement(rng.IntN(int(arrangements))),
		onDevice: split.By(rng.IntN(3)), onHost: flip(), verify: rng.IntN(5) == 0, seed: rng.Uint64()}
	end := 0
	for range rng.IntN(6) {
		end += rng.IntN(2) * rng.IntN(40)
		c.ends = append(c.ends, int32(end))
	}
	if !c.in.Info().Integer {
		c.bias = gemm.BiasDim(rng.IntN(3))
	}
	for o := range c.splits {
		c.splits[o] = split.By(rng.IntN(3))
	}
	return c
}

// compareGroups compares random groups of rows on a device with those on one GPU, bit for bit.
func compareGroups(t *testing.T, rng *rand.Rand, one, d *GPUs, cases int) {
	t.Helper()
	compared := 0
	for range cases {
		c := randomGroups(rng)
		want, err := c.run(t.Context(), one)
		if errors.Is(err, gemm.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatalf("%+v on one GPU: %v", c, err)
		}
		got, err := c.run(t.Context(), d)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: the bits differ from those of one GPU, or rows after the last group changed", c)
		}
		compared++
	}
	if compared < cases/2 {
		t.Errorf("%d of %d products ran, want at least half", compared, cases)
	}
}

// TestDividedGroups compares random groups of rows on 1 to 8 GPUs with those on one, with every
// division.
func TestDividedGroups(t *testing.T) {
	seed := testrand.Seed(t)
	one, _ := openSeveral(t, emu.Options{}, "h200")
	for _, n := range []int{1, 2, 3, 4, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d, _ := openSeveral(t, emu.Options{Seed: seed}, several(n)...)
			pickAny(d)
			compareGroups(t, rand.New(rand.NewPCG(seed, uint64(n))), one, d, testkit.Cases(8, 40))
		})
	}
}

// TestGPUDividedGroups compares random groups of rows on all GPUs of this machine with those on the
// first GPU.
func TestGPUDividedGroups(t *testing.T) {
	one := openGPU(t, backend.DeviceName{Kind: backend.GPU})
	all := openGPU(t, backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs})
	all.unit, all.panelBytes, all.dividesAll = 16, 1<<14, true
	pickAny(all)
	compareGroups(t, testrand.New(t), one, all, 500)
}

// TestDividedGroupsPlan checks that GPUs with columns of all matrices of B compute these columns
// and copy nothing, if each has A and C is divided by columns too.
func TestDividedGroupsPlan(t *testing.T) {
	const groups, rows, n, k = 4, 64, 128, 32
	d, all := openSeveral(t, emu.Options{}, several(2)...)
	d.unit = 16
	c := &groupsCase{in: dtype.F32, out: dtype.F32, n: n, k: k, seed: 1, arranged: stacked, onDevice: split.OnEach,
		splits: [...]split.By{split.OnEach, split.Columns, split.Columns}}
	for g := range groups {
		c.ends = append(c.ends, int32((g+1)*rows/groups))
	}
	if _, err := c.run(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if n := all.emulated[0].Copied(all.emulated[1]) + all.emulated[1].Copied(all.emulated[0]); n != 0 {
		t.Errorf("%d bytes were copied", n)
	}
	found := false
	for _, v := range d.divisions.All() {
		found = found || v.String() == "emu:h200 computes columns 0 to 63; emu:h200#1 computes columns 64 to 127"
	}
	if !found {
		t.Errorf("no division by columns among %d", len(d.divisions.All()))
	}
}
