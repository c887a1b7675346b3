package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	ptxemu "tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// tileCase is a tile of kernel wgmma and the element types that a test multiplies in it.
type tileCase struct {
	in, out   dtype.Type
	precision gemm.Precision
	tile      string
	transB    bool
	sms       int
}

func (c *tileCase) String() string { return fmt.Sprintf("%v in %v, %s", c.in, c.precision, c.tile) }

// problem returns a product of M×N×K.
func (c *tileCase) problem(t *testing.T, m, n, k int) *gemm.Problem {
	t.Helper()
	p := testkit.Product(t, c.in, c.out, m, n, k)
	if c.transB {
		p.Layouts[gemm.B] = gemm.Dense(c.in, n, k).T()
	}
	q, err := p.WithPrecision(c.precision)
	if err != nil {
		t.Fatal(err)
	}
	return &q
}

// run returns C as kernel wgmma computes it with a tile, on operands x.
func (c *tileCase) run(t *testing.T, b *exec.Backend, p *gemm.Problem, x gemm.Buffers, tile string) []byte {
	t.Helper()
	pl, err := b.Plan(p, exec.Options{Kernel: sm90.WGMMA.Name, Tile: tile, KeepLayout: true})
	if err != nil {
		t.Fatal(err)
	}
	product := bytes.Clone(x[gemm.C])
	err = devicetest.WithBuffers(t.Context(), b.Device, 2, [][]byte{x[gemm.A], x[gemm.B], product},
		func(at []device.Ptr) error {
			return pl.Enqueue(t.Context(), kernel.Memory{gemm.A: at[0], gemm.B: at[1], gemm.C: at[2]})
		})
	if err != nil {
		t.Fatal(err)
	}
	return product
}

// TestStreamK checks under all checkers that stream-K has the bits of an undivided K: for columns
// of tiles that have a gang and others that do not, for one round and several, and for any number
// of steps.
func TestStreamK(t *testing.T) {
	cases := []tileCase{
		{dtype.BF16, dtype.BF16, gemm.Native, "128x64x64/2x16/3", false, 3},
		{dtype.BF16, dtype.F32, gemm.Native, "128x32x64/2x8/3t", true, 4},
		{dtype.BF16, dtype.BF16, gemm.Native, "128x64x64/2x16/3c2", false, 6},
		{dtype.F8E4M3, dtype.BF16, gemm.Native, "128x64x128/2x16/3", true, 3},
		{dtype.F8E4M3, dtype.BF16, gemm.Fast, "128x32x128/2x8/3t", true, 3},
		{dtype.I8, dtype.I32, gemm.Native, "128x64x128/2x16/3", true, 2},
		{dtype.F32, dtype.F32, gemm.TF32, "128x64x32/2x16/3", true, 3},
	}
	parallel(t, cases, func(c tileCase) string { return c.String() }, func(t *testing.T, c tileCase) {
		rng := testrand.New(t)
		s, err := sm90.WGMMA.ParseTile(c.tile)
		if err != nil {
			t.Fatal(err)
		}
		height, width := kernel.SwapAB(s, s.M*s.BlocksM(), s.N)
		b := exec.New(devicetest.CheckedSMs(t, c.sms, check.Options{MaxConflicts: 2, MaxScatter: 2}))
		for range testkit.Repeats(3, 1000) {
			rows, columns, steps := 1+rng.IntN(4), 1+rng.IntN(6), rng.IntN(8)
			m, n := rows*height-rng.IntN(height), columns*width-8*rng.IntN(width/8)
			k := max(steps*s.K-rng.IntN(s.K), 0)
			p := c.problem(t, m, n, k)
			x := testkit.Filled(rng, p)
			streamed := strings.Replace(c.tile, "c", "sc", 1)
			if streamed == c.tile {
				streamed += "s"
			}
			if want, got := c.run(t, b, p, x, c.tile), c.run(t, b, p, x, streamed); !bytes.Equal(got, want) {
				t.Errorf("%v on %d SMs: stream-K has other bits", p, c.sms)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStreamKDivides checks that stream-K gives each SM of a GPU equally much work: on 3 SMs, 4
// tiles of 9 steps are 12 steps for each.
func TestStreamKDivides(t *testing.T) {
	c := tileCase{in: dtype.BF16, out: dtype.BF16, tile: "128x64x64/2x16/3"}
	p := c.problem(t, 128, 4*64, 9*64)
	steps := func(tile string) int {
		loaded := &stepCounter{}
		d := devicetest.FewSMs(t, emu.Options{Watch: func(l *ptxemu.Launch) emu.Done {
			l.Observers = append(l.Observers, loaded)
			return nil
		}})
		c.run(t, exec.New(d), p, testkit.Filled(testrand.New(t), p), tile)
		return int(max(loaded[0].Load(), loaded[1].Load(), loaded[2].Load()))
	}
	if plain, streamed := steps(c.tile), steps(c.tile+"s"); plain != 18 || streamed != 12 {
		t.Errorf("the busiest SM multiplies %d steps, and %d with stream-K, want 18 and 12", plain, streamed)
	}
}

// stepCounter counts the steps that the producer of each of 3 blocks loads.
type stepCounter [3]atomic.Int64

// Block implements [ptxemu.Observer].
func (c *stepCounter) Block(b *ptxemu.BlockInfo) *ptxemu.Hooks {
	return &ptxemu.Hooks{Execute: func(o ptxemu.Origin) {
		if strings.HasPrefix(o.Site.Opcode, "mbarrier.arrive.expect_tx") {
			c[b.Linear].Add(1)
		}
	}}
}

// TestStreamKRefused checks that products and tiles that cannot have stream-K are ErrUnsupported,
// with the reason.
func TestStreamKRefused(t *testing.T) {
	for _, c := range []struct{ tile, want string }{
		{"64x64x64/2x16/3s", "stream-K: want two warpgroups"},
		{"128x64x64/2x16/3sk2", "K undivided"},
		{"128x64x64/2x16/3s*2", "K undivided"},
		{"128x64x64/2x16/3s+2", "K undivided"},
	} {
		_, err := sm90.WGMMA.ParseTile(c.tile)
		if !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("tile %s: ParseTile returned %v, want %q", c.tile, err, c.want)
		}
	}
	if _, err := kernel.MMA.ParseTile("128x128x32/4x8/3s"); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("kernel mma with stream-K: ParseTile returned %v, want ErrUnsupported", err)
	}
	bf16 := testkit.Product(t, dtype.BF16, dtype.BF16, 256, 256, 256)
	fp8 := testkit.BlockScaled(t, 256, 256, 256, dtype.BF16, 1, 128)
	grouped, residual := *bf16, *bf16
	grouped.Batch = gemm.Batch{Kind: gemm.Grouped, Count: 2}
	residual.Epilogue.Residual, residual.Layouts[gemm.Residual] = true, residual.Layouts[gemm.C]
	f32x3, err := testkit.Product(t, dtype.F32, dtype.F32, 256, 256, 256).WithPrecision(gemm.F32x3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, tile, want string
		p                *gemm.Problem
	}{
		{"groups", "128x64x64/2x16/3s", "no groups", &grouped},
		{"residual", "128x64x64/2x16/3s", "no residual", &residual},
		{"block scales", "128x64x128/2x16/3s", "no block scales", &fp8},
		{"f32x3", "128x64x64/2x16/3s", "no operand split", &f32x3},
	} {
		s, err := sm90.WGMMA.ParseTile(c.tile)
		if err != nil {
			t.Fatal(err)
		}
		if err := sm90.WGMMA.Check(c.p, s, kernel.Align{}, nil); !errors.Is(err, gemm.ErrUnsupported) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Check returned %v, want %q", c.name, err, c.want)
		}
	}
	// Without memory to hand accumulators over, a launch would write anywhere.
	s, err := sm90.WGMMA.ParseTile("128x64x64/2x16/3s")
	if err != nil {
		t.Fatal(err)
	}
	config := sm90.WGMMA.Config(bf16, s)
	_, err = sm90.WGMMA.Launch(kernel.Args{Config: &config, Problem: bf16}, devicetest.Checked(t, check.Options{}))
	if !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("Launch without memory returned %v, want ErrUnsupported", err)
	}
}
