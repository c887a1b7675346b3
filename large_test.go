//go:build linux && (amd64 || arm64)

package tilework

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/testkit"
)

// TestLargeIndices multiplies matrices with offsets of more than 2^31, 2^32 and 2^34 elements.
// Their memory is reserved, and the operating system backs only the pages that the test touches.
func TestLargeIndices(t *testing.T) {
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		if k.Kind != backend.CPU || !k.Available {
			continue
		}
		for _, in := range k.Types {
			run := map[string]func(*testing.T, ...Option){
				"float64": large[float64, float64], "float32": large[float32, float32], "float16": large[dtype.Float16, float32],
				"bfloat16": large[dtype.BFloat16, float32], "int8": large[int8, int32],
			}[in.String()]
			if run == nil {
				continue // the public API does not have the type
			}
			t.Run(k.Name+"/"+in.String(), func(t *testing.T) { run(t, WithKernel(k.Name), WithDevice("cpu")) })
		}
	}
}

func large[I, O dtype.Element](t *testing.T, opts ...Option) {
	const m, n, k = 13, 35, 11
	strides := []int{1<<31 + 64}
	if testkit.Long() {
		strides = append(strides, 1<<32+64, 1<<31-1)
	}
	for _, stride := range strides {
		for form := range 4 {
			shape := func(rows, cols, bit int) Matrix[I] {
				if form&bit != 0 {
					return sparse[I](t, cols, rows, stride).T()
				}
				return sparse[I](t, rows, cols, stride)
			}
			a, b, c := shape(m, k, 1), shape(k, n, 2), sparse[O](t, m, n, stride)
			for i := range m {
				for j := range k {
					a.Set(i, j, dtype.FromFloat64[I](float64((i*7+j*3)%5-2)))
				}
			}
			for i := range k {
				for j := range n {
					b.Set(i, j, dtype.FromFloat64[I](float64((i*5+j*11)%7-3)))
				}
			}
			if err := Gemm(t.Context(), 1, a, b, 0, c, append(opts, WithVerify())...); err != nil {
				t.Fatal(err)
			}
			for i := range m {
				for j := range n {
					want := 0.0
					for l := range k {
						want += dtype.ToFloat64(a.At(i, l)) * dtype.ToFloat64(b.At(l, j))
					}
					if got := dtype.ToFloat64(c.At(i, j)); got != want {
						t.Fatalf("stride %d, form %d: element (%d, %d) is %v, want %v", stride, form, i, j, got, want)
					}
				}
			}
		}
	}
}

// sparse returns a matrix of zeros whose rows are stride elements apart.
func sparse[T dtype.Element](t *testing.T, rows, cols, stride int) Matrix[T] {
	t.Helper()
	var one T
	n := (rows-1)*stride + cols
	b, err := unix.Mmap(-1, 0, n*int(unsafe.Sizeof(one)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|
		unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("cannot reserve %d bytes: %v", n*int(unsafe.Sizeof(one)), err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return FromStrided(rows, cols, stride, dtype.View[T](b))
}
