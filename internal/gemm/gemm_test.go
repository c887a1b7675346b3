package gemm

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit/testrand"
)

// TestOverlap compares Overlap with marking every byte.
func TestOverlap(t *testing.T) {
	rng := testrand.New(t)
	memory := dtype.Bytes(make([]float64, 64))
	types := dtype.All()
	overlaps := 0
	for range 20000 {
		var l [2]Layout
		var b [2][]byte
		var marked [2][]bool
		for i := range l {
			l[i] = Layout{Type: types[rng.IntN(len(types))], Rows: rng.IntN(6), Cols: rng.IntN(6), Trans: rng.IntN(2) == 0}
			l[i].LD = max(l[i].Cols, 1) + rng.IntN(5)
			size := l[i].Type.Size()
			start := rng.IntN((len(memory)-l[i].Bytes())/size+1) * size
			b[i] = memory[start : start+l[i].Bytes()]
			marked[i] = make([]bool, len(memory))
			for r := range l[i].OpRows() {
				for c := range l[i].OpCols() {
					at := start + l[i].Index(r, c)*size
					for k := range size {
						marked[i][at+k] = true
					}
				}
			}
		}
		want := false
		for k := range memory {
			want = want || marked[0][k] && marked[1][k]
		}
		if want {
			overlaps++
		}
		if got := Overlap(l[0], b[0], l[1], b[1]); got != want {
			t.Fatalf("Overlap(%+v, %+v) = %v, want %v", l[0], l[1], got, want)
		}
		if got := Overlap(l[1], b[1], l[0], b[0]); got != want {
			t.Fatalf("the other way round: Overlap(%+v, %+v) = %v, want %v", l[1], l[0], got, want)
		}
	}
	if overlaps < 1000 || overlaps > 19000 {
		t.Errorf("%d of 20000 cases overlap: the cases are one-sided", overlaps)
	}
}

// TestOverlapLarge checks that two halves of the columns of a matrix do not overlap for any number
// of rows, and that the walk over the rows ends.
func TestOverlapLarge(t *testing.T) {
	const rows, ld = 4096, 8
	b := make([]byte, rows*ld*4)
	l := Layout{Type: dtype.F32, Rows: rows, Cols: 4, LD: ld}
	if Overlap(l, b, l, b[4*4:]) {
		t.Error("the halves overlap")
	}
	r := l
	r.Cols = 5
	if !Overlap(r, b, l, b[4*4:]) {
		t.Error("a column in common is missed")
	}
}

// TestDisjointInAnyOrder checks ranges in each number and order in which they are sorted: shuffled
// ones that meet nowhere, or at one address.
func TestDisjointInAnyOrder(t *testing.T) {
	rng := testrand.New(t)
	for _, n := range []int{2, 63, 64, 65, 1000} {
		for _, stride := range []uintptr{3, 64, 4099, 1 << 20} {
			for range 20 {
				all := make([]Range, n)
				for i := range all {
					start := 1<<20 + uintptr(i)*stride
					all[i] = Range{start, start + stride, i%3 == 0}
				}
				first := 3 * rng.IntN((n+2)/3) // a written range
				longer := rng.IntN(2) == 0
				if longer && first < n-1 {
					all[first].end++
				}
				rng.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
				if got, want := Disjoint(all, make([]Range, n)), !longer || first == n-1; got != want {
					t.Fatalf("%d ranges at %d bytes: Disjoint is %v, want %v", n, stride, got, want)
				}
			}
		}
	}
}

// TestFindOverlap compares FindOverlap with comparing all pairs, and Disjoint with comparing the
// ranges of all pairs.
func TestFindOverlap(t *testing.T) {
	rng := testrand.New(t)
	memory := make([]byte, 150)
	overlaps := 0
	for range 5000 {
		all := make([]Region, rng.IntN(9))
		for i := range all {
			l := Layout{Type: dtype.I8, Rows: rng.IntN(4), Cols: rng.IntN(6)}
			l.LD = max(l.Cols, 1) + rng.IntN(20)
			all[i] = Region{ID: i, Layout: l, Memory: &memory[rng.IntN(len(memory)-l.Len())], Written: rng.IntN(2) == 0}
		}
		isOverlap := func(a, b Region) bool {
			return (a.Written || b.Written) && OverlapAt(a.Layout, a.address(), b.Layout, b.address())
		}
		want, disjoint := false, true
		ranges := make([]Range, len(all))
		for i, a := range all {
			start := a.address() - address(memory)
			ranges[i] = RangeOf(memory[start:], a.Layout.Bytes(), a.Written)
			for j, b := range all[:i] {
				want = want || isOverlap(a, b)
				x, y := ranges[i], ranges[j]
				if max(x.start, y.start) < min(x.end, y.end) && (a.Written || b.Written) {
					disjoint = false
				}
			}
		}
		if got := Disjoint(ranges, make([]Range, len(ranges))); got != disjoint {
			t.Fatalf("Disjoint of %+v is %v, want %v", all, got, disjoint)
		}
		if want {
			overlaps++
		}
		first, second, found := FindOverlap(slices.Clone(all))
		if found != want || found && (first == second || !isOverlap(all[first], all[second])) {
			t.Fatalf("FindOverlap(%+v) = %d, %d, %v, want %v", all, first, second, found, want)
		}
	}
	if overlaps < 1000 || overlaps > 4000 {
		t.Errorf("%d of 5000 cases overlap: the cases are one-sided", overlaps)
	}
}

func TestLayoutCheck(t *testing.T) {
	const (
		huge = math.MaxInt
		half = 1 << (strconv.IntSize / 2) // half·half overflows an int
	)
	for _, tc := range []struct {
		l    Layout
		want error
	}{
		{Dense(dtype.F32, 3, 4), nil},
		{Dense(dtype.F32, 0, 0), nil},
		{Layout{Type: dtype.F32, Rows: 3, Cols: 4, LD: 9}, nil},
		{Layout{Rows: 3, Cols: 4, LD: 4}, ErrUnsupported},
		{Layout{Type: dtype.F32, Rows: -1, Cols: 4, LD: 4}, ErrShape},
		{Layout{Type: dtype.F32, Rows: 1, Cols: -4, LD: 4}, ErrShape},
		{Layout{Type: dtype.F32, Rows: 3, Cols: 4, LD: 3}, ErrShape},
		{Layout{Type: dtype.F32, Rows: 3, Cols: 0, LD: 0}, ErrShape},
		{Layout{Type: dtype.F32, Rows: 3, Cols: 4, LD: -4}, ErrShape},
		{Dense(dtype.I8, 1, huge), nil},
		{Dense(dtype.F32, 1, huge/4), nil},
		{Dense(dtype.F32, 1, huge/4+1), ErrShape},
		{Dense(dtype.F64, half/2, half/2), ErrShape},
		{Dense(dtype.F64, half/4, half/8), nil},
		{Dense(dtype.F64, half/4, half/4), ErrShape},
		{Dense(dtype.I8, half, half), ErrShape},
		{Dense(dtype.I8, huge, huge), ErrShape},
	} {
		if err := tc.l.Check("A"); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.l, err, tc.want)
		}
	}
}

// TestIndex checks that the index into a transpose is that of the matrix with row and column
// exchanged.
func TestIndex(t *testing.T) {
	l := Layout{Type: dtype.F32, Rows: 3, Cols: 5, LD: 7}
	seen := map[int]bool{}
	for i := range l.OpRows() {
		for j := range l.OpCols() {
			at := l.Index(i, j)
			if at < 0 || at >= l.Len() || seen[at] {
				t.Errorf("element (%d,%d) is at %d, of %d", i, j, at, l.Len())
			}
			seen[at] = true
			if other := l.T().Index(j, i); other != at {
				t.Errorf("transposed, (%d,%d) is at %d, want %d", j, i, other, at)
			}
		}
	}
}

// TestConjugate checks the transpose and the conjugate transpose of a layout, and their names.
func TestConjugate(t *testing.T) {
	l := Dense(dtype.F32, 3, 5)
	for _, x := range []struct {
		l           Layout
		trans, conj bool
		want        string
	}{
		{l, false, false, "3×5 float32"},
		{l.T(), true, false, "5×3 float32 transposed"},
		{l.H(), true, true, "5×3 float32 conjugate transposed"},
		{l.H().T(), false, true, "3×5 float32 conjugated"},
		{l.T().H(), false, true, "3×5 float32 conjugated"},
		{l.H().H(), false, false, "3×5 float32"},
	} {
		if x.l.Trans != x.trans || x.l.Conj != x.conj || x.l.String() != x.want {
			t.Errorf("got %+v, %[1]v, want transposed %v, conjugated %v, %s", x.l, x.trans, x.conj, x.want)
		}
	}
}

// TestConjugateOfReal checks that problems with conjugate transposes of real matrices equal those
// with transposes, for every operand whose layout the caller chooses.
func TestConjugateOfReal(t *testing.T) {
	build := func(op, same func(Layout) Layout) []Problem { // same does not transpose
		t.Helper()
		f32, f8 := dtype.F32, dtype.F8E4M3
		plain, _, err := New(1, op(Dense(f32, 3, 2)), same(Dense(f32, 3, 4)), 0, same(Dense(f32, 2, 4)),
			Epilogue{Residual: true})
		if err != nil {
			t.Fatal(err)
		}
		plus := plain
		plus.Layouts[Residual] = same(Dense(f32, 2, 4))
		if _, err := plus.Complete(); err != nil {
			t.Fatal(err)
		}
		swapped, _, err := New(1, op(Dense(f32, 3, 2)), op(Dense(f32, 4, 3)), 0, op(Dense(f32, 4, 2)), Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		gated, _, err := New(1, Dense(f32, 2, 3), op(Dense(f32, 4, 3)), 0, Dense(f32, 2, 4), Epilogue{Gated: true})
		if err != nil {
			t.Fatal(err)
		}
		gated.Layouts[Up] = op(Dense(f32, 4, 3))
		if _, err := gated.Complete(); err != nil {
			t.Fatal(err)
		}
		scaled, _, err := New(1, Dense(f8, 2, 3), Dense(f8, 3, 4), 0, Dense(f32, 2, 4), Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		scaled.Layouts[ScaleA], scaled.Layouts[ScaleB] = op(Dense(f32, 1, 2)), op(Dense(f32, 4, 1))
		if _, err := scaled.Complete(); err != nil {
			t.Fatal(err)
		}
		return []Problem{plain, plus, swapped, gated, scaled}
	}
	want := build(Layout.T, func(l Layout) Layout { return l })
	for i, p := range build(Layout.H, func(l Layout) Layout { return l.H().T() }) {
		if p != want[i] {
			t.Errorf("%v: got %+v, want %+v", &p, p, want[i])
		}
	}
}

func TestNew(t *testing.T) {
	d := Dense
	f64, f32, f16, i8, i32 := dtype.F64, dtype.F32, dtype.F16, dtype.I8, dtype.I32
	for _, tc := range []struct {
		name        string
		alpha, beta complex128
		a, b, c     Layout
		e           Epilogue
		want        error
	}{
		{"plain", 1, 0, d(f32, 2, 3), d(f32, 3, 4), d(f32, 2, 4), Epilogue{}, nil},
		{"transposed", 1, 0, d(f32, 3, 2).T(), d(f32, 4, 3).T(), d(f32, 2, 4), Epilogue{}, nil},
		{"wider result", 1, 0, d(f16, 2, 3), d(f16, 3, 4), d(f32, 2, 4), Epilogue{}, nil},
		{"narrower result", 1, 0, d(f32, 2, 3), d(f32, 3, 4), d(f16, 2, 4), Epilogue{}, nil},
		{"wider result than the sums", 1, 0, d(f16, 2, 3), d(f16, 3, 4), d(f64, 2, 4), Epilogue{}, ErrUnsupported},
		{"mixed", 1, 0, d(f32, 2, 3), d(f16, 3, 4), d(f32, 2, 4), Epilogue{}, ErrUnsupported},
		{"inner sizes", 1, 0, d(f32, 2, 3), d(f32, 4, 4), d(f32, 2, 4), Epilogue{}, ErrShape},
		{"result's size", 1, 0, d(f32, 2, 3), d(f32, 3, 4), d(f32, 4, 2), Epilogue{}, ErrShape},
		{"type without products", 1, 0, d(i32, 2, 3), d(i32, 3, 4), d(i32, 2, 4), Epilogue{}, ErrUnsupported},
		{"integers", -3, 2, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{Activation: ActReLU}, nil},
		{"fraction of integers", 0.5, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{}, ErrUnsupported},
		{"beta beyond int32", 1, 1 << 31, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{}, ErrUnsupported},
		{"NaN for integers", complex(math.NaN(), 0), 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{}, ErrUnsupported},
		{"gelu of integers", 1, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{Activation: ActGELU}, ErrUnsupported},
		{"row scale of integers", 1, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{RowScale: true}, ErrUnsupported},
		{"column scale of integers", 1, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{ColScale: true}, ErrUnsupported},
		{"out-scale of integers", 1, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{OutScale: true}, ErrUnsupported},
		{"saturated integers", 1, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{Saturate: true}, ErrUnsupported},
		{"gated integers", 1, 0, d(i8, 2, 3), d(i8, 3, 4), d(i32, 2, 4), Epilogue{Gated: true}, ErrUnsupported},
		{"floats of integers", 0.5, -1.5, d(i8, 2, 3), d(i8, 3, 4), d(f32, 2, 4),
			Epilogue{Activation: ActGELU, RowScale: true, OutScale: true}, nil},
		{"halves of integers", complex(math.NaN(), 0), 1 << 31, d(i8, 2, 3), d(i8, 3, 4), d(f16, 2, 4),
			Epilogue{Saturate: true}, nil},
		{"no such activation", 1, 0, d(f32, 2, 3), d(f32, 3, 4), d(f32, 2, 4), Epilogue{Activation: 99}, ErrUnsupported},
		{"no such bias", 1, 0, d(f32, 2, 3), d(f32, 3, 4), d(f32, 2, 4), Epilogue{Bias: 9}, ErrUnsupported},
	} {
		p, swapped, err := New(tc.alpha, tc.a, tc.b, tc.beta, tc.c, tc.e)
		if !errors.Is(err, tc.want) || swapped {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		if err == nil && (p.M != 2 || p.N != 4 || p.K != 3) {
			t.Errorf("%s: %d×%d×%d", tc.name, p.M, p.N, p.K)
		}
	}
}

// TestImaginaryFactors checks that a complex alpha or beta is refused for real elements with an
// error that names it.
func TestImaginaryFactors(t *testing.T) {
	for _, x := range []struct {
		in, out     dtype.Type
		alpha, beta complex128
		want        string // empty for no error
	}{
		{dtype.F32, dtype.F32, 2, -0.5, ""},
		{dtype.F32, dtype.F32, complex(math.Inf(1), 0), complex(math.NaN(), 0), ""},
		{dtype.F32, dtype.F32, 1 + 2i, 0, "not supported: alpha = (1+2i) for elements of float32: want a real number"},
		{dtype.F16, dtype.F32, 1, -3i, "not supported: beta = (0-3i) for elements of float16: want a real number"},
		{dtype.F64, dtype.F64, complex(1, math.NaN()), 0,
			"not supported: alpha = (1+NaNi) for elements of float64: want a real number"},
		{dtype.I8, dtype.I32, 2, 1i, "not supported: beta = (0+1i) for elements of int8: want a real number"},
	} {
		_, _, err := New(x.alpha, Dense(x.in, 2, 3), Dense(x.in, 3, 4), x.beta, Dense(x.out, 2, 4), Epilogue{})
		switch {
		case x.want == "":
			if err != nil {
				t.Errorf("alpha %v, beta %v: %v", x.alpha, x.beta, err)
			}
		case !errors.Is(err, ErrUnsupported) || err.Error() != x.want:
			t.Errorf("alpha %v, beta %v: got error %v, want %s", x.alpha, x.beta, err, x.want)
		}
	}
}

// TestNewTransposedC checks that a transposed C gives the product of the transposes, with the bias
// along the other dimension.
func TestNewTransposedC(t *testing.T) {
	a, b, c := Dense(dtype.F32, 2, 3), Dense(dtype.F32, 4, 3).T(), Dense(dtype.F32, 4, 2)
	p, swapped, err := New(1, a, b, 0, c.T(), Epilogue{Bias: BiasRow})
	if err != nil || !swapped {
		t.Fatalf("swapped = %v, %v", swapped, err)
	}
	want := Problem{M: 4, N: 2, K: 3, Layouts: Layouts{A: b.T(), B: a.T(), C: c}, Alpha: 1,
		Epilogue: Epilogue{Bias: BiasCol}}
	if p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if p.BiasLen() != 2 {
		t.Errorf("the bias has %d values, want one for each of the 2 rows asked for", p.BiasLen())
	}
}

func TestBuffersCheck(t *testing.T) {
	p, _, err := New(1, Dense(dtype.F32, 2, 3), Dense(dtype.F32, 3, 4), 0, Dense(dtype.F32, 2, 4), Epilogue{Bias: BiasCol})
	if err != nil {
		t.Fatal(err)
	}
	m := make([]byte, 400)
	good := Buffers{A: m[:24], B: m[24:72], C: m[72:104], Bias: m[104:120]}
	for _, tc := range []struct {
		name   string
		change func(*Buffers)
		want   error
	}{
		{"good", func(*Buffers) {}, nil},
		{"A and B shared", func(b *Buffers) { b[A] = b[B] }, nil},
		{"short A", func(b *Buffers) { b[A] = b[A][:23] }, ErrShape},
		{"no B", func(b *Buffers) { b[B] = nil }, ErrShape},
		{"short C", func(b *Buffers) { b[C] = b[C][:31] }, ErrShape},
		{"no bias", func(b *Buffers) { b[Bias] = nil }, ErrShape},
		{"C in A", func(b *Buffers) { b[C] = m[20:52] }, ErrOverlap},
		{"C in B", func(b *Buffers) { b[C] = m[68:100]; b[Bias] = m[200:216] }, ErrOverlap},
		{"C in the bias", func(b *Buffers) { b[C] = m[116:148] }, ErrOverlap},
	} {
		b := good
		tc.change(&b)
		if err := b.Check(&p); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// TestActivations checks the slope bounds of the activations, the parsing of their names, and their
// limits at infinity.
func TestActivations(t *testing.T) {
	for _, a := range Activations() {
		in := a.Info()
		steepest := 0.0
		const step = 1e-4
		for x := -20.0; x < 20; x += step {
			steepest = max(steepest, math.Abs(in.F(x+step)-in.F(x))/step)
		}
		if steepest > in.Slope*(1+1e-9) || steepest < in.Slope-0.01 {
			t.Errorf("%v is as steep as %v, its slope is given as %v", a, steepest, in.Slope)
		}
		if back, err := ParseActivation(in.Name); back != a || err != nil {
			t.Errorf("%q is read as %v, %v", in.Name, back, err)
		}
		if !math.IsNaN(in.F(math.NaN())) || in.F(0) != 0 || !math.IsInf(in.F(math.Inf(1)), 1) {
			t.Errorf("%v of NaN, 0, +Inf is %v, %v, %v", a, in.F(math.NaN()), in.F(0), in.F(math.Inf(1)))
		}
		if low := in.F(math.Inf(-1)); a != ActNone && low != 0 {
			t.Errorf("%v of -Inf is %v", a, low)
		}
	}
	if _, err := ParseActivation("tanh"); err == nil {
		t.Error("an unknown activation is read")
	}
}
