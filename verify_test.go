package tilework

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tilework/dtype"
)

// BenchmarkVerify alternates products with and without verification. It reports the added time of
// the fastest verified product in percent. The goal at n = 8192 is at most 3% in float32 and 10% in
// bfloat16.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{1024, 4096, 8192} {
		b.Run(fmt.Sprintf("float32/%d", n), func(b *testing.B) { overhead[float32](b, n) })
		b.Run(fmt.Sprintf("bfloat16/%d", n), func(b *testing.B) { overhead[dtype.BFloat16](b, n) })
	}
}

// BenchmarkVerifyOn is BenchmarkVerify on the first GPU, with device matrices.
func BenchmarkVerifyOn(b *testing.B) {
	d, err := Open("gpu")
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	for _, n := range []int{1024, 4096, 8192} {
		b.Run(fmt.Sprintf("float32/%d", n), func(b *testing.B) { overheadOn[float32](b, d, n) })
		b.Run(fmt.Sprintf("bfloat16/%d", n), func(b *testing.B) { overheadOn[dtype.BFloat16](b, d, n) })
	}
}

func overheadOn[T dtype.Float](b *testing.B, d *Device, n int) {
	rng := rand.New(rand.NewPCG(11, 12))
	var on [3]DeviceMatrix[T]
	for i := range on {
		m := New[T](n, n)
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[T](rng.Float64() - 0.5)
		}
		var err error
		if on[i], err = Upload(b.Context(), d, m); err != nil {
			b.Fatal(err)
		}
		defer on[i].Close()
	}
	alternate(b, n, func(opts ...Option) error {
		if err := Gemm(b.Context(), 1, on[0], on[1], 0, on[2], opts...); err != nil {
			return err
		}
		return d.Sync(b.Context())
	})
}

func overhead[T dtype.Float](b *testing.B, n int) {
	rng := rand.New(rand.NewPCG(11, 12))
	x, y, c := New[T](n, n), New[T](n, n), New[T](n, n)
	for _, m := range []Matrix[T]{x, y} {
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[T](rng.Float64() - 0.5)
		}
	}
	alternate(b, n, func(opts ...Option) error {
		return Gemm(b.Context(), 1, x, y, 0, c, append(opts, WithDevice("cpu"))...)
	})
}

// alternate times a product with and without verification and reports the overhead.
func alternate(b *testing.B, n int, product func(opts ...Option) error) {
	fastest := [2]time.Duration{1 << 62, 1 << 62}
	for b.Loop() {
		for i, opts := range [][]Option{nil, {WithVerify()}} {
			start := time.Now()
			if err := product(opts...); err != nil {
				b.Fatal(err)
			}
			fastest[i] = min(fastest[i], time.Since(start))
		}
	}
	b.ReportMetric(100*(float64(fastest[1])/float64(fastest[0])-1), "%-more")
	b.ReportMetric(2*float64(n)*float64(n)*float64(n)/float64(fastest[0]), "GFLOP/s")
}
