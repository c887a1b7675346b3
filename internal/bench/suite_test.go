package bench

import (
	"slices"
	"testing"
)

// TestTensorSuite checks that the tensor suite is the fp32 suite followed by decoder layers.
func TestTensorSuite(t *testing.T) {
	cases, err := Suite("tensor")
	if err != nil {
		t.Fatal(err)
	}
	base, err := Suite("fp32")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[int]bool{}
	for i, c := range cases {
		if i < len(base) && c != base[i] {
			t.Errorf("shape %d: got %v, want %v", i, c, base[i])
		}
		if i >= len(base) {
			tokens[c.M] = true
		}
	}
	if len(cases) != len(base)+45 || len(tokens) != 9 || !tokens[1] || !tokens[256] {
		t.Errorf("got %d decoder shapes with %d numbers of tokens, want 45 and 9", len(cases)-len(base), len(tokens))
	}
}

// coverage counts the shapes of each kind in a suite.
type coverage struct {
	shapes, odd, deep int
	skinny            [3]int // with a small M, N and K
	squares           map[int]bool
}

// TestSuites checks that the suites cover each kind of shape, and that each shape is unique and has
// a reason.
func TestSuites(t *testing.T) {
	for _, want := range []struct {
		suite       string
		shapes, odd int // least numbers
		skinny      int // least number with a small M, N and K each
		deep        int // least number with K ≥ 4096 and K ≥ 60·max(M, N)
		first, last int // powers of two in between have a square shape
	}{
		{"fp32", 40, 10, 2, 2, 64, 16384},
		{"cpu", 60, 16, 6, 2, 8, 4096},
	} {
		samples, err := Suite(want.suite)
		if err != nil {
			t.Fatal(err)
		}
		got := cover(t, samples)
		for n := want.first; n <= want.last; n *= 2 {
			if !got.squares[n] {
				t.Errorf("%s: the square of size %d is missing", want.suite, n)
			}
		}
		if got.shapes < want.shapes || got.odd < want.odd || slices.Min(got.skinny[:]) < want.skinny || got.deep < want.deep {
			t.Errorf("%s: got %+v, want at least %+v", want.suite, got, want)
		}
	}
	if _, err := Suite("fp31"); err == nil || err.Error() != `unknown suite "fp31": want one of fp32, cpu, tensor` {
		t.Errorf("unknown suite: got error %v", err)
	}
}

func cover(t *testing.T, samples []Sample) coverage {
	t.Helper()
	c := coverage{squares: map[int]bool{}}
	seen := map[Shape]bool{}
	for _, s := range samples {
		if seen[s.Shape] {
			t.Errorf("duplicate shape %v", s.Shape)
		}
		if s.Why == "" {
			t.Errorf("%v has no reason", s.Shape)
		}
		seen[s.Shape] = true
		c.shapes++
		if s.Shape == Cube(s.M) {
			c.squares[s.M] = true
		}
		if s.M%2 != 0 && s.N%2 != 0 && s.K%2 != 0 {
			c.odd++
		}
		for i, n := range []int{s.M, s.N, s.K} {
			if n <= 64 && max(s.M, s.N, s.K) >= 4096 {
				c.skinny[i]++
			}
		}
		if s.K >= 4096 && s.K >= 60*max(s.M, s.N) {
			c.deep++
		}
	}
	return c
}
