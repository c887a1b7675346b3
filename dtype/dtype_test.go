package dtype

import (
	"math"
	"math/big"
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
		if !in.Accum.Valid() || in.Accum.Bits() < in.Bits {
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

// TestBytes compares Bytes, Elements and WholeBytes with exact arithmetic, for elements of all
// sizes and for counts whose bits overflow an int.
func TestBytes(t *testing.T) {
	for _, bits := range []int{1, 2, 4, 6, 8, 16, 32, 64, 128} {
		in := Info{Bits: bits}
		most := new(big.Int).Div(new(big.Int).Mul(big.NewInt(math.MaxInt), big.NewInt(8)), big.NewInt(int64(bits)))
		for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 1000, 1001, math.MaxInt/16 - 1, math.MaxInt / 16, math.MaxInt - 8} {
			if big.NewInt(int64(n)).Cmp(most) > 0 {
				continue
			}
			all := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(bits)))
			want, rest := new(big.Int).DivMod(all, big.NewInt(8), new(big.Int))
			whole := rest.Sign() == 0
			if !whole {
				want.Add(want, big.NewInt(1))
			}
			if got := in.Bytes(n); big.NewInt(int64(got)).Cmp(want) != 0 || in.WholeBytes(n) != whole {
				t.Errorf("%d elements of %d bits: got %d bytes, whole %v, want %v, whole %v", n, bits, got,
					in.WholeBytes(n), want, whole)
			}
			if got := in.Elements(n); n < 10_000 && got != 8*n/bits {
				t.Errorf("%d bytes: got %d elements of %d bits, want %d", n, got, bits, 8*n/bits)
			}
			if got := in.Elements(int(want.Int64())); whole && got != n || got < n {
				t.Errorf("%v bytes: got %d elements of %d bits, want %d", want, got, bits, n)
			}
		}
	}
	for _, ty := range All() {
		if n := -3; ty.Bytes(n) != n*ty.Size() || ty.Elements(n*ty.Size()) != n {
			t.Errorf("%v: got %d bytes for %d elements, and %d elements back", ty, ty.Bytes(n), n, ty.Elements(n*ty.Size()))
		}
	}
	if Invalid.Bytes(100) != 0 || Invalid.Size() != 0 {
		t.Error("elements of the invalid type take memory")
	}
	defer func() {
		if recover() == nil {
			t.Error("Size of a type of 4 bits did not panic")
		}
	}()
	(&Info{Bits: 4}).Size()
}
