package dispatch

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// toyBackend is a backend that cannot pack and is not tuned. Its only kernel computes float64.
type toyBackend struct{ device backend.DeviceName }

func (b toyBackend) Kernels() []backend.Kernel {
	return []backend.Kernel{{
		Name: "toy-loop", Kind: b.device.Kind, Available: true, Types: []dtype.Type{dtype.F64},
		Supports: supportsToy, Accuracy: func(*gemm.Problem) gemm.Accuracy { return gemm.Accuracy{} },
	}}
}

func supportsToy(p *gemm.Problem) error {
	if p.In() != dtype.F64 || p.Precision != gemm.Native || p.Epilogue.Function != nil {
		return gemm.ErrUnsupported
	}
	return nil
}

func (b toyBackend) Open() error    { return nil }
func (b toyBackend) String() string { return b.device.String() }

func (b toyBackend) Plan(p *gemm.Problem, o *backend.Options, _ backend.Plan) (backend.Plan, error) {
	return toyPlan{p: p}, supportsToy(p)
}

// toyPlan computes alpha·A·B with beta = 0 and the epilogue.
type toyPlan struct {
	backend.BasePlan
	p *gemm.Problem
}

func (toyPlan) KernelName() string                       { return "toy-loop" }
func (toyPlan) Detail() string                           { return "three loops" }
func (toyPlan) Why() string                              { return "the only kernel" }
func (toyPlan) Accuracy(*gemm.Problem) (a gemm.Accuracy) { return a }
func (toy toyPlan) Run(_ context.Context, b *gemm.Buffers) error {
	p := toy.p
	for i := range p.M {
		for j := range p.N {
			sum := 0.0
			for k := range p.K {
				sum += dtype.F64.At(b[gemm.A], p.A().Index(i, k)) * dtype.F64.At(b[gemm.B], p.B().Index(k, j))
			}
			dtype.F64.Set(b[gemm.C], p.C().Index(i, j), p.Finish(b, i, j, real(p.Alpha)*sum, 0))
		}
	}
	return nil
}

// planToy plans a product on the toy backend.
func planToy(p *Plan) error {
	row := newRow(backend.Emulator, false, func(d backend.DeviceName) backend.Backend { return toyBackend{d} })
	return p.planOn(row.first)
}

// TestToy checks that dispatch computes products, verified ones and batches with a backend whose
// plans only run, and refuses requests for abilities that they lack.
func TestToy(t *testing.T) {
	p, b := product(t, dtype.F64, dtype.F64, 9, 10, 11, gemm.Epilogue{Activation: gemm.ActReLU})
	for _, verify := range []bool{false, true} {
		pl := Plan{Request: Request{Problem: p, Verify: verify}}
		clear(b[gemm.C])
		if err := errors.Join(planToy(&pl), pl.Run(t.Context(), &b)); err != nil {
			t.Fatal(err)
		}
		if got := dtype.F64.At(b[gemm.C], 9*10-1); got != 11 || pl.Kernel() != "toy-loop" ||
			(pl.Verified() != nil) != verify {
			t.Errorf("kernel %s computed element %v, want 11, report %v", pl.Kernel(), got, pl.Verified())
		}
	}
	for want, r := range map[string]Request{
		"a Go function for each tile on device emu": {Tile: func(_, _, _, _ int) {}},
		"a packed matrix on device emu":             {Packed: &Packed{on: rows[0].first}},
	} {
		r.Problem = p
		if err := planToy(&Plan{Request: r}); !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	two := []Job{{}, {}}
	for i := range two {
		two[i].Problem, two[i].Buffers = p, b
		two[i].Buffers[gemm.C] = make([]byte, p.C().Bytes())
		if err := planToy(&two[i].Plan); err != nil {
			t.Fatal(err)
		}
	}
	if err := RunBatch(t.Context(), two); err != nil {
		t.Errorf("a batch: %v", err)
	}
	if got := dtype.F64.At(two[1].Buffers[gemm.C], 9*10-1); got != 11 {
		t.Errorf("a batch computed element %v, want 11", got)
	}
}
