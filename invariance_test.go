package tilework

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// invariantProduct is a row-invariant product with random operands, whose rows are computed in many
// ways.
type invariantProduct[T, R dtype.Element] struct {
	rng      *rand.Rand
	a, b     Matrix[T]
	residual Matrix[R]
	all      []Option // of all products: of columns alone
	want     Matrix[R]
}

// activations holds the options for an activation, and none.
var activations = []Option{nil, WithReLU(), WithGELU(), WithGELUTanh(), WithSiLU()}

func newInvariantProduct[T, R dtype.Element](rng *rand.Rand, device string) *invariantProduct[T, R] {
	rows, n, k := 33, 1+rng.IntN(90), 1+rng.IntN(1<<(3+rng.IntN(9)))
	x := &invariantProduct[T, R]{rng: rng, a: someElements[T](rng, rows, k), b: someElements[T](rng, k, n),
		residual: someElements[R](rng, rows, n)}
	x.all = []Option{WithRowInvariance(), WithDevice(device), activations[rng.IntN(len(activations))]}
	if rng.IntN(2) == 0 {
		x.all = append(x.all, WithColBias(someElements[R](rng, 1, n)))
	}
	return x
}

// someElements returns a matrix of random numbers from -2 to 2, or of whole ones.
func someElements[T dtype.Element](rng *rand.Rand, rows, cols int) Matrix[T] {
	m, typ := New[T](rows, cols), dtype.Of[T]()
	for i := range m.data {
		v := rng.Float64()*4 - 2
		if typ.Info().Integer {
			v = float64(rng.IntN(200) - 100)
		}
		typ.Set(dtype.Bytes(m.data), i, v)
	}
	return m
}

// relaid returns a copy of m in a random layout.
func relaid[T dtype.Element](rng *rand.Rand, m Matrix[T]) Matrix[T] {
	rows, cols := m.Rows(), m.Cols()
	to := New[T](rows, cols+rng.IntN(9)).Sub(0, 0, rows, cols)
	if rng.IntN(2) == 0 {
		to = New[T](cols, rows+rng.IntN(9)).Sub(0, 0, cols, rows).T()
	}
	to.set(m)
	return to
}

// rows returns some rows of the product, in random layouts. C is the residual before.
func (x *invariantProduct[T, R]) rows(t *testing.T, first, count int, more ...Option) Matrix[R] {
	t.Helper()
	n, k := x.b.Cols(), x.b.Rows()
	residual := x.residual.Sub(first, 0, count, n)
	c := relaid(x.rng, residual)
	added := residual.clone()
	if c.Transposed() {
		added = residual.T().clone().T()
	}
	opts := append(append(slices.Clone(x.all), WithResidual(added)), more...)
	a, b := relaid(x.rng, x.a.Sub(first, 0, count, k)), relaid(x.rng, x.b)
	if err := Gemm(t.Context(), 1, a, b, 1, c, opts...); err != nil {
		t.Fatal(err)
	}
	return c
}

// plain returns some rows of the product with beta = 0 and with the given options more.
func (x *invariantProduct[T, R]) plain(t *testing.T, first, count int, more ...Option) Matrix[R] {
	t.Helper()
	a, c := x.a.Sub(first, 0, count, x.b.Rows()), New[R](count, x.b.Cols())
	if err := Gemm(t.Context(), 1, a, x.b, 0, c, append(slices.Clone(x.all), more...)...); err != nil {
		t.Fatal(err)
	}
	return c
}

// check compares rows of the product with the wanted ones from first on.
func (x *invariantProduct[T, R]) check(t *testing.T, what string, got Matrix[R], first int) {
	t.Helper()
	for i := range got.Rows() {
		g, w := got.Sub(i, 0, 1, got.Cols()).clone(), x.want.Sub(first+i, 0, 1, got.Cols()).clone()
		if !bytes.Equal(dtype.Bytes(g.data), dtype.Bytes(w.data)) {
			t.Errorf("%s, %d rows of %d×%d from %d on: row %d is %v, want %v", what, got.Rows(), got.Cols(), x.b.Rows(), first,
				i, g.data, w.data)
			return
		}
	}
}

// checkRows computes rows in random numbers, places, layouts and threads, verified and not.
func (x *invariantProduct[T, R]) checkRows(t *testing.T) {
	total := x.a.Rows()
	x.want = x.rows(t, 0, total)
	for range 6 {
		count := 1 + x.rng.IntN(total)
		first := x.rng.IntN(total - count + 1)
		x.check(t, "a product", x.rows(t, first, count, WithThreads(x.rng.IntN(3))), first)
	}
	first := x.rng.IntN(total - 5)
	x.check(t, "a verified product", x.rows(t, first, 4, WithVerifyLimit(1)), first)
}

// checkBatches computes rows in a batch and in groups.
func (x *invariantProduct[T, R]) checkBatches(t *testing.T) {
	const each = 5
	total, first := x.a.Rows(), x.rng.IntN(x.a.Rows()-each)
	x.want = x.plain(t, 0, total)
	var as, bs Batch[T]
	var cs Batch[R]
	for range 3 {
		as, bs = append(as, x.a.Sub(first, 0, each, x.b.Rows())), append(bs, x.b)
		cs = append(cs, New[R](each, x.b.Cols()))
	}
	if err := Gemm(t.Context(), 1, as, bs, 0, cs, x.all...); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		x.check(t, "a batch", c, first)
	}
	groups := New[R](total, x.b.Cols())
	opts := append(slices.Clone(x.all), WithGroups(GroupEnds(first, total-first)))
	if err := Gemm(t.Context(), 1, x.a, Batch[T]{x.b, x.b.clone()}, 0, groups, opts...); err != nil {
		t.Fatal(err)
	}
	x.check(t, "groups", groups, 0)
}

// checkGated computes rows of a gated product.
func (x *invariantProduct[T, R]) checkGated(t *testing.T) {
	x.all = []Option{x.all[0], x.all[1], WithSiLU(), WithGated(someElements[T](x.rng, x.b.Rows(), x.b.Cols()))}
	x.want = x.plain(t, 0, x.a.Rows())
	for _, count := range []int{1, 2 + x.rng.IntN(x.a.Rows()-2)} {
		first := x.rng.IntN(x.a.Rows() - count + 1)
		x.check(t, "a gated product", x.plain(t, first, count), first)
		x.check(t, "a verified gated product", x.plain(t, first, count, WithVerifyLimit(1)), first)
	}
}

func testInvariantTypes[T, R dtype.Element](t *testing.T, rng *rand.Rand, device string) {
	t.Run(dtype.Of[T]().String(), func(t *testing.T) {
		newInvariantProduct[T, R](rng, device).checkRows(t)
		newInvariantProduct[T, R](rng, device).checkBatches(t)
		newInvariantProduct[T, R](rng, device).checkGated(t)
	})
}

// checkScales computes rows of a product with block scales: one for each row of A, and of B one for
// each column or for 128 columns.
func (x *invariantProduct[T, R]) checkScales(t *testing.T) {
	blocks := (x.b.Rows() + 127) / 128
	a := someElements[float32](x.rng, x.a.Rows(), blocks)
	b := someElements[float32](x.rng, blocks, []int{x.b.Cols(), (x.b.Cols() + 127) / 128}[x.rng.IntN(2)])
	scales := func(first, count int) Option { return WithBlockScales(a.Sub(first, 0, count, blocks), b) }
	x.want = x.plain(t, 0, x.a.Rows(), scales(0, x.a.Rows()))
	for _, count := range []int{1, 2 + x.rng.IntN(x.a.Rows()-2)} {
		first := x.rng.IntN(x.a.Rows() - count + 1)
		x.check(t, "a product with block scales", x.plain(t, first, count, scales(first, count)), first)
	}
}

// TestRowInvariance checks that the rows of row-invariant products do not depend on the number and
// place of rows, on layouts, batches, groups, threads and verification: on the CPU kernel that
// TILEWORK_CPU selects and on the emulator.
func TestRowInvariance(t *testing.T) {
	seed := testrand.Seed(t)
	for _, device := range []string{"cpu", "emu"} {
		t.Run(device, func(t *testing.T) {
			for i := range testkit.Cases(1, 6) {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				testInvariantTypes[float32, float32](t, rng, device)
				testInvariantTypes[float64, float64](t, rng, device)
				testInvariantTypes[dtype.BFloat16, dtype.BFloat16](t, rng, device)
				testInvariantTypes[dtype.Float16, float32](t, rng, device)
				testInvariantTypes[dtype.Float8E4M3, dtype.BFloat16](t, rng, device)
				testInvariantTypes[dtype.Float8E5M2, dtype.Float8E5M2](t, rng, device)
				testInvariantTypes[int8, float32](t, rng, device)
				newInvariantProduct[dtype.Float8E4M3, float32](rng, device).checkScales(t)
			}
		})
	}
}
