package stream

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// largeCase is a product to compute with little memory.
type largeCase struct {
	name    string
	kernel  string
	p       func() (gemm.Problem, error)
	buffers gemm.Buffers
}

// largeCases returns products of every kind: of one launch, with packed operands, split along K,
// and with each operand that is copied by blocks. Without TILEWORK_FULL, the seed selects half.
func largeCases(t *testing.T, rng *rand.Rand) []largeCase {
	t.Helper()
	simple := func(in, out dtype.Type, m, n, k int, precision gemm.Precision) func() (gemm.Problem, error) {
		return func() (gemm.Problem, error) {
			p, _, err := gemm.New(1, gemm.Dense(in, m, k), gemm.Dense(in, k, n), 0, gemm.Dense(out, m, n), gemm.Epilogue{})
			if err != nil {
				return p, err
			}
			return p.WithPrecision(precision)
		}
	}
	cases := []largeCase{
		{name: "float32", p: simple(dtype.F32, dtype.F32, 130, 100, 90, gemm.Native)},
		{name: "float64", p: simple(dtype.F64, dtype.F64, 60, 90, 50, gemm.Native)},
		{name: "bfloat16", p: simple(dtype.BF16, dtype.BF16, 140, 90, 64, gemm.Native)},
		{name: "packed float32", p: simple(dtype.F32, dtype.F32, 140, 60, 72, gemm.F32x3)},
		{name: "packed TF32", kernel: "wgmma", p: simple(dtype.F32, dtype.F32, 70, 140, 40, gemm.TF32)},
		{name: "transposed TF32", kernel: "wgmma:64x64x32/2x16/4", p: simple(dtype.F32, dtype.F32, 70, 140, 40, gemm.TF32)},
		{name: "packed int8", kernel: "wgmma", p: simple(dtype.I8, dtype.I32, 140, 90, 130, gemm.Native)},
		{name: "packed e4m3", kernel: "wgmma", p: simple(dtype.F8E4M3, dtype.BF16, 70, 60, 256, gemm.Native)},
		{name: "split K", kernel: "blocked:64x64x8/8x4/4*2", p: simple(dtype.F32, dtype.F32, 100, 70, 64, gemm.Native)},
		{name: "transposes, bias, residual and old C", p: func() (gemm.Problem, error) {
			c := gemm.Dense(dtype.F32, 70, 90)
			p, _, err := gemm.New(1.5, gemm.Dense(dtype.F32, 50, 70).T(), gemm.Dense(dtype.F32, 90, 50).T(), 0.5, c,
				gemm.Epilogue{Bias: gemm.BiasCol, Residual: true})
			p.Layouts[gemm.Residual] = c
			return p, err
		}},
		{name: "uint8 with zero points", p: func() (gemm.Problem, error) {
			p, _, err := gemm.New(3, gemm.Dense(dtype.U8, 70, 90), gemm.Dense(dtype.I8, 140, 90).T(), 0,
				gemm.Dense(dtype.F32, 70, 140), gemm.Epilogue{RowZero: true, ColZero: true, Bias: gemm.BiasRow})
			return p, err
		}},
		{name: "gated", p: func() (gemm.Problem, error) {
			b := gemm.Dense(dtype.BF16, 64, 70)
			p, _, err := gemm.New(1, gemm.Dense(dtype.BF16, 90, 64), b, 0, gemm.Dense(dtype.BF16, 90, 70),
				gemm.Epilogue{Gated: true, Activation: gemm.ActSiLU})
			p.Layouts[gemm.Up] = b
			return p, err
		}},
	}
	rng.Shuffle(len(cases), func(i, k int) { cases[i], cases[k] = cases[k], cases[i] })
	cases = cases[:testkit.Cases(len(cases)/2, len(cases))]
	for i := range cases {
		cases[i].fill(t, rng)
	}
	return cases
}

// fill sets the buffers of the case to random numbers.
func (c *largeCase) fill(t *testing.T, rng *rand.Rand) {
	t.Helper()
	p, err := c.p()
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	for o := range gemm.Operands {
		l := p.Layout(o)
		if !p.Uses(o) {
			continue
		}
		m := make([]byte, l.Bytes())
		for j := range l.Type.Elements(len(m)) {
			l.Type.Set(m, j, rng.Float64()*4-2)
		}
		c.buffers[o] = m
	}
}

// plan plans p, the product of the case.
func (c *largeCase) plan(t *testing.T, b *Backend, p *gemm.Problem) *Plan {
	t.Helper()
	kernel, tile, _ := strings.Cut(c.kernel, ":")
	pl, err := b.Plan(p, exec.Options{Kernel: kernel, Tile: tile})
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return pl
}

// run computes the case on a device with a limit of its memory, and returns the plan and C. It
// checks that the work of the blocks is that of the plan.
func (c *largeCase) run(t *testing.T, d device.Device, limit int) (*Plan, []byte, error) {
	t.Helper()
	p, err := c.p()
	if err != nil {
		t.Fatal(err)
	}
	b := New(d)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	pl := c.plan(t, b, &p)
	pl.Limit = limit
	var finished atomic.Int64
	pl.Finished = func(work int64) { finished.Add(work) }
	got, err := computed(t.Context(), pl, c.buffers)
	if err == nil && finished.Load() != pl.Work() {
		t.Errorf("%s: finished %d of %d", c.name, finished.Load(), pl.Work())
	}
	return pl, got, err
}

// TestMemoryChangesNoBits computes products with less and less memory, as a limit and as all memory
// of the device. Each result must have the bits of that with all memory, and no product may
// allocate more than the limit. Below the smallest schedule, Run must return ErrOutOfMemory without
// touching C.
func TestMemoryChangesNoBits(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range largeCases(t, rng) {
		open := func(memory int64) *faulty.Device {
			d, err := emu.Open(emu.Options{Seed: rng.Uint64(), Memory: memory})
			if err != nil {
				t.Fatal(err)
			}
			return faulty.New(d)
		}
		pl, want, err := c.run(t, open(1<<30), 0)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		all, smallest := pl.Steps.Memory(), pl.smallest(pl.Steps.order).Memory()
		steps, fraction := 0, 3
		if testkit.Full() {
			fraction = 8
		}
		for limit := all; limit > smallest; {
			limit = max(smallest, min(limit-1, limit/10*fraction))
			d := open(1 << 30)
			pl, got, err := c.run(t, d, limit)
			steps = max(steps, len(pl.Steps.steps))
			switch {
			case err != nil:
				t.Errorf("%s in %d of %d bytes, at least %d: %v", c.name, limit, all, smallest, err)
			case !bytes.Equal(got, want):
				t.Errorf("%s in %d of %d bytes: other bits than with all memory: %s", c.name, limit, all, pl.Detail())
			case d.MostBytes() > limit:
				t.Errorf("%s in %d bytes: allocated %d", c.name, limit, d.MostBytes())
			}
			if _, got, err = c.run(t, open(int64(limit+limit/8)), 0); err != nil && limit > smallest+smallest/4 ||
				err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s on a device with %d bytes: error %v, the same bits: %v", c.name, limit+limit/8, err,
					bytes.Equal(got, want))
			}
		}
		if _, got, err := c.run(t, open(1<<30), smallest-1); !errors.Is(err, sentinel.ErrOutOfMemory) ||
			!bytes.Equal(got, c.buffers[gemm.C]) {
			t.Errorf("%s in %d bytes: error %v, want ErrOutOfMemory and C as before", c.name, smallest-1, err)
		}
		t.Logf("%s: %d bytes in all, %d at least, up to %d steps", c.name, all, smallest, steps)
	}
}

// TestMemoryTaken fails each allocation of a product in turn, as if another program had taken the
// memory. The product must continue in smaller blocks, with the same bits and without a leak.
func TestMemoryTaken(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range largeCases(t, rng) {
		inner, err := emu.Open(emu.Options{Seed: rng.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		pl, want, err := c.run(t, inner, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		limit := (pl.Steps.Memory() + pl.smallest(pl.Steps.order).Memory()) / 2 // several blocks
		failed := 0
		for n := 1; ; n++ {
			d := &taken{Device: faulty.New(inner), failAt: n}
			_, got, err := c.run(t, d, limit)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, allocation %d failed: error %v, the same bits: %v", c.name, n, err, bytes.Equal(got, want))
			}
			if left := d.Device.Leaks(); len(left) > 0 {
				t.Errorf("%s, allocation %d failed: leaked %v", c.name, n, left)
			}
			if d.allocs < n {
				break
			}
			failed++
		}
		t.Logf("%s: failed each of %d allocations", c.name, failed)
		if failed < 3 {
			t.Errorf("%s: made %d allocations, want at least 3", c.name, failed)
		}
	}
}

// taken wraps a device and fails one allocation.
type taken struct {
	*faulty.Device
	allocs, failAt int
}

func (d *taken) Alloc(n int) (device.Ptr, error) {
	if d.allocs++; d.allocs == d.failAt {
		return 0, device.ErrOutOfMemory
	}
	return d.Device.Alloc(n)
}
