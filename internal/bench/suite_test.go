package bench

import (
	"errors"
	"math"
	"slices"
	"testing"
	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestTensorSuite checks that the tensor suite is the fp32 suite followed by decoder layers.
func TestTensorSuite(t *testing.T) {
	cases, err := Suite("tensor", Draw{})
	if err != nil {
		t.Fatal(err)
	}
	base, err := Suite("fp32", Draw{})
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
		samples, err := Suite(want.suite, Draw{})
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
	if _, err := Suite("fp31", Draw{}); err == nil ||
		err.Error() != `unknown suite "fp31" (did you mean "fp32"?): want one of fp32, cpu, tensor, models, random` {
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

func TestSampleProblem(t *testing.T) {
	for _, trans := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		s := Sample{Shape: Shape{2, 3, 4}, TransA: trans[0], TransB: trans[1], Pad: [3]int{5, 6, 7}}
		p, err := s.Problem(dtype.F16, dtype.F32)
		if err != nil {
			t.Fatal(err)
		}
		if p.M != 2 || p.N != 3 || p.K != 4 || p.A().Trans != trans[0] || p.B().Trans != trans[1] || p.Out() != dtype.F32 ||
			p.Alpha != 1 || p.Beta != 0 {
			t.Errorf("got problem %+v", p)
		}
		if p.A().LD != p.A().Cols+5 || p.B().LD != p.B().Cols+6 || p.C().LD != p.C().Cols+7 {
			t.Errorf("got leading dimensions %d, %d, %d of %v", p.A().LD, p.B().LD, p.C().LD, &p)
		}
	}
	huge, integers := Sample{Shape: Cube(math.MaxInt / 2)}, Sample{Shape: Cube(1)}
	if _, err := huge.Problem(dtype.F32, dtype.F32); !errors.Is(err, gemm.ErrShape) {
		t.Errorf("matrix of more elements than an int counts: got error %v, want ErrShape", err)
	}
	if _, err := integers.Problem(dtype.I32, dtype.I32); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("product of int32: got error %v, want ErrUnsupported", err)
	}
}

// TestRandomSuite checks that the samples depend on the seed alone, respect the limits, and cover
// every transposition, padded and dense rows, multiples of 8 and odd sizes, and every size.
func TestRandomSuite(t *testing.T) {
	const count = 2000
	for _, cpu := range []bool{false, true} {
		draw := func(seed uint64, count int) []Sample {
			samples, err := Suite(RandomSuite, Draw{Seed: seed, Count: count, CPU: cpu})
			if err != nil || len(samples) != count {
				t.Fatalf("got %d samples, error %v", len(samples), err)
			}
			return samples
		}
		samples := draw(7, count)
		if first := draw(7, 10); !slices.Equal(first, samples[:10]) {
			t.Error("the first samples depend on the number of samples")
		}
		if other := draw(8, count); slices.Equal(other, samples) {
			t.Error("the samples do not depend on the seed")
		}
		var trans [4]int
		padded, whole, why := 0, 0, map[string]int{}
		smallest, largest := samples[0].Shape, samples[0].Shape
		for i := range samples {
			s := &samples[i]
			if _, err := s.Problem(dtype.F32, dtype.F32); err != nil {
				t.Errorf("%+v: %v", s, err)
			}
			if flops := s.flops(); cpu && (flops < 1e3 || flops > 2e10) || !cpu && (flops > 2e12 || s.N < 8 || s.K < 8) {
				t.Errorf("%+v: %g operations", s, flops)
			}
			n := 0
			if s.TransA {
				n++
			}
			if s.TransB {
				n += 2
			}
			trans[n]++
			if s.Pad != [3]int{} {
				padded++
			}
			if s.N%8 == 0 && s.K%8 == 0 {
				whole++
			}
			why[s.Why]++
			smallest = Shape{min(smallest.M, s.M), min(smallest.N, s.N), min(smallest.K, s.K)}
			largest = Shape{max(largest.M, s.M), max(largest.N, s.N), max(largest.K, s.K)}
		}
		if slices.Min(trans[:]) < count/5 || padded < count/5 || padded > count*3/10 {
			t.Errorf("transpositions %v, %d of %d padded", trans, padded, count)
		}
		want := Shape{4, 12, 12}
		if cpu {
			want = Shape{4, 4, 4}
		}
		if smallest.M > want.M || smallest.N > want.N || smallest.K > want.K || min(largest.N, largest.K) < 3500 ||
			largest.M < 15000 {
			t.Errorf("sizes from %v to %v", smallest, largest)
		}
		if cpu && (why["convolution"] != count/8 || why["tall"] != count/8) || !cpu &&
			(whole < count*2/5 || whole > count*3/5) {
			t.Errorf("kinds %v, %d of %d multiples of 8", why, whole, count)
		}
	}
}

// TestModelSuite checks that the suite contains the sizes that fixed suites lack.
func TestModelSuite(t *testing.T) {
	samples, err := Suite("models", Draw{})
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]bool{}
	for _, s := range samples {
		if s.M < 1 || s.M > 8192 || !s.TransB || s.Why == "" {
			t.Errorf("got sample %+v", s)
		}
		for _, n := range []int{s.M, s.N, s.K} {
			sizes[n] = true
		}
	}
	for _, n := range []int{1, 197, 577, 1500, 2880, 5120, 7168, 8192, 50257, 151936} {
		if !sizes[n] {
			t.Errorf("no product with a size of %d", n)
		}
	}
}
