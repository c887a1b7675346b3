package choose_test

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// TestSplitChosen checks that K is split where C has few tiles, and that the plan says so.
func TestSplitChosen(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		m, n, k int
		split   bool
	}{{4096, 4096, 4096, false}, {64, 64, 65536, true}, {16, 4096, 4096, true}, {64, 64, 64, false},
		{4096, 4096, 16, false}} {
		plan, err := stream.New(d).Plan(testkit.Product(t, dtype.F32, dtype.F32, x.m, x.n, x.k),
			exec.Options{Kernel: "blocked"})
		if err != nil {
			t.Fatal(err)
		}
		says := strings.Contains(plan.Why, "add the parts of K")
		if split := plan.Config.Tile.SplitK > 1; split != x.split || says != x.split {
			t.Errorf("%d×%d×%d: %v, because %s", x.m, x.n, x.k, plan.Config, plan.Why)
		}
	}
}

// TestSkinnyChosen checks that products of few rows or columns get the kernel skinny, in a tile
// with its few rows or columns on their side.
func TestSkinnyChosen(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		m, n, k int
		want    string // a prefix of the tile; empty for another kernel
	}{
		{1, 4096, 4096, "1x32"}, {4096, 1, 4096, "32x1"}, {1, 1024, 4096, "1x8"}, {1024, 1, 4096, "8x1"},
		{2, 4096, 4096, "4x32"}, {4096, 8, 4096, "32x8"}, {1, 28672, 4096, "1x32"},
		{9, 4096, 4096, ""}, {512, 512, 512, ""},
	} {
		plan, err := stream.New(d).Plan(testkit.Product(t, dtype.F32, dtype.F32, x.m, x.n, x.k), exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d×%d×%d: %s %v: %s", x.m, x.n, x.k, plan.Kernel.Name, plan.Config.Tile, plan.Why)
		if (plan.Kernel == kernel.Skinny) != (x.want != "") || !strings.HasPrefix(plan.Config.Tile.String(), x.want) {
			t.Errorf("%d×%d×%d: %s with tile %v", x.m, x.n, x.k, plan.Kernel.Name, plan.Config.Tile)
		}
	}
}

// TestSmallestGetMMA checks that the smallest products get mma, which was measured to be faster
// than wgmma.
func TestSmallestGetMMA(t *testing.T) {
	d := devicetest.NewNull()
	d.Device.SMs = h200.SMs
	d.Device.Target, d.Device.MaxShared = sm90.WGMMA.Target(), 227<<10
	for n, want := range map[int]*kernel.Kernel{64: kernel.MMA, 128: kernel.MMA, 200: kernel.MMA, 256: kernel.MMA,
		257: kernel.MMA, 300: kernel.MMA, 384: sm90.WGMMA} {
		plan, err := stream.New(d).Plan(testkit.Product(t, dtype.BF16, dtype.BF16, n, n, n), exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Kernel != want {
			t.Errorf("%d³: %s, want %s", n, plan.Kernel.Name, want.Name)
		}
	}
}

// TestBatchChoice checks that K of a batch is not split, that small products get tiles of their
// size, and that operands are packed only where that pays.
func TestBatchChoice(t *testing.T) {
	best := func(in dtype.Type, m, n, k int, transB bool,
		batch func(p gemm.Problem) (gemm.Problem, error)) (*kernel.Kernel, kernel.Config) {
		t.Helper()
		b := gemm.Dense(in, k, n)
		if transB {
			b = gemm.Dense(in, n, k).T()
		}
		p, _, err := gemm.New(1, gemm.Dense(in, m, k), b, 0, gemm.Dense(in.Info().Results[0], m, n), gemm.Epilogue{})
		if err == nil {
			p, err = batch(p)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := choose.Best(&p, kernel.Align{}, h200)
		if err != nil {
			t.Fatal(err)
		}
		return c.Kernel, c.Config
	}
	strided := func(count, pad int) func(p gemm.Problem) (gemm.Problem, error) {
		return func(p gemm.Problem) (gemm.Problem, error) {
			return p.Strided(count, gemm.Batch{Stride: gemm.Strides{gemm.A: p.A().Len() + pad, gemm.B: p.B().Len() + pad,
				gemm.C: p.C().Len() + pad}})
		}
	}
	tall := sm90.FurtherTiles[64][0]
	tall.K = 64
	if _, c := best(dtype.F32, 64, 64, 4096, false, strided(4, 0)); c.Tile.SplitK > 1 {
		t.Errorf("K of a batch in parts: %v", c)
	}
	if k, c := best(dtype.BF16, 64, 64, 64, false, strided(1024, 0)); k != sm90.WGMMA || c.Tile.M != 64 || c.Tile.N != 64 {
		t.Errorf("1024 products of 64³: %s %v", k.Name, c)
	}
	if k, c := best(dtype.BF16, 1024, 1024, 1024, false, strided(32, 0)); k != sm90.WGMMA || c.Tile != tall {
		t.Errorf("32 products of 1024³: %s %v", k.Name, c)
	}
	if k, c := best(dtype.BF16, 512, 512, 512, false, strided(64, 0)); k != sm90.WGMMA || c.Tile.M != 128 {
		t.Errorf("64 products of 512³: %s %v", k.Name, c)
	}
	if k, c := best(dtype.F32, 128, 128, 128, false, strided(256, 0)); k != kernel.Blocked || c.Tile.M != 128 ||
		c.Tile.N != 128 {
		t.Errorf("256 products of 128³ in float32: %s %v", k.Name, c)
	}
	if k, c := best(dtype.BF16, 64, 64, 64, false, strided(1024, 2)); k != kernel.MMA || c.VecA != 2 {
		t.Errorf("matrices that begin at multiples of 4 bytes: %s %v", k.Name, c)
	}
	if k, _ := best(dtype.I8, 64, 64, 64, false, strided(8, 0)); k != kernel.MMA {
		t.Errorf("bytes across K: %s", k.Name)
	}
	if k, _ := best(dtype.I8, 32, 512, 512, false, strided(64, 0)); k != kernel.MMA {
		t.Errorf("bytes across K, used too few times to be transposed: %s", k.Name)
	}
	if k, _ := best(dtype.I8, 1024, 1024, 1024, false, strided(8, 0)); k != sm90.WGMMA {
		t.Errorf("bytes across K, used often enough to be transposed: %s", k.Name)
	}
	if k, _ := best(dtype.BF16, 1024, 1024, 1024, false, strided(8, 2)); k != sm90.WGMMA {
		t.Errorf("matrices that begin at multiples of 4 bytes, to be packed: %s", k.Name)
	}
	grouped := func(p gemm.Problem) (gemm.Problem, error) { return p.Grouped(8, p.B().Len()) }
	if k, c := best(dtype.BF16, 8192, 14336, 4096, true, grouped); k != sm90.WGMMA || c.Batch != gemm.Grouped ||
		c.Tile.M != 128 {
		t.Errorf("groups of rows: %s %v", k.Name, c)
	}
}

// TestPackingPays checks that wgmma is chosen only where its faster multiplication pays for packing
// operands whose rows are not aligned.
func TestPackingPays(t *testing.T) {
	for m, want := range map[int]bool{4: false, 4095: true} {
		got, err := choose.Best(testkit.Product(t, dtype.BF16, dtype.BF16, m, 4095, 4095), kernel.Align{}, h200)
		if err != nil {
			t.Fatal(err)
		}
		if is := got.Kernel == sm90.WGMMA; is != want {
			t.Errorf("%d×4095×4095: %s", m, got.Kernel.Name)
		}
	}
}

// TestOrderWithoutProducts checks that a row-invariant product with alpha = 0, which has no sums,
// is computed although its order has K in parts.
func TestOrderWithoutProducts(t *testing.T) {
	p := *testkit.Product(t, dtype.F16, dtype.F16, 40, 33, 2582)
	p.Invariance = gemm.InvariantRows
	for _, p.Alpha = range []complex128{1, 0} {
		if _, err := choose.Best(&p, kernel.Align{}, h200); err != nil {
			t.Errorf("alpha %v: %v", p.Alpha, err)
		}
	}
}

// TestNoOrder checks the error for a kernel that is requested by name, for a row-invariant product
// without an order of summation on the device.
func TestNoOrder(t *testing.T) {
	p, err := testkit.Product(t, dtype.F32, dtype.F32, 64, 64, 64).WithPrecision(gemm.F32x3)
	if err != nil {
		t.Fatal(err)
	}
	p.Invariance = gemm.InvariantRows
	cramped := *h200
	cramped.MaxShared = 0
	_, err = choose.Named("wgmma", "", &p, kernel.Align{}, &cramped)
	const want = "no kernel computes row-invariant products"
	if !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want ErrUnsupported and %q", err, want)
	}
}

// TestHugePartialSums checks that the predicted time of split-K grows with the number of parts,
// although an int does not hold the bytes of the partial sums.
func TestHugePartialSums(t *testing.T) {
	p := testkit.Product(t, dtype.F32, dtype.F32, 1<<(bits.UintSize/2-9), 1<<(bits.UintSize/2-1), 1<<13)
	last := 0.0
	for _, parts := range []int{2, 16, 128} {
		c, err := choose.Named("blocked", fmt.Sprintf("256x32x8/8x8/4*%d", parts), p, kernel.Align{}, h200)
		if err != nil {
			t.Fatal(err)
		}
		if c.Cycles <= last {
			t.Errorf("%v with %d parts of K: %g cycles, and %g with an eighth of them", p, parts, c.Cycles, last)
		}
		last = c.Cycles
	}
}

// TestWideOrder checks that a product has an order of summation even if matrices of as many columns
// and of more rows would be too large for an int of 32 bits.
func TestWideOrder(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 1, 1<<19, 16)
	p.Invariance = gemm.InvariantRows
	if _, err := choose.OrderOf(&p, h200); err != nil {
		t.Errorf("%v: %v", &p, err)
	}
}

// TestEmptyProducts checks the predicted times of products without rows, columns or terms and of
// empty batches.
func TestEmptyProducts(t *testing.T) {
	for i := range 1 << 4 {
		side := func(bit int) int { return 40 * (i >> bit & 1) }
		rows, cols, depth, count := side(0), side(1), side(2), side(3)
		for _, in := range []dtype.Type{dtype.F64, dtype.F32, dtype.BF16, dtype.F8E4M3, dtype.I8} {
			p, _, err := gemm.New(1, gemm.Dense(in, rows, depth), gemm.Dense(in, cols, depth).T(), 0,
				gemm.Dense(in.Info().Results[0], rows, cols), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			batch, err := strided(count)(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []*gemm.Problem{&p, &batch} {
				for _, k := range choose.Kernels() {
					for _, c := range choose.CandidatesOf(k, p, kernel.Align{}, h200) {
						if c.Rejected == nil && !(c.Cycles > 0 && c.Cycles < math.Inf(1)) {
							t.Errorf("%v, batch of %d: %s takes %v cycles", p, p.Products(), c.Spec(), c.Cycles)
						}
					}
				}
			}
		}
	}
}
