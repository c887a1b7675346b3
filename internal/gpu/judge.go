package gpu

import (
	"context"
	"math"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// What sweeps have summed up of a product is compared on the device too, so that the host waits
// for a few numbers.

// judge compares each row's sums of C with what they are to be. Each warp tells of its rows the one
// whose residual, the largest of the vectors', is the most in units of its limit, the first of
// equals: that ratio, the row, the residual and the limit. Where the limit is not finite, or the
// residual, the ratio is infinite.
//
// A Config has C's type as In, and the bias.
var judge = &Kernel{
	Name:    "judge",
	Adds:    "sums of a product's rows beside what they are to be",
	SM:      80,
	check:   func(Shape) error { return nil },
	threads: func(Shape) device.Dim3 { return device.Dim3{X: judgeThreads, Y: 1, Z: 1} },
	write:   writeJudge,
}

const judgeThreads = 128

// judgeTells is how many numbers a warp tells.
const judgeTells = 4

func writeJudge(k *build.Kernel, c Config) {
	k.Threads(judgeThreads, 1, 1)
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
		x := toNumber(k, k.Pointer("bias", elements[c.In]).ReadOnly().At(mine).Load(), c.In)
		totals := k.Pointer("totals", num).ReadOnly() // of the vectors, and the norm of ones
		for n := range want {
			k.FMA(want[n], x, totals.At(n).Load())
		}
		if num == ptx.F64 {
			k.FMA(size, k.Abs(x), totals.At(SweepVectors).Load())
		}
	}

	got := sums("C")
	residual := k.Var("residual", ptx.F64, 0)
	limit := k.Var("limit", ptx.F64, 0)
	for n := range want {
		off := k.Sub(got.Load(n, mine), want[n])
		if num == ptx.U32 {
			off = k.To(ptx.F64, k.Bits(ptx.S32, off))
		}
		off = k.Abs(off)
		k.Set(residual, k.Max(residual, k.Select(k.Lt(off, math.Inf(1)), off, math.Inf(1)))) // no NaN
	}
	if num == ptx.F64 {
		repeats := k.Pointer("repeats", ptx.F64).ReadOnly()
		share := k.Min(repeats.Load(), repeats.At(1).Load())
		ofSize := k.Mad(share, k.Param("ofRepeats", ptx.F64), k.Param("ofSize", ptx.F64))
		ofNorm := k.Mul(got.Load(SweepVectors, mine), k.Param("ofNorm", ptx.F64))
		k.Set(limit, k.Add(k.Mad(ofSize, size, ofNorm), k.Param("least", ptx.F64)))
	}
	ratio := k.Var("ratio", ptx.F64, k.Div(residual, limit))
	k.Set(ratio, k.Select(k.Eq(residual, 0.0), 0.0, ratio))
	finite := k.Eq(k.Sub(limit, limit), 0.0)
	k.Set(ratio, k.Select(finite, ratio, math.Inf(1)))
	k.Set(ratio, k.Select(k.Lt(row, rows), ratio, -1.0))

	tells := [judgeTells]build.Reg{ratio, k.Var("worst", ptx.F64, k.To(ptx.F64, row)), residual, limit}
	for apart := 16; apart > 0; apart /= 2 {
		var other [judgeTells]build.Reg
		for n, x := range tells {
			other[n] = k.ShuffleXor(x, apart)
		}
		worse := k.Or(k.Gt(other[0], ratio), k.And(k.Eq(other[0], ratio), k.Lt(other[1], tells[1])))
		for n, x := range tells {
			k.Set(x, k.Select(worse, other[n], x))
		}
	}
	verdicts := k.Pointer("verdicts", ptx.F64)
	k.If(k.Eq(k.Rem(k.ThreadIdx(build.X), 32), 0), func() {
		for n, x := range tells {
			verdicts.At(k.Mad(k.Div(row, 32), judgeTells, n)).Store(x)
		}
	})
}

// repeats counts how many of some elements of op(A), of which each thread draws one, equal the next
// one in their row and are not zero; in a second block, of op(B) and columns.
var repeats = &Kernel{
	Name:    "repeats",
	Adds:    "the share of some elements that equal their neighbours",
	SM:      80,
	check:   func(Shape) error { return nil },
	threads: func(Shape) device.Dim3 { return device.Dim3{X: repeatsProbes, Y: 1, Z: 1} },
	write:   writeRepeats,
	waits:   true,
}

const repeatsProbes = 1024

func writeRepeats(k *build.Kernel, c Config) {
	k.Threads(repeatsProbes, 1, 1)
	tid, block := k.ThreadIdx(build.X), k.BlockIdx(build.X)
	shares, seed := k.Pointer("shares", ptx.F64), k.Param("seed", ptx.U64)
	random := k.Add(seed, k.To(ptx.U64, k.Mad(block, repeatsProbes, tid)))
	for range 3 { // until all bits count
		const odd = 0x2545f4914f6cdd1d
		random = k.Mul(random, odd)
		random = k.Xor(random, k.Shr(random, 32))
	}
	size := c.In.Size()
	elem := raw[size]
	equal := k.Var("equal", ptx.Pred, k.Eq(tid, repeatsProbes))
	for n, name := range []string{"A", "B"} {
		p := k.Pointer(name, elem).ReadOnly()
		param := func(what string) build.Reg { return k.Param(what+name, ptx.U64) }
		rows, cols, down, right, next := param("rows"), param("cols"), param("down"), param("right"), param("next")
		k.If(k.And(k.Eq(block, n), k.And(k.Ne(rows, 0), k.Ne(cols, 0))), func() {
			row, col := k.Rem(k.Shr(random, 32), rows), k.Rem(k.And(random, 1<<32-1), cols)
			at := p.At(k.Mad(row, down, k.Mul(col, right)))
			x, y := at.Load(), at.At(next).Load()
			k.Set(equal, k.And(k.Eq(x, y), k.Ne(k.And(x, int(1<<(8*size-1)-1)), 0)))
		})
	}
	count := k.Fresh(ptx.U32)
	k.Do("bar.red.popc.u32", count, 0, equal)
	if c.Overlaps {
		k.AfterGrids() // here, as it is launched behind what has waited for A and B already
	}
	k.If(k.Eq(tid, 0), func() { shares.At(block).Store(k.Mul(k.To(ptx.F64, count), 1.0/repeatsProbes)) })
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
	// Repeats are what [Backend.Repeats] has counted.
	Repeats device.Ptr
	// A row's limit is (OfSize + share·OfRepeats)·size + OfNorm·norm + Least.
	OfSize, OfRepeats, OfNorm, Least float64
}

// Verdict is of the row with the largest residual in units of its limit, if that is finite in
// each row.
type Verdict struct {
	Finite          bool
	Row             int
	Residual, Limit float64
}

// JudgeBytes is how much memory of the device the verdicts on so many rows take.
func JudgeBytes(rows int) int {
	return 8 * judgeTells * ceilDiv(rows, judgeThreads) * judgeThreads / 32
}

// RepeatsBytes is how much memory of the device Repeats fills.
const RepeatsBytes = 16

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
		args.Ptr(j.Repeats)
		args.F64(j.OfRepeats)
		args.F64(j.OfSize)
		args.F64(j.OfNorm)
		args.F64(j.Least)
	}
	args.Ptr(at)
	c := Config{In: j.Type, Out: dtype.F64, Epilogue: gemm.Epilogue{Bias: j.Bias}}
	if err := b.launch(ctx, judge, c, ceilDiv(j.Rows, judgeThreads), args); err != nil {
		return v, err
	}
	told := make([]float64, JudgeBytes(j.Rows)/8)
	if err := b.Device.CopyOut(ctx, dtype.Bytes(told), at, device.Whole(8*len(told))); err != nil {
		return v, Sentinel(err)
	}
	worst := math.Inf(-1)
	for ; len(told) > 0; told = told[judgeTells:] {
		if told[0] > worst {
			worst = told[0]
			v = Verdict{Finite: told[3]-told[3] == 0, Row: int(told[1]), Residual: told[2], Limit: told[3]}
		}
	}
	return v, nil
}

// Repeats asks for the share of op(A)'s and of op(B)'s elements that equal the next one along a row, and
// along a column. It is asked for behind a sweep, beside which it runs, or a copy. The errors are those of [Backend.Sweep].
func (b *Backend) Repeats(ctx context.Context, seed uint64, of, by *Swept, shares device.Ptr) error {
	var args device.Params
	args.Ptr(shares)
	args.U64(seed)
	for n, x := range []*Swept{of, by} {
		l := x.Layout
		down, right, rows, cols := l.Index(1, 0), l.Index(0, 1), l.OpRows(), l.OpCols()
		next := right
		if n == 0 {
			cols--
		} else {
			rows, next = rows-1, down
		}
		args.Ptr(x.At)
		for _, v := range []int{rows, cols, down, right, next} {
			args.U64(uint64(max(v, 0)))
		}
	}
	return b.launch(ctx, repeats, Config{In: of.Layout.Type, Out: dtype.F64}, 2, args)
}
