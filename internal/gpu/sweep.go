package gpu

import (
	"context"
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A product is verified by matrices times vectors, in one reading of each matrix
// (Freivalds; package ref says how). It is limited by memory: 3·N² elements are read for
// the product's N³ multiply-adds.

// sweepVectors is how many vectors a launch multiplies by.
const sweepVectors = 4

// sweep multiplies a matrix by vectors, in float64. A block has eight warps. Where op(A)
// has its rows in memory each warp takes some, with its lanes side by side along them, so
// that what it has loaded of the vectors, many times the bytes of an element, serves them
// all; where it has its columns there, a block takes 32 rows of op(A), a lane each, and its
// warps share out the columns. Either way a warp reads consecutive elements, and what it
// sums is put together in the lanes' or the warps' order.
//
// Its arguments are those of a product op(A)·B with K columns of op(A), B of
// sweepVectors + 1 rows of K, and C of sweepVectors + 2 rows of M: the vectors and the
// weights, and what comes out for them.
var sweep = &Kernel{
	Name:    "sweep",
	Adds:    "a matrix times vectors, to verify a product by",
	SM:      75,
	check:   func(Shape) error { return nil },
	threads: func(Shape) device.Dim3 { return device.Dim3{X: 32, Y: sweepWarps, Z: 1} },
	write:   writeSweep,
}

const sweepWarps = 8

// sweepRows is how many rows of op(A) a warp takes that has them in memory.
const sweepRows = 4

// sweepSums is how many sums there are of a row.
const sweepSums = sweepVectors + 2

// sweepUnroll is how many columns a thread has under way.
const sweepUnroll = 8

func writeSweep(k *build.Kernel, c Config) {
	k.Threads(32, sweepWarps, 1)
	rows, cols := k.Param("rows", ptx.U64), k.Param("cols", ptx.U64)
	at, ld := k.Pointer("A", elements[c.In]).ReadOnly(), k.Param("ld", ptx.U64)
	vectors := k.Matrix(k.Pointer("vectors", ptx.F64).ReadOnly(), sweepVectors+1, cols, cols)
	out := k.Matrix(k.Pointer("out", ptx.F64), sweepSums, rows, rows)
	lane, warp := k.To(ptx.U64, k.ThreadIdx(build.X)), k.To(ptx.U64, k.ThreadIdx(build.Y))
	block := k.To(ptx.U64, k.BlockIdx(build.X))

	// Each thread sums parts of some rows, from one column of op(A) on, several apart.
	a, first, mine := k.Matrix(at, rows, cols, ld), k.Mul(k.Mad(block, sweepWarps, warp), sweepRows), sweepRows
	from, apart := lane, 32
	if c.TransA {
		a, first, mine = k.Matrix(at, cols, rows, ld).T(), k.Mad(block, 32, lane), 1
		from, apart = warp, sweepWarps
	}
	first = k.Named("row", first)
	row, sums := make([]build.Reg, mine), make([][]build.Reg, mine)
	for r := range sums {
		row[r] = k.Min(k.Add(first, r), k.Sub(rows, 1)) // a row that is not there is the last once more
		sums[r] = k.Vars(fmt.Sprintf("sum%d_", r), ptx.F64, sweepSums, 0)
	}
	k.If(k.Lt(first, rows), func() {
		k.ForUnrolled(0, k.CeilDiv(k.Sub(k.Max(cols, from), from), apart), sweepUnroll, func(n build.Reg) {
			col := k.Mad(n, apart, from)
			var v [sweepVectors + 1]build.Reg
			for i := range v {
				v[i] = vectors.Load(i, col)
			}
			for r, sum := range sums {
				x := k.To(ptx.F64, a.Load(row[r], col))
				for i := range sweepVectors {
					k.FMA(sum[i], x, v[i])
				}
				k.FMA(sum[sweepVectors], k.Abs(x), v[sweepVectors])
				k.FMA(sum[sweepVectors+1], x, x)
			}
		})
	})

	if !c.TransA {
		// Half of a warp's lanes put their sums side by side, to which the others' were
		// added; then lane n adds up number n of them. One column more keeps what each
		// lane reads apart.
		const all, half = sweepRows * sweepSums, 16
		parts := k.Shared("parts", ptx.F64, sweepWarps*all, half+1)
		for r := range sums {
			for n, sum := range sums[r] {
				k.Set(sum, k.Add(sum, k.ShuffleXor(sum, half)))
				k.If(k.Lt(lane, half), func() {
					parts.Store(k.To(ptx.U32, k.Mad(warp, all, r*sweepSums+n)), k.To(ptx.U32, lane), sum)
				})
			}
		}
		k.Barrier()
		row := k.Add(first, k.Div(lane, sweepSums))
		k.If(k.And(k.Lt(row, rows), k.Lt(lane, all)), func() {
			total := k.Var("total", ptx.F64, 0)
			for n := range half {
				k.Set(total, k.Add(total, parts.Load(k.To(ptx.U32, k.Mad(warp, all, lane)), n)))
			}
			out.Store(k.Rem(lane, sweepSums), row, total)
		})
		return
	}
	// Warp n adds up sum n of the block's 32 rows.
	parts := k.Shared("parts", ptx.F64, sweepWarps*sweepSums, 33)
	for n, sum := range sums[0] {
		parts.Store(k.To(ptx.U32, k.Mad(warp, sweepSums, n)), k.To(ptx.U32, lane), sum)
	}
	k.Barrier()
	k.If(k.And(k.Lt(first, rows), k.Lt(warp, sweepSums)), func() {
		total := k.Var("total", ptx.F64, 0)
		for n := range sweepWarps {
			k.Set(total, k.Add(total, parts.Load(k.To(ptx.U32, k.Add(warp, n*sweepSums)), k.To(ptx.U32, lane))))
		}
		out.Store(warp, first, total)
	})
}

// sweeps are the types of matrices that the kernel reads.
var sweeps = []dtype.Type{dtype.F64, dtype.F32, dtype.F16, dtype.BF16}

// Sweep multiplies op(matrix), which is at an address of the device, by vectors with one value for each of its columns. What comes out has one for
// each row, and in size Σ|x|·weight or, without weights, Σx² of the row: neither is
// finite where an element is not. All is computed in float64. The errors are those of
// [Plan.Run], and ErrUnsupported for integers and the smallest floating-point types.
func (b *Backend) Sweep(ctx context.Context, at device.Ptr, l gemm.Layout, vectors [][]float64, weights []float64) (out [][]float64, size []float64, err error) {
	rows, cols := l.OpRows(), l.OpCols()
	size = make([]float64, rows)
	for range vectors {
		out = append(out, make([]float64, rows))
	}
	if rows == 0 || cols == 0 {
		return out, size, ctx.Err()
	}
	if !slices.Contains(sweeps, l.Type) {
		return nil, nil, fmt.Errorf("%w: a matrix of %v times vectors", gemm.ErrUnsupported, l.Type)
	}
	f, err := b.function(ctx, sweep, Config{In: l.Type, Out: dtype.F64, TransA: l.Trans, Lines: b.Device.Info().Emulated})
	if err != nil {
		return nil, nil, Sentinel(err)
	}
	d := b.Device
	in, err := d.Alloc(8 * (sweepVectors + 1) * cols)
	if err != nil {
		return nil, nil, Sentinel(err)
	}
	defer func() { err = device.Join(err, Sentinel(d.Free(in))) }()
	results, err := d.Alloc(8 * sweepSums * rows)
	if err != nil {
		return nil, nil, Sentinel(err)
	}
	defer func() { err = device.Join(err, Sentinel(d.Free(results))) }()

	for first := 0; first < len(vectors); first += sweepVectors {
		group := vectors[first:min(first+sweepVectors, len(vectors))]
		packed := make([]float64, (sweepVectors+1)*cols)
		for n, v := range group {
			copy(packed[n*cols:], v)
		}
		copy(packed[sweepVectors*cols:], weights)
		if err := d.CopyIn(ctx, in, dtype.Bytes(packed), whole(len(packed))); err != nil {
			return nil, nil, Sentinel(err)
		}
		high := sweepWarps * sweepRows
		if l.Trans {
			high = 32
		}
		var args device.Params
		args.U64(uint64(rows))
		args.U64(uint64(cols))
		args.Ptr(at)
		args.U64(uint64(l.LD))
		args.Ptr(in)
		args.Ptr(results)
		launch := device.Launch{Grid: device.Dim3{X: ceilDiv(rows, high), Y: 1, Z: 1}, Block: sweep.threads(Shape{}), Params: args.Bytes()}
		if err := d.Launch(ctx, f, launch); err != nil {
			return nil, nil, Sentinel(err)
		}
		got := make([]float64, sweepSums*rows)
		if err := d.CopyOut(ctx, dtype.Bytes(got), results, whole(len(got))); err != nil {
			return nil, nil, Sentinel(err)
		}
		for n := range group {
			copy(out[first+n], got[n*rows:])
		}
		if weights != nil {
			copy(size, got[sweepVectors*rows:])
		} else {
			copy(size, got[(sweepVectors+1)*rows:])
		}
	}
	return out, size, nil
}

// whole is a copy of n float64 values in one piece.
func whole(n int) device.Rows { return device.Rows{Count: 1, Width: 8 * n, Host: 8 * n, Device: 8 * n} }
