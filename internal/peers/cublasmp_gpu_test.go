package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/dl"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// openMp opens cuBLASMp on the GPUs whose numbers TILEWORK_GPUS lists, or on the first two. If one
// is missing, the test is skipped, or fails if TILEWORK_REQUIRE_GPU is set and TILEWORK_CUBLASMP
// names the library.
func openMp(t *testing.T) *CuBLASMp {
	t.Helper()
	required := os.Getenv("TILEWORK_REQUIRE_GPU") != "" && os.Getenv(cublasMp.Env) != ""
	numbers := []string{"0", "1"}
	if list := os.Getenv("TILEWORK_GPUS"); list != "" {
		numbers = strings.Split(list, ",")
	}
	var l *CuBLASMp
	var gpus []device.Device
	for _, number := range numbers {
		i, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("TILEWORK_GPUS: %v", err)
		}
		d, err := cuda.Open(i)
		if err != nil && !required {
			t.Skip(err)
		}
		if err != nil {
			t.Fatalf("GPU %d: %v", i, err)
		}
		t.Cleanup(func() {
			if l != nil && errors.Is(l.failed, ErrStuck) {
				return // the GPU waits for the call
			}
			if err := d.Close(); err != nil {
				t.Errorf("closing GPU %d: %v", i, err)
			}
		})
		t.Logf("GPU %d: %s", i, d.Info().Name)
		gpus = append(gpus, d)
	}
	var err error
	l, err = OpenCuBLASMp(t.Context(), gpus, "")
	if errors.Is(err, ErrNotFound) && !required {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the library: %v", err)
		}
	})
	t.Logf("%v, %s, %s", l, l.Path, dl.FileOf(l.procs[ncclGetVersion]))
	return l
}

// TestGPUCublasMp compares products of all types and transposes with sums in float64, and times a
// large one of each type. CUBLASMP_LOG_LEVEL=5 and NCCL_DEBUG=INFO print the calls.
func TestGPUCublasMp(t *testing.T) {
	l := openMp(t)
	rng := testrand.New(t)
	for _, c := range []struct{ in, out dtype.Type }{
		{dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F16}, {dtype.F32, dtype.F32}, {dtype.F64, dtype.F64},
		{dtype.BF16, dtype.F32},
	} {
		for trans := range 4 {
			for _, size := range [][3]int{{256, 512, 128}, {512, 256, 384}, {192, 320, 72}} {
				p := mpProblem(t, c.in, c.out, size, trans&1 != 0, trans&2 != 0)
				detail, err := checkMp(t.Context(), rng, l, &p)
				if l.failed != nil {
					t.Fatalf("%v: the library is unusable: %v", &p, l.failed)
				}
				if err != nil {
					t.Errorf("%v, A %v, B %v: %v", &p, p.Layouts[gemm.A], p.Layouts[gemm.B], err)
				}
				t.Logf("%v: right, %s", &p, detail)
			}
			p := mpProblem(t, c.in, c.out, [3]int{97, 61, 33}, trans&1 != 0, trans&2 != 0)
			if _, err := l.Prepare(t.Context(), &p, nil); !errors.Is(err, gemm.ErrUnsupported) {
				t.Errorf("%v: error %v, want ErrUnsupported", &p, err)
			}
		}
		p := mpProblem(t, c.in, c.out, [3]int{8192, 8192, 8192}, false, false)
		took, err := timeMp(t.Context(), l, &p)
		if err != nil {
			t.Fatalf("%v: %v", &p, err)
		}
		t.Logf("%v: %v, %.0f TFLOP/s", &p, took, 2*8192*8192*8192/took.Seconds()/1e12)
	}
}

// mpProblem returns a problem with padded rows. Its β is 0.25 for a part of the sizes.
func mpProblem(t *testing.T, in, out dtype.Type, size [3]int, transA, transB bool) gemm.Problem {
	t.Helper()
	m, n, k := size[0], size[1], size[2]
	layout := func(typ dtype.Type, rows, cols int, trans bool) gemm.Layout {
		l := gemm.Dense(typ, rows, cols)
		if trans {
			l = gemm.Dense(typ, cols, rows).T()
		}
		l.LD += 8
		return l
	}
	beta := complex128(0)
	if m == 512 {
		beta = 0.25
	}
	p, _, err := gemm.New(0.5, layout(in, m, k, transA), layout(in, k, n, transB), beta, layout(out, m, n, false),
		gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkMp compares a product with sums in float64.
func checkMp(ctx context.Context, rng *rand.Rand, l *CuBLASMp, p *gemm.Problem) (detail string, err error) {
	b := &gemm.Buffers{random(rng, *p.A()), random(rng, *p.B()), random(rng, *p.C())}
	x, err := l.Prepare(ctx, p, b)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.CopyIn(ctx, b[gemm.C]); err != nil {
		return "", err
	}
	if _, err := x.Run(ctx, 1); err != nil {
		return "", err
	}
	got := make([]byte, len(b[gemm.C]))
	if err := x.CopyOut(ctx, got); err != nil {
		return "", err
	}
	return x.String(), compareLt(p, [3][]byte(b[:3]), got, Native)
}

// timeMp returns the time of a product of zeros after a first one.
func timeMp(ctx context.Context, l *CuBLASMp, p *gemm.Problem) (took time.Duration, err error) {
	b := &gemm.Buffers{make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes()), make([]byte, p.C().Bytes())}
	x, err := l.Prepare(ctx, p, b)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	const products = 10
	if _, err := x.Run(ctx, 2); err != nil {
		return 0, err
	}
	took, err = x.Run(ctx, products)
	return took / products, err
}
