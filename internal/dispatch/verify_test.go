package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/testkit"
	"tilework/internal/verify"
)

// verifiedWay is a kernel with element types and a precision.
type verifiedWay struct {
	backend.Kernel
	device    backend.Kind
	in, out   dtype.Type
	precision gemm.Precision
}

func (w verifiedWay) String() string {
	return fmt.Sprintf("%s/%v/%v-%v", w.Name, w.precision, w.in, w.out)
}

// verifiedWays lists the kernels that this machine can run or emulate, with all their
// floating-point types and precisions.
func verifiedWays() (all []verifiedWay) {
	for _, k := range Kernels(backend.DeviceName{}) {
		if !k.Available {
			continue
		}
		w := verifiedWay{Kernel: k, device: backend.CPU}
		if k.Kind == backend.GPU {
			w.device = backend.Emulator
		}
		for _, w.precision = range append([]gemm.Precision{gemm.Native}, k.Precisions...) {
			for _, w.in = range dtype.All() {
				if len(w.in.Info().Results) == 0 || w.in.Info().Accum.Info().Integer {
					continue
				}
				// Results of 8-bit floats are verified before they are rounded.
				for _, w.out = range w.in.Info().Results {
					p, err := w.problem(4, 4, 4)
					if err == nil && w.out.Size() > 1 && k.Supports(&p) == nil && w.plans(&p) {
						all = append(all, w)
					}
				}
			}
		}
	}
	return all
}

func (w verifiedWay) problem(m, n, k int) (gemm.Problem, error) {
	p, _, err := gemm.New(1, gemm.Dense(w.in, m, k), gemm.Dense(w.in, k, n), 0, gemm.Dense(w.out, m, n), gemm.Epilogue{})
	if err != nil {
		return p, err
	}
	return p.WithPrecision(w.precision)
}

func (w verifiedWay) plans(p *gemm.Problem) bool {
	_, err := w.plan(p)
	return err == nil
}

func (w verifiedWay) plan(p *gemm.Problem) (*Plan, error) {
	return New(context.Background(), Request{Problem: *p, Device: backend.DeviceName{Kind: w.device}, Kernel: w.Name})
}

// verifiedData returns random distributions of the elements at index k along K.
func verifiedData(rng *rand.Rand) map[string]func(ofA bool, k int) float64 {
	constant := 0.5 + rng.Float64()/2
	outlier := func() float64 {
		x := rng.NormFloat64()
		if rng.IntN(100) == 0 {
			x *= 30
		}
		return x
	}
	blocks := func(size int) func(bool, int) float64 {
		return func(ofA bool, k int) float64 {
			if ofA && k/size%2 == 1 {
				return -rng.Float64()
			}
			return rng.Float64()
		}
	}
	return map[string]func(ofA bool, k int) float64{
		"uniform":        func(bool, int) float64 { return 2*rng.Float64() - 1 },
		"positive":       func(bool, int) float64 { return rng.Float64() },
		"normal":         func(bool, int) float64 { return rng.NormFloat64() },
		"outliers":       func(bool, int) float64 { return outlier() },
		"equal":          func(bool, int) float64 { return constant },
		"blocks of 16":   blocks(16),
		"blocks of 64":   blocks(64),
		"blocks of 1024": blocks(1024),
		"powers of two":  func(bool, int) float64 { return math.Ldexp(float64(1-2*rng.IntN(2)), rng.IntN(10)-7) },
		"sparse": func(bool, int) float64 {
			if rng.IntN(20) > 0 {
				return 0
			}
			return rng.NormFloat64()
		},
		"skewed": func(bool, int) float64 {
			if rng.IntN(10) == 0 {
				return 0.9 * (0.5 + rng.Float64())
			}
			return -0.1 * (0.5 + rng.Float64())
		},
	}
}

// computed is a product with its result, and the accuracy of the kernel.
type computed struct {
	p   gemm.Problem
	b   gemm.Buffers
	acc gemm.Accuracy
}

func (w verifiedWay) compute(t *testing.T, m, n, k int, fill func(ofA bool, k int) float64) computed {
	t.Helper()
	p, err := w.problem(m, n, k)
	if err != nil {
		t.Fatal(err)
	}
	b := newBuffers(&p)
	for q := range k {
		for i := range m {
			w.in.Set(b[gemm.A], p.A().Index(i, q), fill(true, q))
		}
		for j := range n {
			w.in.Set(b[gemm.B], p.B().Index(q, j), fill(false, q))
		}
	}
	pl, err := w.plan(&p)
	if err != nil {
		t.Fatal(err)
	}
	if err := pl.Run(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return computed{p, b, pl.plan.Accuracy(&p)}
}

// check verifies the product with another C.
func (x *computed) check(t *testing.T, c []byte, within float64) (verify.Report, error) {
	t.Helper()
	v, err := verify.New(t.Context(), &x.p, x.b, verify.Options{Seed: 5, Accuracy: x.acc, Within: within})
	if err != nil {
		t.Fatal(err)
	}
	return v.Check(t.Context(), c)
}

// TestVerifyEveryKernel verifies products of every kernel, type and precision. Verification must
// find a C of zeros, an element that is zero, and an error of 1 % of the row's norm, unless the
// rounding of bfloat16 results hides it. The long test also takes K up to 65536, and correct
// products of all distributions.
func TestVerifyEveryKernel(t *testing.T) {
	const m, n = 2, 16
	depths := []int{128, 1024, 4096, 16384, 65536}
	rng := rand.New(rand.NewPCG(17, 18))
	data := verifiedData(rng)
	for _, w := range verifiedWays() {
		few := depths[:2]
		if testkit.Long() {
			few = depths
		}
		t.Run(w.String(), func(t *testing.T) {
			for _, k := range few {
				x := w.compute(t, m, n, k, data["uniform"])
				w.findsFaults(t, &x)
				if k > 4096 || !testkit.Long() {
					continue
				}
				for name, fill := range data {
					x := w.compute(t, m, n, k, fill)
					report, err := x.check(t, x.b[gemm.C], math.Inf(1))
					if err != nil {
						t.Errorf("%s, K = %d: %v", name, k, err)
					}
					t.Logf("K = %d, %s: %.2g of the threshold, within %.2g %%", k, name, report.Worst, 100*report.Within)
				}
			}
		})
	}
}

func (w verifiedWay) findsFaults(t *testing.T, x *computed) {
	t.Helper()
	p := &x.p
	clean, err := x.check(t, x.b[gemm.C], 0)
	if err != nil && (!errors.Is(err, gemm.ErrVerify) || clean.Worst > 1) {
		t.Fatalf("K = %d: %v (%v)", p.K, err, clean)
	}
	norm, typical := 0.0, 0
	for j := range p.N {
		norm = math.Hypot(norm, w.out.At(x.b[gemm.C], p.C().Index(0, j)))
	}
	for j := range p.N {
		size := func(j int) float64 {
			return math.Abs(math.Abs(w.out.At(x.b[gemm.C], p.C().Index(0, j))) - norm/math.Sqrt(float64(p.N)))
		}
		if size(j) < size(typical) {
			typical = j
		}
	}
	was := w.out.At(x.b[gemm.C], typical)
	for _, fault := range []struct {
		name  string
		size  float64 // relative to the row's norm
		plant func(c []byte)
	}{
		{"a C of zeros", 1, func(c []byte) { clear(c) }},
		{"an element of zero", math.Abs(was) / norm, func(c []byte) { w.out.Set(c, typical, 0) }},
		{"an element that is off by 1 %", 0.01, func(c []byte) { w.out.Set(c, typical, was+0.01*norm) }},
	} {
		c := append([]byte(nil), x.b[gemm.C]...)
		fault.plant(c)
		report, err := x.check(t, c, 0)
		switch {
		case errors.Is(err, gemm.ErrVerify):
		case fault.size > report.Within:
			t.Errorf("K = %d: %s is not found, report %v", p.K, fault.name, report)
		case w.out.Info().Roundoff < 0x1p-10:
			t.Errorf("K = %d: %s is not found although rounding does not hide it, report %v", p.K, fault.name, report)
		}
	}
}

// TestDeclaredSums checks that truncating kernels without split-K sum as their Accuracy declares,
// to the last bit.
func TestDeclaredSums(t *testing.T) {
	const m, n, k = 3, 5, 160
	rng := rand.New(rand.NewPCG(19, 20))
	seen := 0
	for _, w := range verifiedWays() {
		if w.out != dtype.F32 || w.device == backend.CPU {
			continue
		}
		// These elements need no rounding to TF32. Kernels round its ties in either direction.
		x := w.compute(t, m, n, k, func(bool, int) float64 { return dtype.BF16.Round(rng.NormFloat64()) })
		if !x.acc.Truncates || w.Name == "mma" && w.in.Size() == 1 {
			continue // some GPUs compute mma of 8-bit floats with other instructions, which round differently
		}
		seen++
		a, b := make([]float64, k), make([]float64, k)
		for at := range m * n {
			for q := range k {
				a[q], b[q] = w.in.At(x.b[gemm.A], x.p.A().Index(at/n, q)), w.in.At(x.b[gemm.B], x.p.B().Index(q, at%n))
			}
			got, want := w.out.At(x.b[gemm.C], at), verify.KernelSums(x.acc, dtype.F32, a, b)[0]
			if got != want {
				t.Errorf("%v: element %d is %v, want %v", w, at, got, want)
			}
		}
	}
	if seen == 0 {
		t.Error("no truncating kernel was tested")
	}
}

// TestVerifyWithin checks that a product whose errors below 1 % cannot be found is refused unless
// the caller accepts that.
func TestVerifyWithin(t *testing.T) {
	w := verifiedWay{Kernel: backend.Kernel{Name: "wgmma"}, device: backend.Emulator, in: dtype.F8E4M3, out: dtype.F32,
		precision: gemm.Fast}
	x := w.compute(t, 2, 16, 1024, verifiedData(rand.New(rand.NewPCG(21, 22)))["positive"])
	for within, want := range map[float64]error{0: gemm.ErrVerify, 0.001: gemm.ErrVerify, 0.5: nil} {
		pl, err := New(t.Context(), Request{Problem: x.p, Device: backend.DeviceName{Kind: w.device}, Kernel: w.Name,
			Verify: true, Within: within})
		if err != nil {
			t.Fatal(err)
		}
		if err := pl.Run(t.Context(), &x.b); !errors.Is(err, want) || pl.Verified().Worst > 1 {
			t.Errorf("within %v: got error %v, want %v (report %v)", within, err, want, pl.Verified())
		}
	}
}

// TestSums checks that each element type of a kernel has one description of its sums, and that of
// 8-bit floats on wgmma, which does not sum in float32.
func TestSums(t *testing.T) {
	for _, k := range Kernels(backend.DeviceName{}) {
		for _, typ := range k.Types {
			var found []string
			for _, s := range k.Sums() {
				if s.Precision == gemm.Native && slices.Contains(s.Types, typ) {
					found = append(found, s.How)
				}
			}
			if len(typ.Info().Results) > 0 && len(found) != 1 {
				t.Errorf("%s: got sums %q of %v, want one description", k.Name, found, typ)
			}
			want := "in 14 bits, 32 products at a time, truncated; promoted to float32 every 128 of K"
			if k.Name == "wgmma" && typ == dtype.F8E5M2 && !slices.Equal(found, []string{want}) {
				t.Errorf("wgmma: got sums of %v %q, want %q", typ, found, want)
			}
		}
	}
}

// TestVerified checks that plans verify their result on the CPU and the emulator, before the
// activation, and that C has the activation's exact bits.
func TestVerified(t *testing.T) {
	for _, d := range []string{"cpu", "emu"} {
		for _, act := range gemm.Activations() {
			p, b := product(t, dtype.F16, dtype.F16, 33, 20, 10, gemm.Epilogue{Activation: act})
			pl, err := New(t.Context(), Request{Problem: p, Device: name(t, d), Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := pl.Run(t.Context(), &b); err != nil {
				t.Errorf("%s, %v: %v", d, act, err)
			}
			want := dtype.F16.Round(act.Info().F(10))
			if got := dtype.F16.At(b[gemm.C], 33*20-1); pl.Verified() == nil || got != want {
				t.Errorf("%s, %v: the last element is %v, want %v; report %v", d, act, got, want, pl.Verified())
			}
		}
	}
}

// corrupt is a device that flips a bit of each copy to the host.
type corrupt struct{ device.Device }

func (c corrupt) CopyOut(ctx context.Context, dst []byte, src device.Ptr, r device.Rows) error {
	err := c.Device.CopyOut(ctx, dst, src, r)
	dst[2] ^= 0x40
	return err
}

// TestCorruptedResult checks that verification finds a wrong bit.
func TestCorruptedResult(t *testing.T) {
	inner, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	restore := gpu.Substitute(func(backend.DeviceName) (device.Device, error) { return corrupt{inner}, nil })
	defer restore()
	for _, act := range []gemm.Activation{gemm.ActNone, gemm.ActReLU} {
		p, b := product(t, dtype.F32, dtype.F32, 8, 8, 8, gemm.Epilogue{Activation: act})
		pl, err := New(t.Context(), Request{Problem: p, Device: name(t, "emu"), Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := pl.Run(t.Context(), &b); !errors.Is(err, gemm.ErrVerify) {
			t.Errorf("%v, with a wrong bit: got error %v, want ErrVerify", act, err)
		}
	}
}
