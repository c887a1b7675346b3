package resident

import (
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/split"
)

// issued is a product of square bfloat16 matrices on GPUs that execute nothing: of whole matrices
// on the first GPU, or of divided ones.
type issued struct {
	side, gpus int
	divided    bool
}

func (c issued) String() string {
	if c.divided {
		return fmt.Sprintf("%d divided on %d", c.side, c.gpus)
	}
	return fmt.Sprintf("%d on %d", c.side, c.gpus)
}

// product returns the product after it has run once, which compiles its kernels.
func (c issued) product(t testing.TB) *Job {
	t.Helper()
	d := openIdle(t, c.gpus, func(d device.Device) device.Device {
		d.(*devicetest.Null).Pools = true // so that workspaces have the same addresses again
		return d
	})
	d.dividesAll = c.divided
	p := plain(t, d, dtype.BF16, c.side, c.side, c.side, split.Rows)
	if err := Gemm(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// BenchmarkIssue measures the host's time to enqueue a repeated product, without the driver's time.
func BenchmarkIssue(b *testing.B) {
	for _, c := range []issued{{512, 1, false}, {512, 2, false}, {512, 8, false}, {512, 2, true}, {512, 8, true},
		{4096, 2, true}, {4096, 8, true}, {16384, 2, true}, {16384, 8, true}} {
		b.Run(c.String(), func(b *testing.B) {
			p := c.product(b)
			b.ReportAllocs()
			for b.Loop() {
				if err := Gemm(b.Context(), p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestIssueAllocates checks that a repeated product allocates no memory, so that it causes no
// garbage collection. Only goroutines that enqueue the work of several GPUs may allocate.
func TestIssueAllocates(t *testing.T) {
	for _, c := range []struct {
		issued
		most float64 // allocations
	}{
		{issued{512, 1, false}, 0}, {issued{512, 2, false}, 0}, {issued{512, 8, false}, 0}, {issued{512, 2, true}, 0},
		{issued{512, 8, true}, 2 * 8}, {issued{4096, 2, true}, 2 * 2}, {issued{4096, 8, true}, 2 * 8},
	} {
		for _, alpha := range []complex128{1, 2} {
			p := c.product(t)
			p.Alpha = alpha
			n := testing.AllocsPerRun(100, func() {
				if err := Gemm(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			})
			if n > c.most {
				t.Errorf("%v with alpha %v: %v allocations, want at most %v", c.issued, alpha, n, c.most)
			}
		}
	}
}
