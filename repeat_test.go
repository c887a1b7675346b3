package tilework

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestRepeats checks that repeated products are bitwise equal on 1 to 8 threads. This holds for one
// kernel on one device, because another kernel may sum in another order.
func TestRepeats(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	rng := testrand.New(t)
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		if !k.Available {
			continue
		}
		plan, err := PlanGemm(t.Context(), New[float32](9, 9), New[float32](9, 9), New[float32](9, 9), WithDevice("cpu"))
		if err != nil {
			t.Fatal(err)
		}
		device, size := WithDevice("cpu"), 225 // large enough to be partitioned among threads
		switch {
		case k.Kind == backend.GPU:
			device, size = WithDevice("emu"), 40
		case k.Name == "loop":
			size = 60
		}
		for _, in := range k.Types {
			run := repeaters[in.String()]
			if run == nil {
				continue // the public API does not have the type
			}
			n := testkit.Repeats(10, 1000)
			if k.Name == plan.Kernel && in == dtype.F32 { // the default kernel and the most common type
				n = testkit.Repeats(300, 1000)
			}
			t.Run(k.Name+"/"+in.String(), func(t *testing.T) { run(t, rng, size, n, device, WithKernel(k.Name)) })
		}
	}
}

// TestGPURepeats checks that repeated products are bitwise equal on a GPU, for every kernel and
// type.
func TestGPURepeats(t *testing.T) {
	firstGPU(t)
	rng := testrand.New(t)
	for _, k := range dispatch.Kernels(backend.DeviceName{}) {
		for _, in := range k.Types {
			if run := repeaters[in.String()]; k.Kind == backend.GPU && run != nil {
				t.Run(k.Name+"/"+in.String(), func(t *testing.T) {
					run(t, rng, 300, testkit.Repeats(1000, 1000), WithDevice("gpu"), WithKernel(k.Name))
				})
			}
		}
	}
}

// repeaters maps the element types of the public API to instances of repeat.
var repeaters = map[string]func(*testing.T, *rand.Rand, int, int, ...Option){
	"float64": repeat[float64, float64], "float32": repeat[float32, float32],
	"float16":  repeat[dtype.Float16, dtype.Float16],
	"bfloat16": repeat[dtype.BFloat16, dtype.BFloat16], "int8": repeat[int8, int32],
}

// repeat multiplies random matrices of about size×size n times and compares the results bitwise.
func repeat[I, O dtype.Element](t *testing.T, rng *rand.Rand, size, n int, opts ...Option) {
	a, b, c := New[I](size, size+7), New[I](size+7, size-3), New[O](size, size-3)
	for _, m := range []Matrix[I]{a, b} {
		for i := range m.data {
			m.data[i] = dtype.FromFloat64[I](float64(int8(rng.Uint32())) / 3)
		}
	}
	var want string
	for r := range n {
		clear(c.data)
		threads := r%8 + 1
		if err := Gemm(t.Context(), 1, a, b, 0, c, append(opts, WithThreads(threads))...); err != nil {
			t.Fatal(err)
		}
		if got := string(dtype.Bytes(c.data)); r == 0 {
			want = got
		} else if got != want {
			t.Fatalf("run %d on %d threads differs bitwise from the first run on one", r+1, threads)
		}
	}
}
