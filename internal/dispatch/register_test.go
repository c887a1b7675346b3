package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
)

// toyBackend is a backend without optional abilities. Its only kernel computes float64.
type toyBackend struct{ device backend.Device }

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
	return toyPlan{p}, supportsToy(p)
}

// toyPlan computes alpha·A·B with beta = 0 and the epilogue.
type toyPlan struct{ *gemm.Problem }

func (toyPlan) Prepare(context.Context) error            { return nil }
func (toyPlan) PrepareTime() time.Duration               { return 0 }
func (toyPlan) KernelName() string                       { return "toy-loop" }
func (toyPlan) Workers() int                             { return 1 }
func (toyPlan) Detail() string                           { return "three loops" }
func (toyPlan) Why() string                              { return "the only kernel" }
func (toyPlan) Memory() int                              { return 0 }
func (toyPlan) Accuracy(*gemm.Problem) (a gemm.Accuracy) { return a }
func (p toyPlan) Run(_ context.Context, b *gemm.Buffers) error {
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

// TestRegister checks that a registered backend serves its devices and kernels, and that requests
// for abilities that it lacks are refused.
func TestRegister(t *testing.T) {
	kind, removeKind := backend.AddKind(backend.KindInfo{Name: "toy"})
	defer removeKind()
	remove := Register(Row{kind, true, func(d backend.Device) backend.Backend { return toyBackend{d} }})
	defer remove()
	p, b := product(t, dtype.F64, dtype.F64, 9, 10, 11, gemm.Epilogue{Activation: gemm.ActReLU})
	for _, r := range []Request{{Device: name(t, "toy")}, {Kernel: "toy-loop"}, {Device: name(t, "toy"), Verify: true}} {
		r.Problem = p
		pl, err := New(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		clear(b[gemm.C])
		if err := pl.Run(t.Context(), &b); err != nil {
			t.Error(err)
		}
		if got := dtype.F64.At(b[gemm.C], 9*10-1); got != 11 || pl.Device() != name(t, "toy") ||
			(pl.Verified() != nil) != r.Verify {
			t.Errorf("%v computed element %v, want 11, report %v", pl.Device(), got, pl.Verified())
		}
	}
	names := func() (all []string) {
		for _, k := range Kernels(backend.Device{}) {
			all = append(all, k.Name)
		}
		return all
	}
	if !slices.Contains(names(), "toy-loop") {
		t.Errorf("got kernels %v, want toy-loop too", names())
	}
	for want, r := range map[string]Request{
		"a Go function for each tile on device toy": {Tile: func(_, _, _, _ int) {}},
		"a packed matrix on device toy":             {Packed: &Packed{on: rows[0].first}},
	} {
		r.Problem, r.Device = p, name(t, "toy")
		if _, err := New(t.Context(), r); !errors.Is(err, gemm.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	two := []Product{{}, {}}
	for i := range two {
		two[i].Problem, two[i].Request.Device, two[i].Buffers = p, name(t, "toy"), b
		two[i].Buffers[gemm.C] = make([]byte, p.C().Bytes())
		if err := two[i].Decide(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := RunBatch(t.Context(), two); err != nil {
		t.Errorf("a batch: %v", err)
	}
	remove()
	if _, err := New(t.Context(), Request{Problem: p, Device: name(t, "toy")}); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("after removal: got error %v, want ErrUnsupported", err)
	}
	if slices.Contains(names(), "toy-loop") {
		t.Errorf("got kernels %v after removal", names())
	}
}
