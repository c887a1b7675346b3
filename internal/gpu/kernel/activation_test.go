package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/ptx/build"
)

// TestActivations compares the kernels' activations with package gemm's reference functions. They
// may differ by a few roundoffs of the argument.
func TestActivations(t *testing.T) {
	const n = 4096
	rng := rand.New(rand.NewPCG(1, 2))
	xs := []float64{0, 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 1e30, -1e30, 1e-30, -1e-30, math.Sqrt2, -math.Sqrt2,
		709, -709, 88, -88}
	for len(xs) < n/2 {
		xs = append(xs, rng.NormFloat64()*3)
	}
	for len(xs) < n {
		xs = append(xs, math.Exp(rng.NormFloat64()*8)*float64(rng.IntN(2)*2-1))
	}
	for _, c := range []struct {
		typ   dtype.Type
		sm    int // the architecture whose instructions are used
		exact bool
	}{{dtype.F32, 75, false}, {dtype.F32, 80, false}, {dtype.F32, 80, true}, {dtype.F64, 80, false}} {
		typ := c.typ
		for _, act := range gemm.Activations() {
			f := activations[act]
			if act == gemm.ActNone {
				continue
			}
			k := build.New("activation")
			k.Threads(n/4, 1, 1)
			x := k.Pointer("x", PTXTypes[typ]).At(k.ThreadIdx(build.X))
			for i := range 4 {
				at := x.At(i * n / 4)
				at.Store(f(elementary{k, c.sm, c.exact}, at.Load()))
			}
			args, got := make([]byte, typ.Bytes(n)), make([]byte, typ.Bytes(n))
			for i, x := range xs {
				typ.Set(args, i, x)
			}
			execute(t, k, args, got)
			// Every intermediate rounding applies to a value of at most about |x|.
			const roundoffs = 5
			worst := 0.0
			for i := range xs {
				x := typ.At(args, i)
				want, have := act.Info().F(x), typ.At(got, i)
				if want == have || want != want && have != have {
					continue
				}
				err := math.Abs(have-want) / (math.Abs(x)*typ.Info().Roundoff + typ.Info().Tiny)
				if worst = max(worst, err); !(err <= roundoffs) {
					t.Errorf("%v of %v in %v is %v, want %v: %.1f roundoffs off", act, x, typ, have, want, err)
				}
			}
			t.Logf("%v in %v on sm_%d, exact %v: at most %.2f roundoffs off", act, typ, c.sm, c.exact, worst)
		}
	}
}

// execute runs a kernel of one block on a copy of in, which it modifies, and copies the result to
// out.
func execute(t *testing.T, k *build.Kernel, in, out []byte) {
	t.Helper()
	m, err := k.Build()
	if err != nil {
		t.Fatal(err)
	}
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Alloc(len(in))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(t.Context(), p, in, device.Whole(len(in))); err != nil {
		t.Fatal(err)
	}
	module, err := d.Load(t.Context(), m.String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := module.Function(m.Funcs()[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	var args device.Params
	args.Ptr(p)
	size := m.Funcs()[0].Attrs[0].Args
	l := device.Launch{Grid: device.Dim3{X: 1, Y: 1, Z: 1}, Block: device.Dim3{X: size[0], Y: size[1], Z: size[2]},
		Params: args.Bytes()}
	if err := d.Launch(t.Context(), f, l); err != nil {
		t.Fatal(err)
	}
	if err := d.CopyOut(t.Context(), out, p, device.Whole(len(out))); err != nil {
		t.Fatal(err)
	}
}
