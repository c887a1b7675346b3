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

// TestDrawnModels checks that samples of the networks depend on the seed alone, that they cover
// every network, kind of input and layer, both orientations and all numbers of tokens, and that a
// network is only drawn for the types in which it is served.
func TestDrawnModels(t *testing.T) {
	const count = 8000
	draw := func(d Draw) []Sample {
		samples, err := Suite(ModelSuite, d)
		if err != nil || len(samples) != d.Count {
			t.Fatalf("got %d samples, error %v", len(samples), err)
		}
		return samples
	}
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F8E4M3, dtype.I8} {
		samples := draw(Draw{Seed: 3, Count: count, Type: typ})
		if first := draw(Draw{Seed: 3, Count: 10, Type: typ}); !slices.Equal(first, samples[:10]) {
			t.Errorf("%v: the first samples depend on the number of samples", typ)
		}
		if other := draw(Draw{Seed: 4, Count: count, Type: typ}); slices.Equal(other, samples) {
			t.Errorf("%v: the samples do not depend on the seed", typ)
		}
		var few, rows, plain int
		layers := map[string]bool{}
		for i := range samples {
			s := &samples[i]
			if _, err := s.Problem(typ, typ.Info().Results[0]); err != nil || s.M < 1 || s.M > maxTokens || s.TransA ||
				s.flops() > maxGPUFlops {
				t.Errorf("%v: sample %+v, %v", typ, s, err)
			}
			if layers[s.Why] = true; !s.TransB {
				plain++
			}
			if s.M <= 64 {
				few++
			} else if s.M > 1024 {
				rows++
			}
		}
		for i := range networks {
			x := &networks[i]
			for _, l := range x.layers() {
				want, fits := slices.Contains(x.served, typ), l.n*l.k < maxLayerElements/2
				if drawn := layers[x.name+" "+l.what]; drawn && !want || !drawn && want && fits {
					t.Errorf("%v: %s %s is drawn: %v; is the network served: %v", typ, x.name, l.what, drawn, want)
				}
			}
		}
		if few < count/8 || rows < count/8 || plain > count*6/10 || plain < count*4/10 && typ.Size() > 1 ||
			plain > 0 && typ.Size() == 1 {
			t.Errorf("%v: of %d samples, %d have at most 64 rows, %d more than 1024, and %d a B that is not transposed", typ,
				count, few, rows, plain)
		}
	}
	for _, s := range draw(Draw{Seed: 5, Count: 1000, Type: dtype.BF16, CPU: true}) {
		if s.flops() > maxCPUFlops {
			t.Errorf("%v for a CPU", s)
		}
	}
	if _, err := Suite(ModelSuite, Draw{Count: 1, Type: dtype.F64}); err == nil {
		t.Error("a network is served in float64")
	}
}

// TestNetworks checks that the networks have different names and valid layers.
func TestNetworks(t *testing.T) {
	seen := map[string]bool{}
	for i := range networks {
		x := &networks[i]
		if seen[x.name] || len(x.layers()) < 2 || len(x.served) == 0 {
			t.Errorf("%q: listed twice, or with layers %v for types %v", x.name, x.layers(), x.served)
		}
		what := map[string]bool{}
		for _, l := range x.layers() {
			if l.n < 1 || l.k < 1 || what[l.what] {
				t.Errorf("%q: layer %+v, or two with this name", x.name, l)
			}
			what[l.what] = true
		}
		seen[x.name] = true
	}
	if len(networks) < 60 {
		t.Errorf("%d networks, want at least 60", len(networks))
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
