package stream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/program"
	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu/check"
)

// threshold returns x + 100·row + col if that is greater than data[col%3], else -1.
func threshold(k *build.Kernel, e kernel.Element) build.Reg {
	t := e.Value.Type()
	x := k.Add(e.Value, k.To(t, k.To(ptx.U32, k.Mad(e.Row, 100, e.Col))))
	return k.Select(k.Gt(x, e.Data.At(k.Rem(e.Col, 3)).Load()), x, k.To(t, -1))
}

// TestFunctions checks that every kernel applies a caller's epilogue function with the right row
// and column of C, in one step and in panels, for a row-major and a transposed C.
func TestFunctions(t *testing.T) {
	f, err := kernel.NewFunction(threshold)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Bounds, check.Uninit}})
	b := New(d)
	for _, k := range choose.Kernels() {
		for _, in := range []dtype.Type{dtype.F32, dtype.BF16, dtype.I8} {
			m, n, depth := 3+rng.IntN(70), 3+rng.IntN(70), 1+rng.IntN(20)
			for _, transposed := range []bool{false, true} {
				c := gemm.Dense(in.Info().Accum, m, n)
				if transposed {
					c = gemm.Dense(in.Info().Accum, n, m).T()
				}
				p, swapped, err := gemm.New(1, gemm.Dense(in, m, depth), gemm.Dense(in, depth, n), 0, c, gemm.Epilogue{Function: f})
				if err != nil {
					t.Fatal(err)
				}
				if p.DataLen = 3; k.Check(&p, kernel.Tile{}, kernel.Align{}, nil) != nil {
					continue
				}
				fill := func(l gemm.Layout) []byte {
					x := make([]byte, l.Bytes())
					for i := range l.Len() {
						l.Type.Set(x, i, float64(rng.IntN(7)-3))
					}
					return x
				}
				buf := gemm.Buffers{gemm.A: fill(p.Layouts[gemm.A]), gemm.B: fill(p.Layouts[gemm.B]),
					gemm.C: fill(p.Layouts[gemm.C])}
				buf[gemm.FunctionData] = make([]byte, p.Layout(gemm.FunctionData).Bytes())
				limits := []float64{500, 1500, 2500}
				for i, x := range limits {
					p.Accum().Set(buf[gemm.FunctionData], i, x)
				}
				pl, err := b.Plan(&p, exec.Options{Kernel: k.Name})
				if err != nil {
					t.Fatal(err)
				}
				if p.M > kernel.MaxVectorBytes && pl.ScratchBytes() == 0 {
					pl.Steps = pl.overlapped(pl.once(), program.First(p.M).Cut(kernel.MaxVectorBytes))
				}
				if err := pl.Run(t.Context(), buf); err != nil {
					t.Fatal(err)
				}
				for i := range p.M {
					for j := range p.N {
						x := 0.0
						for q := range p.K {
							x += p.In().At(buf[gemm.A], p.A().Index(i, q)) * p.B().Type.At(buf[gemm.B], p.B().Index(q, j))
						}
						row, col := i, j
						if swapped {
							row, col = j, i
						}
						if x += float64(100*row + col); x <= limits[col%3] {
							x = -1
						}
						if got := p.Out().At(buf[gemm.C], p.C().Index(i, j)); got != x {
							t.Fatalf("%s, %v, %s: C(%d,%d) = %v, want %v", k.Name, &p, pl.Config, i, j, got, x)
						}
					}
				}
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestFunctionIdentity checks that NewFunction returns the same Function for functions that emit
// the same PTX, and different ones otherwise. It also checks which functions NewFunction rejects.
func TestFunctionIdentity(t *testing.T) {
	times := func(n float64) *kernel.Function {
		f, err := kernel.NewFunction(func(k *build.Kernel, e kernel.Element) build.Reg { return k.Mul(e.Value, n) })
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	switch two := times(2); {
	case two != times(2), two == times(3), two.Reads():
		t.Error("NewFunction does not identify functions by the PTX that they emit")
	case times(2.5).Refused[dtype.I32] == nil:
		t.Error("a multiplication by 2.5 is not refused for int32")
	}
	for name, f := range map[string]func(k *build.Kernel, e kernel.Element) build.Reg{
		"returns another type": func(k *build.Kernel, e kernel.Element) build.Reg { return k.To(ptx.F16, e.Value) },
		"returns no value":     func(k *build.Kernel, e kernel.Element) build.Reg { return build.Reg{} },
	} {
		if _, err := kernel.NewFunction(f); !errors.Is(err, gemm.ErrUnsupported) {
			t.Errorf("function %s: NewFunction returned %v, want ErrUnsupported", name, err)
		}
	}
	if s := fmt.Sprint(gemm.Epilogue{Function: times(2), Saturate: true}); s != "saturate+"+times(2).String() {
		t.Errorf("an epilogue with a function prints as %q, want %q", s, "saturate+"+times(2).String())
	}
}
