package exec

import (
	"context"
	"math"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// What sweeps have summed up of a product is compared on the device too, so that the host waits
// for a few numbers.

// judge compares each row's sums of C with the expected ones. A row's residual is the root mean
// square of the differences over the vectors. Each warp reports, of its rows, the one with the
// largest residual in units of its limit, the first of equals: that ratio, the row, the residual
// and the limit; and the largest error of an element that any of its rows may hide, relative to the
// row (Within in package ref). Where the limit is not finite, or the residual, the ratio is
// infinite.
//
// A Config has C's type as In, and the bias.
var judge = &kernel.Kernel{
	Name:         "judge",
	Adds:         "sums of a product's rows beside what they are to be",
	SM:           80,
	CheckTile:    func(kernel.Tile) error { return nil },
	BlockThreads: func(kernel.Tile) device.Dim3 { return device.Dim3{X: judgeThreads, Y: 1, Z: 1} },
	Write:        writeJudge,
}

const judgeThreads = 128

// judgeTells is the number of values that a warp reports.
const judgeTells = 5

func writeJudge(k *build.Kernel, c kernel.Config) {
	k.Threads(judgeThreads, 1, 1)
	k.MinBlocks(1)
	num := number(c.In)
	rows := k.Param("rows", ptx.U64)
	row := k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), judgeThreads, k.To(ptx.U64, k.ThreadIdx(build.X)))
	mine := k.Min(row, k.Sub(rows, 1)) // a row that is not there is the last once more
	sums := func(name string) build.Matrix {
		return k.Matrix(k.Pointer(name, num).ReadOnly(), sweepSums, rows, rows)
	}

	want := k.Vars("want", num, SweepVectors, 0)
	size := k.Var("size", ptx.F64, 0)
	for _, term := range []string{"product", "old"} {
		from, factor := sums(term), k.Param(term+"Factor", num)
		k.If(k.Ne(k.Param(term+"Counts", ptx.U32), 0), func() {
			for n := range want {
				k.FMA(want[n], factor, from.Load(n, mine))
			}
			if num == ptx.F64 {
				k.FMA(size, k.Abs(factor), from.Load(SweepVectors, mine))
			}
		})
	}
	switch c.Epilogue.Bias {
	case gemm.BiasCol: // which was swept as a matrix of one row
		swept := k.Pointer("bias", num).ReadOnly()
		for n := range want {
			k.Set(want[n], k.Add(want[n], swept.At(n).Load()))
		}
		if num == ptx.F64 {
			k.Set(size, k.Add(size, swept.At(SweepVectors).Load()))
		}
	case gemm.BiasRow:
		x := toNumber(k, k.Pointer("bias", kernel.PTXTypes[c.In]).ReadOnly().At(mine).Load(), c.In)
		totals := k.Pointer("totals", num).ReadOnly() // of the vectors, and the norm of ones
		for n := range want {
			k.FMA(want[n], x, totals.At(n).Load())
		}
		if num == ptx.F64 {
			k.FMA(size, k.Abs(x), totals.At(SweepVectors).Load())
		}
	}

	got := sums("C")
	var off [SweepVectors]build.Reg
	largest := k.Var("largest", ptx.F64, 0)
	for n := range want {
		d := k.Sub(got.Load(n, mine), want[n])
		if num == ptx.U32 {
			d = k.To(ptx.F64, k.Bits(ptx.S32, d))
		}
		d = k.Abs(d)
		off[n] = k.Select(k.Lt(d, math.Inf(1)), d, math.Inf(1)) // no NaN
		k.Set(largest, k.Max(largest, off[n]))
	}
	// Relative to the largest, squares do not overflow.
	squares := k.Var("squares", ptx.F64, 0)
	for _, d := range off {
		d = k.Div(d, largest)
		k.FMA(squares, d, d)
	}
	root := k.Fresh(ptx.F64)
	k.Do("sqrt.rn.f64", root, k.Mul(squares, 1.0/SweepVectors))
	usual := k.And(k.Gt(largest, 0.0), k.Lt(largest, math.Inf(1)))
	residual := k.Var("residual", ptx.F64, k.Select(usual, k.Mul(largest, root), largest))

	limit, hidden, norm := k.Var("limit", ptx.F64, 0), k.Var("hidden", ptx.F64, 0), k.Var("norm", ptx.F64, 0)
	if num == ptx.F64 {
		k.Set(norm, got.Load(SweepVectors, mine))
		k.Set(hidden, k.Mad(size, k.Param("ofSize", ptx.F64), k.Mul(norm, k.Param("ofNorm", ptx.F64))))
		k.Set(limit, k.Add(hidden, k.Param("least", ptx.F64)))
	}
	ratio := k.Var("ratio", ptx.F64, k.Div(residual, limit))
	k.Set(ratio, k.Select(k.Eq(residual, 0.0), 0.0, ratio))
	k.Set(hidden, k.Div(k.Mad(hidden, ratio, hidden), k.Max(size, norm)))
	finite := k.Eq(k.Sub(limit, limit), 0.0)
	k.Set(ratio, k.Select(finite, ratio, math.Inf(1)))
	k.Set(ratio, k.Select(k.Lt(row, rows), ratio, -1.0))
	within := k.Var("within", ptx.F64, k.Select(k.Gt(hidden, 0.0), hidden, 0.0)) // 0 of a row of zeros

	worst := [...]build.Reg{ratio, k.Var("worst", ptx.F64, k.To(ptx.F64, row)), residual, limit}
	for apart := 16; apart > 0; apart /= 2 {
		var other [len(worst)]build.Reg
		for n, x := range worst {
			other[n] = k.ShuffleXor(x, apart)
		}
		worse := k.Or(k.Gt(other[0], ratio), k.And(k.Eq(other[0], ratio), k.Lt(other[1], worst[1])))
		for n, x := range worst {
			k.Set(x, k.Select(worse, other[n], x))
		}
		k.Set(within, k.Max(within, k.ShuffleXor(within, apart)))
	}
	tells := [judgeTells]build.Reg{worst[0], worst[1], worst[2], worst[3], within}
	verdicts := k.Pointer("verdicts", ptx.F64)
	k.If(k.Eq(k.Rem(k.ThreadIdx(build.X), 32), 0), func() {
		for n, x := range tells {
			verdicts.At(k.Mad(k.Div(row, 32), judgeTells, n)).Store(x)
		}
	})
}

// Judgement is what [Backend.Judge] compares, of a C with so many rows, of a type: what
// [Backend.Sweep] has made of C, of A·B, of C as it was and of a bias of each column, as a row.
type Judgement struct {
	Rows int
	Type dtype.Type
	C    device.Ptr
	// Product and Old are multiplied by Alpha and Beta; the zero Ptr is none.
	Product, Old device.Ptr
	Alpha, Beta  float64
	Bias         gemm.BiasDim
	// OfBias are the sums of a bias of columns; of rows it is the bias itself, and Totals are the
	// vectors' values, added up, with √N behind them.
	OfBias, Totals device.Ptr
	// A row's limit is OfSize·size + OfNorm·norm + Least.
	OfSize, OfNorm, Least float64
}

// Verdict is the residual of the row with the largest in units of its limit, if all rows' limits
// are finite, and the largest error of an element that any row may hide, relative to the row.
type Verdict struct {
	Finite          bool
	Row             int
	Residual, Limit float64
	Within          float64
}

// JudgeBytes is how much memory of the device the verdicts on so many rows take.
func JudgeBytes(rows int) int {
	return 8 * judgeTells * kernel.CeilDiv(rows, judgeThreads) * judgeThreads / 32
}

// Judge asks for the comparison, waits for it and uses [JudgeBytes] of memory at an address. The
// errors are those of [Backend.Sweep].
func (b *Backend) Judge(ctx context.Context, j *Judgement, at device.Ptr) (v Verdict, err error) {
	num := number(j.Type)
	var args device.Params
	args.U64(uint64(j.Rows))
	for _, term := range []struct {
		sums   device.Ptr
		factor float64
	}{{j.Product, j.Alpha}, {j.Old, j.Beta}} {
		args.Ptr(term.sums)
		if num == ptx.U32 {
			args.U32(uint32(int64(term.factor)))
		} else {
			args.F64(term.factor)
		}
		counts := uint32(1)
		if term.sums == 0 {
			counts = 0
		}
		args.U32(counts)
	}
	if j.Bias != gemm.BiasNone {
		args.Ptr(j.OfBias)
	}
	if j.Bias == gemm.BiasRow {
		args.Ptr(j.Totals)
	}
	args.Ptr(j.C)
	if num == ptx.F64 {
		args.F64(j.OfSize)
		args.F64(j.OfNorm)
		args.F64(j.Least)
	}
	args.Ptr(at)
	c := kernel.Config{In: j.Type, Out: dtype.F64, Epilogue: gemm.Epilogue{Bias: j.Bias}}
	if err := b.launch(ctx, judge, c, kernel.CeilDiv(j.Rows, judgeThreads), args); err != nil {
		return v, err
	}
	told := make([]float64, JudgeBytes(j.Rows)/8)
	if err := b.Device.CopyOut(ctx, dtype.Bytes(told), at, device.Whole(8*len(told))); err != nil {
		return v, Sentinel(err)
	}
	worst := math.Inf(-1)
	within := 0.0
	for ; len(told) > 0; told = told[judgeTells:] {
		within = max(within, told[4])
		if told[0] > worst {
			worst = told[0]
			v = Verdict{Finite: told[3]-told[3] == 0, Row: int(told[1]), Residual: told[2], Limit: told[3]}
		}
	}
	v.Within = within
	return v, nil
}
