package exec

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
)

// products returns products that differ in size, layouts, types, factors, epilogue, precision,
// batch and alignment.
func products(t testing.TB) (all []choiceKey) {
	add := func(p gemm.Problem, err error) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, choiceKey{problem: p})
	}
	for _, p := range testkit.Layouts(t, dtype.BF16, 300, 200, 1000) {
		add(*p, nil)
	}
	for _, s := range [][3]int{{300, 200, 1001}, {300, 208, 1000}, {301, 200, 1000}, {1, 4096, 4096}, {4096, 4096, 4096}} {
		for _, ty := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32, dtype.F64, dtype.F8E4M3} {
			add(*testkit.Product(t, ty, ty, s[0], s[1], s[2]), nil)
		}
		p := testkit.Product(t, dtype.F32, dtype.F32, s[0], s[1], s[2])
		add(p.WithPrecision(gemm.TF32))
		add(p.Strided(7, gemm.Batch{Stride: gemm.Strides{p.A().Len(), p.B().Len(), p.C().Len()}}))
		add(p.Grouped(7, p.B().Len()))
		add(*testkit.Product(t, dtype.BF16, dtype.F32, s[0], s[1], s[2]), nil)
		p = testkit.Product(t, dtype.BF16, dtype.BF16, s[0], s[1], s[2])
		p.Beta = 1
		add(*p, nil)
		p.Beta, p.Epilogue.Activation = 0, gemm.ActGELU
		add(*p, nil)
		for _, at := range []int{2, 4, 8} {
			all = append(all, choiceKey{*p, kernel.Align{gemm.A: at}}, choiceKey{*p, kernel.Align{gemm.C: at}})
		}
	}
	return all
}

// hopper returns a device that executes nothing, for plans with every kernel of an H200.
func hopper() *devicetest.Null {
	d := devicetest.NewNull()
	d.Device.Target.Suffix, d.Device.SMs, d.Device.MaxShared = "a", 132, 227<<10
	return d
}

// TestPlansAreKept plans products twice on one backend. Each plan must equal that of a backend that
// has planned nothing else, so a kept choice is never that of another product.
func TestPlansAreKept(t *testing.T) {
	shared := New(hopper())
	for round := range 2 {
		for _, c := range products(t) {
			for _, keepLayout := range []bool{false, true} {
				opt := Options{Align: c.align, KeepLayout: keepLayout}
				got, errGot := shared.Plan(&c.problem, opt)
				want, errWant := New(shared.Device).Plan(&c.problem, opt)
				if fmt.Sprint(errGot) != fmt.Sprint(errWant) {
					t.Fatalf("round %d: %v: error %v, want %v", round, c, errGot, errWant)
				}
				if errGot != nil {
					if !errors.Is(errGot, gemm.ErrUnsupported) {
						t.Errorf("%v: error %v, want ErrUnsupported", c, errGot)
					}
					continue
				}
				if got.device != want.device || !reflect.DeepEqual(got.Choice, want.Choice) {
					t.Errorf("round %d: %v: %+v, want %+v", round, c, got.Choice, want.Choice)
				}
			}
		}
	}
}

// BenchmarkPlan measures a plan of a product that was planned before, and of one that was not.
func BenchmarkPlan(b *testing.B) {
	p := testkit.Product(b, dtype.BF16, dtype.BF16, 4096, 4096, 4096)
	d := hopper()
	plan := func(b *testing.B, on *Backend) {
		if _, err := on.Plan(p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("known", func(b *testing.B) {
		on := New(d)
		for b.Loop() {
			plan(b, on)
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			plan(b, New(d))
		}
	})
}
