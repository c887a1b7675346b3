package gpu

import (
	"context"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/verify"
	"tilework/ptx"
	"tilework/ptx/build"
)

// residualCheck compares C·x of each row with the expected C·x, so that the host receives only a
// few numbers. Each warp reports the row with the largest ratio of its residual to its threshold,
// the first of equals: the ratio, the row, the residual and the threshold. It also reports the
// largest Within of its rows; see [verify.Report]. The ratio is infinite if the threshold is not
// finite or if the residual is not.
//
// In of the Config is C's type.
var residualCheck = &kernel.Kernel{
	Name:         "residual_check",
	Adds:         "compares C times vectors with the expected result, row by row",
	SM:           80,
	BlockThreads: func(kernel.Tile) device.Dim3 { return device.Dim3{X: residualThreads, Y: 1, Z: 1} },
	Write:        writeResidualCheck,
}

const residualThreads = 128

// warpResults is the number of values that a warp reports.
const warpResults = 5

// residualParams lists the parameters of [residualCheck].
var residualParams = slices.Concat(
	[]kernel.Param[residuals]{
		{Name: "rows", Type: kernel.TypeU64, Value: func(r *residuals) uint64 { return uint64(r.rows) }},
	},
	addendParams("AB", func(r *residuals) (device.Ptr, float64) { return r.ab, r.alpha }),
	addendParams("oldC", func(r *residuals) (device.Ptr, float64) { return r.old, r.beta }),
	[]kernel.Param[residuals]{
		{
			Name: "bias", Type: typeBias, Pointer: true,
			When:  func(c *kernel.Config) bool { return c.Epilogue.Bias != gemm.BiasNone },
			Value: func(r *residuals) uint64 { return uint64(r.bias) },
		},
		{
			Name: "totals", Type: typeNumber, Pointer: true,
			When:  func(c *kernel.Config) bool { return c.Epilogue.Bias == gemm.BiasRow },
			Value: func(r *residuals) uint64 { return uint64(r.totals) },
		},
		{Name: "C", Type: typeNumber, Pointer: true, Value: func(r *residuals) uint64 { return uint64(r.c) }},
	},
	thresholdParam("ofTerms", func(t *verify.Threshold) float64 { return t.OfTerms }),
	thresholdParam("ofNorm", func(t *verify.Threshold) float64 { return t.OfNorm }),
	thresholdParam("minThreshold", func(t *verify.Threshold) float64 { return t.Min }),
	[]kernel.Param[residuals]{
		{Name: "results", Type: kernel.TypeF64, Pointer: true, Value: func(r *residuals) uint64 { return uint64(r.results) }},
	},
)

// addendParams returns the parameters of an addend of C's product with the vectors: a pointer, a
// factor, and whether the addend is present.
func addendParams(name string, addend func(*residuals) (device.Ptr, float64)) []kernel.Param[residuals] {
	return []kernel.Param[residuals]{
		{Name: name, Type: typeNumber, Pointer: true, Value: func(r *residuals) uint64 {
			sums, _ := addend(r)
			return uint64(sums)
		}},
		{Name: name + "Factor", Type: typeNumber, Value: func(r *residuals) uint64 {
			_, factor := addend(r)
			if number(r.typ) == ptx.U32 {
				return uint64(uint32(int64(factor)))
			}
			return math.Float64bits(factor)
		}},
		{Name: name + "Present", Type: kernel.TypeU32, Value: func(r *residuals) uint64 {
			if sums, _ := addend(r); sums == 0 {
				return 0
			}
			return 1
		}},
	}
}

// thresholdParam returns the parameter for a coefficient of the threshold. Integers have none.
func thresholdParam(name string, coefficient func(*verify.Threshold) float64) []kernel.Param[residuals] {
	return []kernel.Param[residuals]{{
		Name: name, Type: kernel.TypeF64,
		When:  func(c *kernel.Config) bool { return number(c.In) == ptx.F64 },
		Value: func(r *residuals) uint64 { return math.Float64bits(coefficient(&r.threshold)) },
	}}
}

// typeBias returns the type of a row bias or of the products of a column bias.
func typeBias(c *kernel.Config) ptx.Type {
	if c.Epilogue.Bias == gemm.BiasRow {
		return typeElement(c)
	}
	return typeNumber(c)
}

func writeResidualCheck(b *build.Kernel, c kernel.Config) {
	k := &residualWriter{Kernel: b, config: c, num: number(c.In)}
	k.params = kernel.Declarer[residuals]{Kernel: b, Config: &k.config, Params: residualParams}
	k.Threads(residualThreads, 1, 1)
	k.MinBlocks(1)
	k.rows = k.params.Value("rows")
	k.row = k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), residualThreads, k.To(ptx.U64, k.ThreadIdx(build.X)))
	k.mine = k.Min(k.row, k.Sub(k.rows, 1))

	want, terms := k.expected()
	got := k.sums("C")
	residual := k.residual(got, want)
	ratio, threshold, within := k.compare(residual, terms, got)
	k.report(ratio, residual, threshold, within)
}

// residualWriter emits a residual check, in which each thread has a row of C.
type residualWriter struct {
	*build.Kernel
	config kernel.Config
	params kernel.Declarer[residuals]
	num    ptx.Type // of the arithmetic
	rows   build.Reg
	row    build.Reg // the thread's row
	mine   build.Reg // the same, or the last row for threads without one
}

// sums returns the products of a matrix with the vectors, and the norms of its rows.
func (k *residualWriter) sums(name string) build.Matrix {
	return k.Matrix(k.params.Pointer(name).ReadOnly(), rowSums, k.rows, k.rows)
}

// expected returns the products of the row with the vectors that a correct C has, and the size of
// their terms.
func (k *residualWriter) expected() (want []build.Reg, terms build.Reg) {
	want = k.Vars("want", k.num, verify.NumVectors, 0)
	terms = k.Var("size", ptx.F64, 0)
	for _, addend := range []string{"AB", "oldC"} {
		from, factor := k.sums(addend), k.params.Value(addend+"Factor")
		k.If(k.Ne(k.params.Value(addend+"Present"), 0), func() {
			for n := range want {
				k.FMA(want[n], factor, from.Load(n, k.mine))
			}
			if k.num == ptx.F64 {
				k.FMA(terms, k.Abs(factor), from.Load(verify.NumVectors, k.mine))
			}
		})
	}
	switch k.config.Epilogue.Bias {
	case gemm.BiasCol: // multiplied by the vectors as a matrix of one row
		products := k.params.Pointer("bias").ReadOnly()
		for n := range want {
			k.Set(want[n], k.Add(want[n], products.At(n).Load()))
		}
		if k.num == ptx.F64 {
			k.Set(terms, k.Add(terms, products.At(verify.NumVectors).Load()))
		}
	case gemm.BiasRow:
		x := toNumber(k.Kernel, k.params.Pointer("bias").ReadOnly().At(k.mine).Load(), k.config.In)
		totals := k.params.Pointer("totals").ReadOnly() // sums of the vectors' elements, and √N
		for n := range want {
			k.FMA(want[n], x, totals.At(n).Load())
		}
		if k.num == ptx.F64 {
			k.FMA(terms, k.Abs(x), totals.At(verify.NumVectors).Load())
		}
	}
	return want, terms
}

// residual returns the root mean square of the differences between the products of C and those
// that are wanted. It is infinite if one of them is infinite or NaN.
func (k *residualWriter) residual(got build.Matrix, want []build.Reg) build.Reg {
	var off [verify.NumVectors]build.Reg
	largest := k.Var("largest", ptx.F64, 0)
	for n := range want {
		d := k.Sub(got.Load(n, k.mine), want[n])
		if k.num == ptx.U32 {
			d = k.To(ptx.F64, k.Bits(ptx.S32, d))
		}
		d = k.Abs(d)
		off[n] = k.Select(k.Lt(d, math.Inf(1)), d, math.Inf(1)) // replaces NaN
		k.Set(largest, k.Max(largest, off[n]))
	}
	// The squares of quotients by the largest do not overflow.
	squares := k.Var("squares", ptx.F64, 0)
	for _, d := range off {
		d = k.Div(d, largest)
		k.FMA(squares, d, d)
	}
	root := k.Fresh(ptx.F64)
	k.Do("sqrt.rn.f64", root, k.Mul(squares, 1.0/verify.NumVectors))
	usual := k.And(k.Gt(largest, 0.0), k.Lt(largest, math.Inf(1)))
	return k.Var("residual", ptx.F64, k.Select(usual, k.Mul(largest, root), largest))
}

// compare returns the ratio of the residual to its threshold, the threshold, and Within. The ratio
// is -1 for threads without a row.
func (k *residualWriter) compare(residual, terms build.Reg, got build.Matrix) (ratio, threshold, within build.Reg) {
	threshold, hidden, norm := k.Var("limit", ptx.F64, 0), k.Var("hidden", ptx.F64, 0), k.Var("norm", ptx.F64, 0)
	if k.num == ptx.F64 {
		k.Set(norm, got.Load(verify.NumVectors, k.mine))
		k.Set(hidden, k.Mad(terms, k.params.Value("ofTerms"), k.Mul(norm, k.params.Value("ofNorm"))))
		k.Set(threshold, k.Add(hidden, k.params.Value("minThreshold")))
	}
	ratio = k.Var("ratio", ptx.F64, k.Div(residual, threshold))
	k.Set(ratio, k.Select(k.Eq(residual, 0.0), 0.0, ratio))
	k.Set(hidden, k.Div(k.Mad(hidden, ratio, hidden), k.Max(terms, norm)))
	finite := k.Eq(k.Sub(threshold, threshold), 0.0)
	k.Set(ratio, k.Select(finite, ratio, math.Inf(1)))
	k.Set(ratio, k.Select(k.Lt(k.row, k.rows), ratio, -1.0))
	within = k.Var("within", ptx.F64, k.Select(k.Gt(hidden, 0.0), hidden, 0.0)) // 0 for a row of zeros
	return ratio, threshold, within
}

// report stores the values of the row with the largest ratio of each warp, and the largest Within.
func (k *residualWriter) report(ratio, residual, threshold, within build.Reg) {
	worst := [...]build.Reg{ratio, k.Var("worst", ptx.F64, k.To(ptx.F64, k.row)), residual, threshold}
	for distance := 16; distance > 0; distance /= 2 {
		var other [len(worst)]build.Reg
		for n, x := range worst {
			other[n] = k.ShuffleXor(x, distance)
		}
		worse := k.Or(k.Gt(other[0], ratio), k.And(k.Eq(other[0], ratio), k.Lt(other[1], worst[1])))
		for n, x := range worst {
			k.Set(x, k.Select(worse, other[n], x))
		}
		k.Set(within, k.Max(within, k.ShuffleXor(within, distance)))
	}
	results := [warpResults]build.Reg{worst[0], worst[1], worst[2], worst[3], within}
	out := k.params.Pointer("results")
	k.If(k.Eq(k.Rem(k.ThreadIdx(build.X), 32), 0), func() {
		for n, x := range results {
			out.At(k.Mad(k.Div(k.row, 32), warpResults, n)).Store(x)
		}
	})
}

// residuals holds the operands of a residual check of a C with the given number of rows and type.
// Products are the outputs of [multiply].
type residuals struct {
	rows int
	typ  dtype.Type
	c    device.Ptr // product of C
	// ab and old are the products of A·B and of the old C, or 0. They are multiplied by alpha and
	// beta.
	ab, old     device.Ptr
	alpha, beta float64
	biasDim     gemm.BiasDim
	// bias is the product of a column bias, as a matrix of one row, or a row bias itself. totals
	// has the sums of the vectors' elements and √N, for a row bias.
	bias, totals device.Ptr
	threshold    verify.Threshold
	results      device.Ptr // [resultBytes] of memory for the kernel's results
}

// resultBytes returns the memory that the results of a residual check take.
func resultBytes(rows int) int {
	return 8 * warpResults * kernel.Tiles(rows, residualThreads) * residualThreads / 32
}

// check runs the residual check and waits for it. worst has the row with the largest ratio, and the
// largest Within of all rows. It is valid if finite reports that all thresholds are finite. The
// errors are those of [multiply].
func (r *residuals) check(
	ctx context.Context, b *exec.Backend,
) (worst verify.RowResidual, finite bool, err error) {
	c := kernel.Config{In: r.typ, Out: dtype.F64, Epilogue: gemm.Epilogue{Bias: r.biasDim}}
	blocks := kernel.Tiles(r.rows, residualThreads)
	if err := launch(ctx, b, residualCheck, c, blocks, residualParams, r); err != nil {
		return worst, false, err
	}
	results := make([]float64, resultBytes(r.rows)/8)
	if err := b.Device.CopyOut(ctx, dtype.Bytes(results), r.results, device.Whole(8*len(results))); err != nil {
		return worst, false, err
	}
	ratio, within := math.Inf(-1), 0.0
	for ; len(results) > 0; results = results[warpResults:] {
		within = max(within, results[4])
		if results[0] > ratio {
			ratio = results[0]
			worst = verify.RowResidual{Row: int(results[1]), Residual: results[2], Threshold: results[3]}
			finite = results[3]-results[3] == 0
		}
	}
	worst.Within = within
	return worst, finite, nil
}
