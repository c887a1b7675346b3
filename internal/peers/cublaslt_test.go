package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// openLt opens cuBLASLt on the first GPU. If either is missing, the test is skipped, or fails if
// TILEWORK_REQUIRE_GPU is set.
func openLt(t *testing.T) (device.Device, *CuBLASLt) {
	t.Helper()
	required := os.Getenv("TILEWORK_REQUIRE_GPU") != ""
	d, err := cuda.Open(0)
	if err != nil && !required {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	l, err := OpenCuBLASLt(d, "")
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
	return d, l
}

// TestLtProducts compares every proposed algorithm with sums in float64, for random products of
// every type, transpose and leading dimension.
func TestLtProducts(t *testing.T) {
	d, l := openLt(t)
	t.Logf("%v, %s", l, l.Path)
	rng := testrand.New(t)
	algorithms := 0
	for _, c := range []struct {
		in, out    dtype.Type
		arithmetic Arithmetic
	}{
		{dtype.F64, dtype.F64, Native}, {dtype.F32, dtype.F32, Native}, {dtype.F32, dtype.F32, TF32},
		{dtype.F16, dtype.F16, Native}, {dtype.F16, dtype.F32, Native}, {dtype.BF16, dtype.BF16, Native},
		{dtype.BF16, dtype.F32, Native},
		{dtype.I8, dtype.I32, Native},
	} {
		done := 0
		for i := range 24 {
			p := randomProblem(t, rng, c.in, c.out, i%2 == 1, i/2%2 == 1)
			n, err := checkLt(t.Context(), rng, d, l, &p, c.arithmetic)
			if err != nil {
				t.Fatalf("%v, α %v, β %v, A %v, B %v, C %v: %v", &p, real(p.Alpha), real(p.Beta), p.Layouts[gemm.A],
					p.Layouts[gemm.B], p.Layouts[gemm.C], err)
			}
			if n > 0 {
				done++
			}
			algorithms += n
		}
		if done == 0 {
			t.Errorf("%v to %v, %s: every product is unsupported", c.in, c.out, c.arithmetic.Name)
		}
	}
	t.Logf("%d algorithms", algorithms)
}

// randomProblem returns a problem whose sizes and leading dimensions are multiples of 16 bytes, as
// the algorithms for int8 require.
func randomProblem(t *testing.T, rng *rand.Rand, in, out dtype.Type, transA, transB bool) gemm.Problem {
	t.Helper()
	unit := in.Elements(16)
	size := func() int { return unit * (1 + rng.IntN(20)) }
	layout := func(typ dtype.Type, rows, cols int, trans bool) gemm.Layout {
		l := gemm.Dense(typ, rows, cols)
		if trans {
			l = gemm.Dense(typ, cols, rows).T()
		}
		l.LD += unit * rng.IntN(3)
		return l
	}
	m, n, k := size(), size(), size()
	alpha, beta := complex128(1), complex(float64(rng.IntN(2)), 0)
	if !in.Info().Integer {
		alpha, beta = 0.5, 0.25*beta
	}
	p, _, err := gemm.New(alpha, layout(in, m, k, transA), layout(in, k, n, transB), beta, layout(out, m, n, false),
		gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkLt verifies p with each algorithm and returns the number of algorithms, or 0 if the library
// does not support p.
func checkLt(ctx context.Context, rng *rand.Rand, d device.Device, l *CuBLASLt, p *gemm.Problem, a Arithmetic) (int,
	error) {
	pl, err := l.Plan(p, a)
	if errors.Is(err, gemm.ErrUnsupported) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	layouts := []gemm.Layout{p.Layouts[gemm.A], p.Layouts[gemm.B], p.Layouts[gemm.C]}
	var host [3][]byte
	var at [3]device.Ptr
	for i, x := range layouts {
		host[i] = random(rng, x)
		if x.Type.Info().Integer {
			for j := range x.Len() {
				x.Type.Set(host[i], j, float64(rng.IntN(255)-127))
			}
		}
		if at[i], err = d.Alloc(len(host[i])); err != nil {
			return 0, err
		}
		if err := d.CopyIn(ctx, at[i], host[i], device.Whole(len(host[i]))); err != nil {
			return 0, err
		}
	}
	err = pl.Choose(func(run LtEnqueue) (float64, error) {
		if err := d.CopyIn(ctx, at[2], host[2], device.Whole(len(host[2]))); err != nil {
			return 0, err
		}
		if err := run(ctx, LtMemory{A: at[0], B: at[1], C: at[2]}); err != nil {
			return 0, err
		}
		got := make([]byte, len(host[2]))
		if err := d.CopyOut(ctx, got, at[2], device.Whole(len(got))); err != nil {
			return 0, err
		}
		return 1, compareLt(p, host, got, a)
	})
	if err != nil {
		return 0, fmt.Errorf("%v: %w", pl, err)
	}
	for _, x := range at {
		err = errors.Join(err, d.Free(x))
	}
	return pl.Algorithms(), errors.Join(err, pl.Close())
}

// compareLt verifies C against sums in float64.
func compareLt(p *gemm.Problem, host [3][]byte, got []byte, a Arithmetic) error {
	acc, out := p.Accum().Info(), p.Out().Info()
	for i := range p.M {
		for j := range p.N {
			var sum, abs float64
			for q := range p.K {
				x := p.In().At(host[0], p.A().Index(i, q)) * p.B().Type.At(host[1], p.B().Index(q, j))
				sum, abs = sum+x, abs+math.Abs(x)
			}
			at := p.C().Index(i, j)
			old := p.Out().At(host[2], at)
			want := real(p.Alpha)*sum + real(p.Beta)*old
			// Tensor cores truncate when they add: at least twice the roundoff.
			u := 4*float64(p.K+3)*acc.Roundoff + 2*a.Roundoff
			bound := u*(math.Abs(real(p.Alpha))*abs+math.Abs(real(p.Beta)*old)) + 2*out.Roundoff*math.Abs(want) + out.Tiny
			if v := p.Out().At(got, at); !(math.Abs(v-want) <= bound) {
				return fmt.Errorf("C[%d,%d] = %v, want %v ± %v", i, j, v, want, bound)
			}
		}
	}
	return nil
}

// TestLtChoice checks that the fastest algorithm is selected and failing ones are skipped.
func TestLtChoice(t *testing.T) {
	took := []float64{3, 1, 2}
	for refused, want := range map[int]int{-1: 1, 1: 2} {
		pl := &LtPlan{algorithms: make([]heuristicResult, len(took))}
		err := pl.Choose(func(LtEnqueue) (float64, error) {
			if pl.chosen == refused {
				return 0, fmt.Errorf("while it ran: %w", &statusError{ltMatmul, 15, "no"})
			}
			return took[pl.chosen], nil
		})
		if err != nil || pl.chosen != want {
			t.Errorf("algorithm %d fails: chose %d, error %v, want %d", refused, pl.chosen, err, want)
		}
	}
	pl := &LtPlan{algorithms: make([]heuristicResult, 2)}
	lost := fmt.Errorf("%w: gone", device.ErrLost)
	for _, failure := range []error{lost, &statusError{ltMatmul, 13, "failed"}} {
		err := pl.Choose(func(LtEnqueue) (float64, error) {
			return 0, failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("got error %v, want %v", err, failure)
		}
	}
}

// fakeGPU is an emulated device that passes for a GPU.
type fakeGPU struct{ device.Device }

func (fakeGPU) Foreign(f func(uintptr) error) error { return f(0) }

func TestLtErrors(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "libcublasLt.so.13")
	if err := os.WriteFile(text, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		d    device.Device
		path string
		is   error
		want string
	}{
		{"emulated GPU", d, "", gemm.ErrUnsupported, "machine code"},
		{"missing file", fakeGPU{d}, text + ".none", ErrNotFound, "no file"},
		{"text file", fakeGPU{d}, text, nil, "libcublasLt.so.13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == text {
				needsLoader(t)
			}
			_, err := OpenCuBLASLt(c.d, c.path)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, c.want)
			}
		})
	}

	dense := func(in dtype.Type, m, n, k int, e gemm.Epilogue) *gemm.Problem {
		out := in.Info().Results[0]
		p, _, err := gemm.New(1, gemm.Dense(in, m, k), gemm.Dense(in, k, n), 0, gemm.Dense(out, m, n), e)
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	as := func(out dtype.Type, p *gemm.Problem) *gemm.Problem {
		p.C().Type = out
		return p
	}
	for _, c := range []struct {
		name string
		p    *gemm.Problem
		a    Arithmetic
	}{
		{"unsupported activation", dense(dtype.F32, 2, 2, 2, gemm.Epilogue{Activation: gemm.ActSiLU}), Native},
		{"float32 rounded to 16 bits", as(dtype.F16, dense(dtype.F32, 2, 2, 2, gemm.Epilogue{})), Native},
		{"int8 converted to float32", as(dtype.F32, dense(dtype.I8, 2, 2, 2, gemm.Epilogue{})), Native},
		{"no rows", dense(dtype.F32, 0, 2, 2, gemm.Epilogue{}), Native},
		{"33-bit number of rows", dense(dtype.F32, 1<<32, 1, 1, gemm.Epilogue{}), Native},
		{"tf32 with float64", dense(dtype.F64, 2, 2, 2, gemm.Epilogue{}), TF32},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &CuBLASLt{gpu: fakeGPU{d}}
			if _, err := l.Plan(c.p, c.a); !errors.Is(err, gemm.ErrUnsupported) {
				t.Errorf("got error %v, want %v", err, gemm.ErrUnsupported)
			}
		})
	}
}
