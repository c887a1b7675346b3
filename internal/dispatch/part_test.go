package dispatch

import (
	"bytes"
	"errors"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// TestParts computes products in two parts on the CPU and on the emulator, verified and not, with
// all operands of an epilogue. The parts must have the bits of the whole.
func TestParts(t *testing.T) {
	rng := testrand.New(t)
	everything := gemm.Epilogue{Bias: gemm.BiasRow, RowScale: true, ColScale: true, Residual: true, OutScale: true,
		Activation: gemm.ActGELU}
	gated := gemm.Epilogue{Gated: true, Activation: gemm.ActSiLU}
	for _, device := range []backend.Kind{backend.CPU, backend.Emulator} {
		for _, c := range []struct {
			in, out  dtype.Type
			epilogue gemm.Epilogue
			beta     complex128
		}{
			{dtype.F32, dtype.F32, gemm.Epilogue{}, 0}, {dtype.F32, dtype.F32, everything, 0.5},
			{dtype.F64, dtype.F64, gated, 0},
			{dtype.BF16, dtype.BF16, everything, 0}, {dtype.BF16, dtype.F32, gated, 0},
			{dtype.I8, dtype.I32, gemm.Epilogue{}, 0},
			{dtype.F16, dtype.F16, gemm.Epilogue{}, 2}, {dtype.I8, dtype.F32, everything, 0},
		} {
			for _, verified := range []bool{false, true} {
				const k = 700 // a part alone would be computed in another order
				p, _, err := gemm.New(2, gemm.Dense(c.in, 96, k), gemm.Dense(c.in, 64, k).T(), c.beta, gemm.Dense(c.out, 96, 64),
					c.epilogue)
				if p.Epilogue.Residual {
					p.Layouts[gemm.Residual] = gemm.Dense(c.out, 96, 64)
				}
				if p.Epilogue.Gated {
					p.Layouts[gemm.Up] = p.Layouts[gemm.B]
				}
				if err != nil {
					t.Fatal(err)
				}
				var b gemm.Buffers
				for o := range gemm.Operands {
					if l := p.Layout(o); p.Uses(o) {
						b[o] = make([]byte, l.Bytes())
						for i := range l.Type.Elements(len(b[o])) {
							x := 2*rng.Float64() - 1 // sums are rounded
							if c.in.Info().Integer {
								x = float64(rng.IntN(61) - 30)
							}
							l.Type.Set(b[o], i, l.Type.Round(x))
						}
					}
				}
				old := bytes.Clone(b[gemm.C])
				whole, err := New(t.Context(), Request{Problem: p, Device: backend.DeviceName{Kind: device}, Verify: verified})
				if err != nil {
					t.Fatal(err)
				}
				if err := whole.Run(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
				width := p.Out().Bytes(p.N)
				cut := 1 + rng.IntN(p.M-1)
				for _, a := range []gemm.Area{{Rows: cut, Cols: p.N}, {Row: cut, Rows: p.M - cut, Cols: p.N}} {
					q, m, err := p.Part(a, &b)
					if err != nil {
						t.Fatal(err)
					}
					from, to := a.Row*width, (a.Row+a.Rows)*width
					m[gemm.C] = bytes.Clone(old[from:to])
					part, err := whole.Part(a)
					if err != nil {
						t.Fatalf("%v on %v: %v", &p, device, err)
					}
					if part.Problem != q {
						t.Errorf("%v: the problem of the plan is %v, want %v", a, &part.Problem, &q)
					}
					err = part.Run(t.Context(), &m)
					if err != nil || !bytes.Equal(m[gemm.C], b[gemm.C][from:to]) || (part.Verified() != nil) != verified {
						t.Errorf("%v on %v, %s, verified %v, %v: error %v, the bits of the whole: %v", &p, device,
							whole.Order(), verified, a, err, bytes.Equal(m[gemm.C], b[gemm.C][from:to]))
					}
				}
			}
		}
	}
}

// TestIndivisible checks that a product whose parts would have other bits is refused in parts, and
// accepted as a whole.
func TestIndivisible(t *testing.T) {
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 8, 100_000), gemm.Dense(dtype.F32, 100_000, 8), 0,
		gemm.Dense(dtype.F32, 8, 8), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := New(t.Context(), Request{Problem: p, Device: backend.DeviceName{Kind: backend.CPU}})
	if err != nil || pl.Order() != "" {
		t.Fatalf("order %q, error %v, want none of a product with split-K", pl.Order(), err)
	}
	if _, err := pl.Part(gemm.Area{Rows: 4, Cols: 8}); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("half of it: error %v, want ErrUnsupported", err)
	}
	if _, err := pl.Part(gemm.Area{Rows: 9, Cols: 8}); !errors.Is(err, gemm.ErrShape) {
		t.Errorf("more than all of it: error %v, want ErrShape", err)
	}
	if _, err := pl.Part(gemm.Area{Rows: 8, Cols: 8}); err != nil {
		t.Errorf("all of it: %v", err)
	}
}
