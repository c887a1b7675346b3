package resident

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// arrangement is the arrangement of the matrices of a batch in memory.
type arrangement uint8

const (
	stacked arrangement = iota // each in rows of its own, as [NewBatch] allocates them
	apart                      // below each other, with other rows in between
	beside                     // side by side
	shared                     // all products have one matrix
	arrangements
)

// batchCase is a batch whose bits are compared on different numbers of GPUs.
type batchCase struct {
	in, out        dtype.Type
	m, n, k, count int
	transA, transB bool
	transC         bool
	beta           complex128
	bias           gemm.BiasDim
	kernel         string
	arranged       [gemm.C + 1]arrangement
	splits         [gemm.C + 1]split.By
	seed           uint64
}

// run computes the batch on a device, and returns all memory with a C.
func (c *batchCase) run(ctx context.Context, d *GPUs) (_ []byte, err error) {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	p := &Job{Problem: gemm.Problem{Alpha: 1, Beta: c.beta, Epilogue: gemm.Epilogue{Bias: c.bias},
		Batch: gemm.Batch{Kind: gemm.Strided, Count: c.count}}, Kernel: c.kernel}
	var all []Matrix
	defer func() {
		for _, m := range all {
			err = device.Join(err, m.Memory.Close())
		}
	}()
	var result Matrix // all memory of C
	for o, x := range [...]struct {
		kind       dtype.Type
		rows, cols int
		trans      bool
	}{{c.in, c.m, c.k, c.transA}, {c.in, c.k, c.n, c.transB}, {c.out, c.m, c.n, c.transC}} {
		if x.trans {
			x.rows, x.cols = x.cols, x.rows
		}
		one := gemm.Dense(x.kind, x.rows, x.cols)
		block, step := one, split.Step{}
		switch c.arranged[o] {
		case stacked:
			step.Rows = x.rows
			block = gemm.Dense(x.kind, step.Rows*c.count, x.cols)
		case apart:
			step.Rows = x.rows + 2
			block = gemm.Dense(x.kind, step.Rows*max(c.count, 1), x.cols)
		case beside:
			step.Cols = x.cols + 3
			block = gemm.Dense(x.kind, x.rows, step.Cols*max(c.count, 1))
		}
		var m Matrix
		if c.arranged[o] == stacked {
			m, err = NewBatch(d, one, c.count, c.splits[o])
			m.Layout.Rows = block.Rows
		} else {
			m, err = New(d, block, c.splits[o])
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
		if err := m.CopyIn(ctx, someElements(rng, x.kind, block.Len()), block); err != nil {
			return nil, err
		}
		result = m
		p.Batch.Stride[o] = step.Rows*m.Layout.LD + step.Cols
		m.Layout.Rows, m.Layout.Cols, m.Layout.Trans = x.rows, x.cols, x.trans
		p.Operands[o].On = m
	}
	if c.bias != gemm.BiasNone {
		l := gemm.Dense(c.out, 1, max(c.m, c.n))
		l.Cols = c.n
		if c.bias == gemm.BiasRow {
			l.Cols = c.m
		}
		p.Operands[gemm.Bias] = Operand{Host: someElements(rng, c.out, l.Cols), Layout: l}
	}
	if err := compute(ctx, p); err != nil {
		return nil, err
	}
	l := gemm.Dense(c.out, result.Layout.Rows, result.Layout.Cols)
	got := make([]byte, l.Bytes())
	return got, result.CopyOut(ctx, got, l)
}

// randomBatch returns a random batch.
func randomBatch(rng *rand.Rand) *batchCase {
	types := [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {dtype.BF16, dtype.F32},
		{dtype.F64, dtype.F64}, {dtype.I8, dtype.I32}, {dtype.F8E4M3, dtype.F32}}
	pair := types[rng.IntN(len(types))]
	side := func() int { return 1 + rng.IntN([]int{3, 40}[rng.IntN(2)]) }
	flip := func() bool { return rng.IntN(2) == 0 }
	c := &batchCase{in: pair[0], out: pair[1], m: side(), n: side(), k: side(), count: rng.IntN(12), transA: flip(),
		transB: flip(), transC: flip(), beta: complex(float64(rng.IntN(2)), 0), seed: rng.Uint64()}
	if !c.in.Info().Integer {
		c.bias = gemm.BiasDim(rng.IntN(3))
	}
	for o := range c.arranged {
		c.arranged[o], c.splits[o] = arrangement(rng.IntN(int(arrangements))), split.By(rng.IntN(3))
	}
	c.arranged[gemm.C] %= shared
	return c
}

// compareBatches compares random batches on a device with those on one GPU, bit for bit.
func compareBatches(t *testing.T, rng *rand.Rand, one, d *GPUs, cases int) {
	t.Helper()
	for range cases {
		c := randomBatch(rng)
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
			t.Fatalf("%+v: the bits differ from those of one GPU, or elements outside C changed", c)
		}
	}
}

// TestDividedBatches compares random batches on several GPUs with those on one, with every
// division.
func TestDividedBatches(t *testing.T) {
	seed := testrand.Seed(t)
	one, _ := openSeveral(t, emu.Options{}, "h200")
	for _, n := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d, _ := openSeveral(t, emu.Options{Seed: seed}, several(n)...)
			pickAny(d)
			compareBatches(t, rand.New(rand.NewPCG(seed, uint64(n))), one, d, testkit.Cases(25, 75))
		})
	}
}

// TestGPUDividedBatches compares random batches on all GPUs of this machine with those on the first
// GPU.
func TestGPUDividedBatches(t *testing.T) {
	one := openGPU(t, backend.DeviceName{Kind: backend.GPU})
	all := openGPU(t, backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs})
	all.dividesAll = true
	pickAny(all)
	compareBatches(t, testrand.New(t), one, all, 500)
}

// TestDividedBatchPlan checks that equal GPUs compute equal numbers of products, and copy nothing
// if each has whole matrices.
func TestDividedBatchPlan(t *testing.T) {
	d, all := openSeveral(t, emu.Options{}, several(4)...)
	p := &Job{Problem: gemm.Problem{Alpha: 1, Batch: gemm.Batch{Kind: gemm.Strided, Count: 20}}}
	for o := range gemm.C + 1 {
		m, err := NewBatch(d, gemm.Dense(dtype.F32, 16, 16), 20, split.Rows)
		if err != nil {
			t.Fatal(err)
		}
		p.Operands[o].On, p.Batch.Stride[o] = m, m.Layout.Rows*m.Layout.LD
	}
	if err := p.complete(); err != nil {
		t.Fatal(err)
	}
	_, division, err := PlanOf(p)
	const want = "emu:h200 computes products 0 to 4; emu:h200#1 computes products 5 to 9; " +
		"emu:h200#2 computes products 10 to 14; emu:h200#3 computes products 15 to 19"
	if err != nil || division != want {
		t.Errorf("division %q, %v, want %q", division, err, want)
	}
	if err := errors.Join(Gemm(t.Context(), p), d.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, to := range all.emulated {
		for _, from := range all.emulated {
			if n := to.Copied(from); n != 0 {
				t.Errorf("%d bytes were copied", n)
			}
		}
	}
	p.Batch.Stride[gemm.A]++
	if _, _, err := PlanOf(p); !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), "side by side") {
		t.Errorf("matrices at odd distances: error %v, want ErrUnsupported", err)
	}
}
