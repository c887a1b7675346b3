package exec

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

// uploaded returns the operands of p in the memory of d.
func uploaded(t *testing.T, d device.Device, p *gemm.Problem, b gemm.Buffers) (m kernel.Memory) {
	t.Helper()
	for o, data := range b {
		if len(data) == 0 {
			continue
		}
		m[o] = alloc(t, d, len(data))
		if err := d.CopyIn(t.Context(), m[o], data, device.Whole(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// downloaded returns C of p, which is at an address of d.
func downloaded(t *testing.T, d device.Device, p *gemm.Problem, at device.Ptr) []byte {
	t.Helper()
	c := make([]byte, p.Bytes()[gemm.C])
	if err := d.CopyOut(t.Context(), c, at, device.Whole(len(c))); err != nil {
		t.Fatal(err)
	}
	return c
}

// withScratch returns a random small product and a kernel and tile to request. Many need scratch
// memory.
func withScratch(t *testing.T, rng *rand.Rand) (p gemm.Problem, opt Options) {
	t.Helper()
	side := func() int { return 1 + rng.IntN(90) }
	in, m, n, k := []dtype.Type{dtype.F32, dtype.BF16, dtype.I8}[rng.IntN(3)], side(), side(), 100+side()
	layout := func(rows, cols int) gemm.Layout {
		if rng.IntN(2) == 0 {
			return gemm.Dense(in, cols, rows).T()
		}
		return gemm.Dense(in, rows, cols)
	}
	opt.KeepLayout = true
	e := gemm.Epilogue{}
	switch rng.IntN(3) {
	case 0:
		opt.Kernel, opt.Tile = "blocked", "16x64x16/4x4/4*3"
	case 1:
		opt.Kernel = "wgmma"
	case 2:
		opt.Kernel, opt.Tile = "blocked", "16x64x16/4x4/4*2"
		if !in.Info().Integer {
			e.Activation, e.Gated = gemm.ActSiLU, true
		}
	}
	p, _, err := gemm.New(1, layout(m, k), layout(k, n), 0, gemm.Dense(in.Info().Results[0], m, n), e)
	if err == nil && e.Gated {
		p.Layouts[gemm.Up] = *p.B()
		_, err = p.Complete()
	}
	if err == nil && in == dtype.F32 && opt.Kernel == "wgmma" {
		p, err = p.WithPrecision([]gemm.Precision{gemm.TF32, gemm.F32x3}[rng.IntN(2)])
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, opt
}

// TestScratchBytes computes random products in scratch memory of exactly ScratchBytes, and compares
// them with the results of plans that allocate it. Every access must be in bounds.
func TestScratchBytes(t *testing.T) {
	rng := testrand.New(t)
	d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Bounds, check.Uninit}})
	b := New(d)
	used := 0
	for range testkit.Cases(30, 200) {
		p, opt := withScratch(t, rng)
		pl, err := b.Plan(&p, opt)
		if err != nil {
			continue
		}
		m := uploaded(t, d, &p, testkit.Filled(rng, &p))
		if err := pl.Enqueue(t.Context(), m); err != nil {
			t.Fatalf("%v: %v", &p, err)
		}
		want := downloaded(t, d, &p, m[gemm.C])
		n := pl.ScratchBytes()
		scratch := alloc(t, d, n)
		if err := pl.In(d, scratch).Enqueue(t.Context(), m); err != nil {
			t.Fatalf("%v: %v", &p, err)
		}
		if got := downloaded(t, d, &p, m[gemm.C]); !bytes.Equal(got, want) {
			t.Errorf("%v with %s: other bits in scratch memory of %d bytes", &p, pl.Spec(), n)
		}
		if n > 0 {
			used++
		}
	}
	if used < 10 {
		t.Errorf("%d products with scratch memory, want at least 10", used)
	}
}

// TestHugeScratch checks that scratch memory whose size an int does not hold is out of memory.
func TestHugeScratch(t *testing.T) {
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 1<<22, 1<<24), gemm.Dense(dtype.F32, 1<<24, 1<<24), 0,
		gemm.Dense(dtype.F32, 1<<22, 1<<24), gemm.Epilogue{})
	if err != nil {
		t.Skip(err) // an int has 32 bits
	}
	pl, err := New(hopper()).Plan(&p, Options{Kernel: "blocked", Tile: "128x128x8/8x8/4*65535", KeepLayout: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := pl.ScratchBytes(); got != math.MaxInt {
		t.Errorf("%v takes %d bytes of scratch memory, want %d", &p, got, math.MaxInt)
	}
}
