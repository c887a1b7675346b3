package exec

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

func init() { testkit.CollectRarely() }

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

// hugeProduct returns a random product with sides of up to 32 bits: single, row-invariant, a
// strided batch or groups of rows.
func hugeProduct(rng *rand.Rand) (p gemm.Problem, err error) {
	in := []dtype.Type{dtype.F32, dtype.BF16, dtype.I8, dtype.F8E4M3, dtype.F64}[rng.IntN(5)]
	side := func() int { return rng.IntN(1 << min(rng.IntN(33), bits.UintSize-2)) }
	m, n, k := side(), side(), side()
	layout := func(rows, cols int) gemm.Layout {
		l := gemm.Dense(in, rows, cols)
		if rng.IntN(2) == 0 {
			l = gemm.Dense(in, cols, rows).T()
		}
		if rng.IntN(2) == 0 {
			l = gemm.Padded(l)
		}
		return l
	}
	c := gemm.Dense(in.Info().Results[0], m, n)
	if p, _, err = gemm.New(1, layout(m, k), layout(k, n), 0, c, gemm.Epilogue{}); err != nil {
		return p, err
	}
	switch rng.IntN(4) {
	case 0:
		p.Invariance = gemm.InvariantRows + gemm.Invariance(rng.IntN(2))
	case 1:
		p, err = p.Strided(side(), gemm.Batch{Stride: gemm.Strides{p.A().Len(), p.B().Len(), p.C().Len()}})
	case 2:
		p, err = p.Grouped(side(), p.B().Len())
	}
	return p, err
}

// TestPlansLaunch checks that every launch of a product that can be planned has a grid that a GPU
// accepts, for matrices of up to 4 TB, and that all empty products can be planned.
func TestPlansLaunch(t *testing.T) {
	rng := testrand.New(t)
	d := hopper()
	b, planned := New(d), 0
	for range testkit.Cases(2000, 20000) {
		p, err := hugeProduct(rng)
		if err != nil || p.Traffic() > 1<<42 {
			continue
		}
		pl, err := b.Plan(&p, Options{KeepLayout: true})
		if errors.Is(err, gemm.ErrUnsupported) && !p.Empty() {
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", &p, err)
		}
		planned++
		r := recorder{base: 1 << 50}
		pl.addTo(&r, at(&p, 1<<40))
		for _, s := range r.steps {
			if l, err := s.encode(d); err != nil {
				t.Errorf("%v with %s: %v", &p, pl.Spec(), err)
			} else if g := l.Grid; max(g.Y, g.Z) > kernel.MaxGridRows || g.X > math.MaxInt32 || min(g.X, g.Y, g.Z) < 1 {
				t.Errorf("%v with %s: a grid of %v", &p, pl.Spec(), g)
			}
		}
	}
	if planned < 500 {
		t.Errorf("planned %d products, want at least 500", planned)
	}
}

// TestFactorsShareChoices checks that a product with another alpha or beta is not planned again.
func TestFactorsShareChoices(t *testing.T) {
	b := New(hopper())
	why := func(alpha, beta complex128) string {
		p := *testkit.Product(t, dtype.BF16, dtype.BF16, 512, 512, 512)
		p.Alpha, p.Beta = alpha, beta
		pl, err := b.Plan(&p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if pl.Problem().Alpha != alpha || pl.Problem().Beta != beta {
			t.Errorf("planned with factors %v and %v, want %v and %v", pl.Problem().Alpha, pl.Problem().Beta, alpha, beta)
		}
		return pl.Why
	}
	first, second := why(1, 2), why(3, 4)
	if unsafe.StringData(first) != unsafe.StringData(second) {
		t.Error("two choices for products that differ in alpha and beta alone")
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
