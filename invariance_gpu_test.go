package tilework

import (
	"bytes"
	"iter"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/cuda"
	"tilework/internal/testkit/testrand"
)

// deviceRows is a test of row-invariant products of matrices on a device.
type deviceRows struct {
	seed   uint64
	device *Device
	most   int      // rows of a product
	total  int      // rows to compute for each pair of types
	sample int      // rows that the emulator computes too, if the device is a GPU
	sizes  [][2]int // columns of C, and K
}

// counts returns numbers of rows: first those at the edges of tiles, then random ones.
func (x *deviceRows) counts(rng *rand.Rand) iter.Seq[int] {
	return func(yield func(m int) bool) {
		for m := 1; m <= min(x.most, 17); m++ {
			if !yield(m) {
				return
			}
		}
		for m := 32; m < x.most; m *= 2 {
			for _, n := range []int{m - 1, m, m + 1} {
				if !yield(n) {
					return
				}
			}
		}
		for yield(min(int(math.Exp(rng.Float64()*math.Log(float64(x.most+1)))), x.most)) {
		}
	}
}

// testDeviceRows compares the rows of products of many sizes with those of one product, for rows of
// C whose sums have parts of K and others.
func testDeviceRows[T, R dtype.Element](t *testing.T, x *deviceRows, name string, opts ...Option) {
	t.Run(name, func(t *testing.T) {
		t.Parallel() // kernels are compiled side by side
		rng := rand.New(rand.NewPCG(x.seed, uint64(len(name))))
		for _, size := range x.sizes {
			n, k := size[0], size[1]
			a, b, bias := someElements[T](rng, x.most, k), someElements[T](rng, k, n), someElements[R](rng, 1, n)
			all := append([]Option{WithRowInvariance(), WithGELUTanh(), WithColBias(bias)}, opts...)
			da := upload(t, x.device, a)
			bs := []DeviceMatrix[T]{upload(t, x.device, b), upload(t, x.device, b.T().clone()).T()}
			product := func(da, db DeviceMatrix[T]) Matrix[R] {
				d := da.device()
				c, err := NewDeviceMatrix[R](d, da.Rows(), n)
				if err == nil {
					err = Gemm(t.Context(), 1, da, db, 0, c, all...)
				}
				if err != nil {
					t.Fatal(err)
				}
				host := download(t, c)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				return host
			}
			want := product(da, bs[0])
			rows := 0
			for m := range x.counts(rng) {
				first := rng.IntN(x.most - m + 1)
				got := product(da.Sub(first, 0, m, k), bs[rng.IntN(2)])
				if !bytes.Equal(dtype.Bytes(got.data), dtype.Bytes(want.Sub(first, 0, m, n).data)) {
					t.Fatalf("%d rows from %d on, of %d×%d: they differ from the rows of a product with %d rows", m, first, k, n,
						x.most)
				}
				if rows += m; rows >= x.total/2 {
					break
				}
			}
			t.Logf("%d rows of %d×%d", rows, k, n)
			if x.sample > 0 {
				emu := on(t, emulatorOf(t))
				got := product(upload(t, emu, a.Sub(0, 0, x.sample, k).clone()), upload(t, emu, b))
				if !bytes.Equal(dtype.Bytes(got.data), dtype.Bytes(want.Sub(0, 0, x.sample, n).data)) {
					t.Errorf("%d rows of %d×%d have other bits on the emulator", x.sample, k, n)
				}
			}
		}
	})
}

// emulatorOf returns the emulated GPU of the first GPU's architecture.
func emulatorOf(t *testing.T) string {
	gpus, err := cuda.List()
	if err != nil {
		t.Fatal(err)
	}
	if arch := gpus[0].Target.String(); arch != "sm_90a" {
		return "emu:" + arch
	}
	return "emu" // an H200
}

func (x *deviceRows) run(t *testing.T) {
	testDeviceRows[dtype.BFloat16, dtype.BFloat16](t, x, "bfloat16")
	testDeviceRows[dtype.Float16, float32](t, x, "float16")
	testDeviceRows[dtype.Float8E4M3, dtype.BFloat16](t, x, "e4m3")
	testDeviceRows[dtype.Float8E5M2, dtype.Float8E5M2](t, x, "e5m2")
	testDeviceRows[dtype.Float8E4M3, float32](t, x, "e4m3-fast", WithFastAccumulation())
	testDeviceRows[float32, float32](t, x, "float32")
	testDeviceRows[float32, float32](t, x, "tf32", WithTF32())
	testDeviceRows[float32, float32](t, x, "f32x3", WithF32x3())
	testDeviceRows[float64, float64](t, x, "float64")
	testDeviceRows[int8, float32](t, x, "int8")
}

// TestCardRowInvariance computes a million rows of each type on a GPU, in products of 1 to 8192
// rows, and compares them with those of one product, and some with those of the emulator.
func TestCardRowInvariance(t *testing.T) {
	x := deviceRows{seed: testrand.Seed(t), device: firstGPU(t), most: 8192, total: 1e6, sample: 3,
		sizes: [][2]int{{256, 4096}, {384, 640}}}
	x.run(t)
}

// TestDeviceRowInvariance is [TestCardRowInvariance] for few rows on the emulator.
func TestDeviceRowInvariance(t *testing.T) {
	x := deviceRows{seed: testrand.Seed(t), device: on(t, "emu"), most: 20, total: 12,
		sizes: [][2]int{{24, 1500}, {40, 200}}}
	x.run(t)
}
