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
// has its rows in memory each warp takes one, with its lanes side by side along it;
// where it has its columns there, a block takes 32 rows of op(A), a lane each, and its
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

// sweepUnroll is how many elements a thread has under way.
const sweepUnroll = 8

func writeSweep(k *build.Kernel, c Config) {
	k.Threads(32, sweepWarps, 1)
	rows, cols := k.Param("rows", ptx.U64), k.Param("cols", ptx.U64)
	at, ld := k.Pointer("A", elements[c.In]).ReadOnly(), k.Param("ld", ptx.U64)
	vectors := k.Matrix(k.Pointer("vectors", ptx.F64).ReadOnly(), sweepVectors+1, cols, cols)
	out := k.Matrix(k.Pointer("out", ptx.F64), sweepVectors+2, rows, rows)
	lane, warp := k.To(ptx.U64, k.ThreadIdx(build.X)), k.To(ptx.U64, k.ThreadIdx(build.Y))
	block := k.To(ptx.U64, k.BlockIdx(build.X))

	// Each thread sums from one column of op(A) on, several apart.
	a, row := k.Matrix(at, rows, cols, ld), k.Mad(block, sweepWarps, warp)
	from, apart := lane, 32
	if c.TransA {
		a, row = k.Matrix(at, cols, rows, ld).T(), k.Mad(block, 32, lane)
		from, apart = warp, sweepWarps
	}
	row = k.Named("row", row)
	sums := k.Vars("sum", ptx.F64, sweepVectors+2, 0)
	k.If(k.Lt(row, rows), func() {
		k.ForUnrolled(0, k.CeilDiv(k.Sub(k.Max(cols, from), from), apart), sweepUnroll, func(n build.Reg) {
			col := k.Mad(n, apart, from)
			x := k.To(ptx.F64, a.Load(row, col))
			for v := range sweepVectors {
				k.FMA(sums[v], x, vectors.Load(v, col))
			}
			k.FMA(sums[sweepVectors], k.Abs(x), vectors.Load(sweepVectors, col))
			k.FMA(sums[sweepVectors+1], x, x)
		})
	})

	// One column more keeps the rows, of which each thread below reads one, apart.
	parts := k.Shared("parts", ptx.F64, sweepWarps*len(sums), 33)
	for n, sum := range sums {
		parts.Store(k.To(ptx.U32, k.Mad(warp, len(sums), n)), k.To(ptx.U32, lane), sum)
	}
	k.Barrier()
	if !c.TransA {
		// Lane n of a warp adds up sum n of its row.
		k.If(k.And(k.Lt(row, rows), k.Lt(lane, len(sums))), func() {
			total := k.Var("total", ptx.F64, 0)
			for n := range 32 {
				k.Set(total, k.Add(total, parts.Load(k.To(ptx.U32, k.Mad(warp, len(sums), lane)), n)))
			}
			out.Store(lane, row, total)
		})
		return
	}
	// Warp n adds up sum n of the block's 32 rows.
	k.If(k.And(k.Lt(row, rows), k.Lt(warp, len(sums))), func() {
		total := k.Var("total", ptx.F64, 0)
		for n := range sweepWarps {
			k.Set(total, k.Add(total, parts.Load(k.To(ptx.U32, k.Add(warp, n*len(sums))), k.To(ptx.U32, lane))))
		}
		out.Store(warp, row, total)
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
	results, err := d.Alloc(8 * (sweepVectors + 2) * rows)
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
		high := sweepWarps
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
		got := make([]float64, (sweepVectors+2)*rows)
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
