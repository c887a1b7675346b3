package gpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/ints"
	"tilework/internal/model"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// rowsCase is a row-invariant product with random elements. Its rows are computed in many ways.
type rowsCase struct {
	in, out   dtype.Type
	precision gemm.Precision
	rows      int // of A
	n, k      int
	alpha     float64
	epilogue  gemm.Epilogue
	values    [gemm.Operands][]float64 // of op(A), op(B), the bias and the residual
}

// newRowsCase draws the elements, some of them infinite, NaN or large.
func newRowsCase(rng *rand.Rand, in, out dtype.Type, precision gemm.Precision, n, k int, e gemm.Epilogue) *rowsCase {
	x := &rowsCase{in: in, out: out, precision: precision, rows: 40, n: n, k: k, epilogue: e,
		alpha: []float64{1, -3, 0}[max(0, rng.IntN(12)-9)]}
	counts := map[gemm.Operand]int{gemm.A: x.rows * k, gemm.B: k * n, gemm.Bias: n, gemm.Residual: x.rows * n}
	for o, count := range counts {
		x.values[o] = make([]float64, count)
		for i := range x.values[o] {
			x.values[o][i] = rng.Float64()*2 - 1
			if in == dtype.I8 || out == dtype.I32 {
				x.values[o][i] = float64(rng.IntN(200) - 100)
			}
		}
	}
	if !in.Info().Integer {
		for range 3 {
			x.values[gemm.A][rng.IntN(x.rows)*k+rng.IntN(k)] = []float64{math.NaN(), math.Inf(1), 300}[rng.IntN(3)]
		}
	}
	return x
}

// problem returns the product of m rows in random layouts.
func (x *rowsCase) problem(t *testing.T, rng *rand.Rand, m int) gemm.Problem {
	layout := func(typ dtype.Type, rows, cols int, trans bool) gemm.Layout {
		if trans {
			rows, cols = cols, rows
		}
		l := gemm.Dense(typ, rows, cols)
		l.LD, l.Trans = l.LD+rng.IntN(2)*rng.IntN(20), trans
		return l
	}
	p, _, err := gemm.New(complex(x.alpha, 0), layout(x.in, m, x.k, rng.IntN(2) == 0),
		layout(x.in, x.k, x.n, rng.IntN(2) == 0), 0, layout(x.out, m, x.n, false), x.epilogue)
	if err == nil {
		p, err = p.WithPrecision(x.precision)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Invariance = gemm.InvariantRows
	return p
}

// compute returns the rows of C from first on as p's backend computes them.
func (x *rowsCase) compute(t *testing.T, b *stream.Backend, p *gemm.Problem, first int, opt exec.Options) []byte {
	t.Helper()
	var m gemm.Buffers
	fill := func(o gemm.Operand, l gemm.Layout, values []float64) {
		m[o] = make([]byte, l.Bytes())
		for i := range l.OpRows() {
			for j := range l.OpCols() {
				l.Type.Set(m[o], l.Index(i, j), values[i*l.OpCols()+j])
			}
		}
	}
	fill(gemm.A, p.Layouts[gemm.A], x.values[gemm.A][first*x.k:])
	fill(gemm.B, p.Layouts[gemm.B], x.values[gemm.B])
	m[gemm.C] = make([]byte, p.C().Bytes())
	if x.epilogue.Bias != gemm.BiasNone {
		fill(gemm.Bias, gemm.Dense(x.out, 1, x.n), x.values[gemm.Bias])
	}
	if x.epilogue.Residual {
		fill(gemm.Residual, p.Layouts[gemm.Residual], x.values[gemm.Residual][first*x.n:])
	}
	opt.KeepLayout = true
	plan, err := b.Plan(p, opt)
	if err == nil {
		err = plan.Run(t.Context(), m)
	}
	if err != nil {
		t.Fatalf("%v with %+v: %v", p, opt, err)
	}
	var c []byte
	for i := range p.M {
		c = append(c, m[gemm.C][x.out.Bytes(p.C().Index(i, 0)):][:x.out.Bytes(x.n)]...)
	}
	return c
}

// rowsTypes lists the element types and precisions of the row-invariant products that are tested.
var rowsTypes = []struct {
	in, out   dtype.Type
	precision gemm.Precision
}{
	{dtype.BF16, dtype.BF16, gemm.Native}, {dtype.BF16, dtype.F32, gemm.Native}, {dtype.F16, dtype.F16, gemm.Native},
	{dtype.F8E4M3, dtype.BF16, gemm.Native}, {dtype.F8E5M2, dtype.F8E5M2, gemm.Native},
	{dtype.F8E4M3, dtype.F32, gemm.Fast},
	{dtype.F32, dtype.F32, gemm.Native}, {dtype.F32, dtype.F32, gemm.TF32}, {dtype.F32, dtype.F32, gemm.F32x3},
	{dtype.F64, dtype.F64, gemm.Native}, {dtype.I8, dtype.I32, gemm.Native}, {dtype.I8, dtype.F32, gemm.Native},
}

// TestRowInvariance checks that the rows of row-invariant products have the same bits for every
// number and position of rows, in every layout and with every candidate that is not rejected, for
// each type.
func TestRowInvariance(t *testing.T) {
	seed := testrand.Seed(t)
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, typ := range rowsTypes {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		k := 1 + rng.IntN(1<<(5+rng.IntN(8)))
		n := 1 + rng.IntN(min(70, 8+1<<14/k)) // a long K has many parts also with few columns
		x := newRowsCase(rng, typ.in, typ.out, typ.precision, n, k, drawEpilogue(rng, typ.out))
		t.Run(x.in.String()+"-"+x.precision.String(), func(t *testing.T) { x.checkRows(t, rng, d) })
	}
}

// TestRowInvariantZeros checks the rows of products in which all products of elements are negative
// and underflow. Their sum is -0 unless a zero was added to it, as kernels do that fill the last
// step along K.
func TestRowInvariantZeros(t *testing.T) {
	rng := testrand.New(t)
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range rowsTypes {
		tiny := map[dtype.Type]float64{dtype.BF16: 0x1p-100, dtype.F32: 0x1p-100, dtype.F64: 0x1p-600}[typ.in]
		if tiny == 0 { // products of its elements do not underflow in the sums
			continue
		}
		for _, k := range []int{8 * (1 + rng.IntN(16)), 1 + rng.IntN(128)} {
			x := newRowsCase(rng, typ.in, typ.out, typ.precision, 1+rng.IntN(40), k, gemm.Epilogue{})
			x.alpha = 1
			for o, value := range []float64{gemm.A: tiny, gemm.B: -tiny} {
				for i := range x.values[o] {
					x.values[o][i] = value
				}
			}
			t.Run(x.in.String()+"-"+x.precision.String(), func(t *testing.T) { x.checkRows(t, rng, d) })
		}
	}
}

func drawEpilogue(rng *rand.Rand, out dtype.Type) (e gemm.Epilogue) {
	if rng.IntN(3) == 0 {
		e.Bias = gemm.BiasCol
	}
	if e.Residual = rng.IntN(3) == 0; out != dtype.I32 {
		e.Activation = gemm.Activations()[rng.IntN(len(gemm.Activations()))]
	}
	return e
}

// checkRows compares the rows of many products with those of one.
func (x *rowsCase) checkRows(t *testing.T, rng *rand.Rand, d device.Device) {
	b := stream.New(d)
	whole := x.problem(t, rng, x.rows)
	want := x.compute(t, b, &whole, 0, exec.Options{})
	row := x.out.Bytes(x.n)
	check := func(p *gemm.Problem, first int, opt exec.Options) {
		t.Helper()
		got := x.compute(t, b, p, first, opt)
		if i := firstDifference(got, want[first*row:], x.out); i >= 0 {
			t.Errorf("%v of A's rows from %d on, %+v: element %d is %v, want %v", p, first, opt, i, x.out.At(got, i),
				x.out.At(want[first*row:], i))
		}
	}
	for range testkit.Cases(2, 4) {
		m := 1 + rng.IntN(x.rows)
		p := x.problem(t, rng, m)
		check(&p, rng.IntN(x.rows-m+1), exec.Options{})
	}
	p := x.problem(t, rng, 1+rng.IntN(x.rows))
	candidates := slices.DeleteFunc(choose.Candidates(&p, kernel.Align{}, d.Info()), func(c choose.Candidate) bool {
		return c.Rejected != nil || c.Config.Tile.M*c.Config.Tile.N > 128*128
	})
	rng.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	ways := map[string]int{}
	for _, c := range candidates {
		if way := partition(&c); ways[way] < testkit.Cases(1, 2) {
			ways[way]++
			check(&p, rng.IntN(x.rows-p.M+1), exec.Options{Kernel: c.Kernel.Name, Tile: c.Config.Tile.String()})
		}
	}
}

// partition names the kernel of a candidate and the ways in which it partitions K.
func partition(c *choose.Candidate) string {
	s := c.Config.Tile
	return fmt.Sprintln(c.Kernel.Name, s.SplitK > 1, s.SerialK > 1, s.ClusterM > 1, s.ClusterN > 1, s.ClusterK > 1)
}

// firstDifference returns the index of the first element of got that differs from want, or -1. A
// NaN equals every NaN.
func firstDifference(got, want []byte, typ dtype.Type) int {
	size := typ.Size()
	for i := range len(got) / size {
		a, b := got[i*size:][:size], want[i*size:][:size]
		if x, y := typ.At(got, i), typ.At(want, i); !bytes.Equal(a, b) && (x == x || y == y) {
			return i
		}
	}
	return -1
}

// TestRowInvariantOrders checks that the order of a row-invariant product does not depend on the
// number of rows, the layouts and the GPU model, and that each number of rows has a candidate.
func TestRowInvariantOrders(t *testing.T) {
	rng := testrand.New(t)
	var gpus []*device.Info
	for _, name := range []string{"h100-sxm", "h100-pcie", "h200"} {
		m, err := model.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := emu.Open(emu.Options{Model: m})
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, d.Info())
	}
	for range testkit.Cases(20, 200) {
		typ := rowsTypes[rng.IntN(len(rowsTypes))]
		x := &rowsCase{in: typ.in, out: typ.out, precision: typ.precision, alpha: 1, n: 1 + rng.IntN(1<<rng.IntN(15)),
			k: 1 + rng.IntN(1<<rng.IntN(17)), epilogue: drawEpilogue(rng, typ.out)}
		var want kernel.Order
		for i := range 6 {
			p := x.problem(t, rng, 1+rng.IntN(1<<rng.IntN(15)))
			d := gpus[i%len(gpus)]
			o, err := choose.OrderOf(&p, d)
			if i == 0 {
				want = o
			}
			if err != nil || o != want {
				t.Errorf("%v on %s: order %v, %v; want %v", &p, d.Name, o, err, want)
			}
			if _, err := choose.Best(&p, kernel.Align{}, d); err != nil {
				t.Errorf("%v on %s: %v", &p, d.Name, err)
			}
		}
	}
}

// TestRowInvariantRefused checks that kernels and tiles with another order of summation than that
// of a row-invariant product are refused, with the order that is wanted.
func TestRowInvariantRefused(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := testkit.Product(t, dtype.F32, dtype.F32, 5, 64, 8192).WithRowInvariance()
	o, err := choose.OrderOf(&p, d.Info())
	if err != nil || o.Part == 0 || o.Part >= p.K {
		t.Fatalf("order %v, %v: want parts of K", o, err)
	}
	for _, c := range []struct{ kernel, tile string }{
		{"skinny", "8x32x128/8x4"}, {"naive", ""}, {"blocked", "64x64x8/8x4/4"}, {"blocked", "64x64x8/8x4/4*2"},
	} {
		if _, err := choose.Named(c.kernel, c.tile, &p, kernel.Align{}, d.Info()); !errors.Is(err, gemm.ErrUnsupported) ||
			!strings.Contains(err.Error(), "in a row-invariant product") {
			t.Errorf("kernel %s with tile %q: error %v", c.kernel, c.tile, err)
		}
	}
	parts := ints.CeilDiv(p.K, o.Part)
	for _, mark := range []string{"*", "+"} {
		tile := fmt.Sprintf("64x64x8/8x4/4%s%d", mark, parts)
		if _, err := choose.Named("blocked", tile, &p, kernel.Align{}, d.Info()); err != nil {
			t.Errorf("kernel blocked with tile %s: %v", tile, err)
		}
	}
}
