package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/gputest"
	gpukernel "tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestGPUAgrees checks that every kernel, in every listed tile, with every type and transpose,
// computes the same bits on the GPU as on the emulator. The inputs are random fractions.
func TestGPUAgrees(t *testing.T) {
	g := openGPU(t)
	agree(t, g, emulated(t, 1))
	t.Logf("on %s, driver for %s, and the emulator", g.Info().Name, g.Details().Driver)
}

// TestGPURepeats checks that every kernel computes the same bits twice. It does not use the
// emulator, so compute-sanitizer can run over all kernels.
func TestGPURepeats(t *testing.T) {
	g := openGPU(t)
	agree(t, g, g)
}

// TestOrdersAgree checks that the order in which the emulator runs warps does not change any bits.
func TestOrdersAgree(t *testing.T) {
	agree(t, emulated(t, 1), emulated(t, 2))
}

// TestDisagreementShows checks that the comparison detects a single wrong bit.
func TestDisagreementShows(t *testing.T) {
	k := choose.Kernels()[0]
	c := agreement{k, k.Tiles[0], gemmtest.Pairs()[0], gemm.Native, 0, 5, 6, 7}
	if err := c.check(t.Context(), stream.New(emulated(t, 1)), stream.New(emulated(t, 1)), 1); err != nil {
		t.Error(err)
	}
	if err := c.check(t.Context(), stream.New(emulated(t, 1)), stream.New(&flipping{emulated(t, 1)}), 1); err == nil {
		t.Error("check did not detect a flipped bit")
	}
}

// flipping is an emulated GPU whose CopyOut flips the last byte's lowest bit.
type flipping struct{ *emu.Device }

func (d *flipping) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	err := d.Device.CopyOut(ctx, dst, src, rows)
	dst[len(dst)-1] ^= 1
	return err
}

// emulated returns an emulated H200.
func emulated(t *testing.T, seed uint64) *emu.Device {
	t.Helper()
	d, err := emu.Open(emu.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// agreement is a product that two devices must compute with the same bits.
type agreement struct {
	kernel    *gpukernel.Kernel
	shape     gpukernel.Tile
	types     gemmtest.Pair
	precision gemm.Precision
	trans     int // bit 0: A, bit 1: B
	m, n, k   int
}

func (c agreement) String() string {
	return fmt.Sprintf("%s:%v, %v → %v in %v, %d×%d×%d, transposes %02b", c.kernel.Name, c.shape, c.types.In,
		c.types.Out, c.precision, c.m, c.n, c.k, c.trans)
}

// agreements returns the products to compare for a kernel. Some are slightly larger than one tile,
// with unaligned rows; others consist of whole tiles, which use vector copies.
//
// Each tile is tested with each type and each transpose, with two exceptions. On the emulator, a
// tile and type are tested with one transpose, and without TILEWORK_FULL only the last tile of each
// type. On tensor cores, whose emulation is slow, all but the last tile are tested with one type.
func agreements(k *gpukernel.Kernel, d *device.Info) []agreement {
	var all []agreement
	for i, s := range k.Tiles {
		if d.Emulated && k.Target().Suffix != "" && s.M*s.N > 64*64 {
			continue // emulating large warpgroup tiles takes too long
		}
		var fitting []agreement
		for _, pair := range gemmtest.Pairs() {
			for _, precision := range gemm.Precisions() {
				c := agreement{k, s, pair, precision, 0, s.M + 3, s.N + 5, 2*max(s.K, 8) + 3}
				if c.fits(d) {
					fitting = append(fitting, c)
				}
			}
		}
		for j, c := range fitting {
			last := !slices.ContainsFunc(k.Tiles[i+1:], func(s gpukernel.Tile) bool {
				c.shape = s
				return c.fits(d)
			})
			if !last && (k.Tensor && j != i%len(fitting) || d.Emulated && !testkit.Full()) {
				continue
			}
			whole := func(c agreement) agreement {
				c.m, c.n, c.k = max(2*s.M, 16), max(s.N, 16), c.k-3
				return c
			}
			if d.Emulated || !last && k.Tensor {
				if c.trans = (i + j) % 4; (i+j)/4%2 == 1 {
					c = whole(c)
				}
				all = append(all, c)
				continue
			}
			for c.trans = range 4 {
				all = append(all, c)
				if c.trans == 0 || c.trans == 3 {
					all = append(all, whole(c))
				}
			}
		}
	}
	// The shared memory for C depends on the alignment of its rows.
	return slices.DeleteFunc(all, func(c agreement) bool { return !c.fits(d) })
}

// agree checks all products of each kernel on two devices, several concurrently. Each product
// compiles its own kernel and unloads it, because all decoded kernels together would take
// gigabytes.
func agree(t *testing.T, a, b device.Device) {
	for _, k := range choose.Kernels() {
		t.Run(k.Name, func(t *testing.T) {
			if in := a.Info(); !in.Target.Has(k.Target()) {
				t.Skipf("the kernel requires %v and %s is %v", k.Target(), in.Name, in.Target)
			}
			all, seed := agreements(k, a.Info()), testrand.Seed(t)
			t.Logf("%d products", len(all))
			next := make(chan int)
			var wg sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					for i := range next {
						x, y := stream.New(a), stream.New(b)
						err := all[i].check(t.Context(), x, y, seed+uint64(i))
						if err := errors.Join(err, x.Close(), y.Close()); err != nil {
							t.Errorf("%v (product %d): %v", all[i], i, err)
						}
					}
				})
			}
			for i := range all {
				next <- i
			}
			close(next)
			wg.Wait()
		})
	}
}

// check computes the product on both devices and compares all bits of C. The epilogue contains all
// exact operations: alpha, beta, a bias and ReLU.
func (c agreement) check(ctx context.Context, x, y *stream.Backend, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	epilogue := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}
	if rng.IntN(2) == 0 {
		epilogue.Activation = gemm.ActReLU
	}
	p, err := c.problem(epilogue)
	if err == nil && c.kernel.Check(p, c.shape, gpukernel.Align{}, nil) != nil { // no registers are left for the bias
		p, err = c.problem(gemm.Epilogue{Activation: epilogue.Activation})
	}
	if err != nil {
		return err
	}
	m := gemm.Buffers{gemm.A: fractions(rng, p.Layouts[gemm.A]), gemm.B: fractions(rng, p.Layouts[gemm.B]),
		gemm.Bias: fractions(rng, gemm.Dense(c.types.Out, 1, p.BiasLen()))}
	old := fractions(rng, p.Layouts[gemm.C])
	var results [2][]byte
	for i, backend := range []*stream.Backend{x, y} {
		m[gemm.C] = append([]byte(nil), old...)
		plan, err := backend.Plan(p, exec.Options{Kernel: c.kernel.Name, Tile: c.shape.String(), KeepLayout: true})
		if err != nil {
			return err
		}
		if err := plan.Run(ctx, m); err != nil {
			return err
		}
		results[i] = m[gemm.C]
	}
	return c.compare(results)
}

// compare returns an error if elements of the results differ.
func (c agreement) compare(results [2][]byte) error {
	wrong, first, out := 0, 0, c.types.Out
	for i := range c.m * c.n {
		size := out.Size()
		if string(results[0][i*size:(i+1)*size]) != string(results[1][i*size:(i+1)*size]) {
			if wrong++; wrong == 1 {
				first = i
			}
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d elements differ, the first at row %d, column %d: %v and %v", wrong, first/c.n, first%c.n,
			out.At(results[0], first), out.At(results[1], first))
	}
	return nil
}

// fits reports whether a device can compute the product with the kernel's tile.
func (c agreement) fits(d *device.Info) bool {
	p, err := c.problem(gemm.Epilogue{})
	return err == nil && gputest.Way{Kernel: c.kernel, Precision: c.precision, Shape: c.shape}.Takes(p, d)
}

// problem returns the product with the given epilogue.
func (c agreement) problem(e gemm.Epilogue) (*gemm.Problem, error) {
	a, b := gemm.Dense(c.types.In, c.m, c.k), gemm.Dense(c.types.In, c.k, c.n)
	if c.trans&1 != 0 {
		a = gemm.Dense(c.types.In, c.k, c.m).T()
	}
	if c.trans&2 != 0 {
		b = gemm.Dense(c.types.In, c.n, c.k).T()
	}
	alpha, beta := complex128(1.25), complex128(-0.75)
	if c.types.In.Info().Integer {
		alpha, beta = 3, -2
	}
	p, _, err := gemm.New(alpha, a, b, beta, gemm.Dense(c.types.Out, c.m, c.n), e)
	if err == nil {
		p, err = p.WithPrecision(c.precision)
	}
	return &p, err
}

// fractions returns random elements: fractions of widely varying magnitude and some subnormals, or
// integers for integer types.
func fractions(rng *rand.Rand, l gemm.Layout) []byte {
	b := make([]byte, l.Bytes())
	for i := range l.Rows * l.Cols {
		v := 2*rng.Float64() - 1
		switch {
		case l.Type.Info().Integer:
			v = float64(int8(rng.Uint32()))
		case rng.IntN(50) == 0:
			v *= smallest[l.Type]
		case rng.IntN(4) == 0:
			v *= float64(int(1) << rng.IntN(9))
		}
		l.Type.Set(b, i, v)
	}
	return b
}

// smallest gives a magnitude in the subnormal range of each type.
var smallest = map[dtype.Type]float64{dtype.F64: 0x1p-1030, dtype.F32: 0x1p-130, dtype.BF16: 0x1p-130,
	dtype.F16: 0x1p-15, dtype.F8E4M3: 0x1p-8, dtype.F8E5M2: 0x1p-15}
