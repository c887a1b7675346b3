package dtype

import (
	"math"
	"testing"
)

// TestTable checks the properties of each type against its conversions.
func TestTable(t *testing.T) {
	for _, ty := range All() {
		in := ty.Info()
		for _, name := range []string{in.Name, in.Short} {
			if got, err := Parse(name); got != ty || err != nil || name == "" {
				t.Errorf("Parse(%q) = %v, error %v", name, got, err)
			}
		}
		if ty.Round(in.Max) != in.Max {
			t.Errorf("%v cannot represent Max = %v", ty, in.Max)
		}
		if ty.Round(in.Exact) != in.Exact || ty.Round(in.Exact-1) != in.Exact-1 {
			t.Errorf("%v cannot represent Exact = %v", ty, in.Exact)
		}
		if !in.Accum.Valid() || in.Accum.Size() < in.Size {
			t.Errorf("%v has accumulator %v", ty, in.Accum)
		}
		for _, r := range in.Results {
			if s := in.ScaleType(r); r.Info().Integer && !in.Integer || s.Info().Integer != r.Info().Integer ||
				s.Info().Roundoff > r.Info().Roundoff {
				t.Errorf("a product of %v has result type %v and scale type %v", ty, r, s)
			}
		}
		if in.Integer {
			least := -in.Max - 1
			if ty == U8 {
				least = 0
			}
			if in.Exact != in.Max {
				t.Errorf("%v has Exact = %v, want %v", ty, in.Exact, in.Max)
			}
			if in.Roundoff != 0 || in.Tiny != 0 || ty.Round(in.Max+1) != in.Max || ty.Round(-in.Max-9) != least ||
				ty.Round(math.NaN()) != 0 {
				t.Errorf("%v does not saturate at %v", ty, in.Max)
			}
			continue
		}
		u := in.Roundoff
		if next := 1 + 2*u; next == 1 || ty.Round(next) != next || ty.Round(1+u) != 1 {
			t.Errorf("%v does not have unit roundoff %v", ty, u)
		}
		if in.Tiny == 0 || ty.Round(in.Tiny) != in.Tiny || ty.Round(in.Tiny/2) != 0 {
			t.Errorf("the smallest value of %v is not Tiny = %v", ty, in.Tiny)
		}
		if ty == F64 && in.Max != math.MaxFloat64 || ty != F64 && ty.Round(in.Max*(1+u)) <= math.MaxFloat64 {
			t.Errorf("%v can represent more than Max = %v", ty, in.Max)
		}
		if next := in.Exact + 1; next > in.Exact && ty.Round(next) == next {
			t.Errorf("%v can represent %v: want Exact above %v", ty, next, in.Exact)
		}
	}
	if _, err := Parse("float9"); err == nil {
		t.Error("Parse of an unknown type succeeded, want an error")
	}
	defer func() {
		if recover() == nil {
			t.Error("Info of Invalid did not panic")
		}
	}()
	Invalid.Info()
}

// TestAccess checks that Set, At and Load access the same memory as a slice of the Go type.
func TestAccess(t *testing.T) {
	testAccess[float64](t)
	testAccess[float32](t)
	testAccess[Float16](t)
	testAccess[BFloat16](t)
	testAccess[Float8E4M3](t)
	testAccess[Float8E5M2](t)
	testAccess[int8](t)
	testAccess[uint8](t)
	testAccess[int32](t)
}

func testAccess[T Element](t *testing.T) {
	ty := Of[T]()
	s := make([]T, 9)
	b := Bytes(s)
	if len(b) != 9*ty.Size() {
		t.Errorf("9 elements of %v have %d bytes", ty, len(b))
	}
	value := func(i int) float64 { return float64(4*i) + ty.Round(-16) }
	for i := range s {
		ty.Set(b, i, value(i))
	}
	all := make([]float64, len(s))
	ty.Load(all, b)
	for i, v := range View[T](b[:len(b)-ty.Size()+1]) {
		want := value(i)
		if v != s[i] || ToFloat64(v) != want || ty.At(b, i) != want || all[i] != want || FromFloat64[T](want) != v {
			t.Errorf("%v, element %d: got %v, %v, %v, want %v", ty, i, ToFloat64(v), ty.At(b, i), all[i], want)
		}
	}
	ty.Load(nil, nil)
	if ty.Size() == 1 {
		return
	}
	defer func() {
		if recover() == nil {
			t.Errorf("View of misaligned %v did not panic", ty)
		}
	}()
	View[T](b[1:])
}

// TestBytes checks that elements and bytes are converted into each other.
func TestBytes(t *testing.T) {
	for _, ty := range All() {
		for _, n := range []int{-3, 0, 1, 1000, math.MaxInt / 8} {
			if ty.Bytes(n) != n*ty.Size() || ty.Elements(n*ty.Size()) != n || 8*ty.Size() != ty.Bits() {
				t.Errorf("%v: got %d bytes for %d elements, and %d elements back", ty, ty.Bytes(n), n, ty.Elements(n*ty.Size()))
			}
		}
		if n := 3*ty.Size() - 1; ty.Elements(n) != 2 {
			t.Errorf("%v: got %d whole elements in %d bytes, want 2", ty, ty.Elements(n), n)
		}
	}
	if Invalid.Bytes(100) != 0 || Invalid.Size() != 0 || Invalid.Bits() != 0 {
		t.Error("elements of the invalid type take memory")
	}
}
